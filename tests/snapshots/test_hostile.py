"""Files made to harm: names that lead elsewhere, numbers that lie in other files, bombs."""

import hashlib
import json
import math
import os
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from snapsure import AES, Predictor, ScoreTable, SnapshotStore
from snapsure.cli import _data
from snapsure.errors import CorruptFile, InvalidInput, UnsafeFile
from snapsure.evaluation._archive import open_contest, write_manifest
from snapsure.table._packed import unpack
from snapsure.table._pieces import read_layout, write_layout
from tests.support.refusals import refuses

GIB = 1 << 30
TRUST = "trust=True (--trust on the command line)"


def refuses_bomb(path, size, remedy):
    return refuses(UnsafeFile, path, f"got {size:,} bytes from {path.stat().st_size:,}", remedy)


def zipped(path, name, start=b""):
    """A file with 256 MiB of zeros after a start, in a hundredth of that; gives its size."""
    with ZipFile(path, "w", ZIP_DEFLATED, compresslevel=1) as file, file.open(name, "w") as entry:
        entry.write(start)
        for _ in range(256):
            entry.write(bytes(1 << 20))
        entry.write(b"\0")
    return len(start) + (256 << 20) + 1


class Reader(nn.Module):
    """A model of Keras's, as far as it matters here."""

    def load_weights(self, filepath):
        raise AssertionError("it must not come to that")


def calls(folder, **options):
    """Whatever can be asked of a checkpoint."""
    store = SnapshotStore.adopt(folder, **options)
    return store.verify, lambda: store.load(1), lambda: store.load_into(Reader(), 1)


@pytest.mark.parametrize(
    "name", ["../precious.safetensors", "/precious.safetensors", "..", "a\\b", "c:d", "", 3, None]
)
def test_an_index_names_files_beside_it_alone(tmp_path, name):
    save_file({"w": torch.ones(2)}, tmp_path / "precious.safetensors")
    path = tmp_path / "run" / "checkpoint-1"
    path.mkdir(parents=True)
    if isinstance(name, str) and name.startswith("/"):
        name = str(tmp_path) + name
    index = path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"w": name}}))
    with refuses(CorruptFile, index, f"got {name!r}"):
        SnapshotStore.adopt(tmp_path / "run")


@pytest.mark.parametrize("text", ['{"weight_map": ' + "[" * 10**5, '{"weight_map": {"w": []}}'])
def test_an_index_that_is_none(tmp_path, text):
    index = tmp_path / "checkpoint-1" / "model.safetensors.index.json"
    index.parent.mkdir()
    index.write_text(text)
    with refuses(CorruptFile, index, "got something else"):
        SnapshotStore.adopt(tmp_path)


@pytest.mark.parametrize("epoch", [math.nan, math.inf, 2**63, "[" * 10**5, "[1]"])
def test_what_the_trainer_cannot_have_told(tmp_path, epoch):
    """The name tells, as it does where nothing is told."""
    path = tmp_path / "checkpoint-50"
    path.mkdir()
    save_file({"w": torch.ones(2)}, path / "model.safetensors")
    text = epoch if isinstance(epoch, str) else json.dumps({"epoch": epoch, "global_step": epoch})
    (path / "trainer_state.json").write_text(text)
    assert SnapshotStore.adopt(tmp_path).epochs == [50]


def elsewhere(file, kind, other):
    """Put weights into an HDF5 file that lie in another."""
    import h5py

    if kind == "storage":
        file.create_dataset("w", (2,), "f4", external=[(str(other), 0, 8)])
    elif kind == "virtual":
        layout = h5py.VirtualLayout((2,), "f4")
        layout[:] = h5py.VirtualSource(str(other), "w", (2,))
        file.create_virtual_dataset("w", layout)
    else:
        file["w"] = h5py.ExternalLink(str(other), "w")


@pytest.mark.parametrize("trust", [False, True])
@pytest.mark.parametrize("kind", ["storage", "virtual", "link"])
def test_weights_that_lie_in_another_file(tmp_path, kind, trust):
    import h5py

    other, path = tmp_path / "secret.h5", tmp_path / "run" / "epoch-1.weights.h5"
    path.parent.mkdir()
    with h5py.File(other, "w") as file:
        file["w"] = np.ones(2, "f4")
    with h5py.File(path, "w") as file:
        file["own"] = np.ones(2, "f4")
        elsewhere(file, kind, other)
    for call in calls(path.parent, trust=trust):
        with refuses(UnsafeFile, path, "got w", "save_weights"):
            call()


def test_a_small_hdf5_file_of_gibibytes(tmp_path):
    import h5py

    path = tmp_path / "epoch-1.weights.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("w", (GIB // 2,), "f4", chunks=(1 << 20,))
    assert path.stat().st_size < 10_000
    for call in calls(tmp_path):
        with refuses_bomb(path, 2 * GIB, TRUST):
            call()


def test_a_small_keras_file_that_unpacks_to_a_lot(tmp_path):
    path = tmp_path / "epoch-1.keras"
    size = zipped(path, "model.weights.h5")
    for call in calls(tmp_path):
        with refuses_bomb(path, size, TRUST):
            call()


def test_a_small_pickle_that_unpacks_to_a_lot(tmp_path):
    path = tmp_path / "epoch-1.pt"
    size = zipped(path, "archive/data.pkl", b"\x80\x02}.")
    with refuses_bomb(path, size, TRUST):
        SnapshotStore.adopt(tmp_path).verify()


