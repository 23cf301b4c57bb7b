"""AES: which snapshots, and their mean."""

import numpy as np
import pytest

from snapsure import AES, PES, Evenly, ScoreTable
from snapsure.errors import InvalidInput
from tests.support.tables import of

KAPPA = np.random.default_rng(0).random((250, 40))


@pytest.mark.parametrize("k", [2, 10, 30, 50, 150])
def test_the_mean_over_a_rounded_linspace(k):
    grid = np.rint(np.linspace(100, 250, k)).astype(int)
    expected = KAPPA[grid - 1].mean(axis=0)
    np.testing.assert_allclose(AES(k=k).confidence(of(KAPPA)), expected, rtol=1e-12)


def test_what_evenly_records_is_what_it_averages():
    for total in (7, 60, 90, 250):
        schedule = Evenly(total, k=10)
        recorded = [epoch for epoch in range(1, total + 1) if schedule.wants(epoch)]
        kappa = np.random.default_rng(total).random((total, 9))
        some = kappa[np.array(recorded) - 1]
        np.testing.assert_array_equal(
            AES(k=10).confidence(of(some, epochs=recorded)), AES(k=10).confidence(of(kappa))
        )
        np.testing.assert_allclose(AES(k=10).confidence(of(kappa)), some.mean(axis=0), rtol=1e-12)


def test_asked_for_more_than_there_are_it_uses_each_once():
    assert AES(k=30).snapshots([10, 20, 30, 40, 50]) == [20, 30, 40, 50]
    assert AES(k=30, start=0.0).snapshots([10, 20, 30, 40, 50]) == [10, 20, 30, 40, 50]
    np.testing.assert_allclose(
        AES(k=999).confidence(of(KAPPA)), KAPPA[99:].mean(axis=0), rtol=1e-12
    )


def test_a_resumed_run_and_epochs_from_zero():
    assert AES(k=30).snapshots(np.arange(101, 111)) == list(range(101, 111))
    assert AES(k=30, start=0.0).snapshots([0, 1, 2, 3]) == [0, 1, 2, 3]


def test_one_snapshot_is_its_own_kappa():
    assert (AES().confidence(of(KAPPA[:1])) == KAPPA[0]).all()
    assert (AES(k=1).confidence(of(KAPPA)) == KAPPA[-1]).all()


def test_the_nearest_snapshots_and_of_two_as_near_the_later():
    # The grid of T = 100, k = 3 is 40, 70, 100.
    assert AES(k=3).snapshots([35, 50, 65, 75, 100]) == [35, 75, 100]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: AES(k=0), "`k` must be a whole number ≥ 1, got 0"),
        (lambda: AES(start=1), r"`start` must lie in \[0, 1\), got 1"),
        (
            lambda: AES().snapshots([1, 3, 2]),
            r"`epochs` must be rising numbers, .* got \[1, 3, 2\]",
        ),
        (
            lambda: AES().snapshots([1, 2, 2]),
            r"`epochs` must be rising numbers, .* got \[1, 2, 2\]",
        ),
    ],
)
def test_refusals(call, words):
    with pytest.raises(InvalidInput, match=words):
        call()


def test_what_it_selects_is_what_it_averages():
    """A store of `Evenly(100, k=30)`, scored in part: epochs are known, not guessed."""
    epochs = AES().snapshots(range(1, 251))
    assert len(epochs) == 30
    part = of(KAPPA[np.array(epochs) - 1], epochs=epochs)
    assert (AES().confidence(part) == AES().confidence(of(KAPPA))).all()


def test_fitted_it_keeps_to_its_snapshots():
    fitted = AES(k=3).fit(of(KAPPA))
    assert fitted.snapshots(range(1, 251)) == [100, 175, 250]
    part = of(KAPPA[[99, 120, 174, 249]], epochs=[100, 121, 175, 250])
    assert (fitted.confidence(part) == AES(k=3).confidence(of(KAPPA))).all()


def test_a_bare_array_is_told_how_to_become_a_table():
    for call in (
        lambda: AES().confidence(KAPPA),
        lambda: AES().fit(KAPPA),
        lambda: PES().fit(KAPPA, np.zeros(40)),
    ):
        with pytest.raises(
            InvalidInput, match=r"`table` .* got ndarray.*from_kappa\(kappa, errors\)"
        ):
            call()
    confidence = AES().confidence(ScoreTable.from_kappa(KAPPA))  # as it says
    assert np.array_equal(confidence, AES().confidence(of(KAPPA)))
