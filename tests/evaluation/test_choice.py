"""Which estimator is deployed: how few points of a kind can choose one."""

import numpy as np
import pytest

from snapsure import Final, Run, ScoreTable
from snapsure.errors import InvalidInput
from snapsure.evaluation._choice import _methods, choose
from snapsure.evaluation._run import passes_of


@pytest.mark.parametrize("wrong", [2, 38])
def test_two_points_of_each_kind_can_choose(wrong):
    kappa = np.random.default_rng(0).random((1, 40))
    table = ScoreTable.from_kappa(kappa, np.arange(40) < wrong)
    assert isinstance(choose(table, "softmax", None, 0).estimator, Final)


@pytest.mark.parametrize("wrong", [0, 1, 39, 40])
def test_fewer_cannot(wrong):
    kappa = np.random.default_rng(0).random((1, 40))
    table = ScoreTable.from_kappa(kappa, np.arange(40) < wrong)
    with pytest.raises(InvalidInput) as caught:
        choose(table, "softmax", None, 0)
    assert str(caught.value) == (
        "`table` must have right and wrong points to choose an estimator by, got "
        f"{wrong} wrong of 40: score more points"
    )


@pytest.mark.parametrize(("snapshots", "passes", "k"), [(40, None, 30), (9, None, 9), (40, 5, 5)])
def test_aes_averages_as_many_as_may_be_passed_and_at_most_thirty(snapshots, passes, k):
    table = ScoreTable.from_kappa(np.full((snapshots, 5), 0.5), [0, 1, 0, 1, 0])
    made = {method.name: method.make() for method in _methods(Run(table), "softmax", passes)}
    assert made["AES"].k == k
    assert made["LES"].passes == (snapshots if passes is None else passes)


@pytest.mark.parametrize(("passes", "count"), [(7, 1), (13, 1), (14, 5), (None, 5)])
def test_where_one_snapshot_can_be_paid_for_there_is_nothing_to_choose(passes, count):
    table = ScoreTable.from_kappa(np.full((3, 5), 0.5), [0, 1, 0, 1, 0], name="mc")
    assert len(_methods(Run(table, passes={"mc": 7}), "mc", passes)) == count


def test_what_a_scoring_says_that_an_answer_costs():
    """A pass of each member, or as many as dropout takes; what it does not say is left out."""
    provenance = {"snapshots": [["a"], ["b"]], "kappas": {"softmax": {}, "mc": {"passes": 100}}}
    kappa = np.full((1, 3), 0.5)
    table = ScoreTable(
        {"softmax": kappa, "mc": kappa, "own": kappa}, np.zeros((1, 3), int), provenance=provenance
    )
    assert passes_of(table) == {"softmax": 2, "mc": 200}
