"""Training, killed at any moment: no epoch that was told of is lost, and the end is the same."""

import random
import shutil
import time

import pytest

from snapsure import SnapshotStore
from snapsure.training._epochs import read_history
from tests.support.kills import killed
from tests.support.tiny import TINY
from tests.support.trainings import CODE, LOADED, hash_snapshots, train_alone

pytestmark = [pytest.mark.slow, pytest.mark.torture]  # a short form is in test_train.py

KILLS = 50
# It says which epochs are done, before the next begins.
TELLING = CODE.replace("lambda line: None", "lambda line: print(line, flush=True)").replace(
    "        ready = fabric(", '        print("ready", flush=True)\n        ready = fabric('
)


def recorded(folder):
    """The snapshots of a training, all whole, by their epochs."""
    store = SnapshotStore(folder / "snapshots")
    store.verify()
    return {epoch: store.sha256(epoch) for epoch in store.epochs}


@pytest.mark.parametrize("seed", range(20))
def test_a_thousand_kills_of_a_training(cifar, tmp_path, seed):
    chance, whole = random.Random(seed), tmp_path / "whole"
    for _ in range(2):  # what is loaded and cached is so the second time
        shutil.rmtree(whole, ignore_errors=True)
        begin = time.monotonic()
        assert train_alone(cifar, whole, TINY.epochs).returncode == 0
    seconds = time.monotonic() - begin
    kills = rounds = between = 0
    while kills < KILLS:
        out, known, done = tmp_path / f"out-{rounds}", 0, False
        while not done:
            delay = chance.uniform(0, seconds)
            arguments = (cifar, out, 1, TINY.epochs)
            ended = killed(TELLING, *arguments, loaded=LOADED, delay=delay)
            done = ended.done
            found, epochs = recorded(out), len(read_history(out))
            assert known + len(ended.lines) <= epochs <= len(found)
            assert found.items() <= recorded(whole).items()
            between += known < epochs < TINY.epochs
            kills, known = kills + (not done), epochs
        assert hash_snapshots(out) == hash_snapshots(whole)
        rounds += 1
    assert between > KILLS / 10  # many came while there was something and not all of it
