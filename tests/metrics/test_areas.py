"""The areas against their definitions: brute force, hand-worked cases, published values."""

import math
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest

from snapsure import augrc, aurc, aurc_optimal, eaurc, naurc
from snapsure.errors import InvalidInput
from tests.support import reference
from tests.support.refusals import refuses

AREAS = [aurc, eaurc, augrc, naurc]
EXACT = {"rel": 1e-13, "abs": 1e-15}


def small_sets():
    """Every tie pattern of up to six points, 0/1 errors and other losses, both signs of κ."""
    rng = np.random.default_rng(7)
    for size in range(1, 7):
        for case in range(40):
            kappa = rng.integers(-2, 3, size) / 2 if case % 3 else rng.normal(size=size)
            losses = rng.integers(0, 2, size) if case % 2 else rng.random(size).round(1) * 3
            yield kappa.tolist(), losses.tolist()


SMALL = list(small_sets())


def test_areas_equal_the_mean_over_all_orders_of_the_ties():
    for kappa, losses in SMALL:
        expected = reference.over_all_orders(reference.aurc_of_order, kappa, losses)
        best = reference.best_over_orders(losses)
        random = sum(map(Fraction, losses)) / len(losses)
        assert aurc(kappa, losses) == pytest.approx(float(expected), **EXACT)
        assert aurc_optimal(losses) == pytest.approx(float(best), **EXACT)
        assert eaurc(kappa, losses) == pytest.approx(float(expected - best), rel=1e-12, abs=1e-15)
        generalised = reference.over_all_orders(reference.augrc_of_order, kappa, losses)
        assert augrc(kappa, losses) == pytest.approx(float(generalised), **EXACT)
        share = (expected - best) / (random - best) if random != best else 0
        assert naurc(kappa, losses) == pytest.approx(float(share), rel=1e-10, abs=1e-13)


def test_areas_accept_tied_points_together():
    for kappa, losses in SMALL:
        expected = reference.by_threshold(kappa, losses)
        best = reference.best_over_orders(losses)
        assert aurc(kappa, losses, ties="threshold") == pytest.approx(float(expected), **EXACT)
        assert eaurc(kappa, losses, ties="threshold") == pytest.approx(
            float(expected - best), rel=1e-12, abs=1e-15
        )
        generalised = reference.by_threshold(kappa, losses, generalised=True)
        assert augrc(kappa, losses, ties="threshold") == pytest.approx(float(generalised), **EXACT)


@pytest.mark.parametrize("levels", [2, 7, 50, 10**9])
@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("low", [0.0, -0.5, -1.0])
def test_aurc_equals_exact_sums_on_larger_sets(levels, binary, low):
    rng = np.random.default_rng(levels)
    kappa = np.round(rng.random(400) * levels) / levels + low
    losses = (rng.random(400) < 0.3).astype(float) if binary else rng.exponential(size=400)
    expected = float(reference.aurc_by_groups(kappa.tolist(), losses.tolist()))
    best = float(reference.aurc_by_groups((-losses).tolist(), losses.tolist()))
    assert aurc(kappa, losses) == pytest.approx(expected, rel=1e-13)
    assert aurc_optimal(losses) == pytest.approx(best, rel=1e-13)
    assert eaurc(kappa, losses) == pytest.approx(expected - best, rel=1e-11)


def test_the_integral_is_the_papers_formula_and_shifts_eaurc_by_its_error():
    rng = np.random.default_rng(3)
    kappa, errors = rng.random(500), rng.random(500) < 0.3
    rate = errors.mean()
    integral = rate + (1 - rate) * np.log(1 - rate)
    assert aurc_optimal(errors, method="integral") == pytest.approx(integral, rel=1e-12)
    assert aurc_optimal([1, 1], method="integral") == 1.0
    assert eaurc(kappa, errors, optimal="integral") == pytest.approx(
        aurc(kappa, errors) - integral, rel=1e-12
    )


