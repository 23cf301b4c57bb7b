"""Averaged weights: the mean of late snapshots, batch statistics estimated again, and scores."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from snapsure import AES, Ensemble, ScoreTable, SnapshotStore, SoftmaxResponse, score
from snapsure.errors import InvalidInput, WrongArchitecture
from snapsure.scoring import average_weights
from snapsure.scoring._average import AveragedWeights
from snapsure.scoring._plan import Plan
from snapsure.table._pieces import Pieces


def plain():
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))


def normalising():
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 2))


@pytest.fixture
def trained(tmp_path):
    """Make a store of 12 random snapshots of a network."""

    def make(build):
        store = SnapshotStore(tmp_path)
        for epoch in range(1, 13):
            torch.manual_seed(epoch)
            store.save(build(), epoch)
        return store

    return make


@pytest.mark.parametrize("start", [0.4, 0.0, 0.99])
def test_it_is_the_mean_of_the_states_from_start_on(trained, start):
    store = trained(plain)
    states = [store.load(epoch) for epoch in range(max(1, int(start * 12)), 13)]
    ours = average_weights(plain(), store.path, start=start).state_dict()
    for name, value in ours.items():
        mean = torch.stack([state[name].double() for state in states]).mean(dim=0)
        torch.testing.assert_close(value, mean.float(), rtol=0, atol=0)


def test_half_precision_is_averaged_in_double(tmp_path):
    # float16 ends at 65,504: the sum of two of these would be infinite.
    store = SnapshotStore(tmp_path)
    for epoch in range(1, 6):
        store.save({"weight": torch.full((1, 2), 60000.0 + 32 * epoch, dtype=torch.float16)}, epoch)
    model = nn.Linear(2, 1, bias=False).half()
    assert average_weights(model, store, start=0).weight.tolist() == [[60096.0, 60096.0]]


def test_frozen_weights_that_snapshots_leave_out_stay_as_they_are(tmp_path):
    """In double precision too, where a sum could be taken in the network's own memory."""
    store, model = SnapshotStore(tmp_path), plain().double()
    model[0].requires_grad_(False)
    for epoch in range(1, 6):
        with torch.no_grad():
            model[2].bias.fill_(epoch)
        store.save(model, epoch, trainable_only=True)
    ours = average_weights(model, store, start=0)
    torch.testing.assert_close(ours[0].weight, model[0].weight, rtol=1e-15, atol=0)
    assert ours[2].bias.tolist() == [3, 3]


def test_averaged_weights_are_one_snapshot_with_a_hash_of_its_own(trained):
    store = trained(plain)
    ours, again, other = (
        AveragedWeights(plain(), one) for one in (store, store, store.select([11, 12]))
    )
    assert ours.epochs == other.epochs == [12]
    assert ours.sha256(12) == again.sha256(12) != other.sha256(12)
    expected = average_weights(plain(), store).state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in ours.load(12).items())
    with pytest.raises(InvalidInput, match=r"`epoch` must be one of the 1 .* got 11"):
        ours.load(11)


def test_the_model_is_not_touched(trained):
    store, model = trained(normalising), normalising().train()
    before = copy.deepcopy(model.state_dict())
    ours = average_weights(model, store, torch.randn(40, 4))
    assert model.training
    assert not ours.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def statistics(model, batches):
    """Mean over the batches of their own means and unbiased variances, in float64."""
    values = [model[0].double()(batch.double()) for batch in batches]
    means = torch.stack([value.mean(dim=0) for value in values])
    variances = torch.stack([value.var(dim=0) for value in values])
    return means.mean(dim=0), variances.mean(dim=0)


