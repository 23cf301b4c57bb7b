"""Trainings of the tiny recipe on small images: in this process, or in one that is killed."""

import hashlib

from snapsure.paper import data
from snapsure.paper.train import Parts
from tests.support import processes

CODE = """
    import os, signal, sys, warnings
    warnings.simplefilter("ignore")
    from dataclasses import replace
    from pathlib import Path
    import torch
    from snapsure.paper import data
    from snapsure.training._epochs import launch_fabric as fabric
    from snapsure.paper.train import Parts, train
    from snapsure.snapshots import SnapshotStore
    from tests.support.tiny import TINY

    def killing(owner, name, calls, after):
        method = getattr(owner, name)

        def counted(*args, **options):
            nonlocal calls
            calls -= 1
            value = method(*args, **options) if calls or after else None
            return value if calls else os.kill(os.getpid(), signal.SIGKILL)

        setattr(owner, name, counted)

    if __name__ == "__main__":
        cifar, out, devices, epochs, *kill = sys.argv[1:]
        if kill:
            owner = {"save": SnapshotStore, "step": torch.optim.SGD, "replace": Path}[kill[0]]
            killing(owner, kill[0], int(kill[1]), after=kill[0] == "save")
        ready = fabric("cpu", int(devices), "32-true")
        recipe = replace(TINY, epochs=int(epochs))
        images = [data.load("cifar10", part, Path(cifar)) for part in ("train", "test")]
        sets = Parts(data.find("cifar10"), *images)
        train(recipe, sets, Path(out), 0, ready, lambda line: None)
"""
LOADED = ("snapsure.paper.run", "tests.support.tiny", "torch._dynamo")


def train_alone(cifar, out, epochs, *kill):
    """Train in another process, which is killed at a call of something if that is asked for."""
    return processes.run(CODE, cifar, out, 1, epochs, *kill, loaded=LOADED)


def load_parts(cifar):
    name = "cifar10"
    return Parts(data.find(name), data.load(name, "train", cifar), data.load(name, "test", cifar))


def hash_snapshots(folder):
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted((folder / "snapshots").glob("epoch-*"))
    }
