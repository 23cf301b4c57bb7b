"""Temperature scaling: the optimum against SciPy, by hand, and at the edges."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

from snapsure import aurc
from snapsure.errors import InvalidInput, NotFitted
from snapsure.estimators import Temperature
from snapsure.estimators._logits import top_log_odds
from snapsure.estimators._temperature import _odds_over_grid, _slope
from tests.support.tables import of, of_logits


def points(seed, n=400, classes=6, sharpness=1.0):
    """Logits of a classifier that says the truth, times a sharpness, and labels drawn from it."""
    rng = np.random.default_rng(seed)
    honest = rng.normal(size=(n, classes)) * rng.uniform(0.5, 3, size=(n, 1))
    y = np.array([rng.choice(classes, p=p) for p in softmax(honest, axis=1)])
    return honest * sharpness, y


def mean_nll(logits, y, temperature):
    return -log_softmax(logits / temperature, axis=1)[np.arange(len(y)), y].mean()


@pytest.mark.parametrize("sharpness", [1e-3, 0.2, 1.0, 5.0, 1e4])
@pytest.mark.parametrize("seed", range(3))
def test_the_least_nll_is_scipys(seed, sharpness):
    logits, y = points(seed, sharpness=sharpness)
    ours = Temperature().fit(of_logits(logits, y)).temperature_
    peer = minimize_scalar(
        lambda t: mean_nll(logits, y, sharpness * np.exp(t)),
        bounds=(-3, 3),
        options={"xatol": 1e-9},
    )
    assert ours == pytest.approx(sharpness * np.exp(peer.x), rel=1e-6)
    assert mean_nll(logits, y, ours) <= mean_nll(logits, y, 1) + 1e-15


@pytest.mark.parametrize("sharpness", [1e-3, 0.2, 1.0, 5.0, 1e4])
@pytest.mark.parametrize("seed", range(3))
def test_the_least_nll_is_found_in_few_steps(monkeypatch, seed, sharpness):
    # Halving ln β alone, from 6 ln 10 to a width of 1e-12, takes log₂(6 ln 10 / 1e-12) = 44 steps.
    steps = []

    def counted(z, y, beta):
        steps.append(beta)
        return _slope(z, y, beta)

    monkeypatch.setattr("snapsure.estimators._temperature._slope", counted)
    Temperature().fit(of_logits(*points(seed, n=50, sharpness=sharpness)))
    assert len(steps) < 44 / 2


@pytest.mark.parametrize("by", ["nll", "aurc"])
def test_points_of_none_of_the_classes(by):
    """NLL leaves them out; to AURC they are errors."""
    logits, y = points(0)
    strange = np.arange(len(y)) % 5 == 0
    ours = Temperature(by).fit(of_logits(logits, np.where(strange, -1, y))).temperature_
    if by == "nll":
        assert ours == Temperature().fit(of_logits(logits[~strange], y[~strange])).temperature_
    else:
        never = (logits.argmax(axis=1) + 1) % logits.shape[1]  # some other class
        wrong = of_logits(logits, np.where(strange, never, y))
        assert ours == Temperature("aurc").fit(wrong).temperature_


def test_three_classes_by_hand():
    # Logits (ln 4, 0, 0) and right in half of the cases: 4^β / (4^β + 2) = 1/2 at β = 1/2.
    logits = np.tile([np.log(4), 0, 0], (4, 1))
    model = Temperature().fit(of_logits(logits, [0, 0, 1, 2]))
    assert model.temperature_ == pytest.approx(2, rel=1e-12)
    np.testing.assert_allclose(model.confidence(of_logits(logits)), 0.5, rtol=1e-12)


@pytest.mark.parametrize("end", [1e-6, 1e6])
@pytest.mark.parametrize("share", [0.75, 1.5])
def test_up_to_the_ends_and_no_further(end, share):
    # As by hand above, where T is 2, so many times as sharp.
    logits = np.tile([np.log(4), 0, 0], (4, 1)) * end * share / 2
    found = Temperature().fit(of_logits(logits, [0, 0, 1, 2])).temperature_
    assert found == pytest.approx(np.clip(end * share, 1e-6, 1e6), rel=1e-9)


@pytest.mark.parametrize(
    ("logits", "y", "temperature"),
    [
        ([[3.0, 0.0], [1.0, 0.0]], [0, 0], 1e-6),
        ([[3.0, 0.0], [1.0, 0.0]], [1, 1], 1e6),
        ([[2.0, 2.0], [0.0, 0.0]], [0, 1], 1e6),  # all are alike: the logits say nothing
    ],
)
def test_where_there_is_no_least_nll(logits, y, temperature):
    model = Temperature().fit(of_logits(logits, y))
    assert model.temperature_ == temperature
    assert np.isfinite(model.confidence(of_logits([[3.0, 0.0]]))).all()


def test_the_least_aurc_of_the_grid():
    logits, y = points(7)
    wrong = logits.argmax(axis=1) != y
    grid = np.arange(1, 200) / 100
    areas = [aurc(softmax(logits / t, axis=1).max(axis=1), wrong) for t in grid]
    ours = Temperature(by="aurc").fit(of_logits(logits, y)).temperature_
    assert areas[np.flatnonzero(grid == ours)[0]] == pytest.approx(min(areas), abs=1e-12)
    assert min(areas) < areas[99]  # T = 1 was not the best already


@pytest.mark.parametrize("classes", [2, 3, 10, 20_000])
def test_log_odds_over_the_grid_are_those_of_the_divided_logits(classes):
    logits = np.random.default_rng(classes).normal(size=(12, classes)) * 5
    odds = _odds_over_grid(logits)
    assert odds.shape == (199, 12)
    for row, temperature in zip(odds, np.arange(1, 200) / 100, strict=True):
        np.testing.assert_allclose(row, top_log_odds(logits / temperature), rtol=1e-12, atol=1e-13)


def test_of_equal_aurc_the_temperature_nearest_to_one():
    # Of two classes, no T changes an order.
    logits, y = points(8, classes=2)
    assert Temperature(by="aurc").fit(of_logits(logits, y)).temperature_ == 1


def test_it_keeps_the_order_of_predictions_and_the_precision():
    logits = np.array([[30.0, 0.0, 0.0], [31.0, 0.0, 0.0], [36.0, 0.0, 0.0]])
    model = Temperature(by="aurc").fit(of_logits(logits, [0, 0, 0]))
    assert (np.diff(model.confidence(of_logits(logits))) > 0).all()
    expected = 2 * np.exp(-logits[:, 0]) / (1 + 2 * np.exp(-logits[:, 0]))
    np.testing.assert_allclose(
        1 - model.confidence(of_logits(logits)), expected, atol=2e-16, rtol=0
    )


@pytest.mark.parametrize("by", ["nll", "aurc"])
def test_a_constant_changes_nothing(by):
    logits, y = points(9)
    plain, moved = (
        Temperature(by).fit(of_logits(logits, y)),
        Temperature(by).fit(of_logits(logits + 50, y)),
    )
    np.testing.assert_allclose(
        moved.confidence(of_logits(logits + 50)), plain.confidence(of_logits(logits)), rtol=1e-9
    )


def test_saved_and_loaded(tmp_path):
    logits, y = points(10)
    for by in ("nll", "aurc"):
        model = Temperature(by).fit(of_logits(logits, y))
        model.save(tmp_path / "t.json")
        again = Temperature.load(tmp_path / "t.json")
        assert (again.by, again.temperature_) == (by, model.temperature_)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: Temperature("ece"),
            "`by` must be .* got 'ece'",
        ),
        (
            lambda: Temperature().fit(of_logits([[1.0, 2.0]], [2])),
            "`y` must lie in 0…1, .* got 2 at row 0",
        ),
        (
            lambda: Temperature().fit(of_logits([[1.0, 2.0]], [-1])),
            "`table` must have examples that belong to a class, got 1 of none",
        ),
        (
            lambda: Temperature().fit(of([[0.5]], [0])),
            "`table` must have the final snapshot's logits.* Pass logits=",
        ),
    ],
)
def test_refusals(call, words):
    with pytest.raises(InvalidInput, match=words):
        call()


def test_unfitted():
    with pytest.raises(NotFitted, match=r"Temperature .* Call \.fit"):
        Temperature().confidence(of_logits([[1.0, 2.0]]))