@pytest.mark.parametrize("batch_size", [10, 40])
def test_statistics_are_estimated_again(trained, batch_size):
    store = trained(normalising)
    inputs = torch.randn(40, 4, generator=torch.Generator().manual_seed(0)) * 3 + 1
    labels = torch.arange(40) % 2
    loader = DataLoader(TensorDataset(inputs, labels), batch_size=batch_size)
    ours = average_weights(normalising(), store, loader)
    with torch.no_grad():
        mean, variance = statistics(copy.deepcopy(ours), inputs.split(batch_size))
    torch.testing.assert_close(ours[1].running_mean.double(), mean, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(ours[1].running_var.double(), variance, rtol=1e-5, atol=1e-6)
    assert ours[1].momentum == 0.1
    # The weights are the mean all the same, and whole numbers come from that pass.
    states = [store.load(epoch) for epoch in AES().snapshots(store.epochs)]
    mean = torch.stack([state["0.weight"].double() for state in states]).mean(dim=0)
    torch.testing.assert_close(ours[0].weight, mean.float(), rtol=0, atol=0)
    assert ours[1].num_batches_tracked == 40 // batch_size


class OfWords(nn.Module):
    """Takes its batch by names, as language models do."""

    def __init__(self):
        super().__init__()
        self.net = normalising()

    def forward(self, left, right):
        return {"logits": self.net(torch.cat((left, right), dim=1))}


@pytest.mark.parametrize("labelled", [True, False])
def test_batches_of_named_inputs(trained, labelled):
    store = trained(OfWords)
    x = torch.randn(20, 4, generator=torch.Generator().manual_seed(1))
    rows = [{"left": row[:2], "right": row[2:]} | ({"labels": 0} if labelled else {}) for row in x]
    ours = average_weights(OfWords(), store, DataLoader(rows, batch_size=20))
    with torch.no_grad():
        mean, _ = statistics(copy.deepcopy(ours.net), [x])
    torch.testing.assert_close(ours.net[1].running_mean.double(), mean, rtol=1e-5, atol=1e-6)


def test_dropout_before_a_normalisation_draws_the_same_every_time(trained):
    def build():
        return nn.Sequential(
            nn.Linear(4, 3), nn.Dropout(0.5), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 2)
        )

    store, data = trained(build), torch.randn(40, 4)
    torch.manual_seed(5)
    first = average_weights(build(), store, data)[2].running_mean
    drawn = torch.rand(1)
    second = average_weights(build(), store, data)[2].running_mean
    assert torch.equal(first, second)
    torch.manual_seed(5)
    build()  # its weights are all that the caller's generator gave
    assert torch.equal(drawn, torch.rand(1))


def test_it_classifies_real_digits(digits, tmp_path):
    ours = average_weights(digits.model(), digits.store, digits.train)
    store = SnapshotStore(tmp_path)
    store.save(ours, 1)
    table = score(digits.model(), store, digits.test, SoftmaxResponse(), progress=False)
    images, y = digits.test
    with torch.no_grad():
        p = torch.cat([ours(part) for part in images.split(256)]).double().softmax(dim=1)
    assert (table.errors == (p.argmax(dim=1) != y).numpy()).all()
    np.testing.assert_allclose(table.kappa("softmax")[0], p.amax(dim=1), rtol=1e-4, atol=1e-7)
    most = np.bincount(y).max() / len(y)  # right by always giving the same answer
    assert table.errors.mean() < 1 - most


INPUTS = torch.randn(60, 4, generator=torch.Generator().manual_seed(2))
LABELS = torch.arange(60) % 2
TRAIN = torch.randn(40, 4, generator=torch.Generator().manual_seed(3)) * 3 + 1


def scored(store, reference, **options):
    options = {"progress": False, **options}
    options |= {"average": reference is not None, "reference": reference}
    return score(normalising(), store, (INPUTS, LABELS), **options)


def check_averaged(table, store, train):
    """Compare a table's averaged weights with the network itself, run by hand."""
    with torch.no_grad():
        p = average_weights(normalising(), store, train)(INPUTS).double().softmax(dim=1).numpy()
    labels, kappa, final_kappa = table.averaged
    assert (labels == p.argmax(axis=1)).all()
    np.testing.assert_allclose(kappa, p.max(axis=1), rtol=1e-6)
    np.testing.assert_allclose(final_kappa, p[np.arange(60), table.y_hat], rtol=1e-6)


def test_score_keeps_what_averaged_weights_answer(trained, tmp_path):
    store = trained(normalising)
    table = scored(store, TRAIN, batch_size=7)
    check_averaged(table, store, TRAIN)
    assert (table.averaged.labels != table.y_hat).any()
    some = table.rows([5, 3])
    assert all(
        np.array_equal(few, every[[5, 3]])
        for few, every in zip(some.averaged, table.averaged, strict=True)
    )
    table.save(tmp_path / "saved")
    again = ScoreTable.open(tmp_path / "saved").averaged
    assert all(np.array_equal(*columns) for columns in zip(again, table.averaged, strict=True))
    assert scored(store, None).averaged is None


