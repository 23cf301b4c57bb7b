"""Intervals of few errors: the short cut against leaving out one example at a time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t

from snapsure import augrc, aurc, bootstrap_difference, eaurc
from snapsure.metrics._intervals import compute_intervals, leave_one_out
from tests.support.reference import slow_leave_one_out

AREAS = [aurc, eaurc, augrc]
FEW = 50  # errors


def draw(seed, n, wrong, levels=None):
    """κ, another κ, and a given number of errors, which are less sure on average."""
    rng = np.random.default_rng(seed)
    errors = np.zeros(n, dtype=bool)
    errors[rng.permutation(n)[:wrong]] = True
    kappas = [1 / (1 + np.exp(errors - rng.normal(size=n))) for _ in range(2)]
    if levels:
        kappas = [np.round(kappa * levels) / levels for kappa in kappas]
    return *kappas, errors


@pytest.mark.parametrize("area", AREAS)
@pytest.mark.parametrize("levels", [None, 3, 40])
def test_the_short_cut_equals_leaving_out_each_example(area, levels):
    kappa, _, errors = draw(1, 300, 30, levels)
    expected = slow_leave_one_out(area, kappa, errors)
    np.testing.assert_allclose(leave_one_out(area, kappa, errors), expected, rtol=1e-9, atol=1e-14)


@given(
    levels=st.lists(st.integers(0, 5), min_size=2, max_size=12),
    wrong=st.lists(st.booleans(), min_size=12, max_size=12),
)
def test_ties_of_every_kind(levels, wrong):
    kappa, errors = np.array(levels) / 5, np.array(wrong[: len(levels)])
    for area in AREAS:
        expected = slow_leave_one_out(area, kappa, errors)
        np.testing.assert_allclose(leave_one_out(area, kappa, errors), expected, atol=1e-12)


@pytest.mark.parametrize("wrong", [1, 12, FEW - 1])
def test_few_errors_take_students_t(wrong):
    """The difference of two areas, its jackknife standard error, and t of (errors − 1) degrees."""
    ours, theirs, errors = draw(2, 400, wrong)
    pair = ({"a": ours, "b": theirs}, errors)
    found = compute_intervals(eaurc, [pair], resamples=100, level=0.9, seed=0)[0]
    left_out = slow_leave_one_out(eaurc, ours, errors) - slow_leave_one_out(eaurc, theirs, errors)
    spread = np.sqrt(399 / 400 * np.sum((left_out - left_out.mean()) ** 2))
    half = t.ppf(0.95, max(1, wrong - 1)) * spread
    estimate = eaurc(ours, errors) - eaurc(theirs, errors)
    assert found == pytest.approx((estimate, estimate - half, estimate + half))


def test_many_errors_take_the_bootstrap():
    few, many = draw(3, 400, FEW - 1), draw(4, 400, FEW)
    pairs = [({"a": ours, "b": theirs}, errors) for ours, theirs, errors in (few, many)]
    found = compute_intervals(aurc, pairs, resamples=100, level=0.95, seed=1)
    assert found[1] == bootstrap_difference(aurc, *many, resamples=100, seed=1)
    assert found[0].estimate == aurc(few[0], few[2]) - aurc(few[1], few[2])


def test_one_example_has_no_spread():
    (found,) = compute_intervals(aurc, [({"a": [0.5]}, [1])], resamples=10, level=0.95, seed=0)
    assert found == (1.0, 1.0, 1.0)


def test_the_order_of_rows_changes_nothing():
    kappa, _, errors = draw(5, 200, 20, levels=20)
    order = np.random.default_rng(0).permutation(200)
    again = leave_one_out(eaurc, kappa[order], errors[order])
    assert (again == leave_one_out(eaurc, kappa, errors)[order]).all()
