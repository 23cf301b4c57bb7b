"""Batches through groups of snapshots: what is loaded, what comes out, and what is refused."""

import numpy as np
import pytest
import torch
from torch import nn

from snapsure import Ensemble, MCDropout, Predictor, SnapshotStore, SoftmaxResponse
from snapsure.errors import CorruptFile, InvalidInput, WrongArchitecture
from snapsure.estimators import Final
from snapsure.networks._data import Rows, split
from snapsure.networks._runner import Runner, group_epochs, mean_kappa, vote
from snapsure.testing import small_network
from tests.support.refusals import refuses

X = torch.randn(12, 5, generator=torch.Generator().manual_seed(1))
EPOCHS = (1, 2, 3)


def store_of(folder, model=small_network, seed=0):
    store, network = SnapshotStore(folder), model()
    torch.manual_seed(seed)
    for epoch in EPOCHS:
        with torch.no_grad():
            for weights in network.parameters():
                weights.add_(torch.randn_like(weights) * 0.1)
        store.save(network, epoch)
    return store


@pytest.fixture
def store(tmp_path):
    return store_of(tmp_path / "run")


def alone(store, epoch, x=X):
    network = small_network()
    store.load_into(network, epoch)
    with torch.inference_mode():
        return network.eval()(x)


def test_logits_are_those_of_each_snapshot(store):
    runner = Runner(small_network(), [store], EPOCHS)
    runner.load(EPOCHS)
    assert runner.classes is None
    for epochs in ((3, 1), (2,)):
        expected = torch.stack([alone(store, epoch) for epoch in epochs])
        assert torch.equal(runner.logits(epochs, X), expected)
    assert runner.classes == 4


def test_members_predict_together(store, tmp_path):
    ensemble = Ensemble([store, store_of(tmp_path / "other", seed=5)])
    runner = Runner(small_network(), ensemble.members, EPOCHS, [SoftmaxResponse()])
    runner.load([2])
    columns = runner.score(2, X)
    p = np.mean([alone(one, 2).double().softmax(dim=1) for one in ensemble.members], axis=0)
    assert columns["labels"].tolist() == p.argmax(axis=1).tolist()
    np.testing.assert_allclose(columns["softmax"], p.max(axis=1), rtol=1e-12)
    assert runner.logits([2], X).shape == (2, 12, 4)


def test_kappa_is_about_the_classes_that_are_given(store):
    runner = Runner(small_network(), [store], EPOCHS, [SoftmaxResponse(), MCDropout(3)])
    runner.load([1])
    y_hat = np.arange(12) % 4
    p = alone(store, 1).double().softmax(dim=1).numpy()
    columns = runner.score(1, X, y_hat)
    np.testing.assert_allclose(columns["softmax"], p[np.arange(12), y_hat], rtol=1e-12)
    assert columns["labels"].tolist() == p.argmax(axis=1).tolist()
    assert set(columns) == {"labels", "softmax", "mc_dropout"}


def test_networks_are_reused_and_what_is_loaded_stays(store):
    runner = Runner(small_network(), [store], EPOCHS)
    runner.load((3, 2))
    three, two = (network.module for network in runner.networks((3, 2)))
    runner.load((2, 1))
    assert [network.module for network in runner.networks((2, 1))] == [two, three]
    assert torch.equal(runner.logits([1], X)[0], alone(store, 1))
    runner.clear()
    runner.load((3,))
    assert torch.equal(runner.logits([3], X)[0], alone(store, 3))


def test_a_snapshot_that_changes_is_refused(store):
    runner = Runner(small_network(), [store], EPOCHS)
    runner.load([3])
    store.save(small_network(), 1)
    with refuses(CorruptFile, "epoch 1", store.path, "must not change"):
        runner.load([1])


def test_the_first_damaged_snapshot_is_named_and_those_before_it_are_loaded(store):
    runner = Runner(small_network(), [store], EPOCHS)
    for epoch in (1, 2):
        file = next(store.path.glob(f"*{epoch}.safetensors"))
        file.write_bytes(file.read_bytes()[:-1])
    with refuses(CorruptFile, "epoch 2", store.path):
        runner.load((3, 2, 1))
    assert torch.equal(runner.logits([3], X)[0], alone(store, 3))


def test_groups_fit_the_memory_and_have_one_epoch_at_least(store):
    model = small_network()
    weights = sum(value.nbytes for value in model.state_dict().values())
    for memory, members, most, sizes in (
        (0, 1, None, [1] * 5),
        (2 * weights, 1, None, [2, 2, 1]),
        (5 * weights - 1, 2, None, [2, 2, 1]),
        (9 * weights, 1, 3, [3, 2]),
        (9 * weights, 5, 3, [1] * 5),
    ):
        groups = group_epochs(model, [store] * members, [3, 2, 1, 5, 4], memory, most)
        assert [len(group) for group in groups] == sizes
        assert [epoch for group in groups for epoch in group] == [3, 2, 1, 5, 4]


class Shifting(nn.Sequential):
    """Changes its input in place."""

    def forward(self, x):
        return super().forward(x.sub_(0.5))


