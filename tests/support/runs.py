"""Simulated trainings, for the tests of evaluations, reports and archives."""

import numpy as np

from snapsure.evaluation import Rival, Run
from snapsure.evaluation._archive import locate_run, pack, write_manifest
from snapsure.table import ScoreTable

CLASSES = 4


def simulate_logits(seed=0, n=600, snapshots=8, drift=0.0, y_of=0):
    """Logits of a training whose later snapshots are noisier, on examples that `y_of` fixes."""
    points = np.random.default_rng(y_of)
    y = points.integers(0, CLASSES, n)
    ease = points.normal(1.0, 1.0, n)
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 1, (snapshots, n, CLASSES)) + rng.normal(0, 0.7, (n, CLASSES))
    logits[:, np.arange(n), y] += ease * np.linspace(1.5, 1.5 - drift, snapshots)[:, None]
    return logits, y


def softmax(logits):
    p = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return p / p.sum(axis=-1, keepdims=True)


def table_of(z, y, **more):
    p = softmax(z)
    labels = p.argmax(axis=2)
    kappa = np.take_along_axis(p, labels[-1][None, :, None], axis=2)[:, :, 0]
    entropy = 1 + (p * np.log(p)).sum(axis=2) / np.log(CLASSES)
    return ScoreTable({"softmax": kappa, "entropy": np.clip(entropy, 0, 1)}, labels, y, **more)


def run_of(seed=0, **options):
    logits, y = simulate_logits(seed, **options)
    table = table_of(logits, y, logits=logits[-1])
    mean = softmax(logits).mean(axis=0)
    return Run(
        table,
        others={
            "mean": Rival(mean.max(axis=1), mean.argmax(axis=1), passes=8, kept=8),
            "coin": (y % 2) / 2,
        },
        snapshot_bytes=1000,
    )


def save_runs(runs, about, folder):
    """Write runs by data set as a packed contest."""
    for name, some in runs.items():
        for seed, run in enumerate(some):
            pack(run, locate_run(folder, name, seed))
    write_manifest({name: len(some) for name, some in runs.items()}, about, folder)


def simulated(seed=0, n=400, snapshots=12):
    """A table of two κ; each snapshot sees the ease of the examples through less noise."""
    rng = np.random.default_rng(seed)
    ease = rng.normal(size=n)
    noise = rng.normal(size=(snapshots, n)) * np.linspace(2, 0.7, snapshots)[:, None]
    kappa = 1 / (1 + np.exp(-(ease + noise)))
    wrong = rng.random(n) > 1 / (1 + np.exp(-(1 + ease)))
    return ScoreTable(
        {"softmax": kappa, "mc_dropout": kappa**2}, np.zeros((snapshots, n), int), wrong.astype(int)
    )
