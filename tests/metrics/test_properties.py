"""What must hold for every input, tried by hypothesis."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapsure import augrc, aurc, coverage_at_risk, eaurc, naurc, rc_curve, risk_at_coverage

AREAS = [aurc, eaurc, augrc, naurc]
TIES = ["expected", "threshold"]

scores = st.one_of(
    st.floats(-1e300, 1e300, allow_subnormal=True), st.sampled_from([0.0, -0.0, 0.5, 1.0])
)
losses = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1e3, allow_subnormal=False))


@st.composite
def sets(draw, loss=losses):
    n = draw(st.integers(1, 40))
    kappa = draw(st.lists(scores, min_size=n, max_size=n))
    return np.array(kappa), np.array(draw(st.lists(loss, min_size=n, max_size=n)))


errors = st.sampled_from([0.0, 1.0])


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("area", AREAS)
@given(data=st.one_of(sets(), sets(errors)), seed=st.integers(0, 99))
def test_row_order_changes_no_bit(area, ties, data, seed):
    kappa, loss = data
    order = np.random.default_rng(seed).permutation(loss.size)
    assert area(kappa[order], loss[order], ties=ties) == area(kappa, loss, ties=ties)


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("area", AREAS)
@given(data=st.one_of(sets(), sets(errors)))
def test_only_the_order_of_scores_counts(area, ties, data):
    kappa, loss = data
    ranks = np.unique(kappa, return_inverse=True)[1]
    value = pytest.approx(area(kappa, loss, ties=ties), rel=1e-12, abs=1e-15)
    assert area(ranks, loss, ties=ties) == value
    assert area(ranks - 1000.5, loss, ties=ties) == value
    assert area(np.exp(ranks / 50), loss, ties=ties) == value


@given(data=st.one_of(sets(), sets(errors)))
def test_each_row_twice(data):
    kappa, loss = data
    twice = np.repeat(kappa, 2), np.repeat(loss, 2)
    # Accepted together, a double changes no threshold's risk, and no mean over points.
    assert aurc(*twice, ties="threshold") == pytest.approx(
        aurc(kappa, loss, ties="threshold"), rel=1e-12, abs=1e-12
    )
    # In random order the closed form over groups twice as large gives the expected area.
    theta, size = np.unique(-kappa, return_counts=True)
    mean = np.array([loss[-kappa == value].mean() for value in theta])
    ranked = np.repeat(mean, 2 * size)
    area = np.mean(np.cumsum(ranked) / np.arange(1, ranked.size + 1))
    assert aurc(*twice) == pytest.approx(area, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("ties", TIES)
@given(data=st.one_of(sets(), sets(errors)))
def test_excess_is_never_negative(ties, data):
    assert eaurc(*data, ties=ties) >= 0


@pytest.mark.parametrize("ties", TIES)
@given(data=st.one_of(sets(), sets(errors)))
def test_a_constant_score_gives_the_mean_loss(ties, data):
    _, loss = data
    constant = np.full(loss.size, 0.7)
    assert aurc(constant, loss, ties=ties) == pytest.approx(loss.mean(), rel=1e-12, abs=1e-300)


@given(data=st.one_of(sets(), sets(errors)))
def test_eaurc_is_the_difference_it_is_named_for(data):
    kappa, loss = data
    assert eaurc(kappa, loss) == pytest.approx(
        aurc(kappa, loss) - aurc(-loss, loss), rel=1e-9, abs=1e-10
    )


@given(data=st.one_of(sets(), sets(errors)))
def test_the_curve_says_what_each_threshold_does(data):
    kappa, loss = data
    curve = rc_curve(kappa, loss)
    assert (np.diff(curve.coverage) > 0).all()
    assert (np.diff(curve.theta) < 0).all()
    for coverage, risk, theta in zip(*curve, strict=True):
        accepted = kappa >= theta
        assert coverage == accepted.mean()
        assert risk == pytest.approx(loss[accepted].mean(), rel=1e-12, abs=1e-12)
        assert risk_at_coverage(kappa, loss, coverage) == pytest.approx(risk, rel=1e-12, abs=1e-12)
        assert coverage_at_risk(kappa, loss, risk) >= coverage
