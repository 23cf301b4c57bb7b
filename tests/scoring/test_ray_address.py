"""Addresses that no Ray answers at."""

import socket

import pytest

from snapsure.errors import InvalidInput
from snapsure.scoring import _ray
from tests.support.refusals import refuses

pytest.importorskip("ray")


@pytest.fixture
def silent():
    """A port at which nobody listens."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        yield closed.getsockname()[1]


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_a_dead_address_is_refused_at_once(silent, monkeypatch, scheme):
    import ray

    monkeypatch.setattr(ray, "init", lambda *given, **options: pytest.fail("Ray was asked"))
    address = f"{scheme}127.0.0.1:{silent}"
    with refuses(InvalidInput, "`address`", address, "ray start --head"), _ray._connect(address):
        pass


def test_a_client_that_is_not_installed(silent, monkeypatch):
    import ray

    def init(*given, **options):
        raise ImportError("Ray Client requires grpcio.\nMore.")

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(socket, "create_connection", lambda *given: socket.socket())
    address = f"ray://127.0.0.1:{silent}"
    facts = ("`address`", address, "grpcio", "pip install")
    with refuses(InvalidInput, *facts), _ray._connect(address):
        pass
