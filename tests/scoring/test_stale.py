"""A folder of scores is of its inputs alone: whatever has changed is refused, wherever it did."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from snapsure import NNDistance, ScoreTable, SnapshotStore, SoftmaxResponse, score
from snapsure.scoring import LocalExecutor
from snapsure.scoring._executor import Worker
from snapsure.scoring._plan import Done, make_plan
from tests.support.folders import read_files
from tests.support.problem import refusal

pytestmark = pytest.mark.slow

N = 20_000
# Changed are rows 300 … 1,999: none of eight batches, evenly spaced, sees them.
X = torch.randn(N, 4, generator=torch.Generator().manual_seed(0))
Y = torch.arange(N) % 3


class Net(nn.Linear):
    calls = 0

    def forward(self, x):
        Net.calls += 1
        return super().forward(x)


class Pairs(Dataset):
    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], int(self.y[i])


class Noisy(Pairs):
    """Random where the first batch does not show it."""

    def __getitem__(self, i):
        x, y = super().__getitem__(i)
        return (x + torch.rand(()) if 300 <= i < 2000 else x), y


FORMS = {
    "arrays": lambda x, y: (x, y),
    "a data set": Pairs,
    "a loader": lambda x, y: DataLoader(TensorDataset(x, y), batch_size=250),
}


@pytest.fixture
def store(tmp_path):
    store = SnapshotStore(tmp_path / "run")
    for epoch in range(1, 5):
        torch.manual_seed(epoch)
        store.save(Net(4, 3), epoch)
    return store


def differing():
    """The data, some of it changed."""
    zeros, labels, one = X.clone(), Y.clone(), X.clone()
    zeros[300:2000] = 0
    labels[300:2000] = 2 - labels[300:2000]
    one[1234, 2] += 1e-6
    return [(zeros, Y), (X, labels), (one, Y)]


@pytest.mark.parametrize("form", FORMS)
def test_other_data_is_refused_wherever_it_differs(store, tmp_path, form):
    out, make = tmp_path / "scores", FORMS[form]

    def run(x, y):
        return score(Net(4, 3), store, make(x, y), SoftmaxResponse(), out=out, progress=False)

    run(X, Y)
    before = read_files(out)
    size = 10_000 if form == "a loader" else 10_000 // 256 * 256
    for x, y in differing():
        assert refusal(lambda x=x, y=y: run(x, y)).startswith(
            f"`out` must hold scores of the same inputs, got {out} with other data in rows "
            f"0…{size - 1}"
        )
    assert read_files(out) == before
    run(X, Y)


def test_the_same_data_is_read_again_and_no_network_runs(store, tmp_path, capsys):
    arguments = (Net(4, 3), store, Pairs(X, Y), SoftmaxResponse())
    first = score(*arguments, out=tmp_path / "scores", progress=False)
    Net.calls = 0
    again = score(*arguments, out=tmp_path / "scores")
    assert Net.calls == 0
    np.testing.assert_array_equal(first.kappa("softmax"), again.kappa("softmax"))
    assert "checking" in capsys.readouterr().err


def interrupted(monkeypatch, call, pieces):
    do, done = Worker.do, []

    def tiring(self, piece, advance):
        if len(done) == pieces:
            raise KeyboardInterrupt
        done.append(piece)
        return do(self, piece, advance)

    with monkeypatch.context() as patched:
        patched.setattr(Worker, "do", tiring)
        with pytest.raises(KeyboardInterrupt):
            call()


def test_snapshots_are_never_scored_on_different_data(store, tmp_path, monkeypatch):
    out = tmp_path / "scores"

    def run(data):
        executor = LocalExecutor(group=2)
        return score(
            Net(4, 3), store, data, SoftmaxResponse(), out=out, executor=executor, progress=False
        )

    shards = -(-N // (10_000 // 256 * 256))
    interrupted(monkeypatch, lambda: run(Pairs(X, Y)), shards)  # the first group's are done
    x = X.clone()
    x[300:2000] = 0
    before = read_files(out)
    assert refusal(lambda: run(Pairs(x, Y))).startswith(
        "`data` must give the same rows at every pass, got other values in rows 0…9983 than the "
        f"scores in {out} are of"
    )
    assert read_files(out) == before
    np.testing.assert_array_equal(
        run(Pairs(X, Y)).kappa("softmax"),
        score(Net(4, 3), store, (X, Y), SoftmaxResponse(), progress=False).kappa("softmax"),
    )


def test_augmentation_that_the_first_batch_does_not_show(store):
    message = refusal(
        lambda: score(
            Net(4, 3),
            store,
            Noisy(X[:5000], Y[:5000]),
            SoftmaxResponse(),
            executor=LocalExecutor(group=2),
            progress=False,
        )
    )
    assert message.startswith(
        "`data` must give the same rows at every pass, got other values in rows 0…4999 than the "
    )


def test_workers_that_read_other_rows_are_refused(store, tmp_path):
    """On a cluster, each worker reads the data; only the driver sees what all of them read."""
    out = tmp_path / "scores"
    out.mkdir()
    plan = make_plan(Net(4, 3), store, (X, Y), SoftmaxResponse(), out)
    for digest, shard in (("one", "0"), ("other", "1"), ("one", "0")):
        plan.record(Done({}, {shard: digest}))
    assert "`data` must give the same rows at every pass" in refusal(
        lambda: plan.record(Done({}, {"1": "one"}))
    )


@pytest.mark.parametrize("form", FORMS)
def test_another_reference_is_refused(store, tmp_path, form):
    out, make = tmp_path / "scores", FORMS[form]

    def run(x):
        kappa = NNDistance(make(x, Y), k=5)
        return score(Net(4, 3), store, (X[:300], Y[:300]), kappa, out=out, progress=False)

    run(X)
    x = X.clone()
    x[300:2000] = 0
    assert refusal(lambda: run(x)).startswith(
        f"`out` must hold scores of the same inputs, got {out} with other kappas"
    )


def test_a_reference_that_changes_under_its_kappa_is_refused(store, tmp_path):
    x = X.clone()
    arguments = (Net(4, 3), store, (X[:300], Y[:300]), NNDistance((x, Y), k=5))
    score(*arguments, out=tmp_path / "scores", progress=False)
    x[300:2000] = 0
    assert "with other kappas" in refusal(
        lambda: score(*arguments, out=tmp_path / "scores", progress=False)
    )


class Doubled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


Tripled = type("Doubled", (nn.Linear,), {"forward": lambda self, x: 3 * nn.Linear.forward(self, x)})


def test_another_forward_is_refused(store, tmp_path):
    out = tmp_path / "scores"

    def run(kind):
        return score(kind(4, 3), store, (X, Y), SoftmaxResponse(), out=out, progress=False)

    run(Doubled)
    assert repr(Doubled(4, 3)) == repr(Tripled(4, 3))
    assert refusal(lambda: run(Tripled)).startswith(
        f"`out` must hold scores of the same inputs, got {out} with other model"
    )


def test_a_table_saved_over_scores_is_not_taken_for_them(store, tmp_path):
    out = tmp_path / "scores"
    arguments = (Net(4, 3), store, (X, Y), SoftmaxResponse())
    table = score(*arguments, out=out, progress=False)
    table.rows(np.arange(N)[::-1]).save(out)
    assert {path.name for path in out.iterdir()} == {"pieces-2", "table.json"}
    assert refusal(lambda: score(*arguments, out=out, progress=False)).startswith(
        f"`out` must hold scores of the same inputs, got {out} with a finished table"
    )
    np.testing.assert_array_equal(
        ScoreTable.open(out).kappa("softmax"), table.kappa("softmax")[:, ::-1]
    )


def test_a_folder_of_others_keeps_its_files(store, tmp_path):
    out = tmp_path / "home"
    (out / "softmax").mkdir(parents=True)
    for name in (".partial-download", "softmax/.partial-0123456789ab-epoch-000001.00000.npy"):
        (out / name).write_text("mine")
    before = read_files(out)
    assert "with other things in it" in refusal(
        lambda: score(Net(4, 3), store, (X, Y), SoftmaxResponse(), out=out, progress=False)
    )
    assert read_files(out) == before
