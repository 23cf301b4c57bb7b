"""`python -m tests.support.waiting FOLDER`: two seeds side by side that never end by themselves."""

import os
import sys
import threading
from pathlib import Path

from rich.console import Console

from snapsure.paper._side_by_side import run_side_by_side


def one_seed(folder, seed):
    """Say who runs, whole or not at all, and wait."""
    (folder / "partial").with_suffix(f".{seed}").write_text(str(os.getpid()))
    (folder / f"partial.{seed}").rename(folder / f"{seed}.pid")
    threading.Event().wait()


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    # Where this file is `__main__`, what a new process imports is not.
    from tests.support import waiting

    run_side_by_side(waiting.one_seed, folder, (0, 1), [folder], 2, Console(file=sys.stderr))