def test_it_is_added_to_scores_that_are_there(trained, tmp_path):
    """No snapshot is scored again; other training examples replace it; the same keep it."""
    store, out = trained(normalising), tmp_path / "scores"
    scored(store, None, out=out)
    pieces = {path: path.stat().st_mtime_ns for path in out.rglob("*.npy")}
    check_averaged(scored(store, TRAIN, out=out), store, TRAIN)
    assert all(path.stat().st_mtime_ns == at for path, at in pieces.items())

    (piece,) = (out / "averaged").iterdir()
    written = piece.stat().st_mtime_ns
    for reference in (TRAIN, None):
        check_averaged(scored(store, reference, out=out), store, TRAIN)
    assert piece.stat().st_mtime_ns == written
    check_averaged(scored(store, 2 * TRAIN, out=out), store, 2 * TRAIN)
    piece.write_bytes(piece.read_bytes()[:-1])
    check_averaged(scored(store, 2 * TRAIN, out=out), store, 2 * TRAIN)


def test_killed_while_it_is_replaced_the_other_scores_are_whole(trained, tmp_path, monkeypatch):
    store, out = trained(normalising), tmp_path / "scores"
    whole = scored(store, TRAIN, out=out)
    write = Pieces.write

    def tiring(self, *piece):
        write(self, *piece)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Pieces, "write", tiring)
        patched.setattr(Plan, "leave", lambda self: None)  # as if it were killed
        with pytest.raises(KeyboardInterrupt):
            scored(store, 2 * TRAIN, out=out)
    left = ScoreTable.open(out)
    assert left.averaged is None
    assert (left.kappa("softmax") == whole.kappa("softmax")).all()
    check_averaged(scored(store, TRAIN, out=out), store, TRAIN)


def test_its_pass_has_a_bar_of_its_own(trained, capsys):
    scored(trained(normalising), TRAIN, progress=True)
    bars = capsys.readouterr().err
    assert "720/720 ·" in bars  # of 12 snapshots
    assert " 60/60 ·" in bars


def test_scoring_other_inputs_instead_forgets_it(trained, tmp_path):
    store, out = trained(normalising), tmp_path / "scores"
    scored(store, TRAIN, out=out)
    other = (INPUTS + 1, LABELS)
    table = score(normalising(), store, other, out=out, overwrite=True, progress=False)
    assert table.averaged is None


def refusal(*args, **options):
    with pytest.raises(InvalidInput) as caught:
        average_weights(*args, **options)
    return str(caught.value)


def scoring_refusal(*args, **options):
    with pytest.raises(InvalidInput) as caught:
        score(*args, progress=False, **options)
    return str(caught.value)


def test_refusals(trained, tmp_path):
    store = trained(normalising)
    assert refusal(normalising(), store).startswith(
        "`reference` must be training examples where the model has batch normalisation, got none"
    )
    assert refusal(normalising(), tmp_path / "none").startswith(
        f"`snapshots` must hold at least one snapshot, got none in {tmp_path / 'none'}"
    )
    assert refusal(normalising(), store, torch.randn(257, 4)).startswith(
        "`reference` must give batches that have statistics, got an error (Expected more "
        "than 1 value per channel when training, got input size torch.Size([1, 3]))"
    )
    assert refusal(normalising(), store, start=1).startswith("`start` must lie in [0, 1), got 1")
    assert refusal(normalising(), Ensemble([store, store])).startswith(
        "`snapshots` must be of one training, got an ensemble of 2"
    )
    assert not (tmp_path / "new").exists()
    said = scoring_refusal(normalising(), "none", torch.randn(9, 4), average=True)  # at once
    assert said.startswith("`reference` must be training examples where the model has batch norm")
    linear = nn.Linear(4, 3)
    wrong = refusal(nn.Sequential(linear), store)
    with pytest.raises(WrongArchitecture) as caught:
        store.load_into(nn.Sequential(linear), 4)  # the first that is averaged
    assert wrong == str(caught.value)
