"""Entropy, by hand, against SciPy, and exact where rows are nearly certain."""

from math import exp, log

import numpy as np
import pytest
import torch
from scipy import stats

from snapsure.kappas import Entropy
from snapsure.kappas._logits import Logits
from snapsure.testing import KappaContract


class TestEntropy(KappaContract):
    def make(self, inputs, labels):
        return Entropy()


def entropy(logits):
    return Entropy().score(Logits(torch.as_tensor(logits)), np.zeros(len(logits), int), None)


def test_three_classes_by_hand():
    ours = entropy(np.log([[0.5, 0.25, 0.25]]))[0]  # H = ½ ln 2 + ½ ln 4 = 1.5 ln 2
    assert ours == pytest.approx(1 - 1.5 * log(2) / log(3), rel=1e-14)


def test_equals_scipy():
    logits = torch.randn(50, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    peer = stats.entropy(logits.softmax(dim=1), base=7, axis=1)
    np.testing.assert_allclose(entropy(logits), 1 - peer, rtol=1e-12)


def test_the_ends():
    assert entropy(torch.zeros(1, 5)).tolist() == [0]
    assert entropy(torch.tensor([[1e30, 0.0, -1e30]])).tolist() == [1]


def test_nearly_certain_rows_stay_apart():
    # Two classes with a gap g: H = ln(1 + e^−g) + g e^−g / (1 + e^−g).
    gaps = np.arange(10.0, 38.0)
    expected = [(np.log1p(exp(-g)) + g * exp(-g) / (1 + exp(-g))) / log(2) for g in gaps]
    ours = entropy(np.stack([gaps + 1000, np.full(28, 1000.0)], axis=1))
    assert (np.diff(ours) > 0).all()
    np.testing.assert_allclose(1 - ours, expected, atol=2e-16, rtol=0)


def test_a_constant_and_the_order_of_classes_change_nothing():
    logits = torch.randn(40, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    np.testing.assert_allclose(entropy(logits + 7), entropy(logits), atol=1e-14)
    np.testing.assert_allclose(entropy(logits.flip(1)), entropy(logits), atol=1e-14)
