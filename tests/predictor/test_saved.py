"""What is saved can be read back, to the last bit, or saving it is refused: every save and load."""

import math
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn

from snapsure import AES, LES, Monitor, Platt, Predictor, ScoreTable, SnapshotStore, Threshold
from snapsure.errors import SnapsureError
from snapsure.estimators import registry
from snapsure.metrics import Interval
from snapsure.table import Averaged

NANOSECONDS = 1_794_971_068_580_976_665  # an epoch of 19 digits, as `time.time_ns()` gives
FLOATS = st.floats(allow_nan=False)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
RISKS = st.floats(1e-6, 1 - 1e-6)
TEXTS = st.text(st.characters(codec=None, exclude_categories=()), max_size=5)
NAMES = st.from_regex(r"\A\w{1,9}\Z")
GROUPS = st.one_of(
    st.dictionaries(st.integers(-(2**70), 2**70), FLOATS, min_size=1, max_size=4),
    st.dictionaries(TEXTS, FLOATS, min_size=1, max_size=4),
)


def save_and_load(thing, kind):
    """Return what is read back, or None if saving is refused: nothing may be written then."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "saved.json"
        try:
            thing.save(path)
        except SnapsureError:
            assert not path.exists()
            return None
        return kind.load(path)


@given(
    theta=FLOATS,
    coverage=st.floats(0, 1),
    risk=st.none() | RISKS,
    n=st.none() | st.integers(0, 2**62),
    groups=st.none() | GROUPS,
    groups_are=st.sampled_from(["given", "classes"]),
    within=st.dictionaries(TEXTS, RISKS, max_size=2),
    cost=st.none() | st.builds(Interval, FLOATS, FLOATS, FLOATS),
)
@example(-math.inf, 0.5, None, None, {2**64 - 1: -math.inf}, "given", {}, None)
@example(0.5, 0.5, None, None, None, "given", {}, Interval(math.inf, 0.0, math.inf))
def test_thresholds(theta, coverage, risk, n, groups, groups_are, within, cost):
    settings = {"groups": groups, "groups_are": groups_are, "within": within, "cost": cost}
    threshold = Threshold(theta, coverage, risk=risk, n=n, **settings)
    again = save_and_load(threshold, Threshold)
    if again is not None:
        assert vars(again) == vars(threshold)
    else:  # only what JSON cannot hold is refused
        texts = "".join([*within, *(name for name in groups or () if isinstance(name, str))])
        surrogates = any(0xD800 <= ord(sign) < 0xE000 for sign in texts)
        assert surrogates or not np.isfinite(cost or 0).all()


@given(
    confidence=st.lists(FINITE, min_size=15, max_size=40),
    stream=st.lists(st.tuples(FINITE, st.sampled_from([0.0, 1.0, math.nan])), min_size=1),
    theta=FINITE,
    risk=RISKS,
    alpha=RISKS,
    seed=st.integers(0, 2**80),
)
def test_monitors(confidence, stream, theta, risk, alpha, seed):
    monitor = Monitor(Threshold(theta, 0.5), confidence, risk=risk, alpha=alpha, seed=seed)
    scores, errors = map(list, zip(*stream, strict=True))
    monitor.update(scores, errors)
    again = save_and_load(monitor, Monitor)
    for one in (monitor, again):
        one.update(scores)
    assert again.as_dict() == monitor.as_dict()


@settings(max_examples=25)  # each fits every estimator
@given(seed=st.integers(0, 2**32), n=st.integers(8, 40), epochs=st.sets(st.integers(0, 2 * 10**18)))
def test_estimators_and_calibration(seed, n, epochs):
    rng = np.random.default_rng(seed)
    epochs = sorted(epochs)[:6] or [NANOSECONDS]
    logits = rng.normal(size=(len(epochs), n, 3)) * 10.0 ** rng.integers(-3, 4)
    p = np.exp(logits - logits.max(axis=2, keepdims=True))
    p /= p.sum(axis=2, keepdims=True)
    y = np.where(np.arange(n) % 3, p[-1].argmax(axis=1), (p[-1].argmax(axis=1) + 1) % 3)
    table = ScoreTable.from_probabilities(p, y, epochs=epochs).with_logits(logits[-1])
    for estimator in (
        AES(k=3),
        LES(k=2),
        *(registry.get(name).make() for name in registry.names()),
    ):
        try:
            estimator.fit(table)
        except SnapsureError:  # too few examples
            continue
        again = save_and_load(estimator, type(estimator))
        assert again.confidence(table).tolist() == estimator.confidence(table).tolist()
    score = table.kappa("softmax")[-1]
    platt = Platt().fit(score, table.errors)
    assert (
        save_and_load(platt, Platt).predict_proba(score).tolist()
        == platt.predict_proba(score).tolist()
    )


@given(
    kappas=st.dictionaries(NAMES, st.integers(0, 9), min_size=1, max_size=3),
    epochs=st.sets(st.integers(-(2**63), 2**63), min_size=1, max_size=4),
    labels=st.sampled_from([np.int64, np.uint8, np.float32, np.uint64]),
    parts=st.sets(st.sampled_from(["y", "logits", "averaged"])),
    provenance=st.dictionaries(st.text(max_size=5), FLOATS | st.text() | st.none(), max_size=2),
)
@example({"softmax": 0, "CON": 1, "a/b": 2}, {NANOSECONDS}, np.int64, {"averaged"}, {})
def test_tables(kappas, epochs, labels, parts, provenance):
    n, shape = 7, (len(epochs), 7)
    draw = [np.random.default_rng(seed) for seed in kappas.values()]
    values = [rng.random(shape) ** 10.0 ** rng.integers(-3, 4) for rng in draw]
    answer = draw[0].integers(0, 3, shape)
    options = {
        "y": draw[0].integers(-1, 3, n) if "y" in parts else None,
        "logits": draw[0].normal(size=(n, 3)) * 1e3 if "logits" in parts else None,
        "averaged": Averaged(answer[0], *values[0][[0, 0]]) if "averaged" in parts else None,
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table"
        try:
            table = ScoreTable(
                dict(zip(kappas, values, strict=True)),
                answer.astype(labels),
                epochs=sorted(epochs),
                provenance=provenance,
                **options,
            )
            table.save(path)
        except SnapsureError:
            assert not (path / "table.json").exists()
            return
        again = ScoreTable.open(path)
        assert (again.names, again.provenance) == (table.names, table.provenance)
        for name in ("epochs", "labels", "y_hat", "y", "logits", "final", "averaged"):
            assert np.array_equal(getattr(again, name), getattr(table, name)), name
        for name in table.names:
            assert again.kappa(name).tobytes() == table.kappa(name).tobytes()


@given(
    names=st.sets(st.text(max_size=5) | TEXTS, min_size=1, max_size=3),
    kind=st.sampled_from([torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64]),
    shape=st.lists(st.integers(0, 3), max_size=3),
    epoch=st.integers(-1, 2**63),
)
@example({"a"}, torch.float32, [], 2**63 - 1)
def test_snapshots(names, kind, shape, epoch):
    weights = {name: (4 * torch.randn(shape)).to(kind) for name in names}
    with tempfile.TemporaryDirectory() as folder:
        try:
            SnapshotStore(folder).save(weights, epoch)
        except SnapsureError:
            assert SnapshotStore(folder).epochs == []
            return
        store = SnapshotStore(folder)
        again = store.load(epoch)
        assert store.epochs == [epoch]
        assert again.keys() == weights.keys()
        for name, value in weights.items():
            assert again[name].dtype == kind
            assert torch.equal(again[name], value)


@pytest.mark.parametrize("classes", [None, ["a", "=b", "c\r\n\0"], ["", "é", "\U0001f600"]])
@pytest.mark.parametrize("epoch", [0, 5, 10**6, NANOSECONDS, 2**63 - 1])
def test_predictors(tmp_path, classes, epoch):
    store, model = SnapshotStore(tmp_path / "run"), nn.Linear(4, 3)
    store.save(model, epoch)
    threshold = Threshold(-math.inf, 1.0, groups={2**64 - 1: 0.5, -1: math.inf})
    notes = {"notes": ["any", 1, 2.5, None, {"deep": [[]]}]}
    predictor = Predictor(model, store, AES(), threshold, classes=classes, provenance=notes)
    predictor.save(tmp_path / "p")
    again = Predictor.load(tmp_path / "p", model)
    assert (again.classes, again.epochs) == (classes, [epoch])
    assert again.provenance == {**notes, "way": None}
    assert again.threshold.as_dict() == threshold.as_dict()
    x, groups = torch.rand(5, 4), np.full(5, 2**64 - 1, np.uint64)
    for one, other in zip(again(x, groups), predictor(x, groups), strict=True):
        assert one.tolist() == other.tolist()


def test_a_predictor_that_could_not_be_read_is_not_saved(tmp_path):
    store, model = SnapshotStore(tmp_path / "run"), nn.Linear(4, 3)
    store.save(model, 1)
    for notes in ({"nan": math.nan}, {"text": "\ud800"}):
        predictor = Predictor(model, store, AES(), provenance=notes)
        with pytest.raises(SnapsureError, match="must hold finite numbers and Unicode text"):
            predictor.save(tmp_path / "p")
        assert not (tmp_path / "p").exists()
