"""A real process, killed with SIGKILL in the middle of saving, again and again."""

import random
import re
import time

import pytest

from snapsure import SnapshotStore
from tests.support.processes import forked

pytestmark = pytest.mark.slow

KILLS = 50

WRITER = """
    import itertools, sys, torch
    from snapsure import SnapshotStore
    store = SnapshotStore(sys.argv[1])
    for content in itertools.count(int(sys.argv[2])):
        # Odd ones are new, even ones replace an epoch that is there.
        epoch = content if content % 2 else 0
        weights = torch.full((200_000,), float(content))
        store.save({"w": weights, "content": torch.tensor(content)}, epoch)
        print(epoch, content, flush=True)
"""


def test_fifty_kills_lose_no_snapshot_that_was_saved(tmp_path):
    kill_again_and_again(tmp_path / "run", random.Random(0))


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(1, 21))
def test_a_thousand_kills_lose_no_snapshot_that_was_saved(tmp_path, seed):
    kill_again_and_again(tmp_path / "run", random.Random(seed))


def kill_again_and_again(folder, chance):
    held, content, kills, inside = {}, 1, 0, 0
    while kills < KILLS or inside < KILLS / 5:  # until enough have come in the middle of a file
        saves = chance.randrange(4)
        with forked(WRITER, folder, content, loaded=("torch", "snapsure.snapshots")) as writer:
            wait_until(writer, lambda: len(told(writer)) >= saves)  # noqa: B023
            if kills % 2:
                wait_until(writer, lambda: any(folder.glob(".partial-*")))
            else:
                time.sleep(chance.uniform(0, 0.02))
            writer.kill()
            saved = told(writer)
        kills += 1
        inside += any(folder.glob(".partial-*"))
        for epoch, last in saved:
            held[epoch], content = last, last + 1
        # Everything that was told is there; the one in flight may be, and from then on is.
        flight = {content if content % 2 else 0: content}
        found = contents(folder)
        assert found in (held, held | flight)
        held, content = found, content + 1
    assert len(held) > KILLS / 5  # of two or three that were asked for, one at least was new


def wait_until(writer, holds):
    while not holds():
        assert writer.poll() is None, writer.stderr
        time.sleep(0.0005)


def told(writer):
    """What it says it has saved; a line that is cut short does not count."""
    return [tuple(map(int, line.split())) for line in re.findall(r".*\n", writer.stdout)]


def contents(folder):
    """What is in each epoch, all of it whole."""
    store = SnapshotStore(folder)
    store.verify()
    states = {epoch: store.load(epoch) for epoch in store.epochs}
    for state in states.values():
        assert (state["w"] == float(state["content"])).all()
    return {epoch: int(state["content"]) for epoch, state in states.items()}
