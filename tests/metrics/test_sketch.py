"""Streams in fixed memory: where the bins are, what they leave open, how sketches merge."""

import math
import pickle
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapsure import RiskCoverageSketch, aurc, eaurc
from tests.support.reference import aurc_by_groups, aurc_of_order

BINS = [256, 65536]
# A point in every bin: the curve then tells where each starts.
THETAS = {
    bins: RiskCoverageSketch.from_state(np.ones((2, bins), int)).rc_curve().theta[::-1]
    for bins in BINS
}


def sketch_of(kappa, errors, bins=65536):
    sketch = RiskCoverageSketch(bins)
    sketch.update(kappa, errors)
    return sketch


def theta_of(kappa, bins):
    """The start of each κ's bin, found by search."""
    return THETAS[bins][np.searchsorted(THETAS[bins], kappa, side="right") - 1]


def stepped(kappa, steps):
    """κ moved by a few floats, within [0, 1]."""
    for _ in range(abs(steps)):
        kappa = math.nextafter(kappa, math.copysign(math.inf, steps))
    return min(max(kappa, 0.0), 1.0)


# κ where a bin could go wrong: at its ends, near 0 and 1, in the last bits, denormal.
awkward_kappas = st.builds(
    stepped,
    st.one_of(
        st.floats(0, 1, allow_subnormal=True),
        st.sampled_from([0.0, -0.0, 5e-324, 0.25, 0.5, 1.0, 2.0**-53, 2.0**-77]),
        st.integers(1, 1074).map(lambda j: 2.0**-j),
        st.integers(0, 2**12).map(lambda j: 1 - j * 2.0**-53),
        *(st.integers(0, bins - 1).map(THETAS[bins].item) for bins in BINS),
    ),
    st.integers(-3, 3),
)


@st.composite
def streams(draw, most=30):
    """Points of awkward κ, crowded into few bins or not."""
    n = draw(st.integers(1, most))
    kappa = draw(st.lists(awkward_kappas, min_size=n, max_size=n))
    if draw(st.booleans()):
        width = draw(st.sampled_from([2.0**-52, 1e-9, 1e-5, 1e-2]))
        places = draw(st.lists(st.integers(-4, 4), min_size=n, max_size=n))
        kappa = [min(max(kappa[0] + place * width, 0.0), 1.0) for place in places]
    return np.array(kappa), np.array(draw(st.lists(st.integers(0, 1), min_size=n, max_size=n)))


def harmonic(n):
    """H_n to thirty digits: summed up to 1000, then by Euler and Maclaurin."""
    near = min(n, 1000)
    total = sum((1 / Decimal(i) for i in range(1, near + 1)), Decimal(0))
    return total + _maclaurin(n) - _maclaurin(near) if n > near else total


def _maclaurin(n):
    x = Decimal(n)
    return x.ln() + 1 / (2 * x) - 1 / (12 * x**2) + 1 / (120 * x**4) - 1 / (252 * x**6)


def area_of_groups(sizes, errors):
    """Expected AURC of tied groups, surest first: Σ over places i of (E + (i − a) e / c) / i."""
    start, before, area, low = 0, 0, Decimal(0), Decimal(0)
    for c, e in zip(map(int, sizes), map(int, errors), strict=True):
        high = harmonic(start + c)
        area += e + (before - start * Decimal(e) / c) * (high - low)
        start, before, low = start + c, before + e, high
    return area / start


@pytest.mark.parametrize("bins", BINS)
@given(data=st.data())
def test_a_bin_is_what_is_at_or_above_its_theta(bins, data):
    kappa = data.draw(awkward_kappas)
    assert sketch_of(kappa, 0, bins).rc_curve().theta == theta_of(kappa, bins)


@pytest.mark.parametrize("bins", BINS)
@given(kappa=awkward_kappas)
def test_what_shares_a_bin_is_close(bins, kappa):
    place = np.searchsorted(THETAS[bins], kappa, side="right")
    last = math.nextafter(THETAS[bins][place], 0) if place < THETAS[bins].size else 1.0
    width = Fraction(last) - Fraction(THETAS[bins][place - 1])
    assert width < Fraction(2, bins)
    assert width == 0 or width < Fraction(256, bins) * (1 - Fraction(last))
    assert kappa < 2.0**-76 or width < Fraction(256, bins) * Fraction(kappa)


