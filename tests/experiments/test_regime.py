"""Networks of `snapsure reproduce` on the contest's boards: made small, and what is committed."""

import json
from pathlib import Path

import numpy as np
import pytest
from lightning.fabric import Fabric

from experiments.contest import regime
from snapsure.evaluation._archive import open_contest
from snapsure.paper import recipes
from snapsure.paper.archive import Experiment
from snapsure.paper.run import Study, claim, train_one
from snapsure.paper.train import open_logits
from snapsure.scoring._recorded import score_recorded
from tests.support.tiny import TINY

pytestmark = pytest.mark.slow

EXAMPLES = 60
PACKED = Path(__file__).parents[2] / "results" / "regime"


def test_what_is_finished_is_packed_once(cifar, tmp_path, monkeypatch):
    monkeypatch.setitem(recipes.RECIPES["cifar10"], "cpu-full", TINY)
    monkeypatch.setattr(regime, "EXAMPLES", EXAMPLES)
    study = Study("cifar10", "cpu-full", tmp_path / "runs", cifar)
    claim(study)
    parts = study.load(lambda line: None)
    fabric = Fabric(accelerator="cpu", devices=1)
    stamps = []
    for seed in (0, 1):
        train_one(study, seed, parts, fabric, lambda line: None)
        regime.main(study.out, tmp_path / "packed", cifar, dataset="cifar10")
        stamps.append((tmp_path / "packed/cifar10-cpu-full/seed-0.npz").stat().st_mtime_ns)
    assert stamps[0] == stamps[1]
    (runs,) = open_contest(tmp_path / "packed").values()
    assert len(runs) == 2
    for seed, run in enumerate(runs):
        whole = score_recorded(open_logits(study.folder(seed)))
        assert np.array_equal(run.table.errors, whole.errors[:EXAMPLES])
        assert run.table.epochs.tolist() == [*range(1, TINY.epochs + 1)]
        assert {"deep_knn", "nn_distance", "gen", "averaged weights"} <= {*run.others}
    about = json.loads((tmp_path / "packed/contest.json").read_text())
    (found,) = about["trainings"].values()
    assert [one["test_error"] for one in found] == [
        score_recorded(open_logits(study.folder(seed))).errors.mean() for seed in (0, 1)
    ]


def test_the_boards_are_of_the_networks_of_the_papers_tables():
    for name, runs in open_contest(PACKED).items():
        tables = Experiment.open(PACKED.parent / name).tables
        assert len(runs) <= len(tables)
        for run, table in zip(runs, tables, strict=False):
            some = slice(run.table.y_hat.size)
            assert np.array_equal(run.table.errors, table.errors[some])
            ours, theirs = (one.kappa("softmax") for one in (run.table, table))
            assert np.allclose(ours, theirs[:, some], rtol=4e-3, atol=1e-12)
