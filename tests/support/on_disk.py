"""One of every file that the package writes, and how each is read: for campaigns on bytes."""

import os
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from snapsure import (
    AES,
    LES,
    PES,
    Monitor,
    Platt,
    Predictor,
    ScoreTable,
    SnapshotStore,
    Threshold,
    _files,
    _json,
    score,
)
from snapsure.cli._tables import read_source, write_source
from snapsure.estimators import SPTD, BestSnapshot, Final, MaxLogitPNorm, Temperature
from snapsure.evaluation import _archive
from snapsure.networks._reference import Reference, write_reference
from snapsure.paper.archive import Experiment
from snapsure.scoring._recorded import RecordedLogits
from snapsure.table import Averaged
from snapsure.training._epochs import load_state, read_history, refuse_another, save_state
from tests.support.runs import run_of, save_runs

N = 60


class File(NamedTuple):
    """A file, and what is read through it: arrays and what JSON knows."""

    path: Path
    read: Callable[[], Any]


@contextmanager
def no_waiting():
    """What is not to survive a power cut need not wait for the disk."""
    fsync, os.fsync = os.fsync, lambda _: None
    try:
        yield
    finally:
        os.fsync = fsync


def table_of(n=N):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(n, 3))
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    y_hat = p.argmax(axis=1)
    kappa = np.stack([p.max(axis=1) ** (1 / i) for i in (1, 2, 3)])
    y = np.where(rng.random(n) < 0.4, (y_hat + 1) % 3, y_hat)
    labels = np.broadcast_to(y_hat, kappa.shape)
    averaged = Averaged(np.roll(y_hat, 1), kappa[1], kappa[2])
    return ScoreTable(
        {"softmax": kappa}, labels, y, epochs=[1, 2, 5], logits=logits, averaged=averaged
    )


def told_of(table):
    """All that a table holds."""
    kappas = [(name, table.kappa(name)) for name in table.names]
    columns = table.labels, table.y_hat, table.y, table.epochs, table.logits, table.final
    averaged = table.averaged or ()
    return [*kappas, *columns, *averaged, table.provenance]


def saved_table(folder):
    table_of().save(folder)
    names = {
        "piece": "softmax/epoch-000002.00000.npy",
        "labels": "labels/epoch-000002.00000.npy",
        "y": "y/all.00000.npy",
        "y_hat": "y_hat/all.00000.npy",
        "logits": "logits/all.00000.npy",
        "final": "final/all.00000.npy",
        "averaged": "averaged/all.00000.npy",
        "table.json": "table.json",
    }
    return {
        name: File(folder / path, lambda: told_of(ScoreTable.open(folder)))
        for name, path in names.items()
    }


def scored_table(folder):
    """What is scored again, if it is damaged."""
    store = SnapshotStore(folder / "run")
    torch.manual_seed(0)
    for epoch in (1, 2):
        store.save(nn.Linear(3, 3), epoch)
    x = torch.rand(N, 3, generator=torch.Generator().manual_seed(0))

    def read():
        data, out = (x, torch.arange(N) % 3), folder / "out"
        return told_of(score(nn.Linear(3, 3), store, data, average=True, out=out, progress=False))

    read()
    names = {
        "scored table.json": "table.json",
        "scored piece": "softmax/epoch-000001.00000.npy",
        "scored y_hat": "y_hat/all.00000.npy",
        "scored final": "final/all.00000.npy",
        "scored averaged": "averaged/all.00000.npy",
    }
    return {name: File(folder / "out" / path, read) for name, path in names.items()}


def estimators(folder):
    table, files = table_of(), {}
    kinds = [AES(k=2), PES(), LES(k=2), SPTD(), Temperature(), MaxLogitPNorm()]
    for estimator in (*kinds, BestSnapshot(), Final()):
        name = type(estimator).__name__
        path = folder / f"{name}.json"
        estimator.fit(table).save(path)

        def read(estimator=estimator, path=path):
            found = type(estimator).load(path)
            return found.as_dict(), found.confidence(table), found.snapshots(table.epochs)

        files[name] = File(path, read)
    return files


def decisions(folder):
    table = table_of()
    confidence, errors = table.kappa("softmax")[-1], table.errors
    Platt().fit(confidence, errors).save(folder / "platt.json")
    groups = np.arange(N) % 2
    by_group = Threshold.at_risk(confidence, errors, risk=0.7, groups=groups)
    by_group.save(folder / "groups.json")
    cost = Threshold.at_cost(confidence, errors, error=5, review=1)
    cost.save(folder / "cost.json")
    monitor = Monitor(Threshold(0.8, 0.6), confidence, risk=0.5)
    monitor.update(confidence[::-1], errors[::-1])
    monitor.save(folder / "monitor.json")

    def platt():
        found = Platt.load(folder / "platt.json")
        return found.as_dict(), found.predict_proba(confidence)

    def threshold(name, groups=None):
        found = Threshold.load(folder / name)
        return found.as_dict(), found.accepts(confidence, groups)

    def watch():
        found = Monitor.load(folder / "monitor.json")
        found.update(confidence, errors)
        return found.as_dict(), repr(found.alarms), repr(found)

    return {
        "Platt": File(folder / "platt.json", platt),
        "Threshold of groups": File(
            folder / "groups.json", lambda: threshold("groups.json", groups)
        ),
        "Threshold of costs": File(folder / "cost.json", lambda: threshold("cost.json")),
        "Monitor": File(folder / "monitor.json", watch),
    }


