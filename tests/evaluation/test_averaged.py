"""Averaged weights among the methods: another classifier, compared by AURC."""

import numpy as np
import pytest

from snapsure import ScoreTable, compare, evaluate
from snapsure._logistic import sigmoid
from snapsure.evaluation import Run, confidences
from snapsure.table import Averaged


def make_table(n=4000, better=True, seed=0):
    """Ten snapshots of a classifier, and averaged weights that err less, or as often."""
    rng = np.random.default_rng(seed)
    ease = rng.random(n)
    kappa = sigmoid(5 * (ease + rng.normal(0, 0.25, (10, n))) - 2)
    wrong = rng.random(n) > ease
    own_ease = np.clip(ease + 0.1, 0, 1) if better else ease
    own_wrong = rng.random(n) > own_ease
    own_kappa = sigmoid(5 * (own_ease + rng.normal(0, 0.1 if better else 0.25, n)) - 2)
    averaged = Averaged(own_wrong.astype(int), own_kappa, kappa[-1])
    labels = np.broadcast_to(wrong.astype(int), kappa.shape)
    return ScoreTable({"softmax": kappa}, labels, np.zeros(n, int), averaged=averaged)


def area(kappa, wrong):
    """AURC by its definition, without ties."""
    return (np.cumsum(wrong[np.argsort(-kappa)]) / np.arange(1, wrong.size + 1)).mean()


def test_evaluate_compares_it_by_aurc_and_shows_its_error():
    table = make_table()
    row = evaluate(table, methods=["averaged weights", "AES"])["averaged weights"]
    own, final = (
        area(table.averaged.kappa, table.averaged.labels == 1),
        area(table.kappa("softmax")[-1], table.errors),
    )
    assert row.aurc == pytest.approx(own)
    assert row.difference.estimate == pytest.approx(own - final)
    assert row.gain.estimate == pytest.approx(100 * (1 - own / final))
    assert row.error == (table.averaged.labels == 1).mean()
    assert (row.passes, row.outcome) == (1, "better")
    # The interval is the jackknife's: leave out every example once.
    left_out = []
    for i in range(0, 4000, 400):
        keep = np.arange(4000) != i
        left_out.append(
            area(table.averaged.kappa[keep], table.averaged.labels[keep] == 1)
            - area(table.kappa("softmax")[-1][keep], table.errors[keep])
        )
    assert np.ptp(left_out) < row.difference.high - row.difference.low


def test_it_is_a_row_wherever_the_table_has_it():
    table = make_table(800)
    assert "averaged weights" in [row.method for row in evaluate(table).boards["softmax"].rows]
    board = compare(table, metric="aurc", resamples=400).boards["data"]
    assert [row.method for row in board.rows].count("averaged weights") == 1
    without = ScoreTable({"softmax": table.kappa("softmax")}, table.labels, table.y)
    assert "averaged weights" not in Run(without).others
    assert "averaged weights" not in [
        row.method for row in evaluate(without).boards["softmax"].rows
    ]
    # Its probabilities are of other answers, so they are not among those of the final answers.
    assert "averaged weights" not in confidences(table)