def test_the_integral_refuses_losses_that_are_not_errors():
    with refuses(InvalidInput, "`losses`", "0/1", "got 0.5", 'method="exact"'):
        aurc_optimal([0, 1, 0.5, 2.0], method="integral")


def test_augrc_is_traubs_closed_form_and_half_a_step():
    # Traub et al. give (1 − AUROC) acc (1 − acc) + (1 − acc)² / 2 for the area by trapezoids from
    # coverage 0 on; our sum of right-hand heights adds half a step of the last height, r / (2n).
    rng = np.random.default_rng(4)
    kappa, errors = np.round(rng.random(300), 2), rng.random(300) < 0.3
    above = kappa[~errors][:, None] - kappa[errors][None, :]
    auroc = np.mean((above > 0) + 0.5 * (above == 0))
    rate = errors.mean()
    area = (1 - auroc) * rate * (1 - rate) + rate**2 / 2
    assert augrc(kappa, errors) == pytest.approx(area + rate / (2 * errors.size), rel=1e-12)


@pytest.mark.parametrize("area", AREAS)
@pytest.mark.parametrize("ties", ["expected", "threshold"])
@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("shift", [0.0, -0.5])
def test_rows_are_scored_as_if_alone(area, ties, binary, shift):
    rng = np.random.default_rng(5)
    kappa = np.round(rng.random((40, 3000)), 2) + shift
    kappa[::2] = rng.random((20, 3000)) + shift
    losses = rng.random(3000) < 0.3 if binary else rng.random(3000)
    together = area(kappa, losses, ties=ties)
    assert together.shape == (40,)
    alone = [area(row, losses, ties=ties) for row in kappa]
    np.testing.assert_allclose(together, alone, rtol=1e-13, atol=1e-16)


def test_rows_of_every_kind_side_by_side():
    # One sign, both signs below 2, both signs beyond it; many short batches, and threads.
    rng = np.random.default_rng(12)
    kappa = rng.random((40, 50_000))
    kappa[10:20] -= 0.5
    kappa[20:30] = kappa[20:30] * 8 - 4
    kappa[30:] = -kappa[30:]
    kappa[::3] = np.round(kappa[::3], 2)
    errors = rng.random(50_000) < 0.1
    alone = [eaurc(row, errors) for row in kappa]
    np.testing.assert_allclose(eaurc(kappa, errors), alone, rtol=1e-13)
    shuffled = rng.permutation(40)
    np.testing.assert_allclose(
        eaurc(kappa[shuffled], errors), np.array(alone)[shuffled], rtol=1e-13
    )
    half = kappa.astype(np.float32)
    np.testing.assert_allclose(
        eaurc(half, errors), [eaurc(row.astype(float), errors) for row in half], rtol=1e-13
    )


def test_a_tie_does_not_reach_into_the_next_row():
    errors = [0, 1, 0, 1]
    np.testing.assert_allclose(aurc(np.ones((3, 4)), errors), [0.5] * 3, rtol=1e-15)
    falling = np.array([[1, 2, 3, 1], [1, 1, 2, 2], [2, 1, 1, 2]])
    alone = [aurc(row, errors) for row in falling]
    np.testing.assert_allclose(aurc(falling, errors), alone, rtol=1e-15)


def test_both_signs_below_two_keep_every_bit():
    tiny, two = np.nextafter(0.0, 1), np.nextafter(2.0, 0)
    narrow = np.array([1.9999999, 1, 1e-45, 0, -1e-45, -1, -1.9999999], np.float32)
    for kappa in (np.array([two, 1.0, tiny, 0.0, -tiny, -1.0, -two]), narrow):
        for wrong in range(7):
            errors = np.arange(7) == wrong
            assert aurc(kappa, errors) == pytest.approx(aurc(-np.arange(7), errors), rel=1e-15)


