"""Sorting on all cores: `np.sort` releases the GIL, and is most of the work."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

# More would wait for whoever takes the results, and hold memory meanwhile.
_MOST_WORKERS = 7


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


def _cores() -> int:
    """Cores that this process may use, where the system tells."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1
