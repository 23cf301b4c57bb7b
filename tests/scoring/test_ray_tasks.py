"""What a cluster gets at a time, and what is tried again: against a Ray that runs nothing."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from snapsure import SoftmaxResponse
from snapsure.scoring import RayExecutor
from snapsure.scoring._plan import make_plan
from snapsure.scoring._ray import _Job


class Failed(Exception):
    """What Ray raises for a task that failed."""

    cause = None


class Cluster:
    """Resources that change from look to look; a task succeeds unless its piece is to fail."""

    exceptions = SimpleNamespace(RayError=Failed)
    __spec__ = "installed"

    def __init__(self, *resources, fails=()):
        self.resources, self.fails = [*resources], dict(fails)
        self.running, self.most, self.cancelled, self.submitted = [], [], [], []

    def cluster_resources(self):
        return self.resources.pop(0) if len(self.resources) > 1 else self.resources[0]

    def submit(self, piece):
        self.submitted.append(piece)
        task = (piece, len(self.submitted))
        self.running.append(task)
        return task

    def wait(self, tasks, num_returns):
        assert sorted(tasks) == sorted(self.running)
        self.most.append(len(tasks))
        return tasks[:num_returns], tasks[num_returns:]

    def get(self, task):
        self.running.remove(task)
        piece, _ = task
        if self.fails.get(piece, 0):
            self.fails[piece] -= 1
            raise Failed(f"no memory for {piece}\nat a place")
        return piece * 10

    def cancel(self, task, force):
        assert force
        self.cancelled.append(task)


class Pieces:
    """A queue of numbers."""

    def __init__(self, n):
        self.left, self.width = [*range(1, n + 1)], None
        self.results, self.failures, self.widths = {}, {}, []

    def next(self):
        self.widths.append(self.width)
        return self.left.pop(0) if self.left else None

    def done(self, piece, result):
        self.results[piece] = result

    def failed(self, piece, why):
        self.failures[piece] = why


def run(monkeypatch, cluster, pieces, needs, **options):
    monkeypatch.setitem(sys.modules, "ray", cluster)
    return RayExecutor(**options)._run_all(pieces, cluster.submit, needs)


@pytest.mark.parametrize(
    ("resources", "needs", "width"),
    [
        ({"CPU": 3.0}, {"CPU": 1, "GPU": 0}, 3),
        ({"CPU": 7.0}, {"CPU": 2, "GPU": 0}, 3),
        ({"CPU": 8.0, "GPU": 2.0}, {"CPU": 2, "GPU": 1}, 2),
        ({"CPU": 2.0, "GPU": 8.0}, {"CPU": 2, "GPU": 1}, 1),
        ({"memory": 1.0}, {"CPU": 1, "GPU": 0}, 1),
    ],
)
def test_it_has_twice_as_many_pieces_as_can_run(monkeypatch, resources, needs, width):
    cluster, pieces = Cluster(resources), Pieces(20)
    assert list(run(monkeypatch, cluster, pieces, needs)) == [*range(1, 21)]
    assert cluster.most[0] == max(cluster.most) == 2 * width
    assert {*pieces.widths} == {width}
    assert pieces.results == {piece: 10 * piece for piece in range(1, 21)}
    assert cluster.submitted == [*range(1, 21)]
    assert cluster.cancelled == []


def test_a_cluster_that_grows_gets_more(monkeypatch):
    cluster = Cluster({"CPU": 1.0}, {"CPU": 1.0}, {"CPU": 4.0})
    list(run(monkeypatch, cluster, Pieces(20), {"CPU": 1, "GPU": 0}))
    assert cluster.most[:3] == [2, 2, 8]


def test_a_piece_is_tried_again_and_then_named(monkeypatch):
    cluster, pieces = Cluster({"CPU": 1.0}, fails={2: 3, 3: 4}), Pieces(4)
    done = list(run(monkeypatch, cluster, pieces, {"CPU": 1, "GPU": 0}, retries=3))
    assert sorted(done) == [1, 2, 4]
    assert [cluster.submitted.count(piece) for piece in range(1, 5)] == [1, 4, 4, 1]
    assert pieces.failures == {3: "Failed: no memory for 3"}
    never = Cluster({"CPU": 1.0}, fails={1: 1})
    assert list(run(monkeypatch, never, Pieces(1), {"CPU": 1, "GPU": 0}, retries=0)) == []


def test_what_still_runs_when_scoring_ends_is_cancelled(monkeypatch):
    cluster = Cluster({"CPU": 2.0})
    started = run(monkeypatch, cluster, Pieces(20), {"CPU": 1, "GPU": 0})
    assert next(started) == 1
    started.close()
    assert [piece for piece, _ in cluster.cancelled] == [2, 3, 4]


def test_a_worker_has_the_paths_and_the_threads_that_scoring_was_started_with(
    digits, tmp_path, monkeypatch
):
    (tmp_path / "start" / "out").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    plan = make_plan(digits.model(), digits.store, digits.test, SoftmaxResponse(), Path("out"))
    threads = torch.get_num_threads()
    try:
        assert _Job(plan, digits.model(), tmp_path / "start", threads + 1).worker() is not None
        assert torch.get_num_threads() == threads + 1
    finally:
        torch.set_num_threads(threads)
    assert Path.cwd().samefile(tmp_path / "start")
