"""Checkpoints that are more than tensors: read if harmless, if trusted, or refused by name."""

import argparse
import os
import sys
import types
import uuid
import warnings
from collections import Counter, OrderedDict, defaultdict, deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path, PureWindowsPath

import numpy as np
import pytest
import torch
from torch import nn

from snapsure import SnapshotStore
from snapsure.errors import CorruptFile, InvalidInput, UnsafeFile
from tests.support.refusals import refuses


@dataclass
class Config:
    rate: float = 0.1


class Mode(Enum):
    FAST = 1


class RunsCode:
    """A pickle of this calls `os.mkdir`."""

    def __reduce__(self):
        return os.mkdir, ("ran",)


def network():
    return nn.Linear(3, 2)


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize(
    "beside",
    [
        OrderedDict(a=1),
        Counter("aab"),
        defaultdict(list, a=[1]),
        defaultdict(float, a=1.0),
        deque([1, 2]),
        torch.Size([3]),
        torch.float32,
        torch.device("cpu"),
        types.SimpleNamespace(rate=0.1),
        {frozenset([1]), uuid.UUID(int=3)},
        (Decimal("0.1"), range(3), slice(1)),
        [np.float64(0.5), np.float32(1), np.int64(3), np.bool_(True)],
        [np.arange(5.0), np.array(["a", "bc"])],
        argparse.Namespace(lr=0.1, data=Path("data"), seeds=[1, 2]),
        [datetime.now(UTC), timedelta(seconds=3), date(2026, 1, 2)],
        PureWindowsPath("C:/data"),
        {"best": torch.tensor(0.9)},
    ],
)
def test_what_is_harmless_is_read_without_trust(tmp_path, beside):
    model = network()
    torch.save({"model": model.state_dict(), "beside": beside}, tmp_path / "epoch-1.pt")
    assert same(SnapshotStore.adopt(tmp_path).load(1), model.state_dict())


@pytest.mark.parametrize("beside", [Config(), Mode.FAST, defaultdict(Config)])
def test_what_is_not_is_named(tmp_path, beside):
    path = tmp_path / "epoch-1.pt"
    torch.save({"model": network().state_dict(), "beside": beside}, path)
    needs = f"{__name__}.{'Mode' if isinstance(beside, Mode) else 'Config'}"
    if isinstance(beside, Mode) and beside.__reduce_ex__(2)[0] is getattr:  # until Python 3.11.3
        needs = "getattr"
    with refuses(UnsafeFile, path, f"(it needs {needs})", "trust=True", "--trust"):
        SnapshotStore.adopt(tmp_path).load(1)


