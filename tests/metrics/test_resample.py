"""Rows as NumPy draws them, and their counts in lanes of 64 bits against plain ones."""

import numpy as np
import pytest

from snapsure.metrics._intervals import bootstrap_values
from snapsure.metrics._resample import DrawCounts, RowStream


@pytest.mark.parametrize("n", [1, 2, 3, 1000, 9999, 2**16, 10**6, 2**31 + 1, 3 * 2**30])
def test_rows_are_those_of_numpys_integers(n):
    """Of 2³¹ + 1 rows nearly every other word is passed over; of 3 · 2³⁰ many just are not."""
    seed = np.random.SeedSequence(n)
    ours = RowStream(seed, n)
    sizes = (1, 4, 7, 1000, 2, 1, 501)
    drawn = np.concatenate([ours.draw(np.empty(size, np.int64)) for size in sizes])
    rng = np.random.Generator(np.random.SFC64(seed))
    if n == 1:  # which takes no word for it, and has no other row to draw
        assert not drawn.any()
    else:
        assert drawn.tolist() == rng.integers(0, n, size=drawn.size).tolist()


def test_a_seed_draws_the_same_resamples_in_every_release():
    """Streams of 2¹⁷ rows, here two resamples each, by the generators that NumPy spawns."""
    n, kappa = 50_000, np.arange(50_000.0)
    found = bootstrap_values(lambda k, e: k.mean(), [(kappa, kappa < 0)], resamples=5, seed=7)
    streams = zip((2, 2, 1), np.random.SeedSequence(7).spawn(3), strict=True)
    drawn = [
        np.random.Generator(np.random.SFC64(seed)).integers(0, n, size=(size, n))
        for size, seed in streams
    ]
    assert found[0].tolist() == np.concatenate(drawn).mean(axis=1).tolist()


@pytest.mark.parametrize("n", [1, 5, 300, 16_385, 65_535, 65_536, 131_073])
def test_counts_and_places_of_resamples(n):
    sizes = [3, 4]
    streams = list(zip(sizes, np.random.SeedSequence(1).spawn(2), strict=True))
    drawn = [RowStream(seed, n).draw(np.empty((size, n), np.int64)) for size, seed in streams]
    rows = np.concatenate(drawn)
    plain = np.array([np.bincount(row, minlength=n) for row in rows])
    order = np.random.default_rng(0).permutation(n)
    before = np.concatenate((np.zeros((7, 1)), np.cumsum(plain[:, order], axis=1)), axis=1)
    counts = DrawCounts(n)
    for some in (streams, streams[:1], streams):  # memory of other sizes is not mixed up
        counts.count(some)
        known = sum(size for size, _ in some)
        assert (counts.by_example() == plain[:known].T).all()
        assert counts.by_example().base.shape == (n, known + 1)  # 3 or 7: whole words, no more
        ends = np.array([0, n]), np.arange(n + 1)
        for at, found in zip(ends, counts.before(order, ends), strict=True):
            assert (found == before[:known, at].T).all()


def test_a_point_drawn_every_time_fills_its_lane():
    """Sums as large as n leave the neighbouring resamples alone."""
    n = 65_535
    counts = DrawCounts(n)
    counts.count([(5, np.random.SeedSequence(0))])
    (ends,) = counts.before(np.arange(n), [np.array([n])])
    assert (ends == n).all()
