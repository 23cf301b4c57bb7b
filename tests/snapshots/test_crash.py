"""A real process, killed with SIGKILL in the middle of saving, again and again."""

import os
import random
import re
import signal
import subprocess
import sys
import textwrap
import time

from snapsure import SnapshotStore

KILLS = 50

WRITER = """
    import sys, torch
    from snapsure import SnapshotStore
    store = SnapshotStore(sys.argv[1])
    print("ready", flush=True)
    for line in sys.stdin:  # each line is a round: save snapshots until killed
        break
    epoch = int(line)
    while True:
        # Odd epochs are new, even ones replace an epoch that is there.
        number = epoch if epoch % 2 else 0
        weights = torch.full((200_000,), float(epoch))
        store.save({"w": weights, "epoch": torch.tensor(epoch)}, number)
        print(number, epoch, flush=True)
        epoch += 1
"""


def test_fifty_kills_lose_no_snapshot_that_was_saved(tmp_path):
    folder, clock = tmp_path / "run", random.Random(0)
    saved, epoch, killed_inside = {}, 1, 0
    # Starting PyTorch takes seconds: the next writer gets ready while this one is killed.
    waiting = start(folder)
    for _ in range(KILLS):
        writer, waiting = waiting, start(folder)
        assert writer.stdout.readline() == "ready\n"
        writer.stdin.write(f"{epoch}\n")
        writer.stdin.flush()
        time.sleep(clock.uniform(0.0, 0.06))
        os.kill(writer.pid, signal.SIGKILL)
        # A line that the kill has cut short may read as another number.
        lines = re.findall(r".*\n", writer.communicate()[0])
        for line in lines:
            number, content = map(int, line.split())
            saved[number] = content
            epoch = content + 1
        killed_inside += any(folder.glob(".partial-*"))

        store = SnapshotStore(folder)
        store.verify()
        for number, content in saved.items():
            state = store.load(number)
            # The one being replaced when the kill came may be there already, whole.
            assert (
                int(state["epoch"]) in (content, epoch)
                if number == 0
                else int(state["epoch"]) == content
            )
            assert (state["w"] == float(state["epoch"])).all()
        epoch += 1 + (epoch % 2 == 0)
    waiting.kill()
    waiting.communicate()
    assert len(saved) > KILLS / 5
    assert killed_inside > 0  # some kills did come in the middle of a file


def start(folder):
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(WRITER), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
