"""When snapshots are taken, and which are let go."""

from itertools import product

import numpy as np
import pytest

from snapsure import Budget, Evenly, EveryEpoch
from snapsure.errors import InvalidInput
from tests.support.refusals import refuses


def held_after(schedule, epochs):
    """Yield what a store would hold after each epoch."""
    held = []
    for epoch in range(1, epochs + 1):
        gone = schedule.surplus(held, epoch)
        assert set(gone) <= set(held)
        held = sorted(set(held) - set(gone))
        if schedule.wants(epoch):
            held.append(epoch)
        yield held


def test_every_epoch():
    assert [len(held) for held in held_after(EveryEpoch(), 5)] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("start", [0.0, 0.4, 0.9])
def test_evenly_takes_the_nearest_to_a_grid_with_both_ends(start):
    for total, k in product([1, 2, 5, 29, 30, 31, 90, 250, 1000], [1, 2, 10, 30, 50]):
        schedule = Evenly(total, k, start)
        taken = [epoch for epoch in range(1, total + 1) if schedule.wants(epoch)]
        begin = max(1, int(np.floor(start * total)))
        grid = np.linspace(begin, total, k) if k > 1 else [total]
        assert taken[-1] == total
        assert k == 1 or taken[0] == begin
        assert len(taken) <= k
        assert max(min(abs(g - t) for t in taken) for g in grid) <= 0.5 + 1e-9
        if k <= total - begin + 1:
            assert len(taken) == k


@pytest.mark.parametrize(("start", "begin"), [(0.29, 29), (0.57, 57), (0.2899999, 28), (0.4, 40)])
def test_evenly_begins_where_it_is_written(start, begin):
    """0.29 · 100 is a hair below 29 in floating point; 0.2899999 · 100 is below it on paper."""
    schedule = Evenly(100, k=2, start=start)
    assert [epoch for epoch in range(1, 101) if schedule.wants(epoch)] == [begin, 100]


def test_evenly_counts_from_zero_if_told():
    schedule = Evenly(10, 4, first=0)
    assert [epoch for epoch in range(10) if schedule.wants(epoch)] == [3, 5, 7, 9]


@pytest.mark.parametrize(
    ("epoch", "remedy"),
    [(0, "first=0"), (11, "total")],
)
def test_evenly_refuses_epochs_that_it_does_not_know(epoch, remedy):
    with refuses(InvalidInput, "`epoch`", "1…10", f"got {epoch}", remedy):
        Evenly(10).wants(epoch)


@pytest.mark.parametrize("keep", [2, 3, 4, 5, 8, 13, 30, 50])
@pytest.mark.parametrize("start", [0.0, 0.4])
def test_budget_after_any_number_of_epochs(keep, start):
    for epoch, held in enumerate(held_after(Budget(keep, start), 3000), 1):
        assert len(held) == min(keep, epoch)  # never more, and none wasted
        assert held[-1] == epoch
        if epoch < 3 * keep or keep < 3:
            continue
        ideal = (1 - start) * epoch / (keep - 1)
        gaps = np.diff(held)
        # The stretch is covered: from its start, or a little before it, in steps about even.
        assert held[0] <= max(1, start * epoch)
        assert held[0] >= start * epoch - 2.5 * ideal
        assert gaps.max() <= 2.2 * ideal
        if keep > 3:
            assert gaps.max() <= 3 * gaps[:-1].min()


def test_budget_goes_on_from_what_it_finds():
    whole = list(held_after(Budget(7), 200))[-1]
    held = list(held_after(Budget(7), 120))[-1]
    for epoch in range(121, 201):
        held = sorted({*held, epoch} - {*Budget(7).surplus(held, epoch)})
    assert held == whole


def test_budget_lets_the_oldest_go_when_the_next_is_just_at_the_start():
    """Half of 10 is 5, so 2 is no longer needed; 6 does not reach back as far."""
    assert Budget(3, start=0.5).surplus([2, 5, 8], 10) == [2]
    assert Budget(3, start=0.5).surplus([2, 6, 9], 10) == [9]


def test_budget_makes_room_in_a_folder_that_is_too_full():
    assert len(Budget(3).surplus(range(1, 11), 11)) == 8


@pytest.mark.parametrize(
    ("make", "argument", "got"),
    [
        (lambda: Budget(1), "`keep`", "got 1"),
        (lambda: Budget(5, start=1.0), "`start`", "got 1.0"),
        (lambda: Evenly(0), "`total`", "got 0"),
    ],
)
def test_refusals(make, argument, got):
    with refuses(InvalidInput, argument, got):
        make()


def test_evenly_takes_thirty_from_two_fifths_on_if_nothing_is_said():
    epochs = [epoch for epoch in range(1, 251) if Evenly(total=250).wants(epoch)]
    assert (len(epochs), epochs[0], epochs[-1]) == (30, 100, 250)


def test_budget_keeps_the_last_if_it_came_in_time():
    """A gap as wide as the ideal, (1 − 0.5) · 8 / 2, is wide enough."""
    assert Budget(keep=3, start=0.5).surplus([2, 4, 6], 8) == [2]
    assert Budget(keep=3, start=0.5).surplus([2, 4, 5], 8) == [5]
