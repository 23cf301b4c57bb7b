"""Processes that are killed at any moment, again and again."""

import re
import signal
import time
from typing import NamedTuple

from tests.support.processes import forked


class Ended(NamedTuple):
    """What came of a process: the lines after "ready", and whether it was done before its end."""

    lines: list[str]
    done: bool


def killed(code, *arguments, loaded, delay, after=0):
    """Start code, and kill it so many seconds after it is ready and has said so many lines."""
    with forked(code, *arguments, loaded=loaded) as process:
        while process.stdout.count("\n") <= after and process.poll() is None:
            time.sleep(0.002)
        until = time.monotonic() + delay
        while process.poll() is None and time.monotonic() < until:
            time.sleep(0.001)
        process.kill()
        assert process.returncode in (0, -signal.SIGKILL), process.stderr
        return Ended(re.findall(r"(.*)\n", process.stdout)[1:], process.returncode == 0)
