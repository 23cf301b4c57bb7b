"""Work on all cores by threads: NumPy releases the GIL where its work is long."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from snapsure._types import Array

Item = TypeVar("Item")
Result = TypeVar("Result")

# More would wait for whoever takes the results, and hold memory meanwhile.
_MOST_WORKERS = 7
# Points of a set, from which on calls of NumPy are so long that threads gain more than they wait:
# at the end of every call each waits for the GIL, and to be woken.
LONG = 1 << 16
# A shorter array is sorted before threads have started.
_LONG_SORT = 1 << 18


def ahead(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Give function(item) for each item, in order, threads working ahead of the taker.

    Short steps in Python make threads wait for each other: `function` should spend its time in a
    few long calls that release the GIL, and leave the rest to whoever takes the results.
    """
    workers = max(1, min(_cores() - 1, _MOST_WORKERS))
    results: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        for item in items:
            results.append(pool.submit(function, item))
            if len(results) > workers + 1:
                yield results.popleft().result()
        while results:
            yield results.popleft().result()


def side_by_side(function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """function(item) for each item, on all cores: work that is NumPy's for the most part."""
    with ThreadPoolExecutor(min(_cores(), _MOST_WORKERS)) as pool:
        return list(pool.map(function, items))


def in_shares(
    function: Callable[[Sequence[Item]], list[Result]], items: Sequence[Item]
) -> list[Result]:
    """function(items), each core taking a share of them; what it gives is put together in order."""
    share = max(1, -(-len(items) // min(_cores(), _MOST_WORKERS)))
    shares = [items[low : low + share] for low in range(0, len(items), share)]
    return [result for some in side_by_side(function, shares) for result in some]


def sort_on_all_cores(values: Array) -> None:
    """Sort (n,) in place: what is parted about its middle is sorted on either side by itself."""
    workers = min(_cores(), _MOST_WORKERS)
    if workers == 1 or values.size < _LONG_SORT:
        values.sort()
        return
    pieces = [values]
    with ThreadPoolExecutor(workers) as pool:
        while 2 * len(pieces) <= workers and pieces[0].size >= _LONG_SORT:
            list(pool.map(lambda piece: piece.partition(piece.size // 2), pieces))
            pieces = [half for piece in pieces for half in np.split(piece, [piece.size // 2])]
        list(pool.map(lambda piece: piece.sort(), pieces))


def _cores() -> int:
    """Cores that this process may use, where the system tells."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1
