"""What is scored outlives an interruption, and is not scored again."""

import pytest
import torch
from torch import nn

from snapsure import MCDropout, SnapshotStore, SoftmaxResponse, score
from snapsure.networks._runner import Runner
from snapsure.scoring import LocalExecutor, _plan
from tests.support.folders import read_files
from tests.support.problem import refusal

X, Y = torch.rand(1000, 4, generator=torch.Generator().manual_seed(1)), torch.arange(1000) % 3
BATCHES, EPOCHS = 10, (1, 2, 3)


def network():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))


class Stream(torch.utils.data.IterableDataset):
    def __init__(self, x):
        self.x, self.readings = x, 0

    def __iter__(self):
        self.readings += 1
        return iter([(row, int(y)) for row, y in zip(self.x, Y, strict=True)])


def record(folder):
    torch.manual_seed(3)
    store = SnapshotStore(folder)
    for epoch in EPOCHS:
        store.save(network(), epoch)
    return store


@pytest.fixture
def store(tmp_path):
    return record(tmp_path / "run")


def scored(store, out, x=X, group=None):
    return score(
        network(),
        store,
        x if isinstance(x, Stream) else (x, Y),
        [SoftmaxResponse(), MCDropout(3)],
        out=out,
        batch_size=100,
        executor=LocalExecutor(group),
        progress=False,
    )


@pytest.fixture(autouse=True)
def every_batch_is_a_shard(monkeypatch):
    """As where a network is slow; and what is done is noted at once."""
    monkeypatch.setattr(_plan, "_SHARD", 100)
    monkeypatch.setattr(_plan, "_EVERY", 0)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The files of a scoring that nobody interrupts."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(_plan, "_SHARD", 100)
        scored(record(folder / "run"), folder / "out")
    return read_files(folder / "out")


@pytest.fixture
def passes(monkeypatch):
    """Counts what goes through a network, and stops where it is told to."""
    done, limit, score_batch = [], [], Runner.score

    def counted(self, epoch, *arguments):
        if limit and len(done) == limit[0]:
            raise KeyboardInterrupt
        done.append(epoch)
        return score_batch(self, epoch, *arguments)

    monkeypatch.setattr(Runner, "score", counted)

    def stop_after(count):
        done.clear()
        limit[:] = [] if count is None else [count]

    return done, stop_after


def interrupt(store, out, stop_after, count, **options):
    stop_after(count)
    with pytest.raises(KeyboardInterrupt):
        scored(store, out, **options)
    stop_after(None)


@pytest.mark.parametrize("stopped", [1, 2, 7, 16, 29])
@pytest.mark.parametrize("group", [1, 2, 3])
def test_nothing_is_done_twice_and_no_byte_differs(store, whole, tmp_path, passes, stopped, group):
    done, stop_after = passes
    interrupt(store, tmp_path / "out", stop_after, stopped, group=group)
    scored(store, tmp_path / "out", group=group)
    assert len(done) == BATCHES * len(EPOCHS) - stopped
    assert read_files(tmp_path / "out") == whole


def test_another_grouping_uses_what_is_done(store, tmp_path, passes):
    done, stop_after = passes
    interrupt(store, tmp_path / "out", stop_after, 8, group=3)
    scored(store, tmp_path / "out", group=1)
    assert len(done) == BATCHES * len(EPOCHS) - 8


@pytest.mark.parametrize("every", [0, 1e9])
def test_killed_at_most_the_work_since_the_last_manifest_is_lost(
    store, whole, tmp_path, passes, monkeypatch, every
):
    done, stop_after = passes
    monkeypatch.setattr(_plan, "_EVERY", every)
    with monkeypatch.context() as patched:
        patched.setattr(_plan.Plan, "leave", lambda self: None)  # as if it were killed
        interrupt(store, tmp_path / "out", stop_after, 8)
    scored(store, tmp_path / "out")
    assert len(done) == BATCHES * len(EPOCHS) - (0 if every else 8)
    assert read_files(tmp_path / "out") == whole


def test_a_stream_is_scored_in_shards_and_read_once_per_group(store, tmp_path, passes):
    done, stop_after = passes
    whole = scored(store, tmp_path / "whole")
    assert len(done) == BATCHES * len(EPOCHS)
    interrupt(store, tmp_path / "out", stop_after, 14, x=Stream(X), group=1)
    stream = Stream(X)
    table = scored(store, tmp_path / "out", x=stream, group=1)
    assert len(done) == BATCHES * len(EPOCHS) - 14
    assert (table.kappa("mc_dropout") == whole.kappa("mc_dropout")).all()
    # Its length, its identity, the finished shards, and the rest of two groups and all of a third.
    assert stream.readings <= 3 + 3


def test_rows_of_other_inputs_are_refused(store, tmp_path, passes, monkeypatch):
    """Data that changed where the folder does not show it, between two starts."""
    _, stop_after = passes
    monkeypatch.setattr("snapsure.networks._data._SAMPLED", 1)
    other = X.clone()
    other[250] += 1
    interrupt(store, tmp_path / "out", stop_after, 15)
    said = refusal(lambda: scored(store, tmp_path / "out", other))
    assert "with other data in rows 200…299" in said


@pytest.mark.parametrize("damage", [b"", b"torn", b"\x93NUMPY torn"])
def test_a_damaged_piece_is_scored_again(store, whole, tmp_path, passes, damage):
    done, stop_after = passes
    interrupt(store, tmp_path / "out", stop_after, 9)
    (tmp_path / "out" / "softmax" / "epoch-000002.00001.npy").write_bytes(damage)
    scored(store, tmp_path / "out")
    assert len(done) == BATCHES * len(EPOCHS) - 8
    assert read_files(tmp_path / "out") == whole


def test_shards_are_smaller_where_a_pass_takes_more_operations(store, tmp_path, monkeypatch):
    """By the network and the κ alone: the same input gives the same files on any machine."""
    monkeypatch.setattr(_plan, "_SHARD", 1000)
    operations = 2 * sum(weights.numel() for weights in network().parameters())

    def shards(kappa, rows):
        monkeypatch.setattr(_plan, "_OPERATIONS", rows * operations * 8)
        folder = tmp_path / f"{kappa.name}-{rows}"
        folder.mkdir()
        arguments = (network(), store, (X, Y), kappa, folder)
        return _plan.make_plan(*arguments, batch_size=100).table.shards

    assert shards(SoftmaxResponse(), 1100) == [1000]
    assert shards(SoftmaxResponse(), 450) == [400, 400, 200]
    assert shards(MCDropout(3), 1600) == [400, 400, 200]
    assert shards(SoftmaxResponse(), 1) == [100] * 10


def test_operations_are_those_of_the_convolutions(store, tmp_path, monkeypatch):
    """Whose weights are few beside what they compute."""
    monkeypatch.setattr(_plan, "_SHARD", 1000)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(4 * 6 * 6, 3))
    convolved = SnapshotStore(tmp_path / "convolved")
    convolved.save(model, 1)
    per_row = 2 * (4 * 6 * 6 * 9 + 4 * 6 * 6 * 3)
    monkeypatch.setattr(_plan, "_OPERATIONS", 300 * 8 * per_row)
    (tmp_path / "out").mkdir()
    data = (torch.rand(1000, 1, 8, 8), Y)
    arguments = (model, convolved, data, SoftmaxResponse(), tmp_path / "out")
    assert _plan.make_plan(*arguments, batch_size=100).table.shards == [300, 300, 300, 100]
