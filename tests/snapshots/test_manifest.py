"""The manifest: whatever is wrong with it is told, and nothing is removed for it."""

import json

import pytest
import torch

from snapsure import SnapshotStore, _json
from snapsure.errors import CorruptFile, SnapsureError, StorageError
from tests.support.refusals import refuses

EPOCHS = (1, 2, 40)


@pytest.fixture
def store(tmp_path):
    store = SnapshotStore(tmp_path / "run")
    for epoch in EPOCHS:
        store.save({"w": torch.full((3,), float(epoch))}, epoch)
    store.remove(2)  # so that it names a file that leaves
    store.save({"w": torch.full((3,), 2.0)}, 2)
    return SnapshotStore(store.path)


def refuses_manifest(store, *facts):
    return refuses(CorruptFile, store.path / "manifest.json", *facts, "snapsure rebuild")


def changed(store, change):
    """Change the manifest, under a valid hash."""
    path = store.path / "manifest.json"
    content = json.loads(path.read_bytes())
    del content["sha256"]
    change(content)
    path.write_bytes(_json.text(content))


@pytest.mark.parametrize("name", ["../precious.txt", "precious.txt", "/precious.txt", "..", ""])
@pytest.mark.parametrize("part", ["snapshots", "leaving"])
def test_it_names_snapshots_of_the_store_alone(store, name, part):
    """`rewind` would remove what it names."""
    precious = [store.path.parent / "precious.txt", store.path / "precious.txt"]
    for path in precious:
        path.write_text("precious")
    name = str(precious[0]) if name.startswith("/") else name
    entry = {"file": name, "sha256": "0" * 64, "bytes": 8}

    def change(content):
        if part == "leaving":
            content["leaving"] = [entry]
        else:
            content["snapshots"]["40"] = entry

    changed(store, change)
    for call in (
        lambda: store.rewind(0),
        lambda: store.remove(1),
        lambda: store.save({"w": torch.ones(3)}, 41),
        lambda: store.epochs,
    ):
        with refuses_manifest(store, "file"):
            call()
    assert [path.read_text() for path in precious] == ["precious"] * 2


def swap(content):
    held = content["snapshots"]
    held["1"], held["40"] = held["40"], held["1"]


MALFORMED = {
    "no JSON": "{",
    "bytes": b"\xff\xfe\x00",
    "deep": "[" * 10**5,
    "a list": "[]",
    "another format": lambda content: content.update(format="snapsure snapshots 2"),
    "no snapshots": lambda content: content.pop("snapshots"),
    "snapshots as a list": lambda content: content.update(snapshots=[1]),
    "an entry of text": lambda content: content["snapshots"].update({"2": "2.safetensors"}),
    "no size": lambda content: content["snapshots"]["2"].pop("bytes"),
    "a size of text": lambda content: content["snapshots"]["2"].update(bytes="12"),
    "a huge size": lambda content: content["snapshots"]["2"].update(bytes=10**30),
    "half a hash": lambda content: content["snapshots"]["2"].update(sha256="ab"),
    "an epoch that is no number": lambda content: content["snapshots"].update(
        x=content["snapshots"].pop("2")
    ),
    "an epoch with a zero before": lambda content: content["snapshots"].update(
        {"02": content["snapshots"].pop("2")}
    ),
    "two that are swapped": swap,
    "leaving as names": lambda content: content.update(leaving={}),
    "leaving and held": lambda content: content.update(leaving=[content["snapshots"]["1"]]),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed(store, case):
    what = MALFORMED[case]
    if callable(what):
        changed(store, what)
    else:
        text = what if isinstance(what, bytes) else what.encode()
        (store.path / "manifest.json").write_bytes(text)
    with refuses_manifest(store):
        _ = store.epochs
    store.rebuild()  # as it says
    assert store.epochs == [*EPOCHS]
    store.verify()


def test_a_folder_in_its_place(store):
    path = store.path / "manifest.json"
    path.unlink()
    path.mkdir()
    for call, *arguments in ((store.load, 1), (store.save, {"w": torch.ones(3)}, 3)):
        with refuses(StorageError, path, "Is a directory"):
            call(*arguments)


def test_it_carries_its_own_hash(store):
    path = store.path / "manifest.json"
    path.write_text(path.read_text().replace('"bytes": ', '"bytes": 1'))
    with refuses_manifest(store, "SHA-256 differs"):
        _ = store.epochs


def test_a_flipped_bit_is_told_or_changes_nothing(store):
    path = store.path / "manifest.json"
    whole, known = path.read_bytes(), {e: store.sha256(e) for e in store.epochs}
    harmless = 0
    for bit in range(0, 8 * len(whole), 7):  # every byte has its turn, and each of its bits
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        try:
            found = {e: store.sha256(e) for e in store.epochs}
        except SnapsureError:
            continue
        assert found == known
        harmless += 1
    assert harmless < len(whole) / 20  # white space, and the name of the hash
    path.write_bytes(whole)
