"""What users can pass, and what is taken if they do not: as published."""

import pytest

from tests.support.signatures import list_all, read_published

LISTS = list_all()


def test_all_that_was_published_is_there():
    assert [*LISTS] == [*read_published()]


@pytest.mark.parametrize(
    "where",
    [
        pytest.param(where, marks=pytest.mark.slow) if where.startswith("integrations") else where
        for where in LISTS
    ],
)
def test_parameters_and_defaults_are_those_published(where):
    """After a change that the changelog names, run `python -m tests.support.signatures`."""
    assert LISTS[where]() == read_published()[where]
