"""Numbers of a board, one by one."""

from dataclasses import replace

import numpy as np
import pytest

from snapsure import ScoreTable, evaluate
from snapsure.errors import InvalidInput
from snapsure.evaluation._board import (
    SIGNIFICANT,
    _differences,
    _drawn_ratio,
    _log_ratio,
    _p_values,
    board,
)
from snapsure.evaluation._contest import Contest


def test_a_p_value_counts_the_data_themselves():
    """Of 99 resamples: none, one, 20 or 60 below 0, and all of them 0."""
    drawn = np.ones((5, 99))
    for row, below in enumerate((0, 1, 20, 60)):
        drawn[row, :below] = -1
    drawn[4] = 0
    assert _p_values(drawn).tolist() == pytest.approx([0.02, 0.04, 0.42, 0.8, 1.0])
    assert _p_values(-drawn).tolist() == _p_values(drawn).tolist()


def test_resamples_that_are_0_are_on_both_sides():
    drawn = np.array([[0.0] * 3 + [1.0] * 16, [0.0] * 3 + [-1.0] * 16])
    assert _p_values(drawn).tolist() == pytest.approx([0.4, 0.4])


def test_a_perfect_ranking_counts_as_a_thousandth_of_the_mean():
    ours = np.array([0.0, 0.1, 0.2])
    assert _log_ratio(ours, np.array(0.1)).tolist() == pytest.approx(
        [np.log(1e-4 / 0.1), 0, np.log(2)]
    )
    assert _log_ratio(np.zeros(3), np.array(0.0)).tolist() == [0, 0, 0]


def two_methods(resamples, against):
    """The second is better in all but some of the resamples."""
    drawn = np.tile([[0.2], [0.1]], resamples)
    drawn[1, :against] = 0.3
    means = np.array([0.2, 0.1])
    same = {field: means for field in Contest.MEANS if field != "error"}
    return Contest(
        metric="eaurc",
        methods=["softmax", "other"],
        kappas=["softmax", "other"],
        runs=1,
        points=100,
        each=means[None],
        drawn=drawn,
        luck=np.zeros((resamples, 1)),
        error=np.array([0.1, 0.1]),
        bytes=None,
        **same,
    )


@pytest.mark.parametrize(("resamples", "against"), [(39, 0), (79, 1)])
def test_a_p_value_of_exactly_a_twentieth_tells_nothing(resamples, against):
    made = board("data", [two_methods(resamples, against)], "softmax", 0.95)
    assert made["other"].p_holm == SIGNIFICANT
    assert made["other"].verdict == "no significant difference from softmax; the best here"
    assert made["softmax"].verdict == "the reference; no significant difference from the best"


def test_a_p_value_below_a_twentieth_tells():
    made = board("data", [two_methods(79, 0)], "softmax", 0.95)
    assert made["other"].p_holm == pytest.approx(0.025)
    assert made["other"].verdict == "better than softmax by 50.0 %; the best here"
    assert made["softmax"].verdict == "the reference"


def test_how_runs_differ_is_added_to_what_points_tell():
    """Two runs, 0.1 and 0.3 beside 0.2: deviations of ∓0.1, weighed by luck."""
    one = replace(
        two_methods(3, 0),
        each=np.array([[0.2, 0.1], [0.2, 0.3]]),
        drawn=np.array([[0.2, 0.2, 0.2], [0.2, 0.3, 0.1]]),
        luck=np.array([[1.0, -1.0], [-1.0, 1.0], [0.0, 0.0]]),
    )
    assert _differences(one, 0).tolist()[0] == [0, 0, 0]
    assert _differences(one, 0).tolist()[1] == pytest.approx([-0.2, 0.1 + 0.2, -0.1])
    apart = np.log(0.3 / 0.1)
    assert _drawn_ratio(one, 0)[1].tolist() == pytest.approx(
        [-apart, np.log(0.3 / 0.2) + apart, np.log(0.1 / 0.2)]
    )


def test_sizes_are_known_where_they_are_of_every_data_set():
    sized = replace(two_methods(79, 0), bytes=np.array([10.0, 30.0]))
    twice = replace(sized, bytes=np.array([20.0, 50.0]), runs=2, points=50)
    both = board("all", [sized, twice], "softmax", 0.95)
    assert (both["softmax"].bytes, both["other"].bytes) == (15, 40)
    assert (both.runs, both.points) == (3, 150)
    some = board("all", [sized, two_methods(79, 0)], "softmax", 0.95)
    assert some["softmax"].bytes is None


def test_intervals_of_a_board_have_its_level():
    rng = np.random.default_rng(0)
    drawn = np.vstack((np.full(1000, 0.2), rng.uniform(0.1, 0.3, 1000)))
    row = board("data", [replace(two_methods(1000, 0), drawn=drawn)], "softmax", 0.8)["other"]
    low, high = np.quantile(drawn[1], [0.1, 0.9])
    assert row.difference == pytest.approx((0.1 - 0.2, low - 0.2, high - 0.2))
    assert row.gain == pytest.approx((50, 100 * (1 - high / 0.2), 100 * (1 - low / 0.2)), rel=1e-3)
    assert row.gains == pytest.approx((50,))


def test_a_worse_method_is_told_by_how_much():
    turned = two_methods(79, 0)
    made = board("data", [replace(turned, methods=["other", "softmax"])], "softmax", 0.95)
    assert made["other"].verdict == "worse than softmax by 100.0 %"
    assert made["softmax"].verdict == "the reference; the best here"
    assert made["other"].behind.estimate == pytest.approx(100)
    wrong = replace(turned, error=np.array([0.1, 0.25]))
    verdict = board("data", [wrong], "softmax", 0.95)["other"].verdict
    assert verdict.endswith("; the best here; of a classifier that is wrong in 25.0%")


@pytest.mark.parametrize("wrong", [1, 59])
def test_one_point_of_a_kind_is_enough_to_evaluate(wrong):
    kappa = np.random.default_rng(0).random((3, 60))
    table = ScoreTable.from_kappa(kappa, np.arange(60) < wrong)
    found = evaluate(table, methods=("final", "AES k=30"), resamples=20)
    assert all(np.isfinite(row.eaurc) for row in found.boards["softmax"].rows)
    for none in (0, 60):
        with pytest.raises(InvalidInput, match=f"got {none} wrong of 60"):
            evaluate(ScoreTable.from_kappa(kappa, np.arange(60) < none))