def test_one_number_that_stands_for_gibibytes(tmp_path):
    path = tmp_path / "epoch-1.pt"
    torch.save({"w": torch.ones(1).expand(GIB // 2)}, path)
    assert path.stat().st_size < 10_000
    with refuses_bomb(path, 2 * GIB, TRUST):
        SnapshotStore.adopt(tmp_path).verify()
    with refuses_bomb(path, 2 * GIB, TRUST):
        SnapshotStore(tmp_path / "run").save(path, 1)
    trusted = SnapshotStore.adopt(tmp_path, trust=True).load(1)  # as it says; nothing is copied
    assert trusted["w"].shape == (GIB // 2,)


def test_a_small_npz_that_unpacks_to_a_lot(tmp_path):
    path = tmp_path / "data.npz"
    header = np.lib.format.magic(1, 0) + b"\x76\0" + b" " * 0x75 + b"\n"
    size = zipped(path, "x.npy", header)
    with refuses_bomb(path, size, "np.savez"):
        _data.load_data(str(path), "--data")


def test_a_small_archive_that_unpacks_to_a_lot(tmp_path):
    """A packed table, and a run of a packed contest."""
    path = tmp_path / "words" / "seed-0.npz"
    path.parent.mkdir()
    size = zipped(path, "epochs.npy")
    with refuses_bomb(path, size, "the archive again"):
        unpack(path)
    write_manifest({"words": 1}, {}, tmp_path)
    with refuses_bomb(path, size, "the archive again"):
        open_contest(tmp_path)


class RunsCode:
    """A pickle of this calls `os.mkdir`."""

    def __reduce__(self):
        return os.mkdir, ("ran",)


def test_arrays_are_no_pickles(tmp_path, monkeypatch):
    """Neither in a table, under a valid hash, nor in a packed one."""
    monkeypatch.chdir(tmp_path)
    table, hostile = ScoreTable.from_kappa([[0.5, 0.6]]), np.array([RunsCode(), 1], dtype=object)
    table.save("saved")
    piece = Path("saved", "softmax", "epoch-000001.00000.npy")
    np.save(piece, hostile)
    layout = read_layout(Path("saved"))
    layout["hashes"]["softmax/" + piece.name] = hashlib.sha256(piece.read_bytes()).hexdigest()
    write_layout(Path("saved"), layout)
    with refuses(CorruptFile, piece, "cannot be read"):
        ScoreTable.open("saved")
    np.savez("packed.npz", epochs=np.array([1]), y_hat=hostile)
    with refuses(CorruptFile, "packed.npz", "cannot be read"):
        unpack(Path("packed.npz"))
    assert not Path("ran").exists()


def test_what_compresses_well_is_no_bomb(tmp_path):
    """A hundred times, or 256 MiB, are for honest files."""
    path = tmp_path / "data.npz"
    x = np.zeros((1 << 20, 8), np.float32)
    np.savez_compressed(path, x=x)
    assert x.nbytes > 100 * path.stat().st_size
    assert np.array_equal(_data.load_data(str(path), "--data")[0], x)


@pytest.mark.parametrize(
    "metadata",
    [
        {"snapsure.dtypes": "["},
        {"snapsure.dtypes": "[1]"},
        {"snapsure.dtypes": '{"w": "nn"}'},
        {"snapsure.dtypes": '{"w": ["float32"]}'},
        {"snapsure.dtypes": '{"v": "float32"}'},
        {"snapsure.aliases": '{"v": "u"}'},
        {"snapsure.aliases": '{"v": {}}'},
        {"snapsure.aliases": "[" * 10**5},
    ],
)
def test_metadata_of_a_snapshot_that_is_none(tmp_path, metadata):
    path = tmp_path / "epoch-1.safetensors"
    save_file({"w": torch.ones(2)}, path, metadata)
    with refuses(CorruptFile, path, "got something else"):
        SnapshotStore.adopt(tmp_path).verify()


def test_of_a_keras_file_only_the_weights_are_read(tmp_path):
    import h5py

    with h5py.File(tmp_path / "epoch-1.weights.h5", "w") as file:
        file["layers/dense/vars/0"] = np.ones((2, 3), np.float32)
        file["optimizer/vars/0"] = np.zeros(4)
    state = SnapshotStore.adopt(tmp_path).load(1)
    assert list(state) == ["layers/dense/vars/0"]
    assert torch.equal(state["layers/dense/vars/0"], torch.ones(2, 3))


def test_a_pipe_among_files(tmp_path):
    """Nothing waits for it: not adopting, not saving beside it, not what a tool noted."""
    store = SnapshotStore(tmp_path / "run")
    store.save(nn.Linear(3, 2), 1)
    Predictor(nn.Linear(3, 2), store, AES()).save(tmp_path / "predictor")
    for pipe in ("run/epoch-000002.safetensors", "predictor/epoch-000002-0123456789ab.safetensors"):
        os.mkfifo(tmp_path / pipe)
    with refuses(InvalidInput, "`epoch`", "epoch-000002.safetensors", "Move it away"):
        store.save(nn.Linear(3, 2), 2)
    Predictor(nn.Linear(3, 2), store, AES()).save(tmp_path / "predictor")
    assert Predictor.load(tmp_path / "predictor", nn.Linear(3, 2)).epochs == [1]
    (tmp_path / "run" / "manifest.json").unlink()
    with refuses(InvalidInput, "`folder`", "epoch-000002.safetensors", "pipe", "Move it away"):
        SnapshotStore.adopt(tmp_path / "run")
    path = tmp_path / "trainer" / "checkpoint-50"
    path.mkdir(parents=True)
    save_file({"w": torch.ones(2)}, path / "model.safetensors")
    os.mkfifo(path / "trainer_state.json")
    assert SnapshotStore.adopt(path.parent).epochs == [50]
