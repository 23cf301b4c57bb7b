"""What is known of a run, and results as people and programs take them."""

import numpy as np
import pytest

from snapsure import ScoreTable, compare, evaluate
from snapsure.errors import InvalidInput
from snapsure.evaluation import Run
from snapsure.evaluation._numbers import best_curve, gain
from tests.evaluation.test_compare import run_of
from tests.evaluation.test_evaluate import simulated


def small():
    return ScoreTable({"softmax": [[0.6, 0.9], [0.7, 0.8]]}, [[0, 1], [0, 1]], y=[0, 0])


def test_it_says_what_it_is():
    assert repr(Run(small())) == "<Run: softmax; 2 snapshots × 2 points>"
    coin = Run(small(), others={"a coin": [0.1, 0.7]})
    assert repr(coin) == "<Run: softmax; a coin; 2 snapshots × 2 points>"


def test_some_of_its_points_cost_what_all_cost():
    run = run_of()
    some = run.rows(np.array([5, 3]))
    for field in ("passes", "kept", "trainings", "snapshot_bytes"):
        assert getattr(some, field) == getattr(run, field)
    assert some.y.tolist() == run.y[[5, 3]].tolist()
    for name, (score, y_hat) in run.others.items():
        assert some.others[name][0].tolist() == score[[5, 3]].tolist()
        assert some.others[name][1].tolist() == y_hat[[5, 3]].tolist()


def test_refusals():
    for options, sentence in (
        (
            {"others": {"a": ([0.1, 0.2], [0])}},
            "`table` must have one value per point of `y_hat of others['a']`, got 2 for 1: pass "
            "both from the same rows",
        ),
        (
            {"trainings": {"b": 2}},
            "`trainings` must name scores of this run, got 'b': name some of none",
        ),
    ):
        with pytest.raises(InvalidInput) as caught:
            Run(small(), **options)
        assert str(caught.value) == sentence
    with pytest.raises(InvalidInput, match=r"^`y` must be known to tell errors, "):
        Run(ScoreTable.from_kappa([[0.1, 0.2]]))


def test_a_comparison_says_what_it_is_and_has_the_pooled_board_first():
    sets = {"small": run_of(0, n=300), "large": run_of(1, n=400, y_of=5)}
    found = compare(sets, methods=["final", "AES k=30"], resamples=200)
    assert repr(found) == "<Comparison: small, large; 4 methods>"
    names = ["all data sets", "small", "large"]
    assert [board.name for board in found.every] == names
    assert [board["name"] for board in found.as_dict()["boards"]] == [*names[1:], names[0]]
    frame = found.to_frame()
    assert frame.index.names == ["board", "method"]
    row = found.boards["large"]["AES of softmax"]
    assert frame.loc[("large", "AES of softmax"), "eaurc"] == row.eaurc
    assert frame.loc[("large", "AES of softmax"), "gain_low"] == row.gain.low
    assert {board.measure for board in found.every} == {"E-AURC"}


def test_where_the_final_kappa_is_perfect_there_is_nothing_to_gain():
    assert gain(0.1, 0.0) is None
    assert gain(0.3, 0.4) == pytest.approx(25)
    wrong = np.arange(60) < 20
    perfect = np.where(wrong, 0.1, 0.9)
    table = ScoreTable.from_kappa(np.vstack((1 - perfect, perfect)), wrong)
    row = evaluate(table, resamples=20).boards["softmax"]["AES k=30"]
    assert (row.reference_eaurc, row.gain, row.gains) == (0, None, (None,))
    assert row.verdict == "no significant difference from the final softmax"
    assert (row.flat()["gain"], row.flat()["gain_low"]) == (None, None)


@pytest.mark.parametrize("word", ["better", "worse"])
def test_a_verdict_tells_by_how_much(word):
    table = simulated(n=1000)
    kappa = table.kappa("softmax")
    rows = kappa[::-1] if word == "better" else np.vstack((1 - kappa[-1:], kappa[-1:]))
    turned = ScoreTable.from_kappa(rows, table.errors)
    row = evaluate(turned, resamples=100).boards["softmax"]["AES k=30"]
    assert row.verdict == (f"{word} than the final softmax by {abs(row.gain.estimate):.1f} %")
    final = row.reference_eaurc
    assert row.gain == pytest.approx(
        (
            100 * (1 - row.eaurc / final),
            -100 * row.difference.high / final,
            -100 * row.difference.low / final,
        )
    )


def test_the_best_curve_has_the_errors_last():
    curve = best_curve(np.array([True, False, True, False]))
    assert curve.coverage.tolist() == [0.25, 0.5, 0.75, 1]
    assert curve.risk.tolist() == pytest.approx([0, 0, 1 / 3, 1 / 2])
