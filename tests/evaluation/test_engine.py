"""Numbers of a board, one by one."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import t

from snapsure import AES
from snapsure.estimators import Final
from snapsure.evaluation._compare import Contest, _draw_luck, _log_ratio, make_board
from snapsure.evaluation._engine import (
    Candidate,
    bootstrap_p,
    correct,
    find_outcome,
    percent_saved,
    write_verdict,
)
from snapsure.metrics import Interval

REFERENCE = ("final", "softmax")


def board_of(contests, level=0.95):
    return make_board("data", contests, REFERENCE, "softmax", level)


def test_a_p_value_counts_the_data_themselves():
    """Of 99 resamples: none, one, 20 or 60 below 0, and all of them 0."""
    drawn = np.ones((5, 99))
    for row, below in enumerate((0, 1, 20, 60)):
        drawn[row, :below] = -1
    drawn[4] = 0
    assert bootstrap_p(drawn).tolist() == pytest.approx([0.02, 0.04, 0.42, 0.8, 1.0])
    assert bootstrap_p(-drawn).tolist() == bootstrap_p(drawn).tolist()


def test_resamples_that_are_0_are_on_both_sides():
    drawn = np.array([[0.0] * 3 + [1.0] * 16, [0.0] * 3 + [-1.0] * 16])
    assert bootstrap_p(drawn).tolist() == pytest.approx([0.4, 0.4])


def test_a_perfect_ranking_counts_as_a_thousandth_of_the_mean():
    ours = np.array([0.0, 0.1, 0.2])
    assert _log_ratio(ours, np.array(0.1)).tolist() == pytest.approx(
        [np.log(1e-4 / 0.1), 0, np.log(2)]
    )
    assert _log_ratio(np.zeros(3), np.array(0.0)).tolist() == [0, 0, 0]


def two_methods(resamples, against):
    """The second is better in all but some of the resamples."""
    draws = np.tile([[0.2], [0.1]], resamples)
    draws[1, :against] = 0.3
    means = np.array([0.2, 0.1])
    numbers = ("eaurc", "aurc", "augrc", "nll", "brier", "passes", "snapshots", "trainings")
    return Contest(
        metric="eaurc",
        candidates=[Candidate("final", "softmax", Final), Candidate("AES", "softmax", AES)],
        examples=100,
        means={
            **dict.fromkeys(numbers, means),
            "error": np.array([0.1, 0.1]),
            "bytes": np.full(2, np.nan),
        },
        each=means[None],
        replicates=draws,
        luck=np.zeros((resamples, 1)),
    )


@pytest.mark.parametrize(("resamples", "against"), [(39, 0), (79, 1)])
def test_a_p_value_of_exactly_a_twentieth_tells_nothing(resamples, against):
    made = board_of([two_methods(resamples, against)])
    assert made["AES"].p_holm == 0.05
    assert made["AES"].verdict == "no significant difference from the final softmax; the best here"
    assert made["final"].verdict == "the reference; no significant difference from the best"


def test_a_p_value_below_a_twentieth_tells():
    made = board_of([two_methods(79, 0)])
    assert made["AES"].p_holm == pytest.approx(0.025)
    assert made["AES"].verdict == "better than the final softmax by 50.0 %; the best here"
    assert made["final"].verdict == "the reference"


def test_how_runs_differ_is_added_to_what_points_tell():
    """Two runs, 0.1 and 0.3 beside 0.2: deviations of ∓0.1, weighed by luck."""
    one = replace(
        two_methods(3, 0),
        each=np.array([[0.2, 0.1], [0.2, 0.3]]),
        replicates=np.array([[0.2, 0.2, 0.2], [0.2, 0.3, 0.1]]),
        luck=np.array([[1.0, -1.0], [-1.0, 1.0], [0.0, 0.0]]),
    )
    assert one.draw(np.subtract, 0).tolist()[0] == [0, 0, 0]
    assert one.draw(np.subtract, 0).tolist()[1] == pytest.approx([-0.2, 0.1 + 0.2, -0.1])
    apart = np.log(0.3 / 0.1)
    assert one.draw(_log_ratio, 0)[1].tolist() == pytest.approx(
        [-apart, np.log(0.3 / 0.2) + apart, np.log(0.1 / 0.2)]
    )


@pytest.mark.parametrize("runs", [2, 3, 6])
def test_luck_is_students_t_of_the_mean_of_the_runs(runs):
    values = np.random.default_rng(0).normal(size=runs)
    luck = _draw_luck(runs, 100_000, np.random.default_rng(1))
    drawn = luck @ (values - values.mean()) / (values.std(ddof=1) / np.sqrt(runs))
    tails = [0.05, 0.25, 0.5, 0.75, 0.95]
    expected = t.ppf(tails, runs - 1)
    assert np.quantile(drawn, tails) == pytest.approx(expected, rel=0.05, abs=0.03)
    assert (_draw_luck(1, 3, np.random.default_rng(1)) == 0).all()


def test_sizes_are_known_where_they_are_of_every_data_set():
    unsized = two_methods(79, 0)
    sized = replace(unsized, means={**unsized.means, "bytes": np.array([10.0, 30.0])})
    means = {**unsized.means, "bytes": np.array([20.0, 50.0])}
    both_runs = np.tile(unsized.each, (2, 1))
    twice = replace(sized, means=means, each=both_runs, luck=np.zeros((79, 2)), examples=50)
    both = board_of([sized, twice])
    assert (both["final"].bytes, both["AES"].bytes) == (15, 40)
    assert (both.runs, both.examples) == (3, 150)
    some = board_of([sized, unsized])
    assert some["final"].bytes is None


def test_intervals_of_a_board_have_its_level():
    rng = np.random.default_rng(0)
    draws = np.vstack((np.full(1000, 0.2), rng.uniform(0.1, 0.3, 1000)))
    row = board_of([replace(two_methods(1000, 0), replicates=draws)], level=0.8)["AES"]
    low, high = np.quantile(draws[1], [0.1, 0.9])
    assert row.difference == pytest.approx((0.1 - 0.2, low - 0.2, high - 0.2))
    assert row.gain == pytest.approx((50, 100 * (1 - high / 0.2), 100 * (1 - low / 0.2)), rel=1e-3)
    assert row.gains == pytest.approx((50,))


def test_a_worse_method_is_told_by_how_much():
    turned = two_methods(79, 0)
    made = board_of([replace(turned, candidates=turned.candidates[::-1])])
    assert made["AES"].verdict == "worse than the final softmax by 100.0 %"
    assert made["final"].verdict == "the reference; the best here"
    assert made["AES"].behind.estimate == pytest.approx(100)
    wrong = replace(turned, means={**turned.means, "error": np.array([0.1, 0.25])})
    verdict = board_of([wrong])["AES"].verdict
    assert verdict.endswith("; the best here; its classifier is wrong on 25.0%")


def test_holm_by_hand():
    p = np.array([0.01, 0.5, 0.04, 0.03])  # the second is the reference
    assert correct(p, 1, "holm").tolist() == pytest.approx([0.03, 1.0, 0.06, 0.06])
    assert correct(np.array([1.0, 0.9, 0.8]), 0, "holm").tolist() == [1.0, 1.0, 1.0]
    assert correct(p, 1, "none").tolist() == [0.01, 1.0, 0.04, 0.03]


@pytest.mark.parametrize(
    ("change", "p", "outcome"),
    [
        (Interval(-0.2, -0.3, -0.1), None, "better"),
        (Interval(0.2, 0.1, 0.3), None, "worse"),
        (Interval(-0.2, -0.3, 0.0), None, "no difference"),
        (Interval(0.2, 0.0, 0.3), None, "no difference"),
        (Interval(-0.2, -0.3, 0.1), 0.049, "better"),
        (Interval(0.2, -0.3, 0.3), 0.049, "worse"),
        (Interval(-0.2, -0.3, -0.1), 0.05, "no difference"),
    ],
)
def test_significance_is_by_the_p_value_or_by_the_interval(change, p, outcome):
    assert find_outcome(change, p) == outcome


def test_a_verdict_says_by_how_much():
    assert write_verdict("better", 12.34, "the final softmax").endswith("softmax by 12.3 %")
    assert write_verdict("worse", -12.34, "AES").startswith("worse than AES by 12.3 %")
    assert write_verdict("better", None, "AES") == write_verdict("no difference", 3, "AES")
    assert write_verdict("reference", 0, "AES") == "the reference"


def test_where_the_reference_is_perfect_there_is_nothing_to_gain():
    assert percent_saved(0.1, 0.0) is None
    assert percent_saved(0.3, 0.4) == pytest.approx(25)
