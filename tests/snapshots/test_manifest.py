"""The manifest: whatever is wrong with it is told, and nothing is removed for it."""

import json

import pytest
import torch

from snapsure import SnapshotStore
from snapsure.errors import CorruptFile, SnapsureError, StorageError

EPOCHS = (1, 2, 40)


@pytest.fixture
def store(tmp_path):
    store = SnapshotStore(tmp_path / "run")
    for epoch in EPOCHS:
        store.save({"w": torch.full((3,), float(epoch))}, epoch)
    store.remove(2)  # so that it names a file that leaves
    store.save({"w": torch.full((3,), 2.0)}, 2)
    return SnapshotStore(store.path)


def told(store, got):
    return (
        f"{store.path / 'manifest.json'} must be a manifest of snapshots, {got}: restore it, or "
        f"make it anew by `snapsure rebuild {store.path}`"
    )


def sentence(kind, call, *arguments):
    with pytest.raises(kind) as caught:
        call(*arguments)
    return str(caught.value)


def without_hash(content):
    """As an earlier version wrote it, or whoever makes a manifest by hand."""
    return {name: part for name, part in content.items() if name != "sha256"}


def changed(store, change):
    path = store.path / "manifest.json"
    content = without_hash(json.loads(path.read_bytes()))
    change(content)
    path.write_text(json.dumps(content))


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
    place = "leaving[0]" if part == "leaving" else "snapshots.40"
    form = r"epoch-([0-9]{1,18})(?:-again)?\.safetensors"
    shown = repr(name) if len(repr(name)) <= 40 else f"{repr(name)[:40]}…"
    expected = told(
        store, f"got something else (`{place}.file` must be text of the form {form}, got {shown})"
    )
    for call in (
        lambda: store.rewind(0),
        lambda: store.remove(1),
        lambda: store.save({"w": torch.ones(3)}, 41),
        lambda: store.epochs,
    ):
        assert sentence(CorruptFile, call) == expected
    assert [path.read_text() for path in precious] == ["precious"] * 2


def swap(content):
    held = content["snapshots"]
    held["1"], held["40"] = held["40"], held["1"]


MALFORMED = {
    "no JSON": ("{", "got no JSON"),
    "bytes": (b"\xff\xfe\x00", "got no JSON"),
    "deep": ("[" * 10**5, "got no JSON"),
    "a list": ("[]", "got something else (it must be names and values, got a list of 0)"),
    "another format": (
        lambda content: content.update(format="snapsure snapshots 2"),
        'got something else (`format` must be "snapsure snapshots 1", got '
        "'snapsure snapshots 2')",
    ),
    "no snapshots": (
        lambda content: content.pop("snapshots"),
        "got something else (`snapshots` must be names and values, got nothing)",
    ),
    "snapshots as a list": (
        lambda content: content.update(snapshots=[1]),
        "got something else (`snapshots` must be names and values, got a list of 1)",
    ),
    "an entry of text": (
        lambda content: content["snapshots"].update({"2": "epoch-000002.safetensors"}),
        "got something else (`snapshots.2` must be names and values, got "
        "'epoch-000002.safetensors')",
    ),
    "no size": (
        lambda content: content["snapshots"]["2"].pop("bytes"),
        "got something else (`snapshots.2.bytes` must be a whole number, got nothing)",
    ),
    "a size of text": (
        lambda content: content["snapshots"]["2"].update(bytes="12"),
        "got something else (`snapshots.2.bytes` must be a whole number, got '12')",
    ),
    "a huge size": (
        lambda content: content["snapshots"]["2"].update(bytes=10**30),
        f"got something else (`snapshots.2.bytes` must be a whole number, got {10**30})",
    ),
    "half a hash": (
        lambda content: content["snapshots"]["2"].update(sha256="ab"),
        "got something else (`snapshots.2.sha256` must be text of the form [0-9a-f]{64}, got 'ab')",
    ),
    "an epoch that is no number": (
        lambda content: content["snapshots"].update({"x": content["snapshots"].pop("2")}),
        "got something else (`snapshots.x` must be of that epoch, got epoch-000002.safetensors)",
    ),
    "an epoch with a zero before": (
        lambda content: content["snapshots"].update({"02": content["snapshots"].pop("2")}),
        "got something else (`snapshots.02` must be of that epoch, got epoch-000002.safetensors)",
    ),
    "two that are swapped": (
        swap,
        "got something else (`snapshots.1` must be of that epoch, got epoch-000040.safetensors)",
    ),
    "leaving as names": (
        lambda content: content.update(leaving={}),
        "got something else (`leaving` must be a list, got a dict of 0)",
    ),
    "leaving and held": (
        lambda content: content.update(leaving=[content["snapshots"]["1"]]),
        "got something else (`leaving` must name no snapshot that is held, got "
        "epoch-000001.safetensors)",
    ),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed(store, case):
    what, got = MALFORMED[case]
    if callable(what):
        changed(store, what)
    else:
        text = what if isinstance(what, bytes) else what.encode()
        (store.path / "manifest.json").write_bytes(text)
    assert sentence(CorruptFile, lambda: store.epochs) == told(store, got)
    store.rebuild()  # as it says
    assert store.epochs == [*EPOCHS]
    store.verify()


def test_a_folder_in_its_place(store):
    path = store.path / "manifest.json"
    path.unlink()
    path.mkdir()
    for call, *arguments in ((store.load, 1), (store.save, {"w": torch.ones(3)}, 3)):
        assert sentence(StorageError, call, *arguments) == (
            f"cannot read {path} (Is a directory): make it a file that can be read"
        )


def test_it_carries_its_own_hash(store):
    path = store.path / "manifest.json"
    path.write_text(path.read_text().replace('"bytes": ', '"bytes": 1'))
    assert sentence(CorruptFile, lambda: store.epochs) == told(
        store, "as it was written, got other content (its SHA-256 differs)"
    )


def test_one_of_an_earlier_version_is_read_and_gets_its_hash(store):
    changed(store, lambda content: None)
    assert store.epochs == [*EPOCHS]
    store.verify()
    store.save({"w": torch.ones(3)}, 41)
    assert store.epochs == [*EPOCHS, 41]
    assert len(json.loads((store.path / "manifest.json").read_bytes())["sha256"]) == 64


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
