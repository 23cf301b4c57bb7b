"""What options name, refused or read: the command run in this process."""

import os
import sys

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from snapsure import ScoreTable, SnapshotStore
from snapsure.cli import app
from tests.support.runs import simulated

NETS = """
from torch import nn

def make():
    return nn.Linear(4, 3)

class Net(nn.Linear):
    def __init__(self, classes, *, width, bias=True):
        super().__init__(width, classes, bias)

net = make()
"""


class RunsCode:
    def __reduce__(self):
        return os.mkdir, ("ran",)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder as a user has it, and the working one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "user_nets.py").write_text(NETS)
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "nets_below.py").write_text(NETS)
    store = SnapshotStore(tmp_path / "run")
    for epoch in (1, 2):
        store.save(nn.Linear(4, 3), epoch)
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "data.npz", x=rng.random((50, 4)), y=rng.integers(0, 3, 50))
    yield tmp_path
    for name in ("user_nets", "nets_below"):
        sys.modules.pop(name, None)


def run(command, **options):
    given = [word for name, value in options.items() for word in (f"--{name}", value)]
    return CliRunner().invoke(app, [*command.split(), *map(str, given)])


def score(*more, **options):
    usual = {"model": "user_nets:make", "snapshots": "run", "data": "data.npz", "out": "out"}
    return run(" ".join(["score", *more]), **{**usual, **options})


def refused(result):
    assert result.exit_code == 2
    return result.stderr.splitlines()[-1].removeprefix("snapsure: ")


@pytest.mark.parametrize("model", ["user_nets.py:make", "below/nets_below.py:make"])
def test_a_model_in_a_file_goes_all_the_way(place, model):
    for result in (
        score(model=model),
        run("fit out", out="predictor"),
        run("predict predictor --trust", data="data.npz", out="answers.csv"),
    ):
        assert result.exit_code == 0, result.stderr
    assert len((place / "answers.csv").read_text().splitlines()) == 51


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (
            "user_nets.py",
            "--model must be package.module:name or file.py:name, got 'user_nets.py': write both",
        ),
        (
            "gone.py:make",
            "--model must name a function to call, got 'gone.py:make', which raised ImportError "
            "(there is no file gone.py): try it in Python first",
        ),
        (
            "user_nets:Net",
            "--model must name a function to call without arguments, got 'user_nets:Net', which "
            "needs classes, width: write `def make(): return Net(classes=…, width=…)` there, and "
            "name user_nets:make",
        ),
        (
            "user_nets:net",
            "--model must name a function to call, got 'user_nets:net', which is a Linear already: "
            "write `def make(): return net` there, and name user_nets:make",
        ),
    ],
)
def test_models_that_cannot_be_made(place, model, sentence):
    assert refused(score(model=model)) == sentence
    assert not (place / "out").exists()


def test_a_file_that_has_the_name_of_another_module(place):
    (place / "below" / "json.py").write_text(NETS)
    assert refused(score(model="below/json.py:make")) == (
        "--model must name a function to call, got 'below/json.py:make', which raised ImportError "
        "(another module is called json: give below/json.py another name): try it in Python first"
    )


@pytest.mark.parametrize("end", [".npz", ".npy"])
@pytest.mark.parametrize("command", ["score", "predict"])
def test_files_that_hold_no_arrays(place, end, command):
    if command == "predict":
        assert score().exit_code == 0
        assert run("fit out", out="predictor").exit_code == 0
    way = "np.savez(path, x=…, y=…)" if end == ".npz" else "np.save(path, x)"
    for content, why in (
        (None, "there is no such file"),
        (b"", "it is empty"),
        (b"<html>", "it was cut short, or is something else"),
    ):
        if content is not None:
            (place / f"new{end}").write_bytes(content)
        result = (
            score(data=f"new{end}")
            if command == "score"
            else run("predict predictor --trust", data=f"new{end}", out="answers.csv")
        )
        assert refused(result) == (
            f"--data must be a whole {end} file, got new{end} ({why}): write it by {way}"
        )


def test_other_files_and_wrong_names(place):
    (place / "data.csv").write_text("1,2")
    assert refused(score(data="data.csv")) == (
        "--data must be an .npz or .npy file, or package.module:function, got data.csv: write a "
        "function that reads it and gives (inputs, labels), and name that"
    )
    np.savez(place / "named.npz", images=np.zeros((3, 4)))
    assert refused(score(data="named.npz")) == (
        "--data must hold an array x (and y), got images in named.npz: write it by "
        "np.savez(path, x=…, y=…)"
    )
    np.savez(place / "objects.npz", x=np.array([1, None], object))
    assert refused(score(data="objects.npz")) == (
        "--data must be a whole .npz file, got objects.npz (Object arrays cannot be loaded when "
        "allow_pickle=False): write it by np.savez(path, x=…, y=…)"
    )


