"""Seeds in processes of their own, with one bar for all of them, which end when this one does."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

from rich.console import Console
from rich.progress import Progress


def side_by_side(
    one_seed: Callable[[Path, int], Path],
    folder: Path,
    seeds: Sequence[int],
    stores: Sequence[Path],
    total: int,
    console: Console,
) -> list[Path]:
    """Return one_seed(folder, seed) of every seed; the bar counts the snapshots in `stores`."""
    # Not forked: after work on several threads, a forked PyTorch hangs.
    spawned = multiprocessing.get_context("spawn")
    ours, theirs = spawned.Pipe(duplex=False)
    pool = ProcessPoolExecutor(len(seeds), mp_context=spawned, initializer=_begin, initargs=(ours,))
    # The pipe closes before the pool waits for its processes, which end by that.
    with pool, theirs, _watched(stores, total, console):
        with _unheard_ctrl_c():
            futures = [pool.submit(one_seed, folder, seed) for seed in seeds]
        paths = [future.result() for future in futures]
        pool.shutdown()
    return paths


def _begin(parent: Connection) -> None:
    import torch

    torch.set_num_threads(1)  # the seeds share the cores
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: Connection) -> None:
    """End at once when the parent closes its end of the pipe, or is killed.

    What is written is written whole or not at all, so that nothing is lost but what was under way.
    """
    parent.poll(None)
    os._exit(1)


@contextmanager
def _unheard_ctrl_c() -> Iterator[None]:
    """Processes started in here do not hear Ctrl-C: the parent does, and ends them in silence."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _watched(folders: Sequence[Path], total: int, console: Console) -> Iterator[None]:
    """A bar of the snapshots that are there, while other processes make them."""
    ended = threading.Event()
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("training", total=total)

        def watch() -> None:
            while not ended.wait(0.5):
                there = sum(1 for folder in folders for _ in folder.rglob("epoch-*.safetensors"))
                bar.update(task, completed=there)

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
