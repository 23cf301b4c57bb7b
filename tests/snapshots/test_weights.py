"""Reading and writing state dicts; most of it is tested through the store."""

import itertools
import sys

from torch import nn

from snapsure import SnapshotStore
from snapsure.snapshots import _weights


def test_ctrl_c_while_reading_stays_one(tmp_path):
    """At whichever line of Python it arrives: PyTorch turns it into a ValueError at some."""
    SnapshotStore(tmp_path).save(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)), 1)
    path = tmp_path / "epoch-000001.safetensors"
    lines = 0

    def interrupt(frame, event, argument):
        nonlocal lines
        lines -= 1
        if lines == 0:
            sys.settrace(None)
            raise KeyboardInterrupt
        return interrupt

    def interrupted_after(count):
        nonlocal lines
        lines = count
        sys.settrace(interrupt)
        try:
            _weights.read(path)
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(None)
        return False

    assert sum(1 for _ in itertools.takewhile(interrupted_after, itertools.count(1))) > 20
