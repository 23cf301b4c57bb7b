"""Errors, judged by their kind and by the facts in their message."""

from contextlib import contextmanager

import pytest


@contextmanager
def refuses(kind, *facts):
    """The block raises this error, with these facts (argument, value, remedy) in this order."""
    with pytest.raises(kind) as caught:
        yield caught
    message, place = str(caught.value), 0
    for fact in map(str, facts):
        place = message.find(fact, place)
        assert place >= 0, f"{fact!r} is not (in this order) in: {message}"
        place += len(fact)
