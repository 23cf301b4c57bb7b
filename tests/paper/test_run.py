"""The whole way by its commands, as real processes, on a recipe of seconds."""

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from snapsure import Ensemble, ScoreTable, SnapshotStore, score
from snapsure.errors import InvalidInput
from snapsure.paper import recipes
from snapsure.paper.archive import Experiment
from snapsure.paper.run import Study, score_one, train_one
from snapsure.paper.train import build, open_logits
from snapsure.scoring._recorded import score_recorded
from snapsure.table._pieces import read_layout, write_layout
from snapsure.training._epochs import launch_fabric
from tests.support import processes
from tests.support.refusals import refuses
from tests.support.tiny import TEST, TINY
from tests.support.trainings import load_parts

pytestmark = pytest.mark.slow

CODE = """
import warnings; warnings.simplefilter("ignore")
from tests.support.tiny import TINY
from snapsure.paper import recipes
recipes.RECIPES["cifar10"]["cpu"] = TINY
from snapsure.cli import app
app()
"""
# After the second snapshot of the second network it waits, for Ctrl-C to come in time.
WAITING = """
import time
from snapsure.snapshots import SnapshotStore
save = SnapshotStore.save
def waiting(store, network, epoch, **options):
    save(store, network, epoch, **options)
    while epoch == 2 and store.path.parent.name == "seed-1":
        time.sleep(0.01)
SnapshotStore.save = waiting
"""
OPTIONS = {
    "env": {"COLUMNS": "160", "NO_COLOR": "1"},
    "loaded": ("snapsure.cli", "snapsure.paper.run", "tests.support.tiny", "torch._dynamo"),
}


def run(*arguments, cwd, status=0):
    result = processes.run(CODE, *arguments, cwd=cwd, **OPTIONS)
    assert result.returncode == status, result.stderr
    return result


@pytest.fixture(scope="module")
def done(tmp_path_factory, cifar):
    """`reproduce all`, stopped by Ctrl-C in the second network, and asked again."""
    folder = tmp_path_factory.mktemp("experiment")
    options = ("reproduce", "all", "--dataset", "cifar10", "--data", cifar, "--out", "mine")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SNAPSURE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        stopped = interrupted(folder, *options)
        again = run(*options, cwd=folder)
    return folder, stopped, again


def interrupted(folder, *options):
    """What it says on Ctrl-C."""
    with processes.forked(WAITING + CODE, *options, cwd=folder, **OPTIONS) as process:
        while not (folder / "mine" / "seed-1" / "snapshots" / "epoch-000002.safetensors").exists():
            assert process.poll() is None, process.stderr
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130, process.stderr
        return process.stderr


def test_interrupted_it_says_how_to_go_on_and_does(done):
    _, stopped, again = done
    assert stopped.splitlines()[-1].startswith(
        "snapsure: interrupted. To resume, run the same command again"
    )
    assert "seed 0: trained already" in again.stderr
    assert "seed 0: epoch" not in again.stderr
    assert "seed 1: epoch 4 of 4: loss" in again.stderr
    assert "seed 1: epoch 1 of 4: loss" not in again.stderr
    assert "the ensemble of 2" in again.stderr


def test_tables_figures_and_scores_are_there(done):
    folder, _, again = done
    results = folder / "mine" / "results"
    for title in ("Table 1", "Table 2", "Table 3", "Table 4", "Saturation"):
        assert f"{title}: " in again.stdout
    for i in (1, 2, 3, 4):
        assert (results / f"figure{i}.png").stat().st_size > 10_000
    experiment = Experiment.open(results)
    assert [table.names for table in experiment.tables] == [["softmax"]] * 2
    for kappa in ("nn_distance", "mc_dropout_variance", "mc_dropout"):
        assert [*experiment.of(kappa)] == [0, 1]
    assert [*experiment.ensembles] == [(0, 1)]
    assert experiment.ensembles[0, 1].names == ["softmax"]
    assert experiment.ensembles[0, 1].kappa("softmax").shape == (TINY.epochs, TEST)
    content = json.loads((results / "networks.json").read_text())
    assert len(content["training_accuracy"]) == 2