def predictor(folder):
    store, model = SnapshotStore(folder / "run"), nn.Linear(3, 3)
    for epoch in (1, 2, 5):
        store.save(model, epoch)
    x = torch.rand(7, 3, generator=torch.Generator().manual_seed(0))
    made = Predictor(model, store, LES(k=2).fit(table_of()), Threshold(0.5, 0.5))
    made.save(folder / "predictor")

    def read():
        found = Predictor.load(folder / "predictor", nn.Linear(3, 3))
        return [*found(x)], found.classes, found.provenance

    (snapshot,) = (folder / "predictor").glob("epoch-000005-*.safetensors")
    return {
        "predictor.json": File(folder / "predictor" / "predictor.json", read),
        "predictor's snapshot": File(snapshot, read),
    }


def trained_parts(folder):
    """A store without frozen weights, and a predictor with them in a file of their own."""

    def network():
        torch.manual_seed(0)
        made = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 3))
        made[0].requires_grad_(False)
        return made

    store, model = SnapshotStore(folder / "run"), network()
    for epoch in (1, 2, 5):
        nn.init.normal_(model[1].weight)
        store.save(model, epoch, trainable_only=True)
    x = torch.rand(7, 3, generator=torch.Generator().manual_seed(0))
    Predictor(model, store, AES(k=2)).save(folder / "predictor")

    def recorded():
        made, store = network(), SnapshotStore(folder / "run")
        store.save(made, 6, trainable_only=True)  # which must leave out the same
        store.remove(6)
        store.load_into(made, 5)
        return [value.detach().numpy() for value in made.parameters()]

    def read():
        return [*Predictor.load(folder / "predictor", nn.Sequential(*network()))(x)]

    (snapshot,) = (folder / "predictor").glob("epoch-000005-*.safetensors")
    (base,) = (folder / "predictor").glob("base-*.safetensors")
    return {
        "snapshot of a part": File(folder / "run" / "epoch-000005.safetensors", recorded),
        "predictor.json with a base": File(folder / "predictor" / "predictor.json", read),
        "predictor's part": File(snapshot, read),
        "predictor's base": File(base, read),
    }


def archives(folder):
    table = table_of()
    Experiment({"networks": [[]], "dataset": "d", "scale": "s"}, [table], {(0, 1): table}).save(
        folder / "experiment"
    )
    save_runs({"a": [run_of(0)]}, {"note": 1}, folder / "contest")

    def experiment():
        found = Experiment.open(folder / "experiment")
        known = [found.about[name] for name in ("networks", "dataset")]
        return (
            known,
            told_of(found.tables[0]),
            {seeds: told_of(one) for seeds, one in found.ensembles.items()},
        )

    def contest():
        runs = [run for some in _archive.open_contest(folder / "contest").values() for run in some]
        others = [(name, *rival) for run in runs for name, rival in run.others.items()]
        prices = [(run.passes, run.snapshot_bytes) for run in runs]
        return [told_of(run.table) for run in runs], others, prices

    return {
        "experiment.json": File(folder / "experiment" / "experiment.json", experiment),
        "packed table": File(folder / "experiment" / "seed-0.npz", experiment),
        "contest.json": File(folder / "contest" / "contest.json", contest),
        "packed run": File(folder / "contest" / "a" / "seed-0.npz", contest),
    }


def training(folder):
    logits = RecordedLogits(folder / "logits")
    values = np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32)
    logits.write(1, values, np.arange(9) % 3)
    torch.manual_seed(0)
    parts = {"network": nn.Linear(3, 3)}
    save_state(folder, parts, [{"epoch": 1, "seconds": 2.5}])

    def recorded():
        return logits.read(1).numpy(), logits.labels()

    def state():
        network = nn.Linear(3, 3)
        history = load_state(folder, {"network": network})
        return history, [value.detach().numpy() for value in network.parameters()]

    return {
        "logits": File(folder / "logits" / "epoch-000001.npy", recorded),
        "their labels": File(folder / "logits" / "labels.npy", recorded),
        "their manifest": File(folder / "logits" / "logits.json", recorded),
        "training's state": File(folder / "state-000001.pt", state),
        "history.json": File(folder / "history.json", lambda: read_history(folder)),
    }


def on_the_way(folder):
    """What lies there while scores are made."""
    x = torch.rand(N, 3, generator=torch.Generator().manual_seed(0))
    with write_reference(folder / "prepared", N) as add:
        add(x.clone(), np.arange(N) % 3)

    def reference():
        return [part.numpy() for part in Reference.open(folder / "prepared", torch.device("cpu"))]

    return {
        "reference": File(folder / "prepared" / "points.npy", reference),
        "reference's manifest": File(folder / "prepared" / "reference.json", reference),
        "reference's labels": File(folder / "prepared" / "labels.npy", reference),
    }


def source(folder):
    write_source(folder, "package.module:network", folder / "run", None)

    def read():
        return read_source(folder, None, None, None, trust=True)

    return {"source": File(folder / "source.json", read)}


def about(folder):
    told = {"seed": 0, "epochs": 30}
    _files.write_bytes(folder / "about.json", _json.text(told))
    return {
        "what a training is of": File(
            folder / "about.json", lambda: refuse_another(folder / "about.json", told, "seed")
        )
    }


MAKERS = [
    saved_table,
    scored_table,
    estimators,
    decisions,
    predictor,
    trained_parts,
    archives,
    training,
    on_the_way,
    source,
    about,
]


def same(one, other):
    """Whether two readings are equal to the last bit."""
    if isinstance(one, np.ndarray | torch.Tensor):
        one, other = np.asarray(one), np.asarray(other)
        return one.dtype == other.dtype and one.tobytes() == other.tobytes()
    if isinstance(one, dict):
        keys = one.keys() == other.keys()
        return keys and all(same(value, other[name]) for name, value in one.items())
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and repr(one) == repr(other)
