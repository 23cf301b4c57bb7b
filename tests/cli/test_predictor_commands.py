"""`snapsure fit` and `snapsure predict`, as a person runs them."""

import csv
import json
import re
import textwrap

import numpy as np
import pyarrow.parquet as pq
import pytest
from filelock import FileLock

from snapsure import Monitor, Predictor, SnapshotStore
from snapsure.predictor._answers import write_answers
from tests.support.commands import refuse, run

pytestmark = pytest.mark.slow

OUT = ("--out", "two.csv")


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
    run(
        *("score", "--model", "mine:network", "--snapshots", "run"),
        *("--data", "test.npz", "--out", "scores"),
        cwd=folder,
    )
    made = run("fit", "scores", "--risk", "0.5", "--out", "predictor", cwd=folder)
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
    assert "stays under 0.5, with probability 0.95" in said[2]
    assert said[3].startswith("Now: snapsure predict predictor --model mine:network --data")
    told = run("fit", "scores", "--passes", "1", "--out", "other", "--json", cwd=place)
    content = json.loads(told.stdout)
    assert (content["estimator"], content["passes"]) == ("Final()", 1)
    assert content["threshold"] is None
    assert Predictor.load(place / "other", "tests.support.network:digits_network").passes == 1


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_predict(place, predictor, form):
    out = place / f"answers.{form}"
    first, second = predict(place, out.name).stdout.splitlines()
    assert first.startswith(f"797 answers in answers.{form}: ")
    if form == "csv":
        with out.open() as file:
            rows = list(csv.DictReader(file))
        rows = [{k: json.loads(v) for k, v in row.items()} for row in rows]
    elif form == "jsonl":
        rows = [json.loads(line) for line in out.read_text().splitlines()]
    else:
        rows = pq.read_table(out).to_pylist()
    data = np.load(place / "test.npz")
    answer = predictor(data["x"])
    right = answer.label == data["y"]
    columns = [range(797), answer.label, answer.confidence, answer.accepted, right]
    names = ("row", "label", "confidence", "accepted", "right")
    for name, column in zip(names, columns, strict=True):
        assert [row[name] for row in rows] == list(column)
    assert f" {(~right).sum()} of all answers" in second
    assert not list(place.glob(f".partial-{out.name}*"))


# The command is killed at its fourth batch.
DYING = textwrap.dedent("""
    import itertools, os, signal
    from snapsure.predictor._answers import _Work

    append, turns = _Work.append, itertools.count(1)

    def dying(self, records):
        if next(turns) == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        append(self, records)

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


@pytest.mark.parametrize("name", ["", ".notes"])
def test_answers_damaged_on_the_way_are_made_again(place, predictor, name):
    out, data = place / "damaged.csv", np.load(place / "new.npy")
    write_answers(predictor, data, place / "whole.csv", "identity")

    def stop(done, total):
        if done >= 512:
            raise KeyboardInterrupt

    for bit in (3, 805, 2000):
        with pytest.raises(KeyboardInterrupt):
            write_answers(predictor, data, out, "identity", stop)
        partial = place / f".partial-damaged.csv{name}"
        content = bytearray(partial.read_bytes())
        content[bit // 8] ^= 1 << bit % 8
        partial.write_bytes(content)
        write_answers(predictor, data, out, "identity")
        assert out.read_text() == (place / "whole.csv").read_text()


def test_a_monitor_continues_from_run_to_run(place):
    def alarms(data):
        more = ("--monitor", "state.json", "--json")
        return json.loads(predict(place, "m.csv", *more, data=data).stdout)["alarms"]

    alarms("test.npz")
    monitor = Monitor.load(place / "state.json")
    assert monitor.seen == 797
    assert monitor.labelled > 0
    np.save(place / "noise.npy", np.random.default_rng(0).normal(size=(2000, 1, 8, 8)))
    assert any("shifted" in alarm for alarm in alarms("noise.npy"))
    assert Monitor.load(place / "state.json").seen == 2797


def test_answers_of_other_inputs_are_not_kept(place, predictor):
    x = np.concatenate([np.load(place / "new.npy")] * 2)
    np.save(place / "changing.npy", x)
    predict(place, "changed.csv", data="changing.npy", before=DYING, status=None)
    x[300:400] = 1 - x[300:400]  # none of the eight batches that tell most data apart
    np.save(place / "changing.npy", x)
    predict(place, "changed.csv", data="changing.npy")
    assert confidences_in(place / "changed.csv") == predictor(x).confidence.tolist()


# The command is killed when the monitor has counted all answers.
FORGETTING = textwrap.dedent("""
    import os, signal
    from snapsure.predictor._answers import _Work

    def finish(self):
        os.kill(os.getpid(), signal.SIGKILL)

    _Work.finish = finish
""")


def test_a_monitor_counts_answers_once(place):
    more = ("--monitor", "once.json")
    predict(place, "once.csv", *more, before=FORGETTING, status=None)
    predict(place, "once.csv", *more)
    assert Monitor.load(place / "once.json").seen == 797
    run("fit", "scores", "--risk", "0.6", "--out", "looser", cwd=place)
    result = predict(place, "o.csv", *more, folder="looser", status=2)
    assert "--monitor must be of this predictor, got once.json" in result.stderr
    assert not (place / "o.csv").exists()


def test_refusals_are_one_sentence(place):
    with FileLock(place / ".partial-two.csv.lock"):
        said = refuse(*("predict", "predictor", "--trust", "--data", "test.npz"), *OUT, cwd=place)
    assert "`out` must have one writer, got a second for two.csv" in said
    for arguments, words in (
        (("predict", "predictor", "--data", "test.npz", "--out", "a.txt"), "got a.txt"),
        (("predict", "scores", "--data", "test.npz", *OUT), "must be a saved predictor"),
        (("predict", "predictor", "--data", "no.npy", *OUT), "--data must be a complete .npy"),
        (("predict", "predictor", "--data", "test.npz", *OUT), "model='mine:network'"),
        (("fit", "scores", "--risk", "0.0001", "--out", "p"), "`risk` must be"),
    ):
        assert words in refuse(*arguments, cwd=place)
    (place / "scores" / "source.json").rename(place / "source.json")
    said = refuse("fit", "scores", "--out", "p", cwd=place)
    assert "--model must be given" in said
    assert "got none for scores" in said
    (place / "source.json").rename(place / "scores" / "source.json")
