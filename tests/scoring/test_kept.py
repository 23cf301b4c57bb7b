"""Rows that are scored outlive an interruption before their shard is whole."""

import numpy as np
import pytest
import torch
from torch import nn

from snapsure import MCDropout, SnapshotStore, SoftmaxResponse, score
from snapsure.networks._runner import Runner
from snapsure.scoring import LocalExecutor, _kept, _plan
from tests.support.folders import read_files

X, Y = torch.rand(1000, 4, generator=torch.Generator().manual_seed(1)), torch.arange(1000) % 3
BATCHES, EPOCHS = 10, (1, 2, 3)


def network():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))


@pytest.fixture
def store(tmp_path):
    torch.manual_seed(3)
    store = SnapshotStore(tmp_path / "run")
    for epoch in EPOCHS:
        store.save(network(), epoch)
    return store


def scored(store, out, x=X, group=None):
    return score(
        network(),
        store,
        (x, Y),
        [SoftmaxResponse(), MCDropout(3)],
        out=out,
        batch_size=100,
        executor=LocalExecutor(group),
        progress=False,
    )


@pytest.fixture
def passes(monkeypatch):
    """Counts what goes through a network, and stops where it is told to."""
    done, score_batch = [], Runner.score
    done_before = []

    def counted(self, epoch, *arguments):
        if done_before and len(done) == done_before[0]:
            raise KeyboardInterrupt
        done.append(epoch)
        return score_batch(self, epoch, *arguments)

    monkeypatch.setattr(Runner, "score", counted)

    def stop_after(count):
        done.clear()
        done_before[:] = [] if count is None else [count]

    return done, stop_after


@pytest.mark.parametrize("stopped", [1, 2, 7, 16, 29])
@pytest.mark.parametrize("group", [1, 2, 3])
def test_nothing_is_done_twice_and_no_byte_differs(
    store, tmp_path, monkeypatch, passes, stopped, group
):
    """With every batch written at once; with half a minute between, as much is lost at most."""
    done, stop_after = passes
    stop_after(None)
    scored(store, tmp_path / "whole", group=group)
    assert len(done) == BATCHES * len(EPOCHS)
    monkeypatch.setattr(_kept, "EVERY", 0)
    out = tmp_path / "stopped"
    stop_after(stopped)
    with pytest.raises(KeyboardInterrupt):
        scored(store, out, group=group)
    assert len(done) == stopped
    stop_after(None)
    scored(store, out, group=group)
    assert len(done) == BATCHES * len(EPOCHS) - stopped
    assert read_files(out) == read_files(tmp_path / "whole")


def test_another_grouping_takes_what_is_kept(store, tmp_path, monkeypatch, passes):
    done, stop_after = passes
    monkeypatch.setattr(_kept, "EVERY", 0)
    stop_after(8)
    with pytest.raises(KeyboardInterrupt):
        scored(store, tmp_path / "out", group=3)
    stop_after(None)
    scored(store, tmp_path / "out", group=1)
    assert len(done) == BATCHES * len(EPOCHS) - 8


def test_before_its_time_nothing_is_written(store, tmp_path, passes):
    _, stop_after = passes
    stop_after(8)
    with pytest.raises(KeyboardInterrupt):
        scored(store, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_clock_tells_when(tmp_path, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(_kept.time, "monotonic", lambda: now[0])
    kept = _kept.Kept(tmp_path / "kept", [1], ["labels"])
    now[0] += _kept.EVERY - 1
    assert not kept.due
    now[0] += 1
    assert kept.due
    kept.add(1, {"labels": np.arange(3)}, 3, "digest")
    kept.write()
    assert not kept.due
    assert _kept.Kept(tmp_path / "kept", [1], ["labels"]).known(1, 1, 2)["labels"].tolist() == [
        1,
        2,
    ]


def test_rows_of_other_inputs_are_scored_again(store, tmp_path, monkeypatch, passes):
    """Data that changed where the folder does not show it, between two starts."""
    done, stop_after = passes
    monkeypatch.setattr(_kept, "EVERY", 0)
    monkeypatch.setattr("snapsure.networks._data._SAMPLED", 1)
    out, other = tmp_path / "out", X.clone()
    other[250] += 1
    stop_after(15)
    with pytest.raises(KeyboardInterrupt):
        scored(store, out)
    stop_after(None)
    scored(store, out, other)
    assert len(done) == BATCHES * len(EPOCHS)
    scored(store, tmp_path / "whole", other)
    assert read_files(out) == read_files(tmp_path / "whole")


@pytest.mark.parametrize("damage", [b"", b"torn", b"PK\x03\x04 torn"])
def test_a_file_that_is_damaged_counts_for_nothing(store, tmp_path, monkeypatch, passes, damage):
    done, stop_after = passes
    monkeypatch.setattr(_kept, "EVERY", 0)
    stop_after(9)
    with pytest.raises(KeyboardInterrupt):
        scored(store, tmp_path / "out")
    (tmp_path / "out" / ".partial-rows" / "00000" / "epoch-000002.npz").write_bytes(damage)
    stop_after(None)
    scored(store, tmp_path / "out")
    assert len(done) == BATCHES * len(EPOCHS) - 6
    scored(store, tmp_path / "whole")
    assert read_files(tmp_path / "out") == read_files(tmp_path / "whole")


def test_shards_that_are_whole_keep_nothing_else(store, tmp_path, monkeypatch, passes):
    done, stop_after = passes
    monkeypatch.setattr(_kept, "EVERY", 0)
    monkeypatch.setattr(_plan, "_SHARD", 400)
    stop_after(14)  # the first shard, and two of its next batches' three snapshots
    with pytest.raises(KeyboardInterrupt):
        scored(store, tmp_path / "out")
    kept = sorted((tmp_path / "out" / ".partial-rows").rglob("*.npz"))
    assert [path.parent.name for path in kept] == ["00001", "00001"]
    stop_after(None)
    scored(store, tmp_path / "out")
    assert len(done) == BATCHES * len(EPOCHS) - 14
    assert not (tmp_path / "out" / ".partial-rows").exists()
