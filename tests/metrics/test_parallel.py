"""Work on all cores: order, exceptions, and sorting."""

import os

import numpy as np
import pytest

from snapsure.metrics import _parallel
from snapsure.metrics._parallel import map_parallel, map_shares, sort_parallel


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


@pytest.mark.parametrize(("counted", "used"), [(5, 5), (None, 1)])
def test_where_the_system_does_not_tell_which_cores_are_ours(monkeypatch, counted, used):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: counted)
    assert _parallel._cores() == used


def test_what_runs_side_by_side_raises():
    with pytest.raises(ZeroDivisionError):
        map_parallel(lambda i: 1 / i, [1, 0])
