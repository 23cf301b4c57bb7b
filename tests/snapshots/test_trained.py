"""Snapshots of what was trained, over frozen weights that are in the model once."""

import numpy as np
import pytest
import torch
from torch import nn

from snapsure import AES, Ensemble, Predictor, Recorder, SnapshotStore, score
from snapsure.errors import CorruptFile, InvalidInput, WrongArchitecture
from snapsure.networks._runner import Runner, group_epochs
from snapsure.scoring import average_weights
from snapsure.training import Student
from tests.support.refusals import refuses

X = torch.randn(40, 4, generator=torch.Generator().manual_seed(1))
Y = torch.arange(40) % 3
EPOCHS = [1, 2, 3, 4, 5]


def network(seed=0):
    """Frozen up to its last layer, with a normalisation whose statistics training changes."""
    torch.manual_seed(seed)
    made = nn.Sequential(nn.Linear(4, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 3))
    made[:2].requires_grad_(False)
    return made


def train(model, epoch):
    with torch.no_grad():
        model.train()(X + epoch)  # moves the statistics
        model[3].weight.add_(torch.randn_like(model[3].weight))
    return model


@pytest.fixture
def stores(tmp_path):
    """The same training without frozen weights, and in whole networks."""
    model = network()
    part = Recorder(tmp_path / "part", trainable_only=True)
    whole = Recorder(tmp_path / "whole")
    for epoch in EPOCHS:
        train(model, epoch)
        assert part.record(model, epoch)
        assert whole.record(model, epoch)
    return part.store, whole.store


def weights_of(store, epoch, model=None):
    model = network() if model is None else model
    store.load_into(model, epoch)
    return model.state_dict()


def assert_same(one, other):
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_it_holds_trained_weights_and_all_buffers(stores):
    part, whole = stores
    statistics = {"1.running_mean", "1.running_var", "1.num_batches_tracked"}
    for epoch in EPOCHS:
        assert part.load(epoch).keys() == {"3.weight", "3.bias"} | statistics
        assert_same(weights_of(part, epoch), weights_of(whole, epoch))
    assert not torch.equal(part.load(1)["1.running_mean"], part.load(5)["1.running_mean"])
    assert whole.base(1) is None
    assert part.base(1) == part.base(5) == part.select([5]).base(5)


def test_everything_that_follows_is_the_same_to_the_last_bit(stores, tmp_path):
    tables = [
        score(network(), store, (X, Y), average=True, reference=X, progress=False)
        for store in stores
    ]
    assert np.array_equal(*(table.kappa("softmax") for table in tables))
    assert np.array_equal(*(np.stack(table.averaged) for table in tables))
    assert_same(*(average_weights(network(), store, X).state_dict() for store in stores))
    one, other = (Predictor(network(), store, AES(k=3)) for store in stores)
    for mine, theirs in zip(one(X), other(X), strict=True):
        assert np.array_equal(mine, theirs)
    students = [
        Student(
            network, store, (X, Y), tmp_path / store.path.name / "student", epochs=2, progress=False
        ).fit()
        for store in stores
    ]
    assert_same(*(student.network.state_dict() for student in students))
    assert students[0].snapshots("final").base(1) is None  # its own, which has no adapters


def test_networks_share_the_base_and_reuse_each_other(stores):
    part, whole = stores
    runner = Runner(network(), [part], EPOCHS)
    for epochs in ([5, 4], [1, 2, 3], [3, 5]):
        runner.load(epochs)
        modules = [one.module for one in runner.networks(epochs)]
        assert len({id(module[0].weight) for module in modules}) == 1
        assert len({id(module[3].weight) for module in modules}) == len(epochs)
        for module, epoch in zip(modules, epochs, strict=True):
            assert_same(module.state_dict(), weights_of(whole, epoch))
    runner.clear()
    runner.load([2])
    assert_same(runner.networks([2])[0].module.state_dict(), weights_of(whole, 2))


def test_members_with_and_without_frozen_weights(stores, tmp_path):
    mixed, whole = Ensemble(stores), Ensemble([stores[1], stores[1]])
    runner = Runner(network(), mixed.members, EPOCHS)
    for epochs in ([5, 4], [1], [2, 3]):
        runner.load(epochs)
        for one in runner.networks(epochs):
            assert_same(one.module.state_dict(), weights_of(stores[1], one.epoch))
    one, other = (Predictor(network(), store, AES(k=3)) for store in (mixed, whole))
    one.save(tmp_path / "saved")
    for found in (one, Predictor.load(tmp_path / "saved", network(7))):
        assert np.array_equal(found(X).confidence, other(X).confidence)