def test_ensemble_from_recorded_logits_is_the_scored_one(done, cifar):
    folder, _, _ = done
    folders = [folder / "mine" / f"seed-{i}" for i in (0, 1)]
    ours = score_recorded(*map(open_logits, folders))
    test = load_parts(cifar).test
    ensemble = Ensemble([SnapshotStore(path / "snapshots") for path in folders])
    data = (test.pixels, test.labels)
    scored = score(build(TINY, load_parts(cifar)), ensemble, data, progress=False)
    assert np.allclose(ours.kappa("softmax"), scored.kappa("softmax"), rtol=0, atol=1e-9)
    assert np.array_equal(ours.y_hat, scored.y_hat)
    assert np.array_equal(ours.labels, scored.labels)
    packed = Experiment.open(folder / "mine" / "results").ensembles[0, 1]
    assert np.allclose(packed.kappa("softmax"), ours.kappa("softmax"), rtol=1e-3)


def test_costly_scores_of_some_snapshots(done, cifar, tmp_path, monkeypatch):
    how = replace(TINY, costly_every=2, mc_statistics=("mean",))
    monkeypatch.setitem(recipes.RECIPES["cifar10"], "cpu", how)
    for part in ("snapshots", "validation"):
        shutil.copytree(done[0] / "mine" / "seed-0" / part, tmp_path / "seed-0" / part)
    study, data, lines = Study("cifar10", "cpu", tmp_path, cifar), load_parts(cifar), []

    def names(**options):
        return [table.names for table in score_one(study, 0, data, lines.append, **options)]

    costly = ["nn_distance", "mc_dropout"]
    assert names(softmax_only=True) == [["softmax"]]
    assert lines == []
    assert names() == names(softmax_only=True) == [["softmax"], costly]
    assert lines == ["seed 0: scoring 2 snapshots (nn_distance, mc_dropout)"] * 2

    every = ScoreTable.open(done[0] / "mine" / "seed-0" / "costly")
    some = ScoreTable.open(tmp_path / "seed-0" / "costly")
    assert (every.epochs.tolist(), some.epochs.tolist()) == ([1, 2, 3, 4], [2, 4])
    for kappa in costly:
        assert np.array_equal(some.kappa(kappa), every.kappa(kappa)[[1, 3]])

    layout = read_layout(tmp_path / "seed-0" / "costly")
    write_layout(tmp_path / "seed-0" / "costly", {**layout, "finished": False})
    assert names(softmax_only=True) == [["softmax"]]


def test_from_results_in_seconds_without_training(done):
    folder, _, again = done
    result = run("reproduce", "table1", "--from", "mine/results", cwd=folder)
    assert result.stdout.strip() in again.stdout
    told = run("reproduce", "table1", "--from", "mine/results", "--json", cwd=folder)
    written = json.loads((folder / "mine" / "results" / "table1.json").read_text())
    assert json.loads(told.stdout) == {"table1": written}


def test_what_cannot_stand_beside_is_refused_before_it_trains(done, cifar, tmp_path):
    """By what it is of, and by its seeds; what can is put together with what is trained."""
    folder, _, _ = done
    options = ("reproduce", "table1", "--dataset", "cifar10", "--data", cifar)
    other = (*options, "--seed", 1, "--out", tmp_path / "other", "--beside")
    for beside, told in (
        (tmp_path, f"--beside must be a folder with experiment.json, got none in {tmp_path}"),
        (folder / "mine" / "results", "--beside must be results of other seeds, of the same data "),
    ):
        refused = run(*other, beside, cwd=folder, status=2)
        assert refused.stderr.splitlines()[-1].startswith(f"snapsure: {told}")
        assert not (tmp_path / "other" / "seed-1").exists()
    more = run(*options, "--seed", 2, "--out", tmp_path / "more", "--softmax-only", "--beside",
               folder / "mine" / "results", cwd=folder)  # fmt: skip
    assert "the ensemble of" not in more.stderr  # of one network there is none
    both = Experiment.open(tmp_path / "more" / "results")
    assert both.seeds == [0, 1, 2]
    assert [*both.ensembles] == [(0, 1)]
    assert "ours, mean of 3" in more.stdout


