"""Groups of snapshots per pass over the data: the same bytes, and the data read once."""

import random

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

from snapsure import Ensemble, MCDropout, NNDistance, SoftmaxResponse, score
from snapsure.errors import InvalidInput
from snapsure.scoring import LocalExecutor, _plan
from snapsure.scoring._executor import Executor, Queue, Worker
from snapsure.scoring._plan import Piece, make_plan
from tests.support.folders import read_files


class Counted(Dataset):
    """Remembers how many rows were asked for."""

    def __init__(self, images, labels):
        self.images, self.labels, self.reads = images, labels, 0

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        self.reads += 1
        return self.images[i], int(self.labels[i])


class Shuffled(Executor):
    """Several workers at once, whose pieces arrive in any order."""

    group = 2

    def __init__(self, seed):
        self._random = random.Random(seed)
        self.done = []

    def run(self, plan, model, todo, advance):
        workers = [Worker(plan, model) for _ in range(3)]
        queue, flying = Queue(plan, todo, width=2), []
        while True:
            while len(flying) < 3 and (piece := queue.next()):
                flying.append(piece)
            if not flying:
                return
            piece = flying.pop(self._random.randrange(len(flying)))
            queue.done(piece, self._random.choice(workers).do(piece, advance))
            self.done.append(piece)


def kappas(digits):
    return [SoftmaxResponse(), NNDistance(digits.train, k=40), MCDropout(3)]


@pytest.fixture
def shards(monkeypatch):
    monkeypatch.setattr(_plan, "_SHARD", 300)


@pytest.fixture(scope="module")
def files_one_by_one(digits, tmp_path_factory):
    """The files of a table, scored snapshot by snapshot."""
    folder = tmp_path_factory.mktemp("single")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_plan, "_SHARD", 300)
        scored(digits, folder, LocalExecutor(group=1))
    return read_files(folder)


@pytest.fixture
def one_by_one(files_one_by_one, shards):
    """They, for a test that makes as large shards."""
    return files_one_by_one


def scored(digits, out, executor):
    score(
        digits.model(),
        digits.store,
        digits.test,
        kappas(digits),
        out=out,
        executor=executor,
        progress=False,
    )


@pytest.mark.parametrize("group", [2, 4, 6, None])
def test_a_group_gives_the_same_bytes(digits, tmp_path, one_by_one, group):
    scored(digits, tmp_path / "group", LocalExecutor(group))
    assert read_files(tmp_path / "group") == one_by_one


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_any_order_of_arrival_gives_the_same_bytes(digits, tmp_path, one_by_one, seed):
    executor = Shuffled(seed)
    scored(digits, tmp_path / "any", executor)
    assert read_files(tmp_path / "any") == one_by_one
    assert len({*executor.done}) == len(executor.done) == 3 * (4 + 1)
    assert executor.done != make_order(digits, tmp_path)


def make_order(digits, tmp_path):
    (tmp_path / "order").mkdir()
    return make_plan(
        digits.model(), digits.store, digits.test, kappas(digits), tmp_path / "order", 2
    ).todo()


def test_members_of_an_ensemble_go_together(digits, other_digits, tmp_path, shards):
    ensemble = Ensemble([digits.store, other_digits.store])
    kappa = NNDistance(digits.train, k=5)
    trees = []
    for group in (1, 5):
        out = tmp_path / str(group)
        out.mkdir()
        plan = make_plan(digits.model(), ensemble, digits.test, kappa, out, group)
        assert len(plan.groups[0]) == (1 if group == 1 else 2)
        executor = LocalExecutor(group)
        score(
            digits.model(),
            ensemble,
            digits.test,
            kappa,
            out=out,
            executor=executor,
            progress=False,
        )
        trees.append(read_files(out))
    assert trees[0] == trees[1]


def test_data_and_reference_are_read_once_per_group(digits):
    def reads(group):
        data, reference = Counted(*digits.test), Counted(*digits.train)
        kappa = NNDistance(reference, k=5)
        executor = LocalExecutor(group)
        score(digits.model(), digits.store, data, kappa, executor=executor, progress=False)
        return data.reads, reference.reads

    (single, single_reference), (grouped, grouped_reference) = reads(1), reads(3)
    passes_saved = 6 - 2
    assert single - grouped == passes_saved * len(digits.test[0])
    assert single_reference - grouped_reference == passes_saved * len(digits.train[0])


