"""Intervals: the short cut against the plain loop, and the coverage of a known truth."""

import numpy as np
import pytest
from scipy.stats import binomtest

from snapsure import (
    augrc,
    aurc,
    bootstrap,
    bootstrap_difference,
    brier,
    eaurc,
    naurc,
    nll,
    risk_at_coverage,
)
from snapsure.errors import InvalidInput
from snapsure.metrics._intervals import bootstrap_each
from snapsure.metrics._parallel import LONG
from tests.support.refusals import refuses

AREAS = [aurc, eaurc, augrc, naurc]


def draw(seed, n=400, levels=None):
    rng = np.random.default_rng(seed)
    kappa = rng.random(n)
    errors = rng.random(n) > kappa
    if levels:
        kappa = np.round(kappa * levels) / levels
    return kappa, errors


@pytest.mark.parametrize("area", AREAS)
@pytest.mark.parametrize("levels", [None, 3, 50])
def test_the_short_cut_equals_calling_the_metric_on_each_resample(area, levels):
    kappa, errors = draw(1, levels=levels)
    other = np.random.default_rng(2).random(errors.size) - 0.5
    equals_the_plain_way(bootstrap, area, kappa, errors, resamples=60)
    equals_the_plain_way(bootstrap_difference, area, kappa, other, errors, resamples=60)


def equals_the_plain_way(interval, metric, *data, resamples, rtol=1e-10):
    """A function that is not known by name is called on each resample."""
    plain = interval(lambda *pair: metric(*pair), *data, resamples=resamples)
    ours = interval(metric, *data, resamples=resamples)
    np.testing.assert_allclose(ours, plain, rtol=rtol, atol=1e-15)


@pytest.mark.parametrize("n", [1, 2, 40_000, 70_000])
def test_the_short_cut_at_every_width_of_its_keys(n):
    equals_the_plain_way(bootstrap, eaurc, *draw(3, n=n), resamples=8, rtol=1e-9)


def test_the_short_cut_beyond_the_table_of_harmonic_numbers():
    """The first places are looked up and the last ones by their series, in one sweep."""
    equals_the_plain_way(bootstrap, aurc, *draw(9, n=(1 << 17) + 5), resamples=2, rtol=1e-11)


@pytest.mark.parametrize("area", AREAS)
def test_resamples_without_an_error_count_as_zero(area):
    assert bootstrap(area, [0.3, 0.2], [0, 0], resamples=10) == (0.0, 0.0, 0.0)
    one_error = np.arange(30) == 0
    assert np.isfinite(bootstrap(area, np.arange(30), one_error, resamples=50)).all()


@pytest.mark.parametrize("area", [eaurc, naurc])
def test_a_perfect_ranking_is_perfect_in_every_resample(area):
    kappa, errors = np.linspace(1, 0, 500), np.arange(500) >= 380
    assert bootstrap(area, kappa, errors, resamples=50) == (0.0, 0.0, 0.0)
    tied = np.where(errors, 0.1, kappa + 1)  # all errors in one tie
    assert bootstrap(area, tied, errors, resamples=50) == (0.0, 0.0, 0.0)


def test_the_estimate_is_the_metric():
    kappa, errors = draw(4)
    assert bootstrap(aurc, kappa, errors).estimate == aurc(kappa, errors)
    difference = bootstrap_difference(aurc, kappa, -kappa, errors)
    assert difference.estimate == aurc(kappa, errors) - aurc(-kappa, errors)


def test_row_order_changes_nothing():
    kappa, errors = draw(5, levels=20)
    other = np.random.default_rng(6).random(errors.size)
    order = np.random.default_rng(7).permutation(errors.size)
    assert bootstrap(aurc, kappa, errors) == bootstrap(aurc, kappa[order], errors[order])
    assert bootstrap_difference(eaurc, kappa, other, errors) == bootstrap_difference(
        eaurc, kappa[order], other[order], errors[order]
    )


def test_the_seed_fixes_the_interval_and_another_moves_it():
    kappa, errors = draw(8)
    assert bootstrap(aurc, kappa, errors) == bootstrap(aurc, kappa, errors, seed=0)
    assert bootstrap(aurc, kappa, errors) != bootstrap(aurc, kappa, errors, seed=1)


@pytest.mark.parametrize("n", [5000, LONG])  # one thread, and several
def test_the_number_of_cores_changes_nothing(monkeypatch, n):
    kappa, errors = draw(9, n=n)
    many = bootstrap(aurc, kappa, errors, resamples=50)
    for cores in (1, 2, 8):
        monkeypatch.setattr("snapsure.metrics._parallel._cores", lambda cores=cores: cores)
        assert bootstrap(aurc, kappa, errors, resamples=50) == many


def test_any_metric_of_two_arrays():
    kappa, errors = draw(10)
    for metric in (nll, brier, lambda k, e: risk_at_coverage(k, e, 0.5)):
        interval = bootstrap(metric, kappa, errors, resamples=200)
        assert interval.low < interval.estimate < interval.high


