"""Run seeds in processes of their own, which end when this one does, with one bar for all."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ProcessPoolExecutor, wait
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

from rich.console import Console
from rich.progress import Progress


def run_side_by_side(
    run_seed: Callable[[Path, int], Path],
    folder: Path,
    seeds: Sequence[int],
    stores: Sequence[Path],
    total: int,
    console: Console,
) -> list[Path]:
    """Return run_seed(folder, seed) of every seed; the bar counts the snapshots in `stores`."""
    # Not forked: after work on several threads, a forked PyTorch hangs.
    spawned = multiprocessing.get_context("spawn")
    ours, theirs = spawned.Pipe(duplex=False)
    pool = ProcessPoolExecutor(len(seeds), mp_context=spawned, initializer=_begin, initargs=(ours,))
    bar = Progress(console=console, transient=True, disable=not console.is_terminal)
    # The pipe closes before the pool waits for its processes, which end by that.
    with pool, theirs, bar:
        task = bar.add_task("training", total=total)
        with _ignore_ctrl_c():
            futures = [pool.submit(run_seed, folder, seed) for seed in seeds]
        waiting = set(futures)
        while waiting:
            done, waiting = wait(waiting, timeout=0.5, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
            recorded = [path for store in stores for path in store.rglob("epoch-*.safetensors")]
            bar.update(task, completed=len(recorded))
        pool.shutdown()
    return [future.result() for future in futures]


def _begin(parent: Connection) -> None:
    import torch

    torch.set_num_threads(1)  # the seeds share the cores
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: Connection) -> None:
    """End at once when the parent closes its end of the pipe, or is killed.

    Files are written complete or not at all, so only work in progress is lost.
    """
    parent.poll(None)
    os._exit(1)


@contextmanager
def _ignore_ctrl_c() -> Iterator[None]:
    """Start processes that ignore Ctrl-C: the parent does not, and ends them in silence."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
