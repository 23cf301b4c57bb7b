"""Sorting on all cores: `np.sort` releases the GIL, and is most of the work."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def ahead(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Give function(item) for each item, in order, threads working ahead of the taker.

    Short steps in Python make threads wait for each other: `function` should spend its time in a
    few long calls that release the GIL, and leave the rest to whoever takes the results. The taker
    lends a hand while the next result is not there.
    """
    workers = max(1, (os.cpu_count() or 1) - 1)
    most = 2 * workers + 2
    todo = iter(items)
    results: deque[Future[Result]] = deque()

    def add(submit: Callable[[Item], Future[Result]]) -> bool:
        for item in todo:
            results.append(submit(item))
            return True
        return False

    def by_hand(item: Item) -> Future[Result]:
        result: Future[Result] = Future()
        result.set_result(function(item))
        return result

    with ThreadPoolExecutor(workers) as pool:

        def by_thread(item: Item) -> Future[Result]:
            return pool.submit(function, item)

        while add(by_thread) or results:
            if len(results) <= workers and add(by_thread):
                continue
            while not results[0].done() and len(results) < most and add(by_hand):
                pass
            yield results.popleft().result()
