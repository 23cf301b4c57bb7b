"""Addresses that no Ray answers at."""

import socket
import sys

import pytest

from snapsure.errors import InvalidInput
from snapsure.scoring import _ray
from tests.support.refusals import refuses

pytest.importorskip("ray")


@pytest.mark.parametrize("listens", [False, True])
@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_a_dead_address_is_refused_at_once(monkeypatch, scheme, listens):
    import ray

    monkeypatch.setattr(ray, "init", lambda *given, **options: pytest.fail("Ray was asked"))
    monkeypatch.setattr(_ray, "_PATIENCE", 0.2)
    monkeypatch.setitem(sys.modules, "grpc", sys)  # Ray's client, which need not be installed
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        if listens:
            silent.listen()
        address = f"{scheme}127.0.0.1:{silent.getsockname()[1]}"
        with refuses(InvalidInput, "`address`", address, "ray start"), _ray._connect(address):
            pass


def test_a_client_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "grpc", None)
    address = "ray://127.0.0.1:10001"
    facts = ("`address`", address, "grpc", "pip install 'ray[client]'")
    with refuses(InvalidInput, *facts), _ray._connect(address):
        pass
