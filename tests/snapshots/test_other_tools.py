"""What skorch, Keras and Transformers leave and expect, where these are not installed."""

import shutil
import sys
from types import SimpleNamespace
from zipfile import ZipFile

import numpy as np
import pytest
import torch
from torch import nn

from snapsure import SnapshotStore
from snapsure.errors import CorruptFile, InvalidInput, WrongArchitecture
from snapsure.snapshots._weights import translate_names
from tests.support.refusals import refuses


@pytest.mark.parametrize(
    ("history", "epochs"),
    [
        ('[{"epoch": 1}, {"epoch": 2}, {"epoch": 7}]', [7]),
        ('[{"epoch": 1}, 7]', [3]),
        ("[]", [3]),
        ("{}", [3]),
        ("[", [3]),
        (None, [3]),
    ],
)
def test_skorchs_history_tells_the_epoch_or_the_name_does(tmp_path, history, epochs):
    torch.save({"w": torch.ones(2)}, tmp_path / "run3_params.pt")
    if history is not None:
        (tmp_path / "run3_history.json").write_text(history)
    assert SnapshotStore.adopt(tmp_path).epochs == epochs


def test_skorchs_history_tells_of_its_own_weights_alone(tmp_path):
    (tmp_path / "history.json").write_text('[{"epoch": 9}]')
    for name in ("params_3.pt", "params_4.pt"):
        torch.save({"w": torch.ones(2)}, tmp_path / name)
    assert SnapshotStore.adopt(tmp_path).epochs == [3, 4]
    for name in ("params_3.pt", "params_4.pt"):
        (tmp_path / name).unlink()
    torch.save({"w": torch.ones(2)}, tmp_path / "params_best.pt")
    with refuses(InvalidInput, "`folder`", "got params_best"):
        SnapshotStore.adopt(tmp_path)


def keras_file(folder, ending):
    import h5py

    path = folder / f"epoch-1{ending}"
    weights = path if ending == ".weights.h5" else folder / "model.weights.h5.part"
    with h5py.File(weights, "w") as file:
        file["layers/dense/vars/0"] = np.ones((2, 3), np.float32)
    if ending == ".keras":
        with ZipFile(path, "w") as file:
            file.write(weights, "model.weights.h5")
        weights.unlink()
    return path


@pytest.mark.parametrize("ending", [".weights.h5", ".keras"])
def test_keras_reads_its_own_weights(tmp_path, ending):
    path = keras_file(tmp_path, ending)
    shutil.copy(path, tmp_path / f"best{ending}")
    store, taken = SnapshotStore.adopt(tmp_path), []
    assert torch.equal(store.load(1)["layers/dense/vars/0"], torch.ones(2, 3))
    store.load_into(SimpleNamespace(load_weights=taken.append), 1)
    assert taken == [str(path)]
    with refuses(InvalidInput, "`model`", "got Linear", "keras.Classifier"):
        store.load_into(nn.Linear(3, 2), 1)

    def refuse(filepath):
        raise ValueError("Layer 'dense' expected 3 variables\nand more")

    with refuses(
        WrongArchitecture,
        f"epoch 1 ({path})",
        "(Layer 'dense' expected 3 variables)",
    ):
        store.load_into(SimpleNamespace(load_weights=refuse), 1)


@pytest.mark.parametrize(("ending", "kind"), [(".weights.h5", "HDF5"), (".keras", "Keras")])
def test_a_keras_file_that_is_none(tmp_path, ending, kind):
    path = tmp_path / f"epoch-1{ending}"
    path.write_bytes(b"nothing of the kind")
    with refuses(CorruptFile, f"{path} must be a whole {kind} file"):
        SnapshotStore.adopt(tmp_path).load(1)


class Logging:
    """What Transformers says and shows."""

    def __init__(self, bar):
        self.level, self.bar = 20, bar

    def get_verbosity(self):
        return self.level

    def set_verbosity(self, level):
        self.level = level

    def set_verbosity_error(self):
        self.level = 40

    def is_progress_bar_enabled(self):
        return self.bar

    def enable_progress_bar(self):
        self.bar = True

    def disable_progress_bar(self):
        self.bar = False


class Pretrained(nn.Linear):
    """A model that knows its weights by older names, `old.weight` and `old.bias`."""

    config, said, logging = "its config", None, None

    @classmethod
    def from_pretrained(cls, name, *, config, state_dict, output_loading_info):
        assert (name, config, output_loading_info) == (None, cls.config, True)
        assert (cls.logging.level, cls.logging.bar) == (40, False)
        if isinstance(cls.said, Exception):
            raise cls.said
        loaded = nn.Linear(3, 2)
        loaded.load_state_dict({n.removeprefix("old."): t for n, t in state_dict.items()})
        return loaded, cls.said


@pytest.fixture(params=[True, False])
def transformers(request, monkeypatch):
    logging = Logging(request.param)
    known = SimpleNamespace(PreTrainedModel=Pretrained, utils=SimpleNamespace(logging=logging))
    monkeypatch.setitem(sys.modules, "transformers", known)
    monkeypatch.setattr(Pretrained, "logging", logging)
    yield
    assert (logging.level, logging.bar) == (20, request.param)


def older():
    return {"old.weight": torch.ones(2, 3), "old.bias": torch.zeros(2)}


def test_older_names_become_the_models_own(transformers, monkeypatch):
    monkeypatch.setattr(Pretrained, "said", {"missing_keys": [], "unexpected_keys": []})
    found = translate_names(Pretrained(3, 2), older())
    assert list(found) == ["weight", "bias"]
    assert torch.equal(found["weight"], torch.ones(2, 3))


@pytest.mark.parametrize(
    "said", [{"missing_keys": ["weight"], "unexpected_keys": []}, RuntimeError(), TypeError()]
)
def test_what_transformers_does_not_know_stays(transformers, monkeypatch, said):
    monkeypatch.setattr(Pretrained, "said", said)
    state = older()
    assert translate_names(Pretrained(3, 2), state) is state


def test_a_model_of_nobodys_keeps_its_names(transformers, monkeypatch):
    state = older()
    assert translate_names(nn.Linear(3, 2), state) is state
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert translate_names(Pretrained(3, 2), state) is state


def test_a_snapshot_of_older_names_is_loaded(tmp_path, transformers, monkeypatch):
    monkeypatch.setattr(Pretrained, "said", {"missing_keys": []})
    torch.save(older(), tmp_path / "epoch-1.pt")
    model = Pretrained(3, 2)
    with torch.no_grad():
        model.weight.zero_()
    store = SnapshotStore.adopt(tmp_path)
    assert store.epochs == [1]
    store.load_into(model, 1)
    assert torch.equal(model.weight.detach(), torch.ones(2, 3))
