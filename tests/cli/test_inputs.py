"""What options name, refused or read: the command run in this process."""

import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from typer.main import get_command

from snapsure import Predictor, ScoreTable, SnapshotStore
from snapsure.cli import app
from snapsure.cli._tables import open_runs
from tests.support.commands import invoke, invoke_refused
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


USUAL = {"model": "user_nets:make", "snapshots": "run", "data": "data.npz", "out": "out"}


def score(*flags, **options):
    return invoke("score", *flags, **{**USUAL, **options})


def refuse_score(**options):
    return invoke_refused("score", **{**USUAL, **options})


def test_every_option_has_a_help():
    for name, command in get_command(app).commands.items():
        assert [param.name for param in command.params if not param.help] == [], name


@pytest.mark.parametrize("model", ["user_nets.py:make", "below/nets_below.py:make"])
def test_a_model_in_a_file_goes_all_the_way(place, model):
    score(model=model)
    invoke("fit out --trust", out="predictor")
    invoke("predict predictor --trust", data="data.npz", out="answers.csv")
    assert len((place / "answers.csv").read_text().splitlines()) == 51


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("user_nets.py", "package.module:name or file.py:name, got 'user_nets.py'"),
        ("other:network", "got 'other:network', which raised ModuleNotFound"),
        ("user_nets:none", "got 'user_nets:none', which raised AttributeError"),
        ("gone.py:make", "got 'gone.py:make', which raised ImportError .*no file gone.py"),
        (
            "user_nets:Net",
            r"needs classes, width.*`def make\(\): return Net\(classes=…, width=…\)`",
        ),
        ("user_nets:net", r"is a Linear.*`def make\(\): return net`.* name user_nets:make"),
        ("below/json.py:make", "another module is called json.* give below/json.py another name"),
    ],
)
def test_models_that_cannot_be_made(place, model, words):
    (place / "below" / "json.py").write_text(NETS)
    said = refuse_score(model=model)
    assert said.startswith("--model must ")
    assert re.search(words, said), said
    assert not (place / "out").exists()


@pytest.mark.parametrize("end", [".npz", ".npy"])
@pytest.mark.parametrize("command", ["score", "predict"])
def test_files_that_hold_no_arrays(place, end, command):
    if command == "predict":
        score()
        invoke("fit out --trust", out="predictor")
        command = "predict predictor --out answers.csv"
    options = USUAL if command == "score" else {}
    way = "np.savez(path, x=…, y=…)" if end == ".npz" else "np.save(path, x)"
    for content, why in ((None, "no such file"), (b"", "it is empty"), (b"<html>", "cut short")):
        if content is not None:
            (place / f"new{end}").write_bytes(content)
        said = invoke_refused(command, **{**options, "data": f"new{end}"})
        assert f"--data must be a complete {end} file, got new{end} (" in said
        assert why in said
        assert way in said


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"data": "data.csv"}, r"\.npz or \.npy file, or package\.module:function, got data\.csv"),
        ({"data": "nowhere"}, "package.module:name or file.py:name, got 'nowhere'"),
        ({"data": "named.npz"}, r"an array x .* got images in named\.npz.*np\.savez\("),
        ({"data": "objects.npz"}, r"got objects\.npz \(Object arrays cannot be loaded"),
        ({"kappa": "luck"}, "one of softmax, nn_distance, .*got 'luck'"),
        ({"kappa": "nn_distance"}, "--reference must name .* nn_distance.* Add --reference"),
        ({"address": "auto"}, "--address must come with --executor ray, got 'auto'"),
        ({"snapshots": "none"}, "`snapshots` must hold at least one snapshot, got none in none"),
        ({"out": "/proc/nowhere"}, r"/proc/nowhere \(No such file"),
        ({"device": "cpu", "executor": "ray"}, "--device must come with --executor local, got 'c"),
    ],
)
def test_what_cannot_be_scored(place, changes, words):
    (place / "data.csv").write_text("1,2")
    np.savez(place / "named.npz", images=np.zeros((3, 4)))
    np.savez(place / "objects.npz", x=np.array([1, None], object))
    said = refuse_score(**changes)
    assert re.search(words, said), said


@pytest.mark.parametrize(
    "words",
    [
        "score --executor dask",
        "compare --format html",
        "distill --optimizer adam",
        "fit --answers x",
    ],
)
def test_words_that_are_no_choice(words):
    _, option, value = words.split()
    said = invoke(words, status=2).stderr
    assert f"'{option}'" in said
    assert f"'{value}' is not one of" in said


def test_inputs_alone(place):
    np.save(place / "x.npy", np.random.default_rng(0).random((30, 4)))
    score("--average", data="x.npy")
    table = ScoreTable.open(place / "out")
    assert table.y is None
    assert table.averaged is not None


HIDE_CURSOR, ERASE_LINE = "\x1b[?25l", "\x1b[2K"