def test_groups_count_the_base_once(stores):
    part, whole = stores
    model = network()
    total = sum(value.nbytes for value in model.state_dict().values())
    each = sum(value.nbytes for value in part.load(1).values())
    for memory, size in ((total + each, 2), (total + 4 * each, 5), (total + 4 * each - 1, 4)):
        assert len(group_epochs(model, [part], EPOCHS, memory)[0]) == size
    assert len(group_epochs(model, [whole], EPOCHS, total + each)[0]) == 1


def test_a_saved_predictor_holds_the_base_once(stores, tmp_path):
    made = Predictor(network(), stores[0], AES(k=3))
    made.save(tmp_path / "saved")
    sizes = {path.name[:4]: path.stat().st_size for path in (tmp_path / "saved").iterdir()}
    assert len([*(tmp_path / "saved").glob("base-*")]) == 1
    assert len([*(tmp_path / "saved").glob("epoch-*")]) == 3
    assert sizes["base"] > network()[0].weight.nbytes
    loaded = Predictor.load(tmp_path / "saved", network(seed=3))  # whatever its weights are
    assert np.array_equal(loaded(X).confidence, made(X).confidence)
    loaded.save(tmp_path / "saved")  # over itself, whose files go
    assert len([*(tmp_path / "saved").iterdir()]) == 1 + 1 + 3
    again = Predictor.load(tmp_path / "saved", network(seed=4), memory=1)
    assert np.array_equal(again(X).confidence, made(X).confidence)
    next((tmp_path / "saved").glob("base-*")).unlink()
    with pytest.raises(CorruptFile, match="base-"):
        Predictor.load(tmp_path / "saved", network())


def test_a_lost_manifest_is_written_again_with_the_base(stores):
    part, _ = stores
    base = part.base(3)
    (part.path / "manifest.json").unlink()
    found = SnapshotStore(part.path)
    found.rebuild()
    assert found.base(3) == base
    found.load_into(network(), 3)


def test_rounded(tmp_path):
    store = SnapshotStore(tmp_path)
    model = network()
    store.save(model, 1, trainable_only=True, dtype="bfloat16")
    state = weights_of(store, 1)
    assert torch.equal(state["0.weight"], model[0].weight)
    assert torch.equal(state["3.weight"], model[3].weight.bfloat16().float())


def test_another_base_is_refused(stores):
    part, _ = stores
    for store in (part, part.select([3])):
        facts = f"epoch 3 in {part.path}", f"SHA-256 {part.base(3)}", "pretrained"
        with refuses(InvalidInput, *facts):
            store.load_into(network(seed=1), 3)
    turned = network()
    turned[0].weight = nn.Parameter(turned[0].weight.detach().view(4, 64), requires_grad=False)
    with refuses(InvalidInput, "got others"):
        part.load_into(turned, 3)
    with refuses(InvalidInput, "precision"):
        part.load_into(network().double(), 3)
    with refuses(InvalidInput, "`model`", "got others"):
        score(network(seed=1), part, (X, Y), progress=False)
    wider = nn.Sequential(*network()[:3], nn.Linear(64, 5))
    with refuses(WrongArchitecture, "3.bias (3,) for (5,)"):
        part.load_into(wider, 3)


def test_frozen_weights_that_change_are_refused(stores):
    part, whole = stores
    model = network()
    part.load_into(model, 5)
    remedy = "trainable_only=False"
    with torch.no_grad():
        model[0].bias += 1e-6
    with refuses(InvalidInput, f"epoch 5 in {part.path}", part.base(5)[:12], "got base", remedy):
        part.save(model, 6, trainable_only=True)
    with refuses(InvalidInput, "got a whole network", remedy):
        part.save(model, 6)
    with refuses(InvalidInput, "(a whole network)", "got base", remedy):
        whole.save(model, 6, trainable_only=True)
    part.rewind(0)
    part.save(model, 6, trainable_only=True)


def test_what_is_tied_is_trained_under_all_its_names(tmp_path):
    def make():
        torch.manual_seed(0)
        norm, linear = nn.BatchNorm1d(4), nn.Linear(4, 4)
        frozen = nn.Linear(4, 4).requires_grad_(False)
        return nn.Sequential(frozen, norm, linear, norm, linear)

    model, store = make(), SnapshotStore(tmp_path)
    for epoch in (1, 2):
        with torch.no_grad():
            model.train()(X + epoch)
            model[2].weight.mul_(2)
        store.save(model, epoch, trainable_only=True)
    assert_same(weights_of(store, 2, make()), model.state_dict())


def test_what_does_not_say_what_is_trained_is_refused(tmp_path):
    store, model = SnapshotStore(tmp_path), network()
    with refuses(InvalidInput, "trainable_only=True", "got OrderedDict", "Pass the network"):
        store.save(model.state_dict(), 1, trainable_only=True)
    model.requires_grad_(False)
    with refuses(InvalidInput, "trainable_only=True", "none with requires_grad"):
        store.save(model, 1, trainable_only=True)
