"""`snapsure fit` and `snapsure predict`, as a person runs them."""

import json
import re
import textwrap

import numpy as np
import pytest
from filelock import FileLock

from snapsure import Monitor, Predictor, SnapshotStore, Threshold
from tests.support.answers import read_answers
from tests.support.commands import refuse, run

pytestmark = pytest.mark.slow

OUT = ("--out", "two.csv")
MODEL = ("--model", "mine:network")


@pytest.fixture(scope="module")
def place(tmp_path_factory, digits, deployed):
    """A folder where a table was scored, by the command line, and a predictor fitted."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "mine.py").write_text("from tests.support.network import digits_network as network\n")
    x, y = deployed.x.numpy(), deployed.y.numpy()
    np.savez(folder / "test.npz", x=x, y=y)
    np.save(folder / "new.npy", np.concatenate([x, x, x]))
    store = SnapshotStore(folder / "run")
    for epoch in digits.store.epochs:
        store.save(digits.store.load(epoch), epoch)
    given = ("--snapshots", "run", "--data", "test.npz", "--out", "scores")
    run("score", *MODEL, *given, cwd=folder)
    made = run("fit", "scores", *MODEL, "--risk", "0.5", "--out", "predictor", cwd=folder)
    (folder / "said.txt").write_text(made.stdout)
    return folder


@pytest.fixture
def predictor(place):
    return Predictor.load(place / "predictor", "tests.support.network:digits_network")


def predict(place, out, *more, data="test.npz", folder="predictor", **options):
    arguments = ("predict", folder, "--model", "mine:network", "--data", data, "--out", out)
    return run(*arguments, *more, cwd=place, **options)


def test_fit_says_what_it_chose_and_why(place):
    said = (place / "said.txt").read_text().splitlines()
    assert re.search(r", (one forward pass|\d+ forward passes) per answer$", said[0])
    assert said[1].startswith("Why: ")
    assert said[2].startswith("Accepts ")
    assert re.search(r"[Aa]t most 50% .* with probability 95%", said[2])
    assert said[3].startswith("Now: snapsure predict predictor --model mine:network --data")
    told = run("fit", "scores", "--trust", "--passes", "1", "--out", "other", "--json", cwd=place)
    content = json.loads(told.stdout)
    assert (content["estimator"], content["passes"]) == ("Final()", 1)
    assert content["threshold"] is None
    assert Predictor.load(place / "other", "tests.support.network:digits_network").passes == 1


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_predict(place, predictor, form):
    out = place / f"answers.{form}"
    first, second = predict(place, out.name).stdout.splitlines()
    rows = read_answers(out)
    if form == "csv":
        rows = [{k: json.loads(v) for k, v in row.items()} for row in rows]
    data = np.load(place / "test.npz")
    answer = predictor(data["x"])
    right, accepted = answer.label == data["y"], answer.accepted.sum()
    share = f"{accepted} accepted ({accepted / 797:.1%})"
    assert first == f"797 answers in answers.{form}: {share}"
    columns = [range(797), answer.label, answer.confidence, answer.accepted, right]
    names = ("row", "label", "confidence", "accepted", "right")
    for name, column in zip(names, columns, strict=True):
        assert [row[name] for row in rows] == list(column)
    accepted = answer.accepted
    assert first.startswith(f"797 answers in answers.{form}: {accepted.sum()} accepted")
    assert f" {(~right).sum()} of all answers" in second
    assert f" {(~right & accepted).sum()} of the accepted" in second
    assert not list(place.glob(f".partial-{out.name}*"))


# The command is killed at its fourth batch.
DYING = textwrap.dedent("""
    import itertools, os, signal
    from snapsure.predictor._answers import _Work

    append, turns = _Work.append, itertools.count(1)

    def dying(self, *arguments):
        if next(turns) == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        append(self, *arguments)

    _Work.append = dying
""")


def confidences_in(path):
    return [float(line.split(",")[2]) for line in path.read_text().splitlines()[1:]]


def test_killed_it_resumes(place, predictor):
    out, partial = place / "long.csv", place / ".partial-long.csv"
    predict(place, "long.csv", data="new.npy", before=DYING, status=None)
    assert not out.exists()
    assert partial.stat().st_size == 3 * 256 * 25
    kept = np.frombuffer(partial.read_bytes(), "<i8,<f8,?,<i8")["f1"].tolist()
    with partial.open("ab") as file:
        file.write(b"torn")
    predict(place, "long.csv", data="new.npy")
    assert confidences_in(out)[:768] == kept
    assert confidences_in(out) == predictor(np.load(place / "new.npy")).confidence.tolist()


def test_a_monitor_continues_from_run_to_run(place):
    def counts(data):
        more = ("--monitor", "new/state.json", "--json")
        return json.loads(predict(place, "new/folder/m.csv", *more, data=data).stdout)

    found = counts("test.npz")
    monitor = Monitor.load(place / "new" / "state.json")
    assert monitor.seen == 797
    assert monitor.labelled == found["accepted"]
    assert monitor.risk.estimate == found["accepted errors"] / found["accepted"]
    np.save(place / "noise.npy", np.random.default_rng(0).normal(size=(2000, 1, 8, 8)))
    assert any("shifted" in alarm for alarm in counts("noise.npy")["alarms"])
    assert Monitor.load(place / "new" / "state.json").seen == 2797


def test_answers_of_other_inputs_are_not_kept(place, predictor):
    x = np.concatenate([np.load(place / "new.npy")] * 2)
    np.save(place / "changing.npy", x)
    predict(place, "changed.csv", data="changing.npy", before=DYING, status=None)
    x[300:400] = 1 - x[300:400]  # none of the eight batches that tell most data apart
    np.save(place / "changing.npy", x)
    predict(place, "changed.csv", data="changing.npy")
    assert confidences_in(place / "changed.csv") == predictor(x).confidence.tolist()


# The command is killed when the monitor has counted all answers, before or after it cleans up.
FORGETTING = textwrap.dedent("""
    import os, signal
    from snapsure.predictor._answers import _Work

    whole = _Work.finish

    def finish(self):
        {clean}
        os.kill(os.getpid(), signal.SIGKILL)

    _Work.finish = finish