def watch(function, *args):
    """What a call gives, and what it warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        value = function(*args)
    return value, [str(warning.message) for warning in caught]


def test_trusted_it_is_read_with_a_warning_each_time(tmp_path):
    model = network()
    for epoch in (1, 2):
        torch.save(
            {"model": model.state_dict(), "config": Config()}, tmp_path / f"epoch-{epoch}.pt"
        )
    store, before = watch(lambda: SnapshotStore.adopt(tmp_path, trust=True))
    assert before == []  # the names tell the epochs: nothing is read yet
    for epoch in (1, 2, 2):
        state, said = watch(store.load, epoch)
        assert same(state, model.state_dict())
        assert len(said) == 1
        assert str(tmp_path / f"epoch-{epoch}.pt") in said[0]
        assert f"{__name__}.Config" in said[0]


@pytest.mark.parametrize("under", [None, "model", "net"])
def test_trusted_a_whole_network_is_its_weights(tmp_path, under):
    model, path = network(), tmp_path / "epoch-1.pt"
    torch.save(model if under is None else {under: model, "epoch": 1}, path)
    state, said = watch(SnapshotStore.adopt(tmp_path, trust=True).load, 1)
    assert same(state, model.state_dict())
    assert len(said) == 1
    assert "torch.nn.modules.linear.Linear" in said[0]


def test_a_store_takes_a_trusted_checkpoint(tmp_path):
    model, path = network(), tmp_path / "whole.pt"
    torch.save(model, path)
    store = SnapshotStore(tmp_path / "run")
    with pytest.raises(UnsafeFile):
        store.save(path, 1)
    _, said = watch(lambda: store.save(path, 1, trust=True))
    assert same(store.load(1), model.state_dict())
    assert len(said) == 1


def test_harmless_files_are_no_reason_to_warn(tmp_path):
    torch.save(network().state_dict(), tmp_path / "epoch-1.pt")
    assert watch(SnapshotStore.adopt(tmp_path, trust=True).load, 1)[1] == []


def test_only_trust_runs_what_came_with_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    torch.save({"model": network().state_dict(), "more": RunsCode()}, folder / "last.ckpt")
    for open_it in (
        lambda: SnapshotStore.adopt(folder),
        lambda: SnapshotStore(tmp_path / "run").save(folder / "last.ckpt", 1),
    ):
        with pytest.raises(UnsafeFile):
            open_it()
    assert not (tmp_path / "ran").exists()
    (folder / "last.ckpt").rename(folder / "epoch-1.ckpt")
    watch(SnapshotStore.adopt(folder, trust=True).load, 1)
    assert (tmp_path / "ran").exists()


def test_a_trusted_file_of_classes_that_are_gone(tmp_path, monkeypatch):
    path = tmp_path / "epoch-1.pt"
    gone = types.ModuleType("of_that_training")
    gone.Config = type("Config", (), {"__module__": "of_that_training"})
    monkeypatch.setitem(sys.modules, "of_that_training", gone)
    torch.save({"model": network().state_dict(), "config": gone.Config()}, path)
    monkeypatch.delitem(sys.modules, "of_that_training")
    store = SnapshotStore.adopt(tmp_path, trust=True)
    with (
        pytest.warns(UserWarning, match="is trusted"),
        refuses(InvalidInput, path, "got one that cannot (No module named 'of_that_training')"),
    ):
        store.load(1)


@pytest.mark.parametrize(
    ("content", "got"),
    [
        (b"", "an empty file"),
        (b"<html>not found</html>", "something that torch.save does not write"),
        (b"PK\x03\x04" + b"x" * 100, "one that was cut short"),
    ],
)
def test_bytes_that_are_no_checkpoint(tmp_path, content, got):
    path = tmp_path / "epoch-1.pt"
    path.write_bytes(content)
    for trust in (False, True):
        with refuses(CorruptFile, path, f"got {got}"):
            SnapshotStore.adopt(tmp_path, trust=trust).load(1)


@pytest.mark.parametrize(
    ("content", "got"),
    [
        ({"weights": {"w": [1, 2]}, "epoch": 1}, "weights, epoch"),
        ({"a": 1, "b": 2, "c": 3}, "a, b, c. Save"),
        ({"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}, "a, b, c and 2 more"),
        ([1, 2], "a list"),
        (torch.ones(3), "a Tensor"),
        ({}, "nothing"),
    ],
)
def test_a_checkpoint_without_weights(tmp_path, content, got):
    path = tmp_path / "epoch-1.pt"
    torch.save(content, path)
    with refuses(InvalidInput, path, f"got {got}", "torch.save(model.state_dict(), path)"):
        SnapshotStore.adopt(tmp_path).load(1)


def test_networks_under_names_of_their_own_are_told_apart(tmp_path):
    generator, critic = network(), network()
    content = {"generator": generator.state_dict(), "critic": critic.state_dict(), "epoch": 1}
    torch.save(content, tmp_path / "epoch-1.pt")
    model = network()
    with refuses(InvalidInput, "got it under 'generator.' and 'critic.'"):
        SnapshotStore.adopt(tmp_path).load_into(model, 1)
    SnapshotStore.adopt(tmp_path, state="critic").load_into(model, 1)
    assert same(model.state_dict(), critic.state_dict())


def test_two_threads_may_read_checkpoints_at_once(tmp_path):
    beside = argparse.Namespace(lr=0.1)
    torch.save({"model": network().state_dict(), "args": beside}, tmp_path / "epoch-1.pt")
    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(SnapshotStore.adopt(tmp_path).load, 1) for _ in range(100)]
    assert all(future.exception() is None for future in futures)
