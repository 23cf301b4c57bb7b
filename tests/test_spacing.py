"""Evenly spaced epochs: the definition, and epochs as large as int64 has."""

import numpy as np
import pytest

from snapsure import AES, LES, ScoreTable
from snapsure._spacing import choose, evenly_spaced

TOP = 2**63 - 1


@pytest.mark.parametrize("k", [1, 2, 3, 7, 30])
@pytest.mark.parametrize(("first", "last"), [(0, 0), (1, 2), (40, 100), (5, 2**40)])
def test_the_grid_is_linspace_rounded(first, last, k):
    expected = np.rint(np.linspace(first, last, k)) if k > 1 else np.array([last])
    found = evenly_spaced(first, last, k)
    assert found.dtype == np.int64
    assert found.tolist() == sorted({int(epoch) for epoch in expected})


def test_the_largest_epochs_are_spaced_exactly():
    assert evenly_spaced(TOP - 40, TOP, 5).tolist() == [TOP - 40 + 10 * i for i in range(5)]
    assert evenly_spaced(1, TOP, 2).tolist() == [1, TOP]
    epochs = TOP - np.arange(40)[::-1]
    assert choose(epochs, 4, 0.4).tolist() == [0, 13, 26, 39]
    assert choose(epochs, 4, 1.0).tolist() == [39]


def test_all_epochs_are_chosen_where_there_are_no_more_than_k():
    epochs = np.array([1, 2, 3, 4, 20])
    assert choose(epochs, 5, 0.0).tolist() == [0, 1, 2, 3, 4]
    assert choose(epochs, 4, 0.0).tolist() == [0, 3, 4]  # nearest to 1, 7, 14 and 20


def test_estimators_take_the_largest_epochs():
    rng = np.random.default_rng(0)
    kappa, errors = rng.random((9, 300)), rng.random(300) < 0.3
    table = ScoreTable.from_kappa(kappa, errors, epochs=TOP - np.arange(9)[::-1])
    np.testing.assert_allclose(AES(k=3).fit(table).confidence(table), kappa[::4].mean(axis=0))
    assert np.isfinite(LES(k=3).fit(table).confidence(table)).all()