@pytest.mark.parametrize("scale", [1e3, 2.0**1023, 5e-324])
def test_both_signs_at_any_scale_keep_every_bit(scale):
    """In units of a power of two where that rounds nothing, each sign by itself where it would."""
    rng = np.random.default_rng(4)
    kappa = np.concatenate((rng.uniform(-1.9, 1.9, (6, 300)), rng.uniform(-1e-9, 1e-9, (6, 300))))
    if scale < 1:  # the least there are beside the largest
        kappa = np.concatenate((np.rint(1e9 * kappa) * scale, 8 * kappa), axis=1)
    else:
        kappa *= scale / 2
    errors = rng.random(kappa.shape[1]) < 0.3
    ranks = np.array([np.unique(row, return_inverse=True)[1] for row in kappa])
    np.testing.assert_allclose(aurc(kappa, errors), aurc(ranks, errors), rtol=1e-15)


def test_one_row_gives_an_array():
    assert aurc(np.ones((1, 3)), [0, 1, 0]).shape == (1,)


def test_long_rows_are_scored_as_if_alone():
    rng = np.random.default_rng(6)
    kappa, errors = rng.random((3, 300_000)), rng.random(300_000) < 0.1
    kappa[1] = np.round(kappa[1], 4)
    np.testing.assert_allclose(
        eaurc(kappa, errors), [eaurc(row, errors) for row in kappa], rtol=1e-13
    )


@pytest.mark.parametrize("levels", [None, 1000])
def test_beyond_the_table_of_harmonic_numbers(levels):
    # 400,000 points reach past the table; the plain sum in float64 is good to about 1e-13 here.
    rng = np.random.default_rng(8)
    n = 400_000
    kappa = rng.random(n)
    errors = rng.random(n) < 0.2
    if levels:
        kappa = np.round(kappa * levels) / levels
    order = np.lexsort((errors, -kappa))
    _, first, size = np.unique(-kappa[order], return_index=True, return_counts=True)
    mean = np.repeat(np.add.reduceat(errors[order].astype(float), first) / size, size)
    plain = np.mean(np.cumsum(mean) / np.arange(1, n + 1))
    assert aurc(kappa, errors) == pytest.approx(plain, rel=1e-11)


@pytest.mark.parametrize("n", [2**17 - 1, 2**17, 2**17 + 1])
def test_the_surest_of_many_answers_is_wrong(n):
    """(1 + 1/2 + … + 1/n) / n, where harmonic numbers are looked up and where they are computed."""
    exact = math.fsum(1 / i for i in range(1, n + 1)) / n
    assert aurc(np.arange(n), np.arange(n) == n - 1) == pytest.approx(exact, rel=1e-13, abs=0)


@pytest.mark.parametrize("right", [62, 63, 64, 65, 200])
def test_a_mixed_tie_below_many_right_answers(right):
    """Half an error in right + 1 answers, one in right + 2."""
    kappa, errors = np.maximum(np.arange(right + 2), 1), np.arange(right + 2) == 0
    exact = (0.5 / (right + 1) + 1 / (right + 2)) / (right + 2)
    assert aurc(kappa, errors) == pytest.approx(exact, rel=5e-12, abs=0)


@pytest.mark.parametrize("ties", ["expected", "threshold"])
def test_all_right_or_all_wrong(ties):
    kappa, errors = [0.1, 0.2, 0.2], [1, 1, 1]
    assert [area(kappa, [0, 0, 0], ties=ties) for area in AREAS] == [0.0] * 4
    assert aurc(kappa, errors, ties=ties) == pytest.approx(1.0, rel=1e-15)
    assert aurc_optimal(errors) == 1.0
    assert eaurc(kappa, errors, ties=ties) == 0.0
    assert naurc(kappa, errors, ties=ties) == 0.0


@pytest.mark.parametrize("ties", ["expected", "threshold"])
def test_equal_losses_leave_nothing_to_rank(ties):
    # 0.1 is not exact in binary: sums of it must not leave a trace.
    for size in (3, 10):
        kappa = np.repeat(np.arange(7), size)
        assert eaurc(kappa, np.full(7 * size, 0.1), ties=ties) == 0.0
        assert naurc(kappa, np.full(7 * size, 0.1), ties=ties) == 0.0


