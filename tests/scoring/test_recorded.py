"""κ from recorded logits: the same as from the network that gave them."""

import numpy as np
import pytest
import torch

from snapsure import AES, Ensemble, MCDropout, SoftmaxResponse, score
from snapsure.errors import CorruptFile, InvalidInput
from snapsure.kappas import DeepKNN, Doctor, Energy, Entropy, Margin, MaxLogit
from snapsure.networks._forward import Logits
from snapsure.scoring._recorded import RecordedLogits, average_probabilities, score_recorded

KAPPAS = [SoftmaxResponse(), Entropy(), Margin(), Energy(2.0), MaxLogit(), Doctor()]


def record(digits, folder):
    """Keep what each snapshot says of the test points."""
    images, labels = digits.test
    kept, model = RecordedLogits(folder), digits.model().eval()
    for epoch in digits.store.epochs:
        digits.store.load_into(model, epoch)
        with torch.no_grad():
            logits = torch.cat([model(part) for part in images.split(256)])
        kept.write(epoch, logits.numpy(), labels.numpy())
    return kept


@pytest.fixture(scope="module")
def kept(digits, tmp_path_factory):
    return record(digits, tmp_path_factory.mktemp("logits"))


@pytest.fixture(scope="module")
def other(other_digits, tmp_path_factory):
    return record(other_digits, tmp_path_factory.mktemp("more"))


def test_each_is_what_scoring_gives(digits, kept):
    table = score_recorded(kept, kappas=KAPPAS)
    scored = score(digits.model(), digits.store, digits.test, KAPPAS, progress=False)
    assert table.names == scored.names
    for name in table.names:
        np.testing.assert_allclose(table.kappa(name), scored.kappa(name), atol=1e-6)
    np.testing.assert_array_equal(table.labels, scored.labels)
    np.testing.assert_array_equal(table.y_hat, scored.y_hat)


def test_softmax_alone_if_none_is_named(kept):
    plain, named = score_recorded(kept), score_recorded(kept, kappas=SoftmaxResponse())
    assert plain.names == ["softmax"]
    np.testing.assert_array_equal(plain.kappa("softmax"), named.kappa("softmax"))
    together = score_recorded(kept, kappas=KAPPAS)
    np.testing.assert_array_equal(plain.kappa("softmax"), together.kappa("softmax"))


def test_ensembles_are_named_as_by_scoring(digits, other_digits, kept, other):
    ensemble = Ensemble([digits.store, other_digits.store])
    for kappa in (SoftmaxResponse(), Margin()):
        scored = score(digits.model(), ensemble, digits.test, kappa, progress=False)
        table = score_recorded(kept, other, kappas=kappa)
        assert table.names == scored.names
        np.testing.assert_allclose(table.kappa(kappa.name), scored.kappa(kappa.name), atol=1e-6)
        np.testing.assert_array_equal(table.y_hat, scored.y_hat)


@pytest.mark.parametrize(("k", "start"), [(30, 0.4), (3, 0.0), (1, 0.4)])
def test_averaged_probabilities_are_the_mean_of_all_softmax(kept, k, start):
    epochs = AES(k, start).snapshots(kept.epochs)
    p = np.mean([kept.read(int(e)).double().softmax(dim=1).numpy() for e in epochs], axis=0)
    kappa, y_hat = average_probabilities(kept, k=k, start=start)
    np.testing.assert_array_equal(y_hat, p.argmax(axis=1))
    np.testing.assert_allclose(kappa, p.max(axis=1), rtol=1e-12)


def test_averaged_probabilities_answer_for_themselves(tmp_path):
    # Two snapshots: 0.9 and then 0.4 for class 0. The last answers 1; their mean, 0.65, is of 0.
    kept = RecordedLogits(tmp_path)
    for epoch, p in enumerate([[0.9, 0.1], [0.4, 0.6]], 1):
        kept.write(epoch, np.log(np.array([p], np.float32)), np.array([0]))
    kappa, y_hat = average_probabilities(kept, start=0)
    assert score_recorded(kept).y_hat.tolist() == [1]
    assert y_hat.tolist() == [0]
    assert kappa[0] == pytest.approx(0.65, rel=1e-6)


def test_averaged_probabilities_of_several_networks(kept, other):
    both, y_hat = average_probabilities(kept, other, k=2)
    at = AES(2).snapshots(kept.epochs)
    p = np.mean(
        [
            each.read(epoch).double().softmax(dim=1).numpy()
            for each in (kept, other)
            for epoch in at
        ],
        axis=0,
    )
    np.testing.assert_array_equal(y_hat, p.argmax(axis=1))
    np.testing.assert_allclose(both, p.max(axis=1), rtol=1e-12)


def test_what_was_recorded_after_an_epoch_goes_and_the_rest_stays(tmp_path):
    kept, logits = RecordedLogits(tmp_path), np.zeros((2, 3), np.float32)
    for epoch in (1, 2, 3, 4):
        kept.write(epoch, logits + epoch, np.array([0, 2]))
    for _ in range(2):
        kept.rewind(2)
        assert kept.epochs == [1, 2]
        assert (kept.read(2) == 2).all()
        names = ["epoch-000001.npy", "epoch-000002.npy", "labels.npy", "logits.json"]
        assert sorted(path.name for path in tmp_path.iterdir()) == names
    with pytest.raises(InvalidInput, match=r"same examples .* other labels at epoch 3"):
        kept.write(3, logits, np.array([2, 0]))
    with pytest.raises(CorruptFile, match=r"logits.json must name epoch-000003.npy"):
        kept.read(3)


def test_refusals(digits, other_digits, kept, tmp_path):
    near = DeepKNN(digits.train)
    for kappas, sentence in (
        (
            [Entropy(), near],
            "`kappas` must need logits alone, got deep_knn",
        ),
        (
            [Energy(), Energy(2.0)],
            "`kappas` must have different names, got ['energy', 'energy']",
        ),
        (
            MCDropout(),
            "`kappas` must need logits alone, got mc_dropout",
        ),
    ):
        with pytest.raises(InvalidInput) as caught:
            score_recorded(kept, kappas=kappas)
        assert str(caught.value).startswith(sentence)
    with pytest.raises(InvalidInput) as caught:
        average_probabilities(kept, RecordedLogits(tmp_path))
    assert str(caught.value).startswith(
        f"Logits must be of the same epochs in each folder, got 6 epochs in {kept.folder} and 0 or "
        f"others in {tmp_path}"
    )
    with pytest.raises(InvalidInput) as caught:
        score_recorded(RecordedLogits(tmp_path))
    assert str(caught.value).startswith(
        f"Logits of at least one epoch must be recorded, got none in {tmp_path}"
    )


def test_what_a_pass_of_logits_alone_does_not_have():
    known = Logits(torch.zeros(2, 3))
    with pytest.raises(InvalidInput) as caught:
        known.embedding(None)
    assert str(caught.value).startswith("κ must need logits alone, got one that reads embeddings")
    with pytest.raises(InvalidInput) as caught:
        known.samples(MCDropout().sampling)
    assert str(caught.value).startswith("κ must need logits alone, got one that samples dropout")
