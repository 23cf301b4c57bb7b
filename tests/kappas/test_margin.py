"""Margin, by hand, and exact at both ends."""

import numpy as np
import pytest
import torch

from snapsure.kappas import Margin
from snapsure.kappas._logits import Logits
from snapsure.testing import KappaContract


class TestMargin(KappaContract):
    def make(self, inputs, labels):
        return Margin()


def margin(logits, y_hat):
    return Margin().score(Logits(torch.as_tensor(logits)), np.asarray(y_hat), None)


@pytest.mark.parametrize(("answer", "lead"), [(0, 0.6 - 0.3), (1, 0.3 - 0.6), (2, 0.1 - 0.6)])
def test_three_classes_by_hand(answer, lead):
    ours = margin(np.log([[0.6, 0.3, 0.1]]), [answer])[0]
    assert ours == pytest.approx((1 + lead) / 2, rel=1e-14)


def test_it_is_the_difference_of_two_softmax():
    logits = torch.randn(60, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y_hat = np.arange(60) % 7
    p = logits.softmax(dim=1).numpy()
    others = np.array([np.delete(row, answer).max() for row, answer in zip(p, y_hat, strict=True)])
    expected = (1 + p[np.arange(60), y_hat] - others) / 2
    np.testing.assert_allclose(margin(logits, y_hat), expected, rtol=1e-13)


def test_a_draw_is_one_half():
    assert margin([[2.0, 2.0, 0.0]], [1]).tolist() == [0.5]


def test_rows_stay_apart_at_both_ends():
    # Three classes, two of which are g behind: 1 − κ = 1.5 e^−g / (1 + 2 e^−g), and as much for κ
    # where the answer is one of two that are behind.
    gaps = np.arange(10.0, 36.0)
    tail = np.exp(-gaps) / (1 + 2 * np.exp(-gaps))
    logits = np.stack([gaps, np.zeros(26), np.zeros(26)], axis=1)
    high, low = margin(logits, np.zeros(26, int)), margin(logits, np.ones(26, int))
    assert (np.diff(high) > 0).all()
    np.testing.assert_allclose(1 - high, 1.5 * tail, atol=2e-16, rtol=0)
    np.testing.assert_allclose(low, 1.5 * tail, rtol=1e-14)


def test_a_constant_changes_nothing():
    logits = torch.randn(40, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    y_hat = np.arange(40) % 6
    np.testing.assert_allclose(margin(logits + 7, y_hat), margin(logits, y_hat), rtol=1e-13)