def test_a_network_that_changes_its_input_gets_a_copy(store):
    runner = Runner(Shifting(*small_network()), [store], EPOCHS, [SoftmaxResponse()])
    runner.load(EPOCHS)
    x = X.clone()
    logits = runner.logits(EPOCHS, x)
    labels = [runner.score(epoch, x)["labels"] for epoch in EPOCHS]
    assert torch.equal(x, X)
    for one, label, epoch in zip(logits, labels, EPOCHS, strict=True):
        assert torch.equal(one, alone(store, epoch, X - 0.5))
        assert label.tolist() == one.argmax(dim=1).tolist()


@pytest.mark.parametrize("call", [Runner.logits, lambda r, e, x: r.score(e[0], x, row=100)])
def test_inputs_that_do_not_fit_are_named(store, call):
    def runner():
        new = Runner(small_network(), [store], EPOCHS, [SoftmaxResponse()], name="batch")
        new.load([3])
        return new

    with refuses(InvalidInput, "`batch`", "shape (12, 4)"):
        call(runner(), [3], X[:, :4])
    with refuses(InvalidInput, "`batch`", "float64", "x.to(torch.float32)"):
        call(runner(), [3], X.double())
    infinite = X.clone()
    infinite[7, 2] = torch.inf
    row = 7 if call is Runner.logits else 107
    with refuses(InvalidInput, "`batch`", "finite", f"row {row}"):
        call(runner(), [3], infinite)


class Positions(nn.Module):
    """Adds an embedding of each of three positions to those of ids."""

    def __init__(self):
        super().__init__()
        self.words, self.positions = nn.Embedding(9, 4), nn.Parameter(torch.zeros(3, 4))

    def forward(self, ids):
        return (self.words(ids) + self.positions).mean(dim=1)


def double_network():
    return small_network(dtype=torch.float64)


@pytest.mark.parametrize(
    ("model", "inputs", "remedy"),
    [
        (double_network, X, "x.to(torch.float64)"),
        (Positions, torch.zeros(4, 5, dtype=torch.long), "Pass inputs as in training"),
        (Positions, torch.zeros(4, 3), "x.long()"),
    ],
)
def test_the_remedy_is_the_type_of_the_weights_only_where_types_differ(
    tmp_path, model, inputs, remedy
):
    runner = Runner(model(), [store_of(tmp_path / "run", model)], EPOCHS)
    runner.load([3])
    with refuses(InvalidInput, "`data`", remedy):
        runner.logits([3], inputs)


def test_members_agree_by_their_mean_probability():
    one = torch.tensor([[4.0, 0.0, 0.0]])
    other = torch.tensor([[0.0, 3.0, 0.0]])
    assert vote([one, other]).tolist() == [0]
    assert vote([other]).tolist() == [1]
    assert mean_kappa([np.array([0.25, 1.0]), np.array([0.75, 1.0])]).tolist() == [0.5, 1.0]


def test_a_diverged_snapshot_is_named(store):
    broken = small_network()
    torch.nn.init.constant_(next(broken.parameters()), torch.nan)
    store.save(broken, 2)
    runner = Runner(small_network(), [store], EPOCHS, [SoftmaxResponse()])
    runner.load(EPOCHS)
    for run in (lambda: runner.logits(EPOCHS[::-1], X), lambda: runner.score(2, X)):
        with refuses(InvalidInput, "`model` must return finite logits", "epoch 2"):
            run()


def test_rows_are_counted_over_all_data(store):
    runner = Runner(small_network(), [store], EPOCHS, [SoftmaxResponse()], name="batch")
    runner.load(EPOCHS)
    bad = X.clone()
    bad[7, 1] = torch.nan
    for run in (lambda: runner.logits([3], bad, 512), lambda: runner.score(3, bad, row=512)):
        with refuses(InvalidInput, "`batch`", "row 519"):
            run()


def test_networks_are_on_the_device_that_is_given(store):
    runner = Runner(small_network(), [store], EPOCHS, device=torch.device("meta"))
    assert runner.device.type == "meta"


def test_a_network_without_weights_is_refused(store):
    class Weightless(nn.Module):
        def forward(self, x):
            return x[:, :4]

    with refuses(WrongArchitecture, "unknown to the model"):
        Runner(Weightless(), [store], EPOCHS).load([1])


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda x: x.to_sparse(), "sparse_coo"),
        (lambda x: x.to_sparse_csr(), "sparse_csr"),
        (lambda x: x.to("meta"), "meta"),
        (lambda x: torch.nested.nested_tensor([x, x[:3]]), "nested"),
        (lambda x: torch.nested.nested_tensor([x, x[:3]], layout=torch.jagged), "nested"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*(beta state|prototype stage)")
def test_tensors_without_rows_of_numbers_are_refused(store, make, kind):
    inputs = make(X)
    runner = Runner(small_network(), [store], EPOCHS, name="batch")
    runner.load([1])
    for read in (
        lambda: runner.logits([1], inputs),
        lambda: Rows.of(inputs, "batch"),
        lambda: Rows.of((inputs, None), "batch"),
        lambda: Rows.of({"x": inputs}, "batch"),
        lambda: split([inputs, [0]], "batch"),
        lambda: Predictor(small_network(), store, Final())(inputs),
    ):
        with refuses(InvalidInput, "`batch` must hold dense tensors", f"got a {kind}", "to_dense"):
            read()
