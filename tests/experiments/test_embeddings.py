"""Heads on embeddings, and second scores for unknowns."""

import json

import numpy as np
import pytest

from experiments import embeddings as study
from snapsure._logistic import platt_curve, sigmoid
from tests.support.tasks import make_small_task

pytestmark = pytest.mark.slow


def test_sirc_is_its_authors_formula():
    rng = np.random.default_rng(0)
    odds, second, known = rng.normal(size=50), rng.normal(3, 2, size=50), np.arange(30)
    mean, std = second[:30].mean(), second[:30].std()
    published = -(1 - sigmoid(odds)) * (1 + np.exp(-(second - (mean - 3 * std)) / std))
    assert study.combine(odds, second, known) == pytest.approx(-np.log(-published))


def test_a_head_is_held_at_the_softmax_and_learns_from_the_embedding():
    """The third feature has no weight in the classifier, and knows the class better than it."""
    rng = np.random.default_rng(0)
    x = np.column_stack((rng.normal(size=(400, 3)), np.ones(400)))
    start = np.array([[1.0, 0, 0, 0], [0, 1.0, 0, 0]])
    y_hat = (x @ start.T).argmax(axis=1)
    right, rows = ((x[:, 2] < 0) == y_hat).astype(float), np.arange(200)
    odds = np.abs(x[:, 0] - x[:, 1])  # of two classes: the difference of their logits
    slope, intercept = platt_curve(odds[rows], right[rows] == 0)
    held = study.fit_head(x, y_hat, right, start, rows, 1e9)
    assert held == pytest.approx(slope * odds + intercept, abs=1e-3)
    moved = study.fit_head(x, y_hat, right, start, rows, 1e-3)
    assert ((moved[200:] > 0) == (right[200:] == 1)).mean() > 0.95


def test_the_residual_is_the_length_outside_the_principal_directions():
    train = np.array([[2.0, 0, 0, 0], [0, 3.0, 0, 0], [0, 0, 1.0, 0], [0, 0, 0, 0.5]])
    weights = np.column_stack((np.eye(4), np.zeros(4)))  # no bias: the origin is 0
    x = np.array([[5.0, 7, 0, 0], [1, 1, 3, 4]])
    network = study.Network(None, x, train, weights, {})
    assert study.find_residual(network) == pytest.approx([0, 5])


def test_nothing_is_accepted_where_nothing_can_be_promised():
    score, wrong = np.linspace(0, 1, 100), np.arange(100) % 2 == 0
    rows = np.arange(100)
    assert study.count_accepted(score, wrong, rows, rows) == (0, 0)
    taken, lost = study.count_accepted(score, np.zeros(100, bool), rows, rows)
    assert (taken, lost) == (100, 0)


def test_trained_judged_and_written(tmp_path, monkeypatch):
    monkeypatch.setattr(study, "make_task", make_small_task)
    study.main(tmp_path / "runs", ["words"], seed=[0])
    study.main(tmp_path / "runs", ["words"], results=tmp_path / "found.json")
    found = json.loads((tmp_path / "found.json").read_text())
    assert [*found["errors"]["words"]] == ["0"]  # the other seeds are not trained
    methods = found["errors"]["words"]["0"]["methods"]
    assert {"final", "LES", "AdUE's head", "LES and embedding"} < methods.keys()
    assert len(methods["AdUE's head"]["penalties"]) == 2
    low, high = methods["LES"]["saved"][1:]
    assert low <= methods["LES"]["saved"][0] <= high