def test_each_bin_has_its_place():
    # Where bins are narrower than the last bit of κ, some can never hold a point.
    for bins, thetas in THETAS.items():
        assert thetas.size == bins
        assert (np.diff(thetas) >= 0).all()
        assert np.unique(thetas).size > 0.9 * bins
        assert (thetas[0], thetas[-1]) == (0, 1)


@pytest.mark.parametrize("bins", BINS)
@given(data=streams())
def test_the_bounds_hold(bins, data):
    kappa, errors = data
    sketch = sketch_of(kappa, errors, bins)
    exact = aurc_by_groups(kappa.tolist(), errors.tolist())
    excess = exact - aurc_of_order(sorted(errors))
    fullest = max(np.unique(theta_of(kappa, bins), return_counts=True)[1]) / kappa.size
    widest = fullest * (1 + math.log(kappa.size)) / 2 + 2.1e-12 * errors.mean()
    for value, bounds, truth in [
        (sketch.aurc(), sketch.aurc_bounds(), exact),
        (sketch.eaurc(), sketch.eaurc_bounds(), excess),
    ]:
        assert Fraction(bounds.low) <= truth <= Fraction(bounds.high)
        assert 0 <= bounds.low <= bounds.estimate == value <= bounds.high
        assert bounds.high - bounds.low <= widest


@pytest.mark.parametrize("bins", BINS)
@given(data=streams())
def test_the_points_of_a_bin_count_as_tied(bins, data):
    kappa, errors = data
    sketch, tied = sketch_of(kappa, errors, bins), theta_of(kappa, bins)
    assert sketch.aurc() == pytest.approx(aurc(tied, errors), rel=1e-12, abs=1e-15)
    assert sketch.eaurc() == pytest.approx(eaurc(tied, errors), rel=1e-12, abs=1e-15)


@pytest.mark.parametrize(("errors_first", "bound"), [(True, "high"), (False, "low")])
@given(counts=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=8))
def test_the_bounds_are_reached(errors_first, bound, counts):
    kappa, errors = [0.5], [1]
    for i, (right, wrong) in enumerate(counts, 1):  # each in a bin of its own, without ties
        kappa += [0.5 + i / 128 + j / 2**16 for j in range(right + wrong, 0, -1)]
        errors += sorted([0] * right + [1] * wrong, reverse=errors_first)
    sketch = sketch_of(kappa, errors, 256)
    rounding = 1.01e-12 * np.mean(errors)
    reached = getattr(sketch.aurc_bounds(), bound)
    assert reached == pytest.approx(aurc(kappa, errors), rel=0, abs=rounding)
    reached = getattr(sketch.eaurc_bounds(), bound)
    assert reached == pytest.approx(eaurc(kappa, errors), rel=0, abs=rounding)


@pytest.mark.parametrize("bins", BINS)
@given(data=streams())
def test_the_curve_is_exact_at_its_thresholds(bins, data):
    kappa, errors = data
    curve = sketch_of(kappa, errors, bins).rc_curve()
    assert (np.diff(curve.coverage) > 0).all()
    assert curve.coverage[-1] == 1
    for coverage, risk, theta in zip(*curve, strict=True):
        accepted = kappa >= theta
        assert coverage == accepted.mean()
        assert risk == errors[accepted].sum() / accepted.sum()


@given(data=streams(), cuts=st.tuples(st.integers(0, 30), st.integers(0, 30)))
def test_merging_is_counting(data, cuts):
    kappa, errors = data
    parts = []
    for rows in np.split(np.arange(kappa.size), sorted(min(cut, kappa.size) for cut in cuts)):
        parts.append(RiskCoverageSketch(256))
        if rows.size:
            parts[-1].update(kappa[rows], errors[rows])
    a, b, c = parts
    before = [part.state for part in parts]
    whole = sketch_of(kappa, errors, 256)
    assert a.merge(b, c) == a.merge(b).merge(c) == a.merge(b.merge(c)) == c.merge(a, b) == whole
    assert a.merge(b) == b.merge(a)
    assert RiskCoverageSketch.from_state(sum(before)) == whole
    for part, state in zip(parts, before, strict=True):
        np.testing.assert_array_equal(part.state, state)


