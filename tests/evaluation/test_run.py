"""What is known of a run, and results as people and programs take them."""

import numpy as np
import pytest

from snapsure import ScoreTable, compare
from snapsure.errors import InvalidInput
from snapsure.evaluation import Rival, Run
from tests.support.runs import run_of


def small():
    return ScoreTable({"softmax": [[0.6, 0.9], [0.7, 0.8]]}, [[0, 1], [0, 1]], y=[0, 0])


def test_it_says_what_it_is():
    assert repr(Run(small())) == "<Run: softmax; 2 snapshots × 2 examples>"
    coin = Run(small(), others={"a coin": [0.1, 0.7]})
    assert repr(coin) == "<Run: softmax; a coin; 2 snapshots × 2 examples>"


def test_some_of_its_points_cost_what_all_cost():
    run = run_of()
    some = run.rows(np.array([5, 3]))
    assert (some.passes, some.snapshot_bytes) == (run.passes, run.snapshot_bytes)
    assert some.y.tolist() == run.y[[5, 3]].tolist()
    for name, (score, y_hat, *cost) in run.others.items():
        assert some.others[name].kappa.tolist() == score[[5, 3]].tolist()
        assert some.others[name].y_hat.tolist() == y_hat[[5, 3]].tolist()
        assert list(some.others[name][2:]) == cost


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"others": {"a": ([0.1, 0.2], [0])}}, r"`y_hat of others\['a'\]`, got 2 for 1"),
        ({"others": {"a": [0.1]}}, r"`others\['a'\]`, got 2 for 1"),
        ({"others": {"softmax": [0.1, 0.2]}}, "`others` .* got 'softmax'"),
        ({"others": {"a": [0.1, 0.2]}, "passes": {"a": 2}}, "`passes` .* got 'a'.* softmax"),
    ],
)
def test_refusals(options, words):
    with pytest.raises(InvalidInput, match=words):
        Run(small(), **options)


def test_errors_must_be_known():
    with pytest.raises(InvalidInput, match=r"^`y` must be known"):
        Run(ScoreTable.from_kappa([[0.1, 0.2]]))


def test_a_scoring_says_what_an_answer_costs():
    """A pass of each member, or as many as dropout takes, unless the caller says otherwise."""
    provenance = {"snapshots": [["a"], ["b"]], "kappas": {"softmax": {}, "mc": {"passes": 100}}}
    kappa = np.full((1, 3), 0.5)
    table = ScoreTable(
        {"softmax": kappa, "mc": kappa, "own": kappa},
        np.zeros((1, 3), int),
        [0, 0, 1],
        provenance=provenance,
    )
    assert Run(table).passes == {"softmax": 2, "mc": 200, "own": 1}
    assert Run(table, passes={"mc": 7}).passes["mc"] == 7


def test_what_another_score_costs():
    kappa = [0.1, 0.2]
    others = {
        "one": kappa,
        "mc_dropout": kappa,
        "another classifier": (kappa, [1, 1]),
        "all of it": Rival(kappa, [0, 1], passes=3, kept=4, trainings=1.5),
    }
    costs = {name: rival[2:] for name, rival in Run(small(), others=others).others.items()}
    assert costs == {
        "one": (1, 1, 1),
        "mc_dropout": (100, 1, 1),
        "another classifier": (1, 1, 1),
        "all of it": (3, 4, 1.5),
    }


def test_a_comparison_says_what_it_is_and_has_the_pooled_board_first():
    sets = {"small": run_of(0, n=300), "large": run_of(1, n=400, y_of=5)}
    found = compare(sets, methods=["final", "AES"], resamples=200)
    assert repr(found) == "<Comparison: small, large; 4 methods>"
    names = ["all data sets", "small", "large"]
    assert [board.name for board in found.every] == names
    assert [board["name"] for board in found.as_dict()["boards"]] == [*names[1:], names[0]]
    frame = found.to_frame()
    assert frame.index.names == ["board", "method", "kappa"]
    row = found.boards["large"]["AES"]
    assert frame.loc[("large", "AES", "softmax"), "eaurc"] == row.eaurc
    assert frame.loc[("large", "AES", "softmax"), "gain_low"] == row.gain.low
    assert {board.measure for board in found.every} == {"E-AURC"}
    assert found["AES"] is found.pooled["AES"]
