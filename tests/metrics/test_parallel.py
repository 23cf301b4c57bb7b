"""Working ahead: order, exceptions, and leaving early."""

import threading
import time

import numpy as np
import pytest

from snapsure.metrics import _parallel
from snapsure.metrics._parallel import map_ahead, map_parallel, map_shares, sort_parallel


@pytest.mark.parametrize("cores", [1, 2, 8])
def test_results_come_in_the_order_of_the_items(monkeypatch, cores):
    monkeypatch.setattr(_parallel, "_cores", lambda: cores)

    def slow_first(i):
        time.sleep(0.002 * (i % 3 == 0))
        return i * i

    assert list(map_ahead(slow_first, range(50))) == [i * i for i in range(50)]
    assert list(map_ahead(slow_first, [])) == []


def test_an_exception_comes_after_the_results_before_it():
    results = map_ahead(lambda i: 1 / (5 - i), range(20))
    assert [next(results) for _ in range(5)] == [1 / (5 - i) for i in range(5)]
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_leaving_early_leaves_no_thread():
    before = {*threading.enumerate()}
    results = map_ahead(lambda i: i, range(1000))
    assert next(results) == 0
    results.close()
    assert {*threading.enumerate()} <= before


@pytest.mark.parametrize("cores", [1, 2, 3, 8])
@pytest.mark.parametrize("distinct", [2**60, 3])
def test_a_long_array_is_sorted_on_any_number_of_cores(monkeypatch, cores, distinct):
    monkeypatch.setattr(_parallel, "_cores", lambda: cores)
    values = np.random.default_rng(0).integers(0, distinct, 2**19 + 7, dtype=np.uint64)
    ours = values.copy()
    sort_parallel(ours)
    np.testing.assert_array_equal(ours, np.sort(values))


@pytest.mark.parametrize("cores", [1, 2, 3, 8, 64])
@pytest.mark.parametrize("count", [0, 1, 2, 7, 50])
def test_shares_are_put_together_in_order(monkeypatch, cores, count):
    monkeypatch.setattr(_parallel, "_cores", lambda: cores)
    seen = []

    def squares(items):
        seen.append(len(items))
        return [i * i for i in items]

    assert map_shares(squares, range(count)) == [i * i for i in range(count)]
    assert sum(seen) == count
    assert len(seen) <= min(cores, 7)


def test_what_runs_side_by_side_raises():
    with pytest.raises(ZeroDivisionError):
        map_parallel(lambda i: 1 / i, [1, 0])