def test_means_equal_those_of_each_resample():
    kappa, errors = draw(10)
    other = np.random.default_rng(0).permutation(kappa)
    for metric in (nll, brier):
        equals_the_plain_way(bootstrap, metric, kappa, errors, resamples=200, rtol=1e-12)
        difference = metric, kappa, other, errors
        equals_the_plain_way(bootstrap_difference, *difference, resamples=200, rtol=1e-12)


def test_many_at_once_are_what_each_is_alone():
    kappa, errors = draw(13)
    other = np.random.default_rng(14).random(errors.size)
    few, wrong = draw(15, n=90, levels=7)
    losses = np.random.default_rng(16).random(errors.size)
    comparisons = [
        ({"kappa": kappa}, errors),
        ({"few": few}, wrong),
        ({"kappa": kappa, "other": other}, errors),
        ({"kappa": kappa, "same": kappa}, errors),
        ({"kappa": kappa}, losses),
    ]
    for metric in (aurc, eaurc, lambda k, e: aurc(k, e)):
        assert bootstrap_each(metric, comparisons, 100, 0.95, 3) == [
            bootstrap(metric, kappa, errors, resamples=100, seed=3),
            bootstrap(metric, few, wrong, resamples=100, seed=3),
            bootstrap_difference(metric, kappa, other, errors, resamples=100, seed=3),
            (0.0, 0.0, 0.0),
            bootstrap(metric, kappa, losses, resamples=100, seed=3),
        ]


def test_a_higher_level_is_wider():
    kappa, errors = draw(12)
    narrow, wide = (bootstrap(aurc, kappa, errors, level=level) for level in (0.5, 0.99))
    assert wide.low < narrow.low < narrow.high < wide.high


@pytest.mark.slow
@pytest.mark.parametrize(("level", "paired"), [(0.8, False), (0.95, False), (0.9, True)])
def test_intervals_cover_a_known_truth(level, paired):
    # κ uniform and P(wrong | κ) = 1 − κ: at coverage c the risk is c / 2, so AURC = 1/4; in n
    # points its expectation is (n + 3) / (4 (n + 1)). A score independent of the errors: 1/2.
    n, sets = 400, 300
    truth = (n + 3) / (4 * (n + 1)) - paired / 2
    hits = 0
    for seed in range(sets):
        kappa, errors = draw(1000 + seed, n=n)
        options = {"resamples": 400, "level": level, "seed": seed}
        if paired:
            random = np.random.default_rng(5000 + seed).random(n)
            interval = bootstrap_difference(aurc, kappa, random, errors, **options)
        else:
            interval = bootstrap(aurc, kappa, errors, **options)
        hits += interval.low <= truth <= interval.high
    assert binomtest(hits, sets, level).pvalue > 0.001


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        ({"resamples": 0}, ["`resamples`", "got 0"]),
        ({"resamples": "9"}, ["`resamples`", "got '9'", "int"]),
        ({"level": 1.0}, ["`level`", "(0, 1)", "got 1.0", "0.95"]),
        ({"level": 95}, ["`level`", "got 95", "0.95"]),
        ({"seed": -1}, ["`seed`", "got -1"]),
        ({"seed": 1.9}, ["`seed`", "got 1.9", "int"]),
    ],
)
def test_arguments_out_of_range_are_refused(arguments, facts):
    with refuses(InvalidInput, *facts):
        bootstrap(aurc, [0.1, 0.2], [0, 1], **arguments)


@pytest.mark.parametrize(
    ("metric", "facts"),
    [
        (lambda k, e: k, ["one number", "shape (2,)"]),
        (lambda k, e: None, ["one number", "None"]),
        ("aurc", ["a function", "'aurc'", "snapsure.aurc"]),
        (lambda k, e: np.nan, ["finite", "nan", "clip"]),
    ],
)
def test_a_metric_without_one_finite_number_is_refused(metric, facts):
    with refuses(InvalidInput, "`metric`", *facts):
        bootstrap(metric, [0.1, 0.2], [0, 1])


def test_an_infinite_nll_is_refused_and_not_made_nan():
    confident = [1.0, 0.5, 0.7]
    with refuses(InvalidInput, "`metric`", "inf"):
        bootstrap(nll, confident, [1, 0, 0])
    with refuses(InvalidInput, "`metric`", "inf"):  # ∞ − ∞ is not a difference of 0
        bootstrap_difference(nll, confident, confident, [1, 0, 0])


def test_other_lengths_are_refused_by_the_name_of_the_score():
    with refuses(InvalidInput, "`kappa_b`", "`kappa_a`", "got 1 for 2"):
        bootstrap_difference(aurc, [0.1, 0.2], [0.1], [0, 1])
    with refuses(InvalidInput, "`losses`", "`kappa_a`", "got 3 for 2"):
        bootstrap_difference(aurc, [1.0, 0.5], [1.0, 0.2], [1, 0, 0])


def test_a_metric_of_the_users_sees_the_values():
    third = np.array([1, 2], np.longdouble) / 3
    assert bootstrap(lambda k, e: k.max(), third, [0, 1], resamples=5).estimate == 2 / 3


def test_all_wrong_resamples_leave_nothing_to_rank():
    assert bootstrap(naurc, [1, 2, 3], [1, 1, 1], resamples=20) == (0.0, 0.0, 0.0)
