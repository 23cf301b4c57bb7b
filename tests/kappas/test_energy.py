"""Energy and max-logit, by hand and against SciPy, and the map that they share."""

import numpy as np
import pytest
import torch
from scipy.special import logsumexp

from snapsure.errors import InvalidInput
from snapsure.kappas import Energy, MaxLogit
from snapsure.kappas._logits import Logits
from snapsure.kappas._squash import squash
from snapsure.testing import KappaContract, kappa_of, small_network


class Unbounded(KappaContract):
    """Scores that know no certainty: of one class, they are those of its logit."""

    def test_one_class_is_certain(self, inputs):
        model = small_network(classes=1).eval()
        with torch.no_grad():
            logit = model(inputs)[:, 0]
        ours = kappa_of(self.make(inputs, None), model, inputs, np.zeros(60, int))
        np.testing.assert_allclose(ours, squash(logit), atol=1e-6)


class TestEnergy(Unbounded):
    def make(self, inputs, labels):
        return Energy()


class TestMaxLogit(Unbounded):
    def make(self, inputs, labels):
        return MaxLogit()


def score(kappa, logits, y_hat=None):
    logits = torch.as_tensor(logits)
    answers = logits.argmax(dim=1).numpy() if y_hat is None else np.asarray(y_hat)
    return kappa.score(Logits(logits), answers, None)


def unmapped(kappa):
    """x of κ = 1/2 + x / (2 (1 + |x|))."""
    lead = 2 * np.asarray(kappa) - 1
    return lead / (1 - np.abs(lead))


LOGITS = torch.randn(50, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 3


def test_three_classes_by_hand():
    logits = np.log([[1.0, 2.0, 5.0]])  # energy ln 8; of temperature 2, 2 ln(1 + √2 + √5)
    energy, warm = score(Energy(), logits), score(Energy(2), logits)
    assert unmapped(energy)[0] == pytest.approx(np.log(8), rel=1e-14)
    assert unmapped(warm)[0] == pytest.approx(2 * np.log(1 + 2**0.5 + 5**0.5), rel=1e-14)
    assert unmapped(score(MaxLogit(), logits))[0] == pytest.approx(np.log(5), rel=1e-14)
    assert unmapped(score(MaxLogit(), logits, [1]))[0] == pytest.approx(np.log(2), rel=1e-14)


@pytest.mark.parametrize("temperature", [0.1, 1.0, 30.0])
def test_energy_is_scipys_logsumexp(temperature):
    expected = temperature * logsumexp(LOGITS.numpy() / temperature, axis=1)
    np.testing.assert_allclose(unmapped(score(Energy(temperature), LOGITS)), expected, rtol=1e-12)


def test_max_logit_is_the_largest():
    np.testing.assert_allclose(
        unmapped(score(MaxLogit(), LOGITS)), LOGITS.amax(dim=1), rtol=1e-12, atol=1e-14
    )


@pytest.mark.parametrize("kappa", [Energy(), Energy(0.5), MaxLogit()])
def test_a_constant_is_added(kappa):
    np.testing.assert_allclose(
        unmapped(score(kappa, LOGITS + 3)), unmapped(score(kappa, LOGITS)) + 3, rtol=1e-11
    )


@pytest.mark.parametrize("size", [1e-3, 1.0, 37.0, 1e4, 1e8])
def test_neighbouring_float32_stay_apart(size):
    steps = np.arange(100, dtype=np.float32) * np.spacing(np.float32(size))
    rising = torch.from_numpy(np.float32(size) + steps)
    assert (np.diff(squash(rising)) > 0).all()
    assert (np.diff(squash(-rising)) < 0).all()


def test_the_map():
    x = np.array([-3e4, -2.0, -0.5, 0.0, 0.5, 2.0, 3e4])
    expected = 0.5 + x / (2 * (1 + np.abs(x)))
    np.testing.assert_allclose(squash(torch.from_numpy(x)), expected, rtol=1e-11)
    assert squash(torch.tensor([-np.inf, np.inf])).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("temperature", "sentence"),
    [
        (0, "`temperature` must be > 0, got 0. Use a number above 0."),
        (np.nan, "`temperature` must be finite, got nan. Pass an ordinary number."),
    ],
)
def test_refusals(temperature, sentence):
    with pytest.raises(InvalidInput) as caught:
        Energy(temperature)
    assert str(caught.value) == sentence
