"""Seeds in processes of their own; how they end with their parent is in `test_demo.py`."""

import io

import pytest
from rich.console import Console

from snapsure.paper._side_by_side import run_side_by_side
from tests.support import seeds

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("terminal", [False, True])
def test_each_seed_runs_on_one_thread_and_a_terminal_shows_a_bar(tmp_path, monkeypatch, terminal):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    output = io.StringIO()
    console = Console(file=output, force_terminal=terminal, width=80)
    paths = run_side_by_side(
        seeds.record_and_count_threads, tmp_path, (3, 5), [tmp_path], 2, console
    )
    assert paths == [tmp_path / "3-1", tmp_path / "5-1"]
    assert ("training" in output.getvalue()) == ("100%" in output.getvalue()) == terminal


def test_one_seed_that_fails_ends_the_others(tmp_path):
    with pytest.raises(ValueError, match="this seed fails"):
        run_side_by_side(
            *(seeds.fail_beside_one_that_waits, tmp_path, (0, 1), [tmp_path], 2),
            Console(file=io.StringIO()),
        )
    assert not (tmp_path / "waited").exists()
