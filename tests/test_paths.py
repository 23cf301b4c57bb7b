"""Paths that cannot be used: every public function that takes one refuses it with a sentence."""

import pytest
import torch
from torch import nn

from snapsure import (
    AES,
    Monitor,
    Platt,
    Predictor,
    Recorder,
    Report,
    ScoreTable,
    SnapshotStore,
    Threshold,
    rc_curve,
    score,
)
from snapsure.errors import InvalidInput, StorageError
from tests.support.refusals import refuses
from tests.support.report import scored

X = torch.ones(2, 3)
READS = {
    "adopt": lambda path, _: SnapshotStore.adopt(path),
    "epochs": lambda path, _: SnapshotStore(path).epochs,
    "score": lambda path, _: score(nn.Linear(3, 2), path, X),
    "predictor": lambda path, _: Predictor.load(path, nn.Linear(3, 2)),
    "table": lambda path, _: ScoreTable.open(path),
    "threshold": lambda path, _: Threshold.load(path),
    "monitor": lambda path, _: Monitor.load(path),
    "platt": lambda path, _: Platt.load(path),
    "estimator": lambda path, _: AES.load(path),
}
FOLDERS = {
    "record": lambda path, _: Recorder(path),
    "store": lambda path, _: SnapshotStore(path).save(nn.Linear(3, 2), 1),
    "score": lambda path, predictor: score(nn.Linear(3, 2), predictor.snapshots, X, out=path),
    "table": lambda path, _: scored(n=20).save(path),
    "predictor": lambda path, predictor: predictor.save(path),
}
FILES = {
    "threshold": lambda path, _: Threshold(0.5, 0.5).save(f"{path}.json"),
    "report": lambda path, _: Report(scored(n=200)).save(f"{path}.html"),
    "picture": lambda path, _: rc_curve([0.9, 0.1], [0, 1]).plot().save(f"{path}.svg"),
    "export": lambda path, predictor: predictor.export(f"{path}.pt2", X),
}


@pytest.fixture(scope="module")
def predictor(tmp_path_factory):
    store = SnapshotStore(tmp_path_factory.mktemp("run"))
    store.save(nn.Linear(3, 2), 1)
    return Predictor(nn.Linear(3, 2), store, AES())


@pytest.mark.parametrize("path", ["a\0b", "a\ud800b"])
@pytest.mark.parametrize("use", [*READS.values(), *FOLDERS.values(), *FILES.values()])
def test_what_no_file_system_takes(path, use, predictor, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with refuses(InvalidInput, "must be a path", path.encode("unicode_escape").decode()[:2]):
        use(path, predictor)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("use", [*READS.values(), *FOLDERS.values()])
def test_a_link_to_itself(use, predictor, tmp_path):
    path = tmp_path / "loop"
    path.symlink_to(path)
    with pytest.raises((InvalidInput, StorageError), match=f"{path}"):
        use(path, predictor)
    assert path.is_symlink()


@pytest.mark.parametrize("use", [*FOLDERS.values(), *FILES.values()])
def test_a_place_where_nothing_can_be_written(use, predictor):
    with refuses(StorageError, "Cannot write", "/proc", "Choose a folder that you can write to"):
        use("/proc/nowhere", predictor)
