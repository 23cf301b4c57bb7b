"""DOCTOR, by hand, against its definition, and exact where rows are nearly certain."""

import numpy as np
import pytest
import torch

from snapsure.kappas import Doctor
from snapsure.kappas._base import softmax_of
from snapsure.kappas._logits import Logits
from snapsure.testing import KappaContract


class TestDoctor(KappaContract):
    def make(self, inputs, labels):
        return Doctor()


def doctor(logits):
    return Doctor().score(Logits(torch.as_tensor(logits)), np.zeros(len(logits), int), None)


LOGITS = torch.randn(50, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 2


def test_three_classes_by_hand():
    ours = doctor(np.log([[0.6, 0.3, 0.1]]))[0]
    assert ours == pytest.approx(0.36 + 0.09 + 0.01, rel=1e-14)


def test_it_ranks_as_d_alpha():
    p = LOGITS.softmax(dim=1).numpy()
    g = (p**2).sum(axis=1)
    d_alpha = (1 - g) / g
    np.testing.assert_allclose(doctor(LOGITS), 1 / (1 + d_alpha), rtol=1e-13)
    assert (np.argsort(-doctor(LOGITS)) == np.argsort(d_alpha)).all()


def test_d_beta_ranks_as_the_softmax_response():
    p = LOGITS.softmax(dim=1).numpy().max(axis=1)
    d_beta = (1 - p) / p
    softmax = softmax_of(LOGITS, LOGITS.argmax(dim=1).numpy())
    assert (np.argsort(-softmax) == np.argsort(d_beta)).all()
    assert (np.argsort(-doctor(LOGITS)) != np.argsort(d_beta)).any()


def test_the_ends():
    assert doctor(torch.zeros(1, 5))[0] == pytest.approx(0.2, rel=1e-14)
    assert doctor(torch.tensor([[1e30, 0.0, -1e30]])).tolist() == [1]


def test_nearly_certain_rows_stay_apart():
    # Two classes with a gap g: 1 − Σp² = 2 p (1 − p) with 1 − p = 1 / (1 + e^g).
    gaps = np.arange(10.0, 36.0)
    missing = 1 / (1 + np.exp(gaps))
    ours = doctor(np.stack([gaps, np.zeros(26)], axis=1))
    assert (np.diff(ours) > 0).all()
    np.testing.assert_allclose(1 - ours, 2 * missing * (1 - missing), atol=2e-16, rtol=0)


def test_a_constant_changes_nothing():
    np.testing.assert_allclose(doctor(LOGITS + 7), doctor(LOGITS), rtol=1e-13)