def test_zero_has_no_minus():
    assert f"{eaurc([3, 2, 1], [0.1, 0.2, 0.3])} {naurc([3, 2, 1], [0.1, 0.2, 0.3])}" == "0.0 0.0"


def test_a_common_height_of_the_losses_hides_nothing():
    step = np.nextafter(1.5, 2)
    assert naurc([2, 1], [1.5, step]) == 0.0
    assert naurc([2, 1], [step, 1.5]) == pytest.approx(2.0)  # the worst order of two
    rng = np.random.default_rng(11)
    kappa, losses = rng.random(300), rng.integers(0, 2**20, 300) / 2**20
    raised = naurc(kappa, losses + 2**30)  # exact in float64
    assert raised == pytest.approx(naurc(kappa, losses), rel=1e-12)


@pytest.mark.parametrize("losses", [[1e308, 1.5e308, 1.7e308], np.array(["1e4000"], "g")])
def test_losses_beyond_float64_are_refused(losses):
    with pytest.raises(InvalidInput, match=r"^`losses` must have a finite sum, got a loss of "):
        aurc(np.arange(len(losses)), losses)


def test_a_perfect_ranking_has_no_excess_at_all():
    rng = np.random.default_rng(9)
    errors = rng.random(200_000) < 0.1
    kappa = np.where(errors, 0.1, 0.9)
    assert eaurc(kappa, errors) == 0.0  # tied as it may be
    assert eaurc(kappa + rng.random(errors.size) / 10, errors) == 0.0
    assert eaurc(kappa + rng.random(errors.size) / 10, errors, ties="threshold") == 0.0
    losses = rng.choice([0.1, 0.3, 0.7], 1000)
    assert eaurc(-losses, losses) == 0.0


def test_minus_zero_is_zero():
    assert aurc([0.0, -0.0], [1, 0]) == aurc([0.0, 0.0], [1, 0]) == aurc([-0.0, 0.0], [1, 0])
    assert aurc([0.0, -0.0, -1.0], [1, 0, 0]) == aurc([0.0, 0.0, -1.0], [1, 0, 0])


def test_neighbours_in_float64_are_not_ties():
    # The error may not displace the last bit of κ.
    sure = np.nextafter(0.5, 1)
    assert aurc([sure, 0.5], [0, 1]) == 0.25
    assert aurc([sure, 0.5], [1, 0]) == 0.75
    assert aurc([-0.5, -sure], [1, 0]) == 0.75


def test_the_largest_finite_scores_are_finite():
    top = np.finfo(np.float64).max
    assert aurc([top, top / 2, -top], [1, 0, 0]) == pytest.approx(11 / 18, rel=1e-15)


