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
from tests.support import processes
from tests.support.commands import CODE, LOADED, refused, run

pytestmark = pytest.mark.slow


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
    scored = run(
        *("score", "--model", "mine:network", "--snapshots", "run"),
        *("--data", "test.npz", "--out", "scores"),
        cwd=folder,
    )
    assert scored.returncode == 0, scored.stderr
    made = run("fit", "scores", "--risk", "0.5", "--out", "predictor", cwd=folder)
    assert made.returncode == 0, made.stderr
    (folder / "said.txt").write_text(made.stdout)
    return folder


def test_fit_says_what_it_chose_and_why(place):
    said = (place / "said.txt").read_text().splitlines()
    assert re.search(r", (one forward pass|\d+ forward passes) per answer$", said[0])
    assert said[1].startswith("Why: ")
    assert said[2].startswith("Accepts ")
    assert said[2].endswith("the error rate stays under 0.5, with probability 0.95.")
    assert (
        said[3]
        == "Now: snapsure predict predictor --model mine:network --data new.npz --out answers.csv"
    )
    told = run("fit", "scores", "--passes", "1", "--out", "other", "--json", cwd=place)
    content = json.loads(told.stdout)
    assert (content["estimator"], content["passes"]) == ("Final()", 1)
    assert content["threshold"] is None
    assert Predictor.load(place / "other", "tests.support.network:digits_network").passes == 1


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_predict(place, form):
    out = place / f"answers.{form}"
    result = run(
        "predict", "predictor", "--trust", "--data", "test.npz", "--out", out.name, cwd=place
    )
    assert result.returncode == 0, result.stderr
    first, second = result.stdout.splitlines()
    assert first.startswith(f"797 answers in answers.{form}: ")
    assert second.startswith("With the labels that came with them: ")
    if form == "csv":
        with out.open() as file:
            rows = list(csv.DictReader(file))
        rows = [{k: json.loads(v) for k, v in row.items()} for row in rows]
    elif form == "jsonl":
        rows = [json.loads(line) for line in out.read_text().splitlines()]
    else:
        rows = pq.read_table(out).to_pylist()
    predictor = Predictor.load(place / "predictor", "tests.support.network:digits_network")
    data = np.load(place / "test.npz")
    answer = predictor(data["x"])
    assert [row["row"] for row in rows] == list(range(797))
    assert [row["label"] for row in rows] == answer.label.tolist()
    assert [row["confidence"] for row in rows] == answer.confidence.tolist()
    assert [row["accepted"] for row in rows] == answer.accepted.tolist()
    assert [row["right"] for row in rows] == (answer.label == data["y"]).tolist()
    assert not list(place.glob(".partial*"))


# The command is killed at its fourth batch.
DYING = textwrap.dedent("""
    import itertools, os, signal
    from snapsure.predictor._scorer import Scorer

    whole, turns = Scorer._table, itertools.count(1)

    def table(self, inputs, y):
        if next(turns) == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        return whole(self, inputs, y)

    Scorer._table = table
""")


def test_killed_it_resumes(place):
    out = place / "long.csv"
    partial = place / ".partial-long.csv"
    arguments = ("predict", "predictor", "--trust", "--data", "new.npy", "--out", "long.csv")
    killed = processes.run(DYING + CODE, *arguments, cwd=place, loaded=LOADED)
    assert killed.returncode != 0
    assert not out.exists()
    assert partial.stat().st_size == 3 * 256 * 25
    with partial.open("ab") as file:
        file.write(b"torn")
    before = partial.read_bytes()[: 3 * 256 * 25]
    result = run(*arguments, cwd=place)
    assert result.returncode == 0, result.stderr
    answers = [line.split(",") for line in out.read_text().splitlines()[1:]]
    kept = np.frombuffer(before, "<i8,<f8,?,<i8")["f1"]
    assert [float(answer[2]) for answer in answers[:768]] == kept.tolist()
    predictor = Predictor.load(place / "predictor", "tests.support.network:digits_network")
    expected = predictor(np.load(place / "new.npy"))
    assert [float(answer[2]) for answer in answers] == expected.confidence.tolist()