def test_train_alone_goes_into_the_same_folder(done, cifar):
    folder, _, _ = done
    options = ("--dataset", "cifar10", "--data", cifar, "--out", "mine")
    result = run("train", *options, "--seed", 1, cwd=folder)
    assert "seed 1: trained already" in result.stderr
    assert result.stdout == "snapshots: mine/seed-1/snapshots\n"


def test_another_recipe_is_refused_where_one_is_finished(done, cifar):
    folder, _, _ = done
    options = ("--dataset", "cifar10", "--scale", "cpu-full", "--data", cifar)
    for command in (("train",), ("reproduce", "table1")):
        result = run(*command, *options, "--out", "mine", cwd=folder, status=2)
        assert "mine must hold a training of the same data set and scale" in result.stderr
    (folder / "mine" / "study.json").rename(folder / "kept.json")
    result = run("train", *options, "--out", "mine", cwd=folder, status=2)
    (folder / "kept.json").rename(folder / "mine" / "study.json")
    assert "mine/seed-0 must hold a training of the same recipe" in result.stderr


def test_a_finished_training_of_another_recipe_is_refused(done, cifar, monkeypatch):
    """Of as many epochs: the recipe tells them apart."""
    monkeypatch.setitem(recipes.RECIPES["cifar10"], "cpu", replace(TINY, learning_rate=0.2))
    study, fabric = Study("cifar10", "cpu", done[0] / "mine", cifar), launch_fabric("cpu")
    with refuses(InvalidInput, study.folder(0), "training of the same recipe"):
        train_one(study, 0, load_parts(cifar), fabric, str)


def test_decoding_is_reported_now_and_then_and_at_its_end(monkeypatch):
    def load(name, part, folder, report):
        for count in (1000, 99_000, 100_000, 101_000, 150_000):
            report(count, 150_000)

    lines = []
    monkeypatch.setattr("snapsure.paper.data.load", load)
    Study("cifar10", "cpu", Path("out")).load(lines.append)
    assert [re.findall(r"[\d,]+ of|train|test", line) for line in lines] == [
        [count, part] for part in ("train", "test") for count in ("100,000 of", "150,000 of")
    ]


def test_two_processes_one_outcome(cifar, tmp_path):
    """All processes train; one scores, packs and prints."""
    options = ("--dataset", "cifar10", "--data", cifar, "--accelerator", "cpu", "--devices", 2)
    arguments = ("reproduce", "table1", *options, "--out", "mine")
    env = {"COLUMNS": "160", "PYTHONWARNINGS": "ignore"}
    told = processes.run_script(tmp_path / "snapsure_tiny.py", CODE, *arguments, **env)
    assert told.count("Table 1: ") == 1
    assert len(Experiment.open(tmp_path / "mine" / "results").tables) == 2


@pytest.mark.parametrize(
    ("option", "value"), [("--accelerator", "cuda"), ("--precision", "17-mixed")]
)
def test_what_fabric_refuses_is_a_sentence(cifar, tmp_path, option, value):
    options = ("--dataset", "cifar10", "--data", cifar, option, value)
    result = run("train", *options, cwd=tmp_path, status=2)
    assert f"{option} {value}" in result.stderr
    assert "must be ones that Lightning Fabric has here, got its refusal (" in result.stderr
    assert "Traceback" not in result.stderr


def test_results_need_no_torch():
    code = (
        "import sys; from snapsure.paper import tables; "
        "print(sorted({'torch', 'lightning', 'vl_convert', 'datasets'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
