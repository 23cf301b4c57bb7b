"""`snapsure distill`, as a person runs it, and on to a predictor."""

import json
import re

import numpy as np
import pytest

from snapsure import Predictor
from tests.support.commands import refused, run
from tests.support.problem import points, trained

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with snapshots and data, and a student made of them."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "mine.py").write_text(
        "from tests.support.problem import network\n"
        "import torch\n"
        "def shaken(x):\n"
        "    return x + 0.01 * torch.randn_like(x)\n"
    )
    trained(folder / "run")
    for name, n, seed in (("train", 300, 0), ("more", 100, 1), ("held-out", 400, 2)):
        x, y = points(n, seed)
        np.savez(folder / f"{name}.npz", x=x, **({} if name == "more" else {"y": y}))
    return folder


def distill(place, *options, out="student"):
    return run(
        *("distill", "--model", "mine:network", "--snapshots", "run", "--data", "train.npz"),
        *("--out", out, "--epochs", "3", "--batch-size", "50", *options),
        cwd=place,
    )


def test_from_snapshots_to_a_predictor_of_one_pass(place):
    more = ("--unlabelled", "more.npz", "--augment", "mine:shaken", "--held-out", "held-out.npz")
    made = distill(place, *more)
    assert made.returncode == 0, made.stderr
    told = r"epoch \d of 3: loss \d\.\d+, agrees with [\d.]+% of the targets, \d+ s left"
    assert len(re.findall(told, made.stderr)) == 3
    said = made.stdout.splitlines()
    assert said[0].startswith("The student answering itself: on 400 points the error is ")
    assert said[2] == (
        "the mean of the snapshots it learnt from takes 7. The price: one more training, of 3 "
        "epochs."
    )
    again = distill(place, *more, "--json")
    assert again.returncode == 0, again.stderr
    assert "epoch" not in again.stderr  # it is there already
    content = json.loads(again.stdout)
    assert (content["student"], content["snapshots"], content["points"]) == ("student", 7, 400)
    for answers, passes in (("itself", 1), ("final", 2)):
        scored = run(
            *("score", "--model", "mine:network", "--snapshots", f"student/{answers}"),
            *("--data", "held-out.npz", "--out", f"scores-{answers}"),
            cwd=place,
        )
        assert scored.returncode == 0, scored.stderr
        fitted = run("fit", f"scores-{answers}", "--out", f"predictor-{answers}", cwd=place)
        assert fitted.returncode == 0, fitted.stderr
        model = "tests.support.problem:network"
        assert Predictor.load(place / f"predictor-{answers}", model).passes <= passes


def test_bad_input(place):
    assert refused(distill(place, "--optimizer", "adam")) == (
        "--optimizer must be one of sgd, adamw, got 'adam': choose one"
    )
    assert refused(distill(place, "--learning-rate", "0")) == (
        "--learning-rate must be above 0, got 0.0: raise it"
    )
    assert distill(place, out="other").returncode == 0
    again = distill(place, "--seed", "9", out="other")
    assert "must hold a training of the same snapshots" in refused(again)
