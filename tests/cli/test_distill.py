"""`snapsure distill`, as a person runs it, and on to a predictor."""

import json
import re
import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import SGD, AdamW

from snapsure import Predictor, ScoreTable
from snapsure.errors import InvalidInput
from tests.support.commands import invoke_refused, refuse, run
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


def arguments(*options, out="student"):
    return (
        *("distill", "--model", "mine:network", "--snapshots", "run", "--data", "train.npz"),
        *("--out", out, "--epochs", "3", "--batch-size", "50", *options),
    )


def test_from_snapshots_to_a_predictor_of_one_pass(place):
    more = ("--unlabelled", "more.npz", "--augment", "mine:shaken", "--held-out", "held-out.npz")
    made = run(*arguments(*more), cwd=place)
    assert len(re.findall(r"epoch \d of 3: loss \d\.\d+, ", made.stderr)) == 3
    assert made.stdout.startswith("The student answering itself: on 400 ")
    assert "snapsure score --average" in made.stderr  # before it trains
    assert "The mean of the snapshots takes 7 passes." in made.stdout
    again = run(*arguments(*more, "--json"), cwd=place)
    assert "epoch" not in again.stderr  # it is there already
    assert "--average" not in again.stderr
    content = json.loads(again.stdout)
    assert (content["student"], content["snapshots"], content["points"]) == ("student", 7, 400)
    for answers, passes in (("itself", 1), ("final", 2)):
        run(
            *("score", "--model", "mine:network", "--snapshots", f"student/{answers}"),
            *("--data", "held-out.npz", "--out", f"scores-{answers}"),
            cwd=place,
        )
        run("fit", f"scores-{answers}", "--trust", "--out", f"predictor-{answers}", cwd=place)
        model = "tests.support.problem:network"
        assert Predictor.load(place / f"predictor-{answers}", model).passes <= passes


def test_averaged_weights_are_scored_and_may_answer(place):
    network = ("--model", "mine:network")
    score = ("score", *network, "--snapshots", "run", "--data", "held-out.npz", "--out", "any")
    fit = ("fit", "any", *network, "--answers", "any", "--out", "predictor-any")
    run(*score, cwd=place)
    assert "`table` must have scores of averaged weights" in refuse(*fit, cwd=place)
    run(*score, "--average", "--reference", "train.npz", cwd=place)
    assert ScoreTable.open(place / "any").averaged.labels.shape == (400,)
    made = json.loads(run(*fit, "--reference", "train.npz", "--json", cwd=place).stdout)
    assert "reason" in made


@pytest.mark.parametrize(
    ("options", "kind", "expected"),
    [
        ({}, SGD, {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 5e-4}),
        ({"optimizer": "adamw"}, AdamW, {"lr": 3e-4, "weight_decay": 5e-4}),
        ({"learning_rate": 0.1, "weight_decay": 0}, SGD, {"lr": 0.1, "weight_decay": 0}),
    ],
)
def test_the_optimizer(place, monkeypatch, options, kind, expected):
    def train(*given, optimizer, **more):
        made = optimizer([nn.Parameter(torch.zeros(1))])
        assert type(made) is kind
        assert made.defaults | expected == made.defaults
        raise InvalidInput("as expected")

    monkeypatch.chdir(place)
    monkeypatch.setattr("snapsure.training.Student", train)
    monkeypatch.setattr(sys, "path", [*sys.path])
    given = {"model": "mine:network", "snapshots": "run", "data": "train.npz", "out": "none"}
    assert invoke_refused("distill", **given, **options) == "as expected"


def test_bad_input(place):
    said = refuse(*arguments("--learning-rate", "0"), cwd=place)
    assert "--learning-rate must be above 0, got 0.0" in said
    run(*arguments(out="other"), cwd=place)
    said = refuse(*arguments("--seed", "9", out="other"), cwd=place)
    assert "must hold a training of the same snapshots" in said
