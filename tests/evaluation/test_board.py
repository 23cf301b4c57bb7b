"""Numbers of a board, one by one."""

import numpy as np
import pytest

from snapsure import ScoreTable, evaluate
from snapsure.errors import InvalidInput
from snapsure.evaluation._board import SIGNIFICANT, _log_ratio, _p_values, board
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


@pytest.mark.parametrize("wrong", [1, 59])
def test_one_point_of_a_kind_is_enough_to_evaluate(wrong):
    kappa = np.random.default_rng(0).random((3, 60))
    table = ScoreTable.from_kappa(kappa, np.arange(60) < wrong)
    found = evaluate(table, methods=("final", "AES k=30"), resamples=20)
    assert all(np.isfinite(row.eaurc) for row in found.boards["softmax"].rows)
    for none in (0, 60):
        with pytest.raises(InvalidInput, match=f"got {none} wrong of 60"):
            evaluate(ScoreTable.from_kappa(kappa, np.arange(60) < none))
