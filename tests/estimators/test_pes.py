"""PES against a slow transcription of the paper's pseudo-code, with the stated repairs."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snapsure import PES
from snapsure.errors import InvalidInput
from tests.support.reference import slow_pes, slow_pes_confidence, slow_pes_layer
from tests.support.tables import of

RULES = ("layer", "paper")


@st.composite
def tables(draw):
    """κ of some snapshots and the errors: with few levels, 0 and 1 among them, most points tie."""
    snapshots, n = draw(st.integers(1, 5)), draw(st.integers(1, 24))
    levels = draw(st.sampled_from([1, 2, 5, 10, 2**20]))
    kappa = [[draw(st.integers(0, levels)) / levels for _ in range(n)] for _ in range(snapshots)]
    return kappa, [draw(st.integers(0, 1)) for _ in range(n)]


LAYERS = {1 / 3: Fraction(1, 3), 0.2: Fraction(1, 5), 0.5: Fraction(1, 2), 1.0: Fraction(1)}


@settings(max_examples=3 * settings.default.max_examples)
@given(tables(), st.sampled_from(list(LAYERS)), st.sampled_from(RULES))
def test_equals_the_slow_transcription(drawn, layer, assign):
    kappa, errors = drawn
    n = len(errors)
    pes = PES(layer, assign).fit(of(kappa, errors))
    layers, _ = slow_pes(kappa, errors, max(1, int(LAYERS[layer] * n)))
    # Theirs are places from 0, ours are epochs from 1.
    assert pes.layers_ == [(j + 1, theta, cut + 1, edge) for j, theta, cut, edge in layers]
    fresh = np.random.default_rng(n).random((len(kappa), 15))
    fresh[:, ::3] = np.round(fresh[:, ::3])  # some are exactly 0 or 1
    points = np.hstack([kappa, fresh])
    expected = [slow_pes_confidence(column, layers, assign) for column in points.T.tolist()]
    assert pes.confidence(of(points)).tolist() == expected
    assert pes.layer_of(of(points)).tolist() == [
        slow_pes_layer(column, layers, assign) for column in points.T.tolist()
    ]


@given(tables(), st.sampled_from(list(LAYERS)))
def test_points_of_training_get_their_layers_again(drawn, layer):
    kappa, errors = drawn
    _, sets = slow_pes(kappa, errors, max(1, int(LAYERS[layer] * len(errors))))
    at = PES(layer).fit(of(kappa, errors)).layer_of(of(kappa))
    assert [np.flatnonzero(at == i).tolist() for i in range(len(sets))] == sets


@given(tables(), st.sampled_from(RULES))
def test_no_point_reaches_the_layer_above(drawn, assign):
    """The order is that of (layer, κ): never another, and between layers never a tie."""
    kappa, errors = drawn
    pes = PES(0.2, assign).fit(of(kappa, errors))
    at, score = pes.layer_of(of(kappa)), pes.confidence(of(kappa))
    own = [kappa[pes.layers_[i].epoch - 1][x] for x, i in enumerate(at)]
    assert (np.floor(score)[at < len(pes.layers_) - 1] == at[at < len(pes.layers_) - 1]).all()
    order = sorted(range(len(errors)), key=lambda x: (at[x], own[x]))
    assert (np.diff(score[order]) >= 0).all()
    np.testing.assert_allclose(score, at + np.array(own), rtol=0, atol=1e-15 * len(pes.layers_))


def test_the_papers_rule_sends_sure_points_into_the_first_layer():
    """The final κ is shuffled among the unsure ten, so the first snapshot ranks them.

    It gives one of them 0.95, more than it gives to any of the sure twenty: by the letter the first
    layer takes all of them.
    """
    final = np.concatenate([np.linspace(0.01, 0.1, 10)[::-1], np.linspace(0.6, 0.9, 20)])
    first = np.concatenate([np.linspace(0.1, 0.95, 10), np.linspace(0.6, 0.9, 20)])
    errors = np.array([1] * 5 + [0] * 25)
    kappa = np.stack([first, final])
    at = {assign: PES(assign=assign).fit(of(kappa, errors)).layer_of(of(kappa)) for assign in RULES}
    assert at["layer"].tolist() == [0] * 10 + [1] * 10 + [2] * 10
    assert at["paper"].tolist() == [0] * 30


@pytest.mark.parametrize("n", [3, 7, 10, 7000])
def test_layers_have_a_third_of_the_points_each(n):
    kappa = np.random.default_rng(n).random((2, n))
    layers = PES().fit(of(kappa, np.zeros(n))).layers_
    assert len(layers) == -(-n // (n // 3))


def test_a_share_that_float64_rounds_down_is_the_share_that_is_written():
    assert math.floor(0.29 * 100) == 28
    table = of([np.arange(100) / 100], np.arange(100) % 2)
    layers = PES(layer=0.29).fit(table).layer_of(table)
    assert np.bincount(layers).tolist() == [29, 29, 29, 13]


def test_a_tied_score_is_one_layer():
    layers = PES().fit(of(np.full((3, 30), 0.5), np.arange(30) % 2)).layers_
    assert layers == [(3, 0.5, 3, 0.5)]


def test_points_above_every_threshold_belong_to_the_last_layer():
    pes = PES().fit(of(np.linspace(0, 0.5, 30)[None], np.zeros(30)))
    assert pes.confidence(of([[0.9]])).tolist() == [2.9]


def test_it_finds_the_snapshot_that_ranks_a_layer_best():
    # The final snapshot ranks the unsure points well and has shuffled the sure ones, which the
    # first snapshot still ranks.
    rng = np.random.default_rng(1)
    n = 3000
    ease = rng.random(n)
    errors = rng.random(n) > 0.4 + 0.6 * ease
    final = np.where(ease < 1 / 3, ease, 1 / 3 + 2 / 3 * rng.random(n))
    kappa = np.stack([ease, final])
    layers = PES().fit(of(kappa, errors)).layers_
    assert [layer.epoch for layer in layers[1:]] == [1] * (len(layers) - 1)


def test_kappa_near_one_stays_apart_as_far_as_float64_allows():
    """Five layers of one snapshot: points near 1 are in the last, at 4 + κ."""
    pes = PES(layer=0.2).fit(of([[0.2, 0.4, 0.6, 0.8, 1.0]], [0] * 5))
    assert [layer.edge for layer in pes.layers_] == [0.2, 0.4, 0.6, 0.8, 1.0]
    near = 1 - np.arange(4) * 2.0**-50  # float64 between 4 and 8 are 2⁻⁵⁰ apart
    assert pes.confidence(of(near[None])).tolist() == (4 + near).tolist()
    assert len(set(pes.confidence(of(near[None])))) == 4


@pytest.mark.parametrize("assign", RULES)
def test_answers_need_the_named_snapshots_alone(assign):
    rng = np.random.default_rng(4)
    kappa, fresh = rng.random((8, 90)), rng.random((8, 200))
    pes = PES(assign=assign).fit(of(kappa, rng.random(90) < 0.4))
    asked = {layer.epoch for layer in pes.layers_} | ({8} if assign == "layer" else set())
    assert pes.fitted["epochs"] == sorted(asked)
    assert pes.snapshots(range(1, 9)) == sorted(asked | {8})
    one = PES(1.0, assign).fit(of([[0.1, 0.9], [0.9, 0.1]], [1, 0]))  # the first ranks them
    assert one.fitted["epochs"] == [1]
    part = of(fresh[np.array(sorted(asked)) - 1], epochs=sorted(asked))
    assert (pes.confidence(part) == pes.confidence(of(fresh))).all()


@pytest.mark.parametrize("assign", RULES)
def test_saved_and_loaded(assign, tmp_path):
    rng = np.random.default_rng(2)
    kappa = rng.random((4, 60))
    pes = PES(0.2, assign).fit(of(kappa, rng.random(60) < 0.3))
    pes.save(tmp_path / "pes.json")
    again = PES.load(tmp_path / "pes.json")
    assert (again.layer, again.assign, again.layers_) == (0.2, assign, pes.layers_)
    assert (again.confidence(of(kappa)) == pes.confidence(of(kappa))).all()


def sentence(kind, call, *arguments):
    with pytest.raises(kind) as caught:
        call(*arguments)
    return str(caught.value)


def test_refusals():
    assert sentence(InvalidInput, PES, 0) == "`layer` must lie in (0, 1], got 0. Write 80 % as 0.8."
    assert sentence(InvalidInput, PES, 0.5, "letter") == (
        '`assign` must be "layer" or "paper", got \'letter\'. Choose one of them.'
    )
