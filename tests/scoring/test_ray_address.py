"""Addresses that no Ray answers at."""

import os
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


@pytest.mark.parametrize(
    ("address", "switch", "expected"),
    [
        (None, None, ("local", "0", False)),  # no other machine can reach it
        (None, "1", ("local", "1", True)),  # unless the user says so
        ("ray://head", None, ("ray://head", None, True)),
    ],
)
def test_a_ray_that_is_started_or_joined_is_left_as_it_was(monkeypatch, address, switch, expected):
    import ray
    from ray._private import ray_constants

    done, set_to = [], {} if switch is None else {_ray._CLUSTER: switch}

    def init(place, **options):
        done.append((place, os.environ.get(_ray._CLUSTER), ray_constants.ENABLE_RAY_CLUSTER))
        done.append({name: options.get(name) for name in ("include_dashboard", "log_to_driver")})

    for name in ("RAY_ADDRESS", _ray._CLUSTER):
        monkeypatch.delenv(name, raising=False)
    for name, value in set_to.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(ray_constants, "ENABLE_RAY_CLUSTER", True)
    monkeypatch.setitem(sys.modules, "grpc", sys)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "shutdown", lambda: done.append("ended"))
    with _ray._connect(address):
        assert len(done) == 2
        assert (os.environ.get(_ray._CLUSTER), ray_constants.ENABLE_RAY_CLUSTER) == (switch, True)
    started, options, ended = done
    assert (started, ended) == (expected, "ended")
    assert {*options.values()} == {False if address is None else None}  # a client takes neither
