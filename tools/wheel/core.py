"""What must work with the wheel alone, in an environment without PyTorch; run by check_wheel.py."""

import importlib.util
import sys
from importlib import metadata

import numpy as np

import snapsure
from snapsure import AES, ScoreTable, Threshold, aurc

assert importlib.util.find_spec("torch") is None
assert snapsure.__version__ == metadata.version("snapsure")

rng = np.random.default_rng(0)
truth = rng.integers(3, size=600)
# Twelve snapshots of a classifier that gets surer, and is right on most points.
logits = rng.normal(size=(600, 3)) + 2.0 * np.eye(3)[truth]
sharpness = np.linspace(0.5, 3, 12)[:, None, None]
probs = np.exp(sharpness * logits)
table = ScoreTable.from_probabilities(probs / probs.sum(axis=2, keepdims=True), truth)
confidence = AES().confidence(table)
threshold = Threshold.at_risk(confidence, table.errors, 0.1)
accepted = threshold.accepts(confidence)
assert 0 < accepted.mean() < 1
assert table.errors[accepted].mean() <= 0.1
assert 0 < aurc(confidence, table.errors) < table.errors.mean()
table.save(sys.argv[1])
