"""NLL, Brier score and calibration error against scikit-learn and by hand."""

import math

import numpy as np
import pytest
from sklearn.metrics import brier_score_loss, log_loss

from snapsure import brier, ece, nll

RNG = np.random.default_rng(0)
P = RNG.random(500)
ERRORS = RNG.random(500) > P


def test_nll_and_brier_are_scikit_learns():
    assert nll(P, ERRORS) == pytest.approx(log_loss(~ERRORS, P), rel=1e-12)
    assert brier(P, ERRORS) == pytest.approx(brier_score_loss(~ERRORS, P), rel=1e-12)


def test_nll_of_certainty():
    assert nll([1.0, 0.0], [0, 1]) == 0.0
    assert nll([1.0, 0.5], [1, 0]) == math.inf


def test_nll_keeps_small_probabilities_of_being_wrong():
    # 1 − (1 − 1e-12) has lost four digits; log1p has not.
    p = 1 - 1e-12
    assert nll([p], [1]) == pytest.approx(-math.log1p(-p), rel=1e-15)


@pytest.mark.parametrize("bins", [1, 5, 15, 100])
def test_ece_is_the_gap_of_its_bins(bins):
    total = 0.0
    for b in range(bins):
        inside = (P > b / bins) & (P <= (b + 1) / bins)
        if inside.any():
            total += inside.sum() * abs(P[inside].mean() - (~ERRORS[inside]).mean())
    assert ece(P, ERRORS, bins=bins) == pytest.approx(total / P.size, rel=1e-12)


def test_ece_puts_zero_in_the_first_bin_and_edges_below():
    # 0.5 belongs to (0, 0.5], and 0.6 has a bin of its own: gaps 0.5 and 0.6 over two points.
    assert ece([0.5, 0.6], [0, 1], bins=2) == pytest.approx(0.55)
    assert ece([0.0, 0.5], [1, 1], bins=2) == pytest.approx(0.25)
    # 0.07 · 100 is a little over 7 in binary; 0.07 and 0.065 still share the bin (0.06, 0.07].
    assert ece([0.07, 0.065], [0, 1], bins=100) == pytest.approx(abs(0.135 - 1) / 2)


def test_probabilities_of_wider_types_keep_their_values():
    third = np.array([1, 2], dtype=np.longdouble) / 3
    for metric in (nll, brier, ece):
        assert metric(third, [0, 1]) == metric(third.astype(float), [0, 1])
