"""κ of the logits alone: by hand, against definitions and SciPy, and exact at both ends."""

from math import exp, log

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import logsumexp

from snapsure._logit_scores import squash
from snapsure.errors import InvalidInput
from snapsure.kappas import (
    GEN,
    Doctor,
    Energy,
    Entropy,
    Margin,
    MaxLogit,
    MCDropout,
    NNDistance,
)
from snapsure.kappas._base import softmax_of
from snapsure.kappas._logits import Logits
from snapsure.testing import KappaContract, kappa_of, small_network

LOGITS = torch.randn(60, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 2
P = LOGITS.softmax(dim=1).numpy()


def rate(kappa, logits, y_hat=None):
    """κ of logits, for the largest where no class is named."""
    logits = torch.as_tensor(logits)
    y_hat = logits.argmax(dim=1).numpy() if y_hat is None else np.asarray(y_hat)
    return kappa.score(Logits(logits), y_hat, None)


def unsquash(kappa):
    """x of κ = 1/2 + x / (2 (1 + |x|))."""
    lead = 2 * np.asarray(kappa) - 1
    return lead / (1 - np.abs(lead))


class TestLogitKappas(KappaContract):
    @pytest.fixture(autouse=True, params=[Entropy, Margin, Doctor, GEN, Energy, MaxLogit])
    def _kind(self, request):
        self.kind = request.param

    def make(self, inputs, labels):
        return self.kind()

    def test_one_class_is_certain(self, inputs):
        """Energy and max-logit know no certainty: of one class, they are its logit."""
        model = small_network(classes=1).eval()
        with torch.no_grad():
            logit = model(inputs)[:, 0]
        ours = kappa_of(self.make(inputs, None), model, inputs, np.zeros(60, int))
        if self.kind in (Energy, MaxLogit):
            np.testing.assert_allclose(ours, squash(logit.double().numpy()), atol=1e-6)
        else:
            assert (ours == 1).all()


def test_entropy_is_scipys():
    peer = stats.entropy(P, base=7, axis=1)
    np.testing.assert_allclose(rate(Entropy(), LOGITS), 1 - peer, rtol=1e-12)


def test_margin_is_the_difference_of_two_softmax():
    y_hat = np.arange(60) % 7
    others = np.array([np.delete(row, answer).max() for row, answer in zip(P, y_hat, strict=True)])
    expected = (1 + P[np.arange(60), y_hat] - others) / 2
    np.testing.assert_allclose(rate(Margin(), LOGITS, y_hat), expected, rtol=1e-13)


def test_doctor_ranks_as_d_alpha_and_softmax_as_d_beta():
    g, p = (P**2).sum(axis=1), P.max(axis=1)
    d_alpha, d_beta = (1 - g) / g, (1 - p) / p
    ours = rate(Doctor(), LOGITS)
    np.testing.assert_allclose(ours, 1 / (1 + d_alpha), rtol=1e-13)
    assert (np.argsort(-ours) == np.argsort(d_alpha)).all()
    softmax = softmax_of(LOGITS, LOGITS.argmax(dim=1).numpy())
    assert (np.argsort(-softmax) == np.argsort(d_beta)).all()
    assert (np.argsort(-ours) != np.argsort(d_beta)).any()


def sum_largest(p, gamma, top):
    """GEN's sum by its definition: sort, then add."""
    p = -np.sort(-p, axis=1)[:, :top]
    return (p**gamma * (1 - p) ** gamma).sum(axis=1)


@pytest.mark.parametrize(("gamma", "top"), [(0.1, 100), (0.1, 7), (0.3, 4), (0.9, 1)])
def test_gen_by_its_definition(gamma, top):
    expected = 1 - sum_largest(P, gamma, top) / (min(top, 7) * 0.25**gamma)
    # What is left of 1 may be small, and is rounded as 1 is.
    np.testing.assert_allclose(rate(GEN(gamma, top), LOGITS), expected, rtol=1e-11, atol=1e-15)
    tied = torch.tensor([[2.0, 2.0, 0.0]])
    expected = 1 - sum_largest(tied.double().softmax(dim=1).numpy(), 0.1, 3) / (3 * 0.25**0.1)
    np.testing.assert_allclose(rate(GEN(), tied), expected, rtol=1e-12)


@pytest.mark.parametrize("temperature", [0.1, 1.0, 30.0])
def test_energy_is_scipys_logsumexp(temperature):
    expected = temperature * logsumexp(LOGITS.numpy() / temperature, axis=1)
    np.testing.assert_allclose(unsquash(rate(Energy(temperature), LOGITS)), expected, rtol=1e-12)


@pytest.mark.parametrize("y_hat", [None, np.arange(60) % 7])
def test_max_logit_is_the_logit_of_the_answer(y_hat):
    expected = LOGITS.amax(dim=1) if y_hat is None else LOGITS.numpy()[np.arange(60), y_hat]
    ours = unsquash(rate(MaxLogit(), LOGITS, y_hat))
    np.testing.assert_allclose(ours, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("kappa", [Entropy(), Margin(), Doctor(), GEN()])
def test_a_constant_and_the_order_of_classes_change_nothing(kappa):
    ours = rate(kappa, LOGITS)
    np.testing.assert_allclose(rate(kappa, LOGITS + 7), ours, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(rate(kappa, LOGITS.flip(1)), ours, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("kappa", [Energy(), Energy(0.5), MaxLogit()])
def test_a_constant_is_added(kappa):
    ours = unsquash(rate(kappa, LOGITS))
    np.testing.assert_allclose(unsquash(rate(kappa, LOGITS + 3)), ours + 3, rtol=1e-11)


def test_the_ends():
    huge, even = torch.tensor([[1e30, 0.0, -1e30]]), torch.zeros(1, 5)
    for kappa in (Entropy(), Margin(), Doctor(), GEN()):
        assert rate(kappa, huge).tolist() == [1]
    assert rate(Entropy(), even).tolist() == [0]
    assert rate(Doctor(), even)[0] == pytest.approx(0.2, rel=1e-14)
    assert rate(GEN(), torch.zeros(1, 2))[0] == pytest.approx(0, abs=1e-15)  # both are ½
    assert rate(GEN(), torch.tensor([[4.0]])).tolist() == [1]  # one class
    assert rate(Margin(), [[2.0, 2.0, 0.0]], [1]).tolist() == [0.5]


def test_nearly_certain_rows_stay_apart():
    """Two classes with a gap g, or three of which two are g behind."""
    gaps = np.arange(10.0, 36.0)
    two = np.stack([gaps + 1000, np.full(26, 1000.0)], axis=1)
    missing = 1 / (1 + np.exp(gaps))
    entropy = [(np.log1p(exp(-g)) + g * exp(-g) / (1 + exp(-g))) / log(2) for g in gaps]
    tail = np.exp(-gaps) / (1 + 2 * np.exp(-gaps))
    three = np.stack([gaps, np.zeros(26), np.zeros(26)], axis=1)
    for ours, expected in (
        (rate(Entropy(), two), entropy),
        (rate(Doctor(), two), 2 * missing * (1 - missing)),
        (rate(Margin(), three), 1.5 * tail),
    ):
        assert (np.diff(ours) > 0).all()
        np.testing.assert_allclose(1 - ours, expected, atol=2e-16, rtol=0)
    low = rate(Margin(), three, np.ones(26, int))
    np.testing.assert_allclose(low, 1.5 * tail, rtol=1e-14)
    gaps = np.arange(10.0, 340.0, 10)  # a softmax in float64 is 1 from 37 on
    assert (np.diff(rate(GEN(), np.stack([gaps, np.zeros(33)], axis=1))) > 0).all()


def test_squash():
    x = np.array([-3e4, -2.0, -0.5, 0.0, 0.5, 2.0, 3e4])
    expected = 0.5 + x / (2 * (1 + np.abs(x)))
    np.testing.assert_allclose(squash(x), expected, rtol=1e-11)
    assert squash(np.array([-np.inf, np.inf])).tolist() == [0, 1]


@pytest.mark.parametrize("size", [1e-3, 1.0, 37.0, 1e4, 1e8])
def test_squash_keeps_neighbouring_float32_apart(size):
    steps = np.arange(100, dtype=np.float32) * np.spacing(np.float32(size))
    rising = (np.float32(size) + steps).astype(np.float64)
    assert (np.diff(squash(rising)) > 0).all()
    assert (np.diff(squash(-rising)) < 0).all()


def test_settings_and_refusals():
    assert GEN(0.2, 7).settings == {"gamma": 0.2, "top": 7}
    assert Energy(2).settings == {"temperature": 2}
    for kind, wrong in (
        (GEN, {"gamma": 0}),
        (GEN, {"gamma": 1}),
        (GEN, {"top": 0}),
        (Energy, {"temperature": 0}),
        (Energy, {"temperature": np.nan}),
    ):
        with pytest.raises(InvalidInput, match=f"`{next(iter(wrong))}` must"):
            kind(**wrong)


def test_logits_alone_are_refused_where_they_are_not_enough():
    for kappa in (MCDropout(3, 0.5), NNDistance((torch.eye(3), [0, 1, 2]))):
        with pytest.raises(InvalidInput, match=r"κ must need logits alone, got one that .*Score"):
            rate(kappa, LOGITS)
