"""Softmax response, exact at both ends."""

from fractions import Fraction

import numpy as np
import pytest
import torch

from snapsure import SoftmaxResponse
from snapsure.kappas._base import softmax_of
from snapsure.testing import KappaContract


class TestSoftmaxResponse(KappaContract):
    def make(self, inputs, labels):
        return SoftmaxResponse()


def test_it_is_the_softmax():
    logits = torch.randn(50, 7, dtype=torch.float64)
    y_hat = np.arange(50) % 7
    expected = logits.softmax(dim=1).numpy()[np.arange(50), y_hat]
    np.testing.assert_allclose(softmax_of(logits, y_hat), expected, rtol=1e-13)


def test_confident_points_are_not_tied():
    # In float32 a gap of 20 gives exactly 1.0; here 1 − κ is 1 / (1 + e^gap) to 16 places.
    gaps = torch.arange(15, 34, dtype=torch.float32)
    logits = torch.stack([gaps, torch.zeros(19)], dim=1)
    assert (logits.softmax(dim=1)[5:, 0] == 1).all()
    kappa = softmax_of(logits, np.zeros(19, int))
    assert (np.diff(kappa) > 0).all()
    np.testing.assert_allclose(
        1 - kappa, 1 / (1 + np.exp(gaps.double().numpy())), atol=2e-16, rtol=0
    )


def test_hopeless_points_are_not_tied():
    logits = torch.tensor([[0.0, 50.0], [0.0, 60.0], [0.0, 700.0]])
    kappa = softmax_of(logits, np.zeros(3, int))
    np.testing.assert_allclose(kappa, np.exp([-50.0, -60.0, -700.0]), rtol=1e-12)


def test_huge_logits():
    logits = torch.tensor([[1e30, -1e30, 0.0], [3e4, 3e4, 3e4]])
    kappa = softmax_of(logits, np.zeros(2, int))
    assert kappa[0] == 1
    assert kappa[1] == pytest.approx(float(Fraction(1, 3)), rel=1e-12)
