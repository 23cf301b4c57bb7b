"""Data sets that kill, fail and block in workers. In a module of its own: workers import it."""

import os
import signal
import time
from pathlib import Path

import ray
from torch.utils.data import Dataset

from tests.support.processes import LONG


class Watched(Dataset):
    """Notes in a file which rows workers read; the process that made it reads unnoticed."""

    def __init__(self, pairs, folder):
        self.images, self.labels = pairs
        self.folder, self.driver = Path(folder), os.getpid()
        self.folder.mkdir(exist_ok=True)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        if os.getpid() != self.driver:
            self.note("reads", f"{i}\n")
            self.meet(i)
        return self.images[i], int(self.labels[i])

    def note(self, name, line):
        with (self.folder / name).open("a") as file:
            file.write(line)

    def noted(self, name="reads"):
        path = self.folder / name
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def meet(self, i):
        """What happens at a row."""


class Killing(Watched):
    """Kills the first process that comes to row 600."""

    def meet(self, i):
        if i == 600 and not self.noted("killed"):
            self.note("killed", f"{os.getpid()}\n")
            os.kill(os.getpid(), signal.SIGKILL)


class Deadly(Watched):
    """Kills every process that comes to row 600."""

    def meet(self, i):
        if i == 600:
            os.kill(os.getpid(), signal.SIGKILL)


class Broken(Watched):
    """Raises at row 300 until it is fixed."""

    def meet(self, i):
        if i == 300 and not (self.folder / "fixed").exists():
            self.note("tries", f"{i}\n")
            raise OSError("image 300 is truncated\nand more")


class Blocking(Watched):
    """Holds fast whoever reads beyond the first shard on another node than the driver's."""

    def __init__(self, pairs, folder):
        super().__init__(pairs, folder)
        self.home = ray.get_runtime_context().get_node_id()

    def meet(self, i):
        if i < 256:
            return
        if ray.get_runtime_context().get_node_id() != self.home:
            self.note("blocked", f"{i}\n")
            time.sleep(LONG)
        deadline = time.monotonic() + LONG
        while not self.noted("blocked"):  # the other node must come to its piece first
            assert time.monotonic() < deadline
            time.sleep(0.01)


class Held(Watched):
    """Holds whoever reads the last shard until it is set free."""

    def meet(self, i):
        deadline = time.monotonic() + LONG
        while i >= 768 and not (self.folder / "free").exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
