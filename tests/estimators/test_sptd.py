"""SPTD against a loop over its definition, and its edges."""

import numpy as np
import pytest

from snapsure.errors import InvalidInput
from snapsure.estimators import SPTD
from tests.support.tables import of_labels

LABELS = np.random.default_rng(0).integers(3, size=(12, 50))


@pytest.mark.parametrize("k", [0, 1, 2, 3.5])
@pytest.mark.parametrize("epochs", [np.arange(1, 13), np.arange(5, 65, 5), np.arange(12)])
def test_it_is_the_weighted_sum_of_the_paper(k, epochs):
    expected = []
    for i in range(50):
        score = sum(
            (t / epochs[-1]) ** k
            for t, label in zip(epochs, LABELS[:, i], strict=True)
            if label != LABELS[-1, i]
        )
        expected.append(1 - score / sum((t / epochs[-1]) ** k for t in epochs))
    np.testing.assert_allclose(SPTD(k).confidence(of_labels(LABELS, epochs)), expected, rtol=1e-12)


def test_three_snapshots_by_hand():
    # Weights (1/3)², (2/3)², 1: in ninths 1, 4 and 9, together 14.
    labels = [[0, 1, 0, 1], [0, 0, 1, 1], [0, 0, 0, 0]]
    expected = np.array([14, 13, 10, 9]) / 14
    np.testing.assert_allclose(SPTD().confidence(of_labels(labels)), expected, rtol=1e-15)


def test_later_disagreement_counts_more_and_k_says_how_much():
    early, late = np.zeros((2, 10, 1), int)
    early[2], late[7] = 1, 1
    assert SPTD().confidence(of_labels(late)) < SPTD().confidence(of_labels(early))
    assert SPTD(0).confidence(of_labels(late)) == SPTD(0).confidence(of_labels(early))
    gain = [
        SPTD(k).confidence(of_labels(early)) - SPTD(k).confidence(of_labels(late))
        for k in (0.5, 1, 2)
    ]
    assert (np.diff(np.ravel(gain)) > 0).all()


def test_the_answer_may_be_another_than_the_last_snapshots():
    y_hat = (LABELS[-1] + 1) % 3
    ours = SPTD().confidence(of_labels(np.vstack((LABELS, y_hat)), epochs=np.arange(1, 14)))
    other = SPTD().confidence(of_labels(LABELS, y_hat=y_hat))
    weight = (np.arange(1, 14) / 13) ** 2
    # The same disagreements; the final row's own agreement comes on top.
    apart = (1 - ours) * weight.sum() / (12 / 13) ** 2
    np.testing.assert_allclose(apart, (1 - other) * ((np.arange(1, 13) / 12) ** 2).sum())


def test_one_snapshot_never_disagrees():
    assert SPTD().confidence(of_labels(LABELS[:1])).tolist() == [1] * 50
    assert SPTD().confidence(of_labels(LABELS[:1], epochs=[0])).tolist() == [1] * 50


@pytest.mark.parametrize("k", [0.3, 1, 2, 3.7])
@pytest.mark.parametrize("snapshots", [2, 7, 12, 30, 59])
def test_it_lies_between_0_and_1_to_the_last_bit(snapshots, k):
    same = np.zeros((snapshots, 40), int)
    assert (SPTD(k).confidence(of_labels(same)) == 1).all()
    assert (SPTD(k).confidence(of_labels(same, y_hat=np.ones(40, int))) == 0).all()


def test_points_that_the_same_snapshots_doubt_are_tied():
    rng = np.random.default_rng(1)
    for snapshots in range(2, 30):
        labels = rng.integers(2, size=(snapshots, 129))
        labels[:, ::2] = labels[:, :1]
        labels[-1] = 0
        assert len(set(SPTD().confidence(of_labels(labels))[::2])) == 1


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: SPTD(-1), "`k` must be ≥ 0, got -1"),
        (
            lambda: SPTD().confidence(of_labels(LABELS[:2], epochs=[-1, 2])),
            "`epochs` .* got -1. Count from 0",
        ),
    ],
)
def test_refusals(call, words):
    with pytest.raises(InvalidInput, match=words):
        call()