@pytest.mark.parametrize(
    "dtype", ["f2", "f4", "f8", "g", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", ">f8", "?"]
)
def test_every_type_of_number_gives_the_same(dtype):
    for area in AREAS:
        kappa = [1, 0, 1, 1, 0] if dtype == "?" else [3, 1, 2, 2, 0]
        errors = [0, 1, 1, 0, 1]
        assert area(np.array(kappa, dtype=dtype), errors) == area(kappa, errors)
        assert area(kappa, np.array(errors, dtype=dtype)) == area(kappa, errors)


def test_integers_too_long_for_float64_keep_their_order():
    big = 2**53
    assert aurc(np.array([big + 1, big], dtype=np.int64), [0, 1]) == 0.25
    assert aurc(np.array([big, big + 1], dtype=np.uint64), [0, 1]) == 0.75
    assert aurc(np.array([-big, -big - 1]), [0, 1]) == 0.25
    rows = np.array([[big, big + 1], [big + 1, big]])
    assert aurc(rows, [0, 1]).tolist() == [0.75, 0.25]


def test_extended_precision_keeps_its_order():
    one = np.longdouble(1)
    kappa = np.array([one, one + np.finfo(np.longdouble).eps])
    assert aurc(kappa, [1, 0]) == 0.25
    assert aurc(kappa * np.longdouble("1e4000"), [1, 0]) == 0.25


@pytest.mark.slow
def test_ten_million_equal_scores():
    errors = np.zeros(10**7, dtype=bool)
    errors[:1234] = True
    assert aurc(np.ones(10**7), errors) == pytest.approx(1234 / 10**7, rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("shift", [0.0, -0.5])
def test_aurc_of_ten_million_points_takes_at_most_400_mb(shift):
    rng = np.random.default_rng(10)
    kappa, errors = rng.random(10**7) + shift, rng.random(10**7) < 0.1
    tracemalloc.start()
    try:
        aurc(kappa, errors)
        assert tracemalloc.get_traced_memory()[1] < 400e6
    finally:
        tracemalloc.stop()


SIX_KAPPA = [0.4, 0.1, 0.3, 0.3, 0.2, 0.4]
SIX_LOSSES = np.array([3.0, 0.25, 2.0, 1.0, 0.0, 0.5])


@pytest.mark.parametrize("ties", ["expected", "threshold"])
@pytest.mark.parametrize("area", AREAS)
@pytest.mark.parametrize("exponent", [-1060, -400, 400, 1019])
def test_a_power_of_two_changes_no_bit(area, ties, exponent):
    scaled = area(SIX_KAPPA, np.ldexp(SIX_LOSSES, exponent), ties=ties)
    ordinary = area(SIX_KAPPA, SIX_LOSSES, ties=ties)
    if area is naurc:
        assert scaled == pytest.approx(ordinary, rel=1e-3 if exponent < -1000 else 1e-15)
    elif exponent > -1000:
        assert scaled == np.ldexp(ordinary, exponent)
    else:  # few bits are left
        assert scaled == pytest.approx(np.ldexp(ordinary, exponent), abs=5e-324)


def test_losses_as_large_as_their_sum_allows():
    losses = [5e307, 5e307, 1e307]
    exact = reference.over_all_orders(reference.augrc_of_order, [1, 2, 3], losses)
    assert augrc([1, 2, 3], losses) == pytest.approx(float(exact), rel=1e-15)
    tied = reference.over_all_orders(reference.augrc_of_order, [1, 1, 1], losses)
    assert augrc([1, 1, 1], losses) == pytest.approx(float(tied), rel=1e-15)
    assert augrc(np.arange(9), np.full(9, 1.99e307)) == pytest.approx(
        float(Fraction(1.99e307) * 5 / 9), rel=1e-15
    )
    rows = augrc([[1, 2, 3], [1, 1, 1]], losses)
    assert rows.tolist() == [augrc([1, 2, 3], losses), augrc([1, 1, 1], losses)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("edge", [-2.0, 2.0])
def test_scores_of_both_signs_around_two(edge, dtype):
    """Up to ±2 one set of keys holds both signs; 2 itself has a bit more than its place."""
    kappa = np.array([edge, -1.9, 1.9, 0.5, -0.5, edge, -1e-30, 1e-30], dtype)
    for errors in ([1, 0, 0, 1, 0, 0, 1, 0], [0, 1, 1, 0, 1, 1, 0, 0]):
        exact = reference.aurc_by_groups(kappa.tolist(), errors)
        assert aurc(kappa, errors) == pytest.approx(float(exact), rel=1e-14)
        rows = aurc(np.stack([kappa, -kappa]), errors)
        mirrored = reference.aurc_by_groups((-kappa).tolist(), errors)
        assert rows.tolist() == pytest.approx([float(exact), float(mirrored)], rel=1e-14)


def test_equal_losses_that_are_tied_keep_their_value_to_the_last_bit():
    """Their mean may be a bit below them; the ranking is perfect, and its excess 0."""
    rounded_down = 0
    for loss in np.arange(1, 200) / 100:
        for tied in range(2, 12):
            losses = np.append(np.full(tied, loss), 0.0)
            rounded_down += losses[:-1].sum() / tied < loss
            assert eaurc(np.append(np.zeros(tied), 1), losses) == 0
    assert rounded_down > 100
