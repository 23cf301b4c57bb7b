"""Green and red groups along training."""

import numpy as np
import pytest

from snapsure import eaurc
from snapsure.evaluation import trajectories
from snapsure.evaluation._trajectories import best_curve


def test_against_the_plain_definition():
    rng = np.random.default_rng(0)
    kappa, errors = rng.random((6, 200)), rng.random(200) < 0.3
    result = trajectories(kappa, errors, 0.25)
    order = np.argsort(kappa[-1])
    red, green = order[:50], order[-50:]
    for t in range(6):
        assert result.green_kappa[t] == pytest.approx(kappa[t, green].mean())
        assert result.red_kappa[t] == pytest.approx(kappa[t, red].mean())
        assert result.green_eaurc[t] == pytest.approx(eaurc(kappa[t, green], errors[green]))
        assert result.red_eaurc[t] == pytest.approx(eaurc(kappa[t, red], errors[red]))
    assert result.best == np.argmin(result.green_eaurc)
    assert result.lost == result.green_eaurc[-1] - result.green_eaurc.min()


def test_it_sees_confidence_that_is_spoilt_late():
    # Halfway, κ ranks the points as they are; at the end the sure half has been shuffled.
    rng = np.random.default_rng(1)
    ease = rng.random(4000)
    errors = rng.random(4000) > ease
    late = np.where(ease > 0.5, 0.5 + rng.random(4000) / 2, ease)
    result = trajectories(np.stack([rng.random(4000), ease, late]), errors)
    assert result.best == 1
    assert result.lost > 0.01


def test_ties_at_the_edge_are_in_and_row_order_does_not_matter():
    rng = np.random.default_rng(2)
    kappa, errors = np.round(rng.random((3, 100)), 1), rng.random(100) < 0.3
    order = rng.permutation(100)
    for a, b in zip(
        trajectories(kappa, errors), trajectories(kappa[:, order], errors[order]), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_the_latest_of_equals():
    assert trajectories(np.ones((4, 10)), np.zeros(10)).best == 3


def test_a_group_has_at_least_one_point():
    result = trajectories([[0.2, 0.4, 0.9], [0.1, 0.5, 0.8]], [0, 1, 0], 0.01)
    assert (result.green_kappa.tolist(), result.red_kappa.tolist()) == ([0.9, 0.8], [0.2, 0.1])


def test_the_best_curve_has_the_errors_last():
    curve = best_curve(np.array([True, False, True, False]))
    assert curve.coverage.tolist() == [0.25, 0.5, 0.75, 1]
    assert curve.risk.tolist() == pytest.approx([0, 0, 1 / 3, 1 / 2])
