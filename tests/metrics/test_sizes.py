"""Losses of every size that float64 has."""

from fractions import Fraction

import numpy as np
import pytest

from snapsure import augrc, aurc, eaurc, naurc
from tests.support import reference

AREAS = [aurc, eaurc, augrc, naurc]
KAPPA = [0.4, 0.1, 0.3, 0.3, 0.2, 0.4]
LOSSES = np.array([3.0, 0.25, 2.0, 1.0, 0.0, 0.5])


@pytest.mark.parametrize("ties", ["expected", "threshold"])
@pytest.mark.parametrize("area", AREAS)
@pytest.mark.parametrize("exponent", [-1060, -400, 400, 1019])
def test_a_power_of_two_changes_no_bit(area, ties, exponent):
    scaled = area(KAPPA, np.ldexp(LOSSES, exponent), ties=ties)
    ordinary = area(KAPPA, LOSSES, ties=ties)
    if area is naurc:
        assert scaled == pytest.approx(ordinary, rel=1e-3 if exponent < -1000 else 1e-15)
    elif exponent > -1000:
        assert scaled == np.ldexp(ordinary, exponent)
    else:  # few bits are left
        assert scaled == pytest.approx(np.ldexp(ordinary, exponent), abs=5e-324)


def test_losses_as_large_as_their_sum_allows():
    losses = [5e307, 5e307, 1e307]
    exact = reference.over_all_orders(reference.augrc_of_order, [1, 2, 3], losses)
    assert augrc([1, 2, 3], losses) == pytest.approx(float(exact), rel=1e-15)
    tied = reference.over_all_orders(reference.augrc_of_order, [1, 1, 1], losses)
    assert augrc([1, 1, 1], losses) == pytest.approx(float(tied), rel=1e-15)
    assert augrc(np.arange(9), np.full(9, 1.99e307)) == pytest.approx(
        float(Fraction(1.99e307) * 5 / 9), rel=1e-15
    )
    rows = augrc([[1, 2, 3], [1, 1, 1]], losses)
    assert rows.tolist() == [augrc([1, 2, 3], losses), augrc([1, 1, 1], losses)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("edge", [-2.0, 2.0])
def test_scores_of_both_signs_around_two(edge, dtype):
    """Up to ±2 one set of keys holds both signs; 2 itself has a bit more than its place."""
    kappa = np.array([edge, -1.9, 1.9, 0.5, -0.5, edge, -1e-30, 1e-30], dtype)
    for errors in ([1, 0, 0, 1, 0, 0, 1, 0], [0, 1, 1, 0, 1, 1, 0, 0]):
        exact = reference.aurc_by_groups(kappa.tolist(), errors)
        assert aurc(kappa, errors) == pytest.approx(float(exact), rel=1e-14)
        rows = aurc(np.stack([kappa, -kappa]), errors)
        mirrored = reference.aurc_by_groups((-kappa).tolist(), errors)
        assert rows.tolist() == pytest.approx([float(exact), float(mirrored)], rel=1e-14)


def test_equal_losses_that_are_tied_keep_their_value_to_the_last_bit():
    """Their mean may be a bit below them; the ranking is perfect, and its excess 0."""
    rounded_down = 0
    for loss in np.arange(1, 200) / 100:
        for tied in range(2, 12):
            losses = np.append(np.full(tied, loss), 0.0)
            rounded_down += losses[:-1].sum() / tied < loss
            assert eaurc(np.append(np.zeros(tied), 1), losses) == 0
    assert rounded_down > 100