""")


@pytest.mark.parametrize("clean", ["pass", "whole(self)"])
def test_a_monitor_counts_answers_once(place, clean):
    more = ("--monitor", f"once-{clean[:4]}.json")
    predict(place, "once.csv", *more, before=FORGETTING.format(clean=clean), status=None)
    for _ in range(2):
        said = predict(place, "once.csv", *more).stdout
        monitor = Monitor.load(place / more[1])
        assert monitor.seen == 797
        assert "; ".join(map(str, monitor.alarms)) in said
        assert ("no alarm in 797 answers" in said) == (not monitor.alarms)
    run("fit", "scores", *MODEL, "--risk", "0.6", "--out", "looser", cwd=place)
    result = predict(place, "o.csv", *more, folder="looser", status=2)
    assert "--monitor must be of this predictor, got once" in result.stderr
    assert not (place / "o.csv").exists()


def test_answers_of_another_network_are_not_kept(place):
    """Killed, then resumed after the network's code changed."""
    module = place / "changing_net.py"
    code = (place / "mine.py").read_text()
    module.write_text(f"{code}\ndef make():\n    return network()\n")
    model = ("--model", "changing_net:make", "--data", "new.npy", "--out", "code.csv")
    run("predict", "predictor", *model, cwd=place, before=DYING, status=None)
    module.write_text(
        f"{code}\nfrom torch import nn\n\nclass Sequential(nn.Sequential):\n"
        "    def forward(self, x):\n        return super().forward(x / 2)\n"
        f"\ndef make():\n    made = network()\n    made.__class__ = Sequential\n    return made\n"
    )
    result = run("predict", "predictor", *model, cwd=place)
    assert "code or settings differ" in result.stderr
    changed = confidences_in(place / "code.csv")
    (place / "code.csv").unlink()
    run("predict", "predictor", *model, cwd=place)
    assert confidences_in(place / "code.csv") == changed


def test_thresholds_of_groups_need_the_groups(place, predictor):
    data = dict(np.load(place / "test.npz"))
    site = np.arange(len(data["x"])) % 3
    np.savez(place / "sites.npz", **data, site=site, code=site.astype("S1"))
    groups = {0: 0.9, 1: 0.1}  # site 2 is unknown, and goes to review
    predictor.threshold = Threshold(0.9, 0.5, risk=0.5, delta=0.05, groups=groups)
    predictor.save(place / "by-site")
    more = {"data": "sites.npz", "folder": "by-site"}
    assert "`groups` must hold the group" in predict(place, "s.csv", status=2, **more).stderr
    refused = ("nosuch", "which has x, y, site"), ("code", "got dtype |S1")
    for name, words in (*refused, ("site", "")):
        status = 2 if words else 0
        said = predict(place, "s.csv", "--group", name, status=status, **more)
        assert words in said.stderr
    accepted = [line.split(",")[3] for line in (place / "s.csv").read_text().splitlines()[1:]]
    confidence = np.array(confidences_in(place / "s.csv"))
    expected = confidence >= np.array([0.9, 0.1, np.inf])[site]
    assert accepted == [str(value).lower() for value in expected.tolist()]
    more["data"] = "new.npy"
    said = predict(place, "s.csv", "--group", "site", status=2, **more)
    assert "got 'site' for new.npy" in said.stderr


def test_refusals_are_one_sentence(place):
    with FileLock(place / ".partial-two.csv.lock"):
        said = refuse(*("predict", "predictor", "--trust", "--data", "test.npz"), *OUT, cwd=place)
    assert "`out` must have one writer, got a second for two.csv" in said
    for arguments, words in (
        (("predict", "predictor", "--data", "test.npz", "--out", "a.txt"), "got a.txt"),
        (("predict", "scores", "--data", "test.npz", *OUT), "must be a saved predictor"),
        (("predict", "predictor", "--data", "no.npy", *OUT), "--data must be a complete .npy"),
        (("predict", "predictor", "--data", "test.npz", *OUT), "model='mine:network'"),
        (("fit", "scores", *MODEL, "--risk", "0.0001", "--out", "p"), "`risk` must be"),
        (("fit", "scores", "--out", "p"), "add --model mine:network, or --trust"),
    ):
        assert words in refuse(*arguments, cwd=place)
    (place / "scores" / "source.json").rename(place / "source.json")
    said = refuse("fit", "scores", "--out", "p", cwd=place)
    assert re.search("--model must be given .*got none for scores", said)
    (place / "source.json").rename(place / "scores" / "source.json")