def test_of_a_group_half_done_only_the_rest_is_scored(digits, tmp_path, one_by_one, monkeypatch):
    out = tmp_path / "half"
    scored(digits, out, LocalExecutor(3))
    for name in ("labels", "softmax"):
        (out / name / "epoch-000005.00002.npy").unlink()
    (out / "mc_dropout" / "epoch-000001.00000.npy").write_bytes(b"torn")
    kept = {path: path.stat().st_mtime_ns for path in out.rglob("epoch-*.npy")}
    done, do = [], Worker.do
    monkeypatch.setattr(Worker, "do", lambda *a: (done.append(a[1]), do(*a))[1])
    scored(digits, out, LocalExecutor(3))
    assert done == [Piece((5,), None), Piece((5,), 2), Piece((1,), None), Piece((1,), 0)]
    assert read_files(out) == one_by_one
    touched = {path.name for path in kept if path.stat().st_mtime_ns != kept[path]}
    assert touched == {"epoch-000005.00002.npy", "epoch-000001.00000.npy"}


@pytest.mark.parametrize("stopped", [1, 2])
def test_what_is_done_outlives_an_interruption_and_embeddings_not_the_table(
    digits, tmp_path, one_by_one, monkeypatch, stopped
):
    out = tmp_path / "stopped"
    done, do = [], Worker.do

    def tiring(self, piece, advance):
        if len(done) == stopped:
            raise KeyboardInterrupt
        done.append(piece)
        return do(self, piece, advance)

    monkeypatch.setattr(Worker, "do", tiring)
    with pytest.raises(KeyboardInterrupt):
        scored(digits, out, LocalExecutor(2))
    assert done == [Piece((6, 5), None), Piece((6, 5), 0)][:stopped]
    assert sorted(path.name for path in (out / "prepared").iterdir()) == ["5", "6"]
    rest = []
    monkeypatch.setattr(Worker, "do", lambda *a: (rest.append(a[1]), do(*a))[1])
    scored(digits, out, LocalExecutor(2))
    assert len(rest) == 3 * (4 + 1) - stopped
    assert not {*done} & {*rest}
    assert read_files(out) == one_by_one
    assert not (out / "prepared").exists()


def test_a_group_is_eight_or_what_fits_its_room(digits, tmp_path, monkeypatch):
    def sizes(group=None):
        plan = make_plan(
            digits.model(), digits.store, digits.test, SoftmaxResponse(), tmp_path, group
        )
        return [len(group) for group in plan.groups]

    weights = sum(tensor.nbytes for tensor in digits.model().state_dict().values())
    assert sizes() == [6]
    assert sizes(4) == [4, 2]
    monkeypatch.setattr(_plan, "_GROUP", 5)
    assert sizes() == [5, 1]
    monkeypatch.setattr(_plan, "_GROUP_BYTES", 2 * weights)
    assert sizes() == [2, 2, 2]
    monkeypatch.setattr(_plan, "_GROUP_BYTES", weights - 1)
    assert sizes() == [1] * 6
    with pytest.raises(InvalidInput) as caught:
        LocalExecutor(group=0)
    assert str(caught.value).startswith("`group` must be a whole number ≥ 1, got 0")


class Spoiling(nn.Sequential):
    """Changes its input in place, as a network that begins with nn.ReLU(inplace=True) does."""

    def forward(self, x):
        x.view(-1).sub_(0.5)
        return super().forward(x)


def test_a_model_that_changes_its_input_gets_its_own(digits, tmp_path):
    images, labels = digits.test[0].clone(), digits.test[1]
    tables = [
        score(
            model,
            digits.store,
            (x, labels),
            [SoftmaxResponse(), MCDropout(3)],
            executor=LocalExecutor(group),
            progress=False,
        )
        for model, x, group in (
            (digits.model(), images - 0.5, 1),
            (Spoiling(*digits.model()), images, 6),
        )
    ]
    assert torch.equal(images, digits.test[0])
    for name in tables[0].names:
        assert (tables[0].kappa(name) == tables[1].kappa(name)).all()


def test_after_a_failure_no_network_is_kept(digits, tmp_path):
    """What failed for want of memory is tried again with all of it."""
    plan = make_plan(digits.model(), digits.store, digits.test, [SoftmaxResponse()], tmp_path, 3)
    worker = Worker(plan, digits.model())
    worker.do(Piece((6, 5, 4), 0), lambda rows: None)
    assert len(worker._runner._networks) == 3

    def full(rows):
        raise MemoryError

    with pytest.raises(MemoryError):
        worker.do(Piece((3, 2, 1), 0), full)
    assert worker._runner._networks == {}
    worker.do(Piece((3,), 0), lambda rows: None)
    assert len(worker._runner._networks) == 1
