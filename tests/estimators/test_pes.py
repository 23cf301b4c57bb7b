"""PES against a slow transcription of the paper's pseudo-code, with the stated repairs."""

import json
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snapsure import PES
from snapsure.errors import CorruptFile, InvalidInput, NotFitted
from tests.metrics import reference


def slow_eaurc(kappa, errors):
    """E-AURC in exact fractions: equals are equal."""
    ranked = sorted(errors)
    best = reference.aurc_of_order(ranked)
    return reference.aurc_by_groups(kappa, errors) - best


def slow_fit(kappa, errors, q):
    """Algorithm 1, `Train`: points as a set V, one layer S per round."""
    snapshots = len(kappa)
    V, K, theta, j = set(range(len(errors))), [], [], snapshots - 1
    while V:
        r = sorted(kappa[j][x] for x in V)
        edge = r[min(q, len(r)) - 1]
        S = sorted(x for x in V if kappa[j][x] <= edge)
        excess = [slow_eaurc([row[x] for x in S], [errors[x] for x in S]) for row in kappa]
        j = max(i for i in range(snapshots) if excess[i] == min(excess))
        K.append(j)
        theta.append(max(kappa[j][x] for x in S))
        V -= set(S)
    return list(zip(K, theta, strict=True))


def slow_confidence(kappa, layers):
    """Algorithm 1, `Estimate Confidence`."""
    values = []
    for x in range(len(kappa[0])):
        inside = [i for i, (j, theta) in enumerate(layers) if kappa[j][x] <= theta]
        i = inside[0] if inside else len(layers) - 1
        values.append(i + kappa[layers[i][0]][x])
    return values


@pytest.mark.parametrize("levels", [None, 2, 5, 10])
@given(seed=st.integers(0, 2**32))
@settings(max_examples=300)
def test_equals_the_slow_transcription(seed, levels):
    rng = np.random.default_rng(seed)
    n, snapshots = int(rng.integers(1, 25)), int(rng.integers(1, 6))
    kappa = rng.random((snapshots, n))
    if levels:
        kappa = np.round(kappa * levels) / levels
    errors = (rng.random(n) < rng.choice([0.0, 0.3, 0.7, 1.0])).astype(int)
    layer = float(rng.choice([1 / 3, 0.2, 0.5, 1.0]))
    pes = PES(layer).fit(kappa, errors)
    q = max(1, int(Fraction(layer).limit_denominator(10) * n))
    assert pes.layers_ == slow_fit(kappa.tolist(), errors.tolist(), q)
    fresh = rng.random((snapshots, 15))
    expected = slow_confidence(fresh.tolist(), pes.layers_)
    assert pes.confidence(fresh).tolist() == expected


@pytest.mark.parametrize("n", [3, 7, 10, 7000])
def test_layers_have_a_third_of_the_points_each(n):
    kappa = np.random.default_rng(n).random((2, n))
    layers = PES().fit(kappa, np.zeros(n)).layers_
    assert len(layers) == -(-n // (n // 3))


def test_a_tied_score_is_one_layer():
    layers = PES().fit(np.full((3, 30), 0.5), np.arange(30) % 2).layers_
    assert layers == [(2, 0.5)]


def test_points_above_every_threshold_belong_to_the_last_layer():
    pes = PES().fit(np.linspace(0, 0.5, 30)[None], np.zeros(30))
    assert pes.confidence([[0.9]]).tolist() == [2.9]


def test_it_finds_the_snapshot_that_ranks_a_layer_best():
    # The final snapshot ranks the unsure points well and has shuffled the sure ones, which the
    # first snapshot still ranks.
    rng = np.random.default_rng(1)
    n = 3000
    ease = rng.random(n)
    errors = rng.random(n) > 0.4 + 0.6 * ease
    final = np.where(ease < 1 / 3, ease, 1 / 3 + 2 / 3 * rng.random(n))
    kappa = np.stack([ease, final])
    layers = PES().fit(kappa, errors).layers_
    assert [snapshot for snapshot, _ in layers[1:]] == [0] * (len(layers) - 1)


def test_saved_and_loaded(tmp_path):
    rng = np.random.default_rng(2)
    kappa = rng.random((4, 60))
    pes = PES(0.2).fit(kappa, rng.random(60) < 0.3)
    pes.save(tmp_path / "pes.json")
    again = PES.load(tmp_path / "pes.json")
    assert again.layers_ == pes.layers_
    assert (again.confidence(kappa) == pes.confidence(kappa)).all()


def sentence(kind, call, *arguments):
    with pytest.raises(kind) as caught:
        call(*arguments)
    return str(caught.value)


def test_refusals(tmp_path):
    kappa = np.random.default_rng(3).random((4, 6))
    not_fitted = "PES must be fitted before it is used, got one that is not: call .fit"
    assert sentence(NotFitted, PES().confidence, kappa) == not_fitted
    assert sentence(NotFitted, PES().save, tmp_path / "x") == not_fitted
    pes = PES().fit(kappa, [0, 1, 0, 0, 1, 0])
    assert sentence(InvalidInput, pes.confidence, kappa[:3]) == (
        "`kappa` must have the 4 snapshots that were fitted, got 3: "
        "score the points with the same snapshots"
    )
    assert sentence(InvalidInput, PES().fit, kappa, [0, 1]) == (
        "`errors` must have one value per point of `kappa`, got 2 for 6 points in each of 4 "
        "snapshots: pass both from the same rows"
    )
    assert sentence(InvalidInput, PES, 0) == "`layer` must lie in (0, 1], got 0: write 80 % as 0.8"
    assert sentence(InvalidInput, PES.load, tmp_path / "none.json") == (
        f"{tmp_path / 'none.json'} must be a fitted PES, got no file: check the path"
    )
    (tmp_path / "other.json").write_text(json.dumps({"format": "snapsure LES 1"}))
    assert sentence(CorruptFile, PES.load, tmp_path / "other.json") == (
        f"{tmp_path / 'other.json'} must be a fitted PES, got something else: save it again"
    )
