"""Threads on all cores: NumPy releases the GIL during long calls."""

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from snapsure._types import Array

Item = TypeVar("Item")
Result = TypeVar("Result")

# More would hold more memory, for little speed.
_MAX_WORKERS = 7
# From this many examples on, calls of NumPy are long enough for threads: after every call a thread
# waits for the GIL.
LONG = 1 << 16
# A shorter array is sorted before threads have started.
_LONG_SORT = 1 << 18


def map_parallel(function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Return function(item) for each item, computed on all cores."""
    with ThreadPoolExecutor(_workers()) as pool:
        return list(pool.map(function, items))


def map_shares(
    function: Callable[[Sequence[Item]], list[Result]], items: Sequence[Item]
) -> list[Result]:
    """Return function(items), with each core taking one share of the items; order is kept."""
    share = max(1, -(-len(items) // _workers()))
    shares = [items[low : low + share] for low in range(0, len(items), share)]
    return [result for part in map_parallel(function, shares) for result in part]


def sort_parallel(values: Array) -> None:
    """Sort (n,) in place: partition it about its middle, then sort the sides in parallel."""
    workers = _workers()
    if workers == 1 or values.size < _LONG_SORT:
        values.sort()
        return

    pieces = [values]
    with ThreadPoolExecutor(workers) as pool:
        while 2 * len(pieces) <= workers and pieces[0].size >= _LONG_SORT:
            list(pool.map(lambda piece: piece.partition(piece.size // 2), pieces))
            pieces = [half for piece in pieces for half in np.split(piece, [piece.size // 2])]
        list(pool.map(lambda piece: piece.sort(), pieces))


def _workers() -> int:
    return min(_cores(), _MAX_WORKERS)


def _cores() -> int:
    """Return how many cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        return os.cpu_count() or 1