def test_inputs_alone(place):
    np.save(place / "x.npy", np.random.default_rng(0).random((30, 4)))
    assert score(data="x.npy").exit_code == 0
    assert ScoreTable.open(place / "out").y is None


def test_batch_size_device_and_overwrite(place):
    assert score(**{"batch-size": 20, "device": "cpu"}).exit_code == 0
    assert ScoreTable.open(place / "out").provenance["data"]["batch_size"] == 20
    assert refused(score()) == (
        "`out` must hold scores of the same inputs, got out with other batches (of 20 rows, not "
        "256): choose another folder, or replace these by overwrite=True (--overwrite on the "
        "command line)"
    )
    assert score("--overwrite").exit_code == 0
    assert ScoreTable.open(place / "out").provenance["data"]["batch_size"] == 256
    assert refused(score(device="cpu", executor="ray", out="other")) == (
        "--device must come with --executor local, got 'cpu' and ray, whose workers take a GPU if "
        "the cluster has any: leave it out"
    )
    assert run("fit out", out="predictor").exit_code == 0
    options = {"data": "data.npz", "out": "answers.csv", "batch-size": 7, "device": "cpu"}
    assert run("predict predictor --trust", **options).exit_code == 0
    assert refused(run("predict predictor --trust", **{**options, "device": "abacus"})).startswith(
        "`device` must be one that PyTorch has here, got 'abacus' ("
    )


def test_prefix_chooses_a_network_and_fit_remembers_it(place):
    (place / "two").mkdir()
    torch.manual_seed(1)
    for epoch in (1, 2):
        parts = {"student": nn.Linear(4, 3), "teacher": nn.Linear(4, 3)}
        torch.save(nn.ModuleDict(parts).state_dict(), place / "two" / f"epoch-{epoch}.pt")
    message = refused(score(snapshots="two"))
    assert "got it under 'student.' and 'teacher.'" in message
    assert "--prefix student." in message
    assert score(snapshots="two", prefix="teacher.").exit_code == 0
    assert "with other snapshots:" in refused(score(snapshots="two", prefix="student."))
    assert run("fit out", out="predictor").exit_code == 0
    assert "must be those that the table was scored with" in refused(
        run("fit out", out="predictor", prefix="student.")
    )
    assert refused(score(prefix="teacher.")) == (
        "--prefix must come with another tool's checkpoints, got a store in run: leave it out, and "
        "let --model make the module that was recorded"
    )


@pytest.mark.filterwarnings("default")
def test_trust_is_off_and_warns(place):
    (place / "theirs").mkdir()
    path = place / "theirs" / "epoch-1.pt"
    torch.save({"model": nn.Linear(4, 3).state_dict(), "more": RunsCode()}, path)
    said = refused(score(snapshots="theirs"))
    assert f"(it needs {os.mkdir.__module__}.mkdir)" in said
    assert "--trust" in said
    assert not (place / "ran").exists()
    result = score("--trust", snapshots="theirs")
    assert result.exit_code == 0, result.stderr
    assert (place / "ran").exists()
    warned = [line for line in result.stderr.splitlines() if "warning" in line]
    assert len(warned) == 1
    assert warned[0].startswith("snapsure: warning: theirs/epoch-1.pt is trusted")
    assert f"(it needs {os.mkdir.__module__}.mkdir)" in warned[0]


def test_compare_fits_a_terminal(place, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    simulated(n=300).save(place / "table")
    narrow = run("compare table", resamples=2000)
    wide = run("compare table --wide", resamples=2000)
    assert narrow.exit_code == wide.exit_code == 0, narrow.stderr
    assert max(map(len, narrow.stdout.splitlines())) <= 80
    assert "…" not in narrow.stdout.replace(" … ", "")  # nothing is cut
    for head in ("method", "E-AURC", "passes", "gain"):
        assert head in narrow.stdout
    for head in ("Brier", "verdict", "trainings"):
        assert head in wide.stdout
        assert head not in narrow.stdout
    assert narrow.stderr.splitlines()[-1] == "--wide shows all columns, p-values and verdicts."