@pytest.mark.parametrize("name", ["", ".notes"])
def test_answers_damaged_on_the_way_are_made_again(place, name):
    predictor = Predictor.load(place / "predictor", "tests.support.network:digits_network")
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


def test_a_monitor_goes_on_from_run_to_run(place):
    def watched(data):
        arguments = ("predict", "predictor", "--trust", "--data", data, "--out", "m.csv")
        result = run(*arguments, "--monitor", "state.json", "--json", cwd=place)
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)["alarms"]

    watched("test.npz")
    seen = Monitor.load(place / "state.json")
    assert seen.seen == 797
    assert seen.labelled > 0
    np.save(place / "noise.npy", np.random.default_rng(0).normal(size=(2000, 1, 8, 8)))
    assert any(alarm.startswith("confidences have shifted: ") for alarm in watched("noise.npy"))
    assert Monitor.load(place / "state.json").seen == 2797


def test_answers_of_other_inputs_are_not_kept(place):
    x = np.concatenate([np.load(place / "new.npy")] * 2)
    np.save(place / "changing.npy", x)
    arguments = (
        "predict",
        "predictor",
        "--trust",
        "--data",
        "changing.npy",
        "--out",
        "changed.csv",
    )
    killed = processes.run(DYING + CODE, *arguments, cwd=place, loaded=LOADED)
    assert killed.returncode != 0
    x[300:400] = 1 - x[300:400]  # none of the eight batches that tell most data apart
    np.save(place / "changing.npy", x)
    assert run(*arguments, cwd=place).returncode == 0
    answers = (place / "changed.csv").read_text().splitlines()[1:]
    predictor = Predictor.load(place / "predictor", "tests.support.network:digits_network")
    assert [float(line.split(",")[2]) for line in answers] == predictor(x).confidence.tolist()


def test_a_second_writer_is_told(place):
    with FileLock(place / ".partial-two.csv.lock"):
        said = refused(
            run(
                "predict",
                "predictor",
                "--trust",
                "--data",
                "test.npz",
                "--out",
                "two.csv",
                cwd=place,
            )
        )
    assert said.startswith("`out` must have one writer, got a second for two.csv: ")


# The command is killed when the monitor has been shown all answers.
FORGETTING = textwrap.dedent("""
    import os, signal
    from snapsure.predictor._answers import _Work

    def finish(self):
        os.kill(os.getpid(), signal.SIGKILL)

    _Work.finish = finish
""")


def test_a_monitor_counts_answers_once(place):
    arguments = ("predict", "predictor", "--trust", "--data", "test.npz", "--out", "once.csv")
    arguments += ("--monitor", "once.json")
    killed = processes.run(FORGETTING + CODE, *arguments, cwd=place, loaded=LOADED)
    assert killed.returncode != 0
    assert run(*arguments, cwd=place).returncode == 0
    assert Monitor.load(place / "once.json").seen == 797
    run("fit", "scores", "--risk", "0.6", "--out", "looser", cwd=place)
    other = (
        "predict",
        "looser",
        "--trust",
        "--data",
        "test.npz",
        "--out",
        "o.csv",
        "--monitor",
        "once.json",
    )
    assert refused(run(*other, cwd=place)).startswith("--monitor must be of this predictor, got ")
    assert not (place / "o.csv").exists()


def test_refusals_are_one_sentence(place):
    def told(*arguments):
        return refused(run(*arguments, cwd=place))

    assert told("predict", "predictor", "--data", "test.npz", "--out", "a.txt") == (
        "`out` must end with .csv, .jsonl, .parquet, got a.txt. Choose one of them."
    )
    assert "must be a saved predictor" in told(
        *("predict", "scores", "--data", "test.npz", "--out", "a.csv")
    )
    assert "--data must be a whole .npy file" in told(
        *("predict", "predictor", "--trust", "--data", "no.npy", "--out", "a.csv")
    )
    assert "`risk` must be" in told("fit", "scores", "--risk", "0.0001", "--out", "p")
    (place / "scores" / "source.json").rename(place / "source.json")
    assert told("fit", "scores", "--out", "p") == (
        "--model must be given where the table does not say it (`snapsure score` leaves "
        "source.json in it), got none in scores: add --model"
    )
    (place / "source.json").rename(place / "scores" / "source.json")
