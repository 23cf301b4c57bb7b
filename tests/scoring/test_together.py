"""Two calls of `score` on one folder, at the same time, in processes of their own."""

from contextlib import ExitStack

import pytest
import torch
from torch import nn

from snapsure import NNDistance, ScoreTable, SnapshotStore, SoftmaxResponse, score
from snapsure.kappas import Entropy
from snapsure.scoring import _plan
from tests.support.folders import read_files
from tests.support.processes import forked, until

N, SHARD = 1024, 256

CODE = """
    import sys, time
    from pathlib import Path

    import torch
    from snapsure.scoring import _plan
    from tests.scoring.test_together import SHARD, scored

    home, out, name, number = Path(sys.argv[1]), *sys.argv[2:]
    torch.set_num_threads(1)
    _plan._SHARD, _plan._EVERY = SHARD, 0.0
    Path(f"{out}.ready-{number}").touch()
    while not Path(f"{out}.go").exists():
        time.sleep(0.0005)
    scored(home, Path(out), name)
"""


def scored(home, out, name):
    x = torch.rand(N, 4, generator=torch.Generator().manual_seed(1))
    y = torch.arange(N) % 3
    kappas = {"softmax": SoftmaxResponse(), "entropy": Entropy(), "nn": NNDistance((x, y), k=3)}
    store = SnapshotStore(home / "run")
    return score(nn.Linear(4, 3), store, (x, y), kappas[name], out=out, progress=False)


@pytest.fixture
def home(tmp_path):
    torch.manual_seed(3)
    store = SnapshotStore(tmp_path / "run")
    for epoch in (1, 2, 3):
        store.save(nn.Linear(4, 3), epoch)
    return tmp_path


def together(home, out, names):
    """Start a call for each name, all at once; give what each has ended with, and said."""
    with ExitStack() as running:
        started = [
            running.enter_context(
                forked(CODE, home, out, name, i, loaded=("torch", "tests.scoring.test_together"))
            )
            for i, name in enumerate(names)
        ]
        for i, process in enumerate(started):
            until(out.with_name(f"{out.name}.ready-{i}").exists, process)
        out.with_name(f"{out.name}.go").touch()
        return [(process.wait(), process.stderr) for process in started]


def check_the_same(home, name, rounds, monkeypatch):
    monkeypatch.setattr(_plan, "_SHARD", SHARD)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    scored(home, home / "alone", name)
    torch.set_num_threads(threads)
    for i in range(rounds):
        out = home / f"{name}-{i}"
        for code, said in together(home, out, [name, name]):
            assert code == 0, said
        assert read_files(out) == read_files(home / "alone")


def check_others(home, rounds):
    for i in range(rounds):
        out = home / f"others-{i}"
        ended = together(home, out, ["softmax", "entropy"])
        assert sorted(code for code, _ in ended) == [0, 1], ended
        (refused,) = (said for code, said in ended if code)
        assert "`out` must hold scores of the same inputs" in refused, refused
        table = ScoreTable.open(out)
        assert table.names == [*table.provenance["kappas"]]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["softmax", "nn"])
def test_both_score_the_same(home, name, monkeypatch):
    check_the_same(home, name, 2, monkeypatch)


@pytest.mark.slow
def test_of_two_that_score_otherwise_one_is_refused(home):
    check_others(home, 2)


@pytest.mark.slow
@pytest.mark.torture
@pytest.mark.parametrize("name", ["softmax", "nn"])
def test_both_score_the_same_many_times(home, name, monkeypatch):
    check_the_same(home, name, 25, monkeypatch)


@pytest.mark.slow
@pytest.mark.torture
def test_of_two_that_score_otherwise_one_is_refused_many_times(home):
    check_others(home, 25)