@pytest.mark.parametrize("spread", [1, 8, 30])
def test_scores_of_a_confident_network(spread):
    rng = np.random.default_rng(0)
    logit = rng.normal(spread, spread, 100_000)
    kappa = np.where(logit > 0, 1 - 1 / (1 + np.exp(logit)), np.exp(logit) / (1 + np.exp(logit)))
    errors = rng.random(kappa.size) > 1 / (1 + np.exp(-logit / 3))
    for bounds, exact in [
        (sketch_of(kappa, errors).aurc_bounds(), aurc(kappa, errors)),
        (sketch_of(kappa, errors).eaurc_bounds(), eaurc(kappa, errors)),
    ]:
        assert bounds.low <= exact <= bounds.high < bounds.low + 1e-4
        assert bounds.estimate == pytest.approx(exact, abs=2e-6)


def test_ones_of_float32_are_true_ties_and_widen_nothing():
    kappa = np.array([1, 1, 1, 1, 0.5], dtype=np.float32)
    errors = [0, 1, 0, 1, 1]
    exact = aurc(kappa, errors)
    assert sketch_of(kappa, errors).aurc_bounds() == pytest.approx((exact,) * 3, abs=1e-12)


def test_a_perfect_ranking_has_no_excess():
    sketch = sketch_of(np.linspace(0, 1, 1001), np.arange(1001) < 300)
    assert sketch.eaurc() == sketch.eaurc_bounds().low == 0


@pytest.mark.parametrize("wrong", [0, 1])
def test_all_right_or_all_wrong(wrong):
    sketch = sketch_of(np.linspace(0, 1, 1000), np.full(1000, wrong))
    assert sketch.aurc() == pytest.approx(wrong, rel=1e-13)
    assert sketch.eaurc() == 0
    assert sketch.eaurc_bounds().high <= 1e-12


def test_a_thousand_million_points():
    rng = np.random.default_rng(0)
    kappa = np.round(rng.random(10**6) * 1024) / 1024  # each its own bin: true ties
    errors = rng.random(10**6) > kappa
    sketch = sketch_of(kappa, errors)
    for _ in range(10):
        sketch = sketch.merge(sketch)
    assert sketch.n == 1024 * 10**6
    assert sketch.errors == 1024 * errors.sum()
    assert sketch.state.nbytes < 2e6
    assert len(pickle.dumps(sketch)) < 2e6
    places = (1024 * (1 - kappa)).astype(int)
    sizes, wrong = 1024 * np.bincount(places), 1024 * np.bincount(places[errors], minlength=1025)
    exact = area_of_groups(sizes, wrong)
    best = area_of_groups([sketch.n - sketch.errors, sketch.errors], [0, sketch.errors])
    assert sketch.aurc() == pytest.approx(float(exact), rel=1e-14)
    assert sketch.eaurc() == pytest.approx(float(exact - best), rel=1e-13)
    assert sketch.aurc_bounds().low <= exact <= sketch.aurc_bounds().high


@pytest.mark.parametrize("largest", [3, 100, 10**6, 10**13])
@pytest.mark.parametrize("seed", range(5))
def test_rounding_is_within_the_bounds(largest, seed):
    """κ = 1 and its neighbours below have a bin each, so nothing but rounding is left open."""
    rng = np.random.default_rng(seed)
    state = np.zeros((2, 65536), dtype=np.int64)
    state[:, THETAS[65536].searchsorted(1 - np.arange(60) * 2.0**-53, side="right") - 1] = np.exp(
        rng.random((2, 60)) * math.log(largest)
    ).astype(int)
    sketch = RiskCoverageSketch.from_state(state)
    surest = state[:, ::-1][:, state.any(axis=0)[::-1]]
    exact = area_of_groups(surest.sum(axis=0), surest[1])
    best = area_of_groups([sketch.n - sketch.errors, sketch.errors], [0, sketch.errors])
    for bounds, truth in [(sketch.aurc_bounds(), exact), (sketch.eaurc_bounds(), exact - best)]:
        assert bounds.low <= truth <= bounds.high
        assert bounds.high - bounds.low <= 2.1e-12 * sketch.errors / sketch.n