def test_progress_is_shown_in_a_terminal_and_never_among_the_results(place, monkeypatch):
    """Where only the errors go to a terminal, too: results may go to a file."""
    score()
    said = invoke("fit out --trust", out="predictor")
    predictor = Predictor.load(place / "predictor", nn.Linear(4, 3))
    first, *_, no_limit, _ = said.stdout.splitlines()
    passes = predictor.passes
    count = "one forward pass" if passes == 1 else f"{passes} forward passes"
    assert first == f"{predictor.estimator!r}, {count} per answer"
    assert "--risk" in no_limit
    answer = {"data": "data.npz", "out": "answers.csv"}
    assert invoke("predict predictor --trust", **answer).stderr == ""

    monkeypatch.setenv("FORCE_COLOR", "1")
    simulated(n=100).save(place / "table")
    (place / "run" / "manifest.json").unlink()
    results = {
        command: invoke(command)
        for command in (
            "rebuild run",
            "evaluate table --splits 1 --json",
            "compare table --json",
            "report table",
            "fit out --trust --out again",
            "predict predictor --trust --data data.npz --out more.csv",
        )
    }
    for command, result in results.items():
        assert HIDE_CURSOR in result.stderr, command
        assert HIDE_CURSOR not in result.stdout, command
    *_, end = results[command].stderr.rpartition("answering")
    assert "100%" in end
    assert ERASE_LINE in end  # the bar is gone at the end


def test_tables_of_the_same_examples_are_seeds(place):
    for name, seed in (("a", 0), ("b", 1), ("c", 0)):
        simulated(seed, n=300).save(place / name)
    paths = [place / name for name in "abc"]
    same = open_runs(paths)
    assert {Path(name).name: len(runs) for name, runs in same.items()} == {"a": 2, "b": 1}
    assert [len(runs) for runs in open_runs(paths, apart=True).values()] == [1, 1, 1]


def test_batch_size_device_and_overwrite(place):
    score(batch_size=20, device="cpu")
    assert ScoreTable.open(place / "out").provenance["data"]["batch_size"] == 20
    said = refuse_score()
    assert "of 20 rows, not 256" in said
    assert "--overwrite" in said
    score("--overwrite")
    assert ScoreTable.open(place / "out").provenance["data"]["batch_size"] == 256

    invoke("fit out --trust", out="predictor")
    options = {"data": "data.npz", "out": "answers.csv", "batch_size": 7}
    invoke("predict predictor --trust", device="cpu", **options)
    said = invoke_refused("predict predictor --trust", device="abacus", **options)
    assert "`device` must be one that PyTorch has here, got 'abacus'" in said
    assert "model='user_nets:make'" in invoke_refused("predict predictor", **options)
    options |= {"data": "gone.npz", "out": "answers.txt"}
    assert "got answers.txt" in invoke_refused("predict predictor", **options)


def test_state_chooses_a_network_and_fit_remembers_it(place):
    (place / "two").mkdir()
    torch.manual_seed(1)
    for epoch in (1, 2):
        parts = {"student": nn.Linear(4, 3), "teacher": nn.Linear(4, 3)}
        torch.save(nn.ModuleDict(parts).state_dict(), place / "two" / f"epoch-{epoch}.pt")
    said = refuse_score(snapshots="two")
    assert "got it under 'student.' and 'teacher.'" in said
    assert "--state student" in said
    score(snapshots="two", state="teacher.")
    assert "with other snapshots" in refuse_score(snapshots="two", state="student")
    invoke("fit out --trust", out="predictor")
    said = invoke_refused("fit out --trust", out="predictor", state="student")
    assert "must be those that the table was scored with" in said
    said = refuse_score(state="teacher.")
    assert "--state must come with another tool's checkpoints, got a store in run" in said


@pytest.mark.filterwarnings("default")
def test_trust_is_off_and_warns(place):
    (place / "theirs").mkdir()
    path = place / "theirs" / "epoch-1.pt"
    torch.save({"model": nn.Linear(4, 3).state_dict(), "more": RunsCode()}, path)
    said = refuse_score(snapshots="theirs")
    assert f"it needs {os.mkdir.__module__}.mkdir" in said
    assert "--trust" in said
    assert not (place / "ran").exists()
    result = score("--trust", snapshots="theirs")
    assert (place / "ran").exists()
    (warned,) = [line for line in result.stderr.splitlines() if "warning" in line]
    assert warned.startswith("snapsure: warning: theirs/epoch-1.pt is trusted")
    assert f"{os.mkdir.__module__}.mkdir" in warned


def test_compare_fits_a_terminal(place, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    simulated(n=300).save(place / "table")
    narrow = invoke("compare table", resamples=2000)
    wide = invoke("compare table --wide", resamples=2000)
    assert max(map(len, narrow.stdout.splitlines())) <= 80
    assert "…" not in narrow.stdout.replace(" … ", "")  # nothing is cut
    for head in ("method", "E-AURC", "passes", "gain"):
        assert head in narrow.stdout
    assert "…" not in wide.stdout.replace(" … ", "")
    for head in ("Brier", "verdict", "trainings"):
        assert head in wide.stdout
        assert head not in narrow.stdout
    assert narrow.stderr.splitlines()[-1] == "--wide shows all columns, p-values and verdicts."


@pytest.mark.slow
def test_a_report_takes_images_as_score_takes_data(place):
    simulated(n=300).save(place / "table")
    np.save(place / "x.npy", np.random.default_rng(0).random((300, 8, 8)))
    invoke("report table", images="x.npy")
    assert "data:image/png;base64" in (place / "report.html").read_text()
    assert invoke_refused("report table", images="gone.npy").startswith("--images must be ")
