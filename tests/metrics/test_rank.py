"""Rows by keys of 32 bits: the same areas to the last bit as by all bits, whatever seems tied."""

import numpy as np
import pytest

from snapsure import augrc, aurc, eaurc, naurc
from snapsure.metrics import _parallel, _rank
from snapsure.metrics._rank import can_use_coarse_keys
from tests.support.reference import aurc_by_groups

NEAR = 2.0**-40  # far below a step of 31 bits


def rows_of(kind, rng, rows=24, n=900):
    kappa = rng.random((rows, n))
    if kind == "both signs":
        kappa = 40 * kappa - 20
    if kind == "all negative":
        kappa = -kappa - 0.25
    if kind == "far from 0":
        kappa += 1e6
    if kind == "far below 0":
        kappa -= 1e6
    if kind == "near each other":  # in every other row, pairs that coarse keys cannot tell apart
        kappa[::2, : n // 2] = kappa[::2, n // 2 : 2 * (n // 2)] + NEAR
    if kind == "tied":
        kappa[:-1] = np.round(kappa[:-1], 2)
    if kind == "one row of one value":
        kappa[3] = 0.5
    if kind == "huge":
        kappa = (kappa - 0.5) * 1.7e308 * 2
    if kind == "tiny":
        kappa = np.rint(1e4 * kappa) * 5e-324
    if kind == "all zero":
        kappa[:] = 0
    return kappa


KINDS = (
    "plain",
    "both signs",
    "all negative",
    "far from 0",
    "far below 0",
    "near each other",
    "tied",
    "one row of one value",
    "huge",
    "tiny",
    "all zero",
)


@pytest.mark.parametrize("area", [aurc, eaurc, augrc, naurc])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_what_each_is_alone(kind, area):
    rng = np.random.default_rng(KINDS.index(kind))
    kappa = rows_of(kind, rng)
    errors = rng.random(kappa.shape[1]) < 0.3
    assert area(kappa, errors).tolist() == [area(row, errors) for row in kappa]  # one has no keys


def test_what_seems_tied_is_not():
    rng = np.random.default_rng(0)
    kappa = rows_of("near each other", rng, n=60)
    errors = rng.random(60) < 0.4
    assert can_use_coarse_keys(kappa, errors)  # by the last row, which has no such pairs
    exact = [float(aurc_by_groups(row.tolist(), errors.tolist())) for row in kappa]
    np.testing.assert_allclose(aurc(kappa, errors), exact, rtol=1e-14)


def test_several_batches_and_a_rest(monkeypatch):
    """Rows with ties come late, after many without."""
    rng = np.random.default_rng(1)
    kappa, errors = rng.random((50, 12_000)), rng.random(12_000) < 0.2
    kappa[30:32] = np.round(kappa[30:32], 3)
    assert can_use_coarse_keys(kappa, errors)
    fast = eaurc(kappa, errors)
    monkeypatch.setattr(_rank, "_COARSE_ROWS", 99)
    assert not can_use_coarse_keys(kappa, errors)
    assert fast.tolist() == eaurc(kappa, errors).tolist()


@pytest.fixture
def one_row_at_a_time(monkeypatch):
    monkeypatch.setattr(_rank, "_BATCH", 1)
    monkeypatch.setattr(_parallel, "_cores", lambda: 1)


def test_rows_after_a_batch_of_ties_are_ranked_too(one_row_at_a_time):
    rng = np.random.default_rng(4)
    kappa, errors = rng.random((9, 200)), rng.random(200) < 0.3
    kappa[0] = np.round(kappa[0], 1)
    assert can_use_coarse_keys(kappa, errors)
    assert aurc(kappa, errors).tolist() == [aurc(row, errors) for row in kappa]


def test_a_row_of_float32_may_need_wider_keys_than_the_row_before(one_row_at_a_time):
    kappa = np.array([[1, 2, 3, 4], [-1e30, 1e-44, 2e-44, 1e30]], np.float32)
    assert aurc(kappa, [0, 1, 0, 0]).tolist() == [aurc([1, 2, 3, 4], [0, 1, 0, 0])] * 2


@pytest.mark.parametrize(
    ("low", "high"), [(0, 1), (-1, 1), (-1e300, 1), (1 - 1e-9, 1), (-3, -2), (-1, 0), (-9, -1)]
)
def test_keys_never_turn_an_order_round(low, high):
    rng = np.random.default_rng(2)
    kappa = low + (high - low) * rng.random((1, 5000)) ** 4
    kappa[0, :2] = low, high
    errors = rng.random(5000) < 0.5
    keys = _rank._Ranker().coarse_keys(kappa, errors.astype(np.uint32))[0]
    assert ((keys & 1) == errors).all()
    order = np.argsort(-kappa[0])
    assert (np.diff((keys >> 1)[order].astype(np.int64)) >= 0).all()
    assert (keys >> 1).min() == 0
    assert (keys >> 1).max() >= 2**30 - 1  # half of all at least, whatever the distance to 0


def test_where_they_are_not_worth_it():
    rng = np.random.default_rng(3)
    kappa, errors = rng.random((20, 500)), rng.random(500) < 0.3
    assert can_use_coarse_keys(kappa, errors)
    assert not can_use_coarse_keys(kappa[:7], errors)
    assert not can_use_coarse_keys(kappa.astype(np.float32), errors)
    assert not can_use_coarse_keys(np.round(kappa, 2), errors)
    long = np.ones((20, (1 << 16) + 1))
    assert not can_use_coarse_keys(long, long[0] > 1)
