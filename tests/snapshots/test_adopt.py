"""Checkpoints that other tools left: found, numbered, read, and never touched."""

import json
import os
import shutil
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from snapsure import Ensemble, Recorder, SnapshotStore, SoftmaxResponse, _files, score
from snapsure.errors import CorruptFile, InvalidInput, UnsafeFile, WrongArchitecture
from snapsure.snapshots import _adopt, _weights
from tests.support.refusals import refuses


def network():
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def weights(number, prefix=""):
    """Weights that tell which they are."""
    return {
        prefix + name: torch.full_like(tensor, number)
        for name, tensor in network().state_dict().items()
    }


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def files(folder):
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.rglob("*.*")}


@pytest.mark.parametrize(
    ("names", "epochs"),
    [
        (["epoch=0-step=10.ckpt", "epoch=1-step=20.ckpt", "epoch=10-step=110.ckpt"], [0, 1, 10]),
        (["epoch=0-step=10.ckpt", "epoch=0-step=20.ckpt", "epoch=1-step=30.ckpt"], [10, 20, 30]),
        (["net_Epoch_03.pth", "net_Epoch_11.pth"], [3, 11]),
        (["epoch=1-loss=0.9.ckpt", "epoch=2-loss=0.8.ckpt"], [1, 2]),
        (["resnet18_1.pt", "resnet18_12.pt"], [1, 12]),
        (["1_acc0.93.pt", "2_acc0.93.pt"], [1, 2]),
        (["model-step-500.safetensors", "model-step-1000.safetensors"], [500, 1000]),
        (["7.pt"], [7]),
        (["net_acc0.95_e1.pt", "net_acc0.91_e2.pt", "net_acc0.93_e3.pt"], [1, 2, 3]),
        (["train_loss_epoch=1.25-epoch=0.ckpt", "train_loss_epoch=0.5-epoch=1.ckpt"], [0, 1]),
        (["optimizer_7.pt", "rng_state.pth", "7.pt"], [7]),
        (["epoch=0-val/loss=0.47.ckpt", "epoch=1-val/loss=0.31.ckpt"], [0, 1]),
        (["epoch_3/model.pt", "epoch_12/model.pt"], [3, 12]),
        (["vgg16-7.pt"], [7]),
        ([".hidden-3.pt", "notes.txt", "7.pt", "8.pt"], [7, 8]),
        (["acc91_ep1.pt", "acc89_ep2.pt", "acc90_ep10.pt"], [1, 2, 10]),
        (["val99-e1.pt", "val97-E2.pt", "val98-e10.pt"], [1, 2, 10]),
        (["lr1e-4_it200.pt", "lr1e-4_it50.pt"], [50, 200]),
        (["iter_30-loss7.pt", "iter_4-loss9.pt"], [4, 30]),
        (["e2e-net_epoch1_seed7.pt", "e2e-net_epoch2_seed5.pt"], [1, 2]),
        (["net-e3f1-1.pt", "net-e3f1-2.pt"], [1, 2]),
        (["e1/model.pt", "e2/model.pt"], [1, 2]),
        (["a1_b10.pt", "a2_b20.pt", "a3_b30.pt"], [1, 2, 3]),
        (["net_acc91.pt"], [91]),  # a single number orders one checkpoint, whatever it counts
        (["1_loss1.25.pt", "2_loss0.85.pt"], [1, 2]),
        (
            ["2024-01-31_23-59.pt", "2024-02-01_00-02.pt", "2024-02-01_10-01.pt"],
            [20240131235900, 20240201000200, 20240201100100],
        ),
        (
            ["net_20241231T235958.pt", "net_20250101T000003.pt"],
            [20241231235958, 20250101000003],
        ),
        (["2024-01-31.pt", "2024-02-01_10-00.pt"], [20240131000000, 20240201100000]),
        (["20001231.pt", "20001331.pt"], [20001231, 20001331]),
        (["weights.01-2.01.pt", "weights.02-1.31.pt", "weights.03-1.05.pt"], [1, 2, 3]),
        (["net_0.93_1.pt", "net_0.91_2.pt"], [1, 2]),
        (["run_09-58.pt", "run_10-59.pt"], [9, 10]),
        (["net_01-20.pt", "net_10-20.pt", "net_20-20.pt"], [1, 10, 20]),
        ([f"run-{2**63 - 1}-3.pt", f"run-{2**63}-2.pt"], [2, 3]),
    ],
)
def test_epochs_from_names(tmp_path, names, epochs):
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        if name.endswith(".safetensors"):
            save_file(weights(1), tmp_path / name)
        else:
            torch.save(weights(1), tmp_path / name)
    store = SnapshotStore.adopt(tmp_path)
    assert store.epochs == list(store) == epochs
    assert len(store) == len(epochs)
    assert epochs[0] in store
    assert 99 not in store


@pytest.mark.parametrize("key", ["state_dict", "model_state_dict", "model", "net"])
def test_epochs_from_inside(tmp_path, key):
    for name, epoch in {"a": 4, "b": 2, "last": 7}.items():
        torch.save({key: weights(epoch), "epoch": epoch, "optimizer": {}}, tmp_path / f"{name}.pt")
    store = SnapshotStore.adopt(tmp_path)
    assert store.epochs == [2, 4, 7]
    assert all(same(store.load(epoch), weights(epoch)) for epoch in store)


@pytest.mark.parametrize("key", ["global_step", "step"])
def test_steps_from_inside(tmp_path, key):
    """As Lightning names several checkpoints of an epoch."""
    for name, step in {"epoch=0": 10, "epoch=0-v1": 20}.items():
        torch.save({"state_dict": weights(step), "epoch": 0, key: step}, tmp_path / f"{name}.ckpt")
    store = SnapshotStore.adopt(tmp_path)
    assert store.epochs == [10, 20]
    assert same(store.load(20), weights(20))


def test_numbers_in_names_tell_where_what_is_inside_is_no_mapping(tmp_path):
    for i in (1, 2):
        torch.save([torch.ones(2)], tmp_path / f"net-{i}.pt")
    assert SnapshotStore.adopt(tmp_path).epochs == [1, 2]


def test_a_copy_of_the_last_is_left_out_and_a_later_last_is_not(tmp_path):
    for epoch in (0, 1):
        content = {"state_dict": weights(epoch), "epoch": epoch, "global_step": 10 * epoch + 10}
        torch.save(content, tmp_path / f"epoch={epoch}-step={10 * epoch + 10}.ckpt")
    torch.save(content, tmp_path / "last.ckpt")
    assert SnapshotStore.adopt(tmp_path).epochs == [0, 1]
    torch.save(content | {"epoch": 2, "global_step": 30}, tmp_path / "last.ckpt")
    assert SnapshotStore.adopt(tmp_path).epochs == [0, 1, 2]


@pytest.mark.parametrize("how", ["copied", "saved again"])
def test_copies_of_epochs_are_left_out(tmp_path, how):
    """As timm leaves them (`.pth.tar`, with epochs inside), and as many a loop does."""
    for folder, name, end in (
        ("timm", "checkpoint-", ".pth.tar"),
        ("own", "net18_", ".pt"),
        ("epochs", "epoch-", ".pt"),
        ("steps", "step-", ".pt"),
    ):
        (tmp_path / folder).mkdir()
        for epoch in (3, 4, 5):
            content = {"epoch": epoch, "state_dict": weights(epoch)}
            path = tmp_path / folder / f"{name}{epoch}{end}"
            torch.save(content if folder == "timm" else content["state_dict"], path)
            for copy in {4: ["net18_best"], 5: ["last", "model_best", "weights"]}.get(epoch, []):
                if how == "copied":
                    shutil.copy(path, path.with_name(f"{copy}{end}"))
                else:
                    torch.save(torch.load(path), path.with_name(f"{copy}{end}"))
        store = SnapshotStore.adopt(tmp_path / folder)
        assert store.epochs == [3, 4, 5]
        assert all(same(store.load(epoch), weights(epoch)) for epoch in store)


def test_files_without_checksums_are_no_copies_of_others(tmp_path):
    torch.serialization.set_crc32_options(False)
    try:
        for name, number in (("epoch-1", 1), ("best", 2)):
            torch.save(weights(number), tmp_path / f"{name}.pt")
    finally:
        torch.serialization.set_crc32_options(True)
    with refuses(InvalidInput, "`folder`", "got best beside epoch-1"):
        SnapshotStore.adopt(tmp_path)


def test_files_of_one_size_and_time_are_no_copies_of_others(tmp_path):
    for name, number in (("epoch-1", 1), ("best", 2)):
        save_file(weights(number), tmp_path / f"{name}.safetensors")
        os.utime(tmp_path / f"{name}.safetensors", (1, 1))
    with refuses(InvalidInput, "`folder`", "got best beside epoch-1"):
        SnapshotStore.adopt(tmp_path)


def test_a_damaged_file_is_no_copy_of_others(tmp_path):
    path = tmp_path / "best.pt"
    torch.save(weights(1), tmp_path / "epoch-1.pt")
    path.write_bytes((tmp_path / "epoch-1.pt").read_bytes().replace(b"PK\1\2", b"PK\1\0"))
    with refuses(CorruptFile, path):
        SnapshotStore.adopt(tmp_path)


def test_epochs_that_cannot_be_told_are_refused(tmp_path):
    torch.save(weights(2), tmp_path / "best.pt")
    torch.save(weights(1), tmp_path / "epoch-1.pt")
    with refuses(InvalidInput, "`folder`", f"got best beside epoch-1 in {tmp_path}"):
        SnapshotStore.adopt(tmp_path)
    (tmp_path / "epoch-1.pt").unlink()
    with refuses(InvalidInput, "`folder`", f"got best in {tmp_path}", "epoch-1, epoch-2"):
        SnapshotStore.adopt(tmp_path)
    (tmp_path / "best.pt").rename(tmp_path / "epoch-1.pt")
    save_file(weights(1), tmp_path / "epoch-1.safetensors")
    with refuses(InvalidInput, "`folder`", f"got two of epoch-1 in {tmp_path}"):
        SnapshotStore.adopt(tmp_path)


@pytest.mark.parametrize(
    "names",
    [
        ["acc89_1", "acc91_2", "acc90_3"],
        ["31-01-2024_7", "01-02-2024_8", "02-02-2024_9"],
        ["acc89.epoch1.224", "acc91.epoch2.224", "acc90.epoch3.224"],  # 1.224 is no measurement
        ["Epoch=1.224.loss900", "Epoch=2.224.loss800", "Epoch=3.224.loss700"],
        ["seed7.12.99", "seed7.13.98"],
        ["224.7.acc90", "224.8.acc88"],
        ["val54.98.loss2001", "val52.99.loss1873", "val53.101.loss1502"],
        ["run_23-59", "run_00-01"],
        ["resnet18_22-10-05", "resnet18_23-40-00", "resnet18_00-15-30"],
        ["06-08-2024_22-14", "06-08-2024_23-35", "07-08-2024_00-39"],
        ["run_10-50", "run_10-55", "run_11-05"],
        ["06-36-23", "07-01-23", "07-38-23"],
    ],
)
def test_two_numbers_that_disagree_are_refused(tmp_path, names):
    for name in names:
        torch.save(weights(1), tmp_path / f"{name}.pt")
    with refuses(InvalidInput, "`folder`", "one order", str(tmp_path), "epoch-1, epoch-2"):
        SnapshotStore.adopt(tmp_path)


@pytest.mark.parametrize("names", [["ep1_abc", "ep2_e41277"], ["epoch_1.abc", "epoch_2.3e33"]])
def test_a_hash_is_no_epoch(tmp_path, names):
    for number, name in enumerate(names):
        torch.save(weights(number), tmp_path / f"{name}.pt")
    with refuses(InvalidInput, "`folder`", " beside ".join(names)):
        SnapshotStore.adopt(tmp_path)


def test_an_epoch_of_two_trainings_is_refused(tmp_path):
    for name in ("fold1_epoch3", "fold2_epoch3"):
        torch.save(weights(1), tmp_path / f"{name}.pt")
    with refuses(InvalidInput, "`folder`", "epoch 3 as fold1_epoch3 and as fold2_epoch3"):
        SnapshotStore.adopt(tmp_path)


@pytest.mark.parametrize(
    "names",
    [
        ["ckpt_best_0.93"],
        ["best_loss=12", "best_loss=9"],
    ],
)
def test_a_measurement_is_no_epoch(tmp_path, names):
    for name in names:
        torch.save(weights(1), tmp_path / f"{name}.pt")
    with refuses(InvalidInput, "`folder`", f"got {min(names)} in {tmp_path}", "epoch-1, epoch-2"):
        SnapshotStore.adopt(tmp_path)


def save_as_trainer(folder, step, epoch, shards=1, ending="safetensors"):
    """The layout of Hugging Face's Trainer; the real Trainer's is tested with the integration."""
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True)
    state = weights(step)
    (path / "trainer_state.json").write_text(json.dumps({"epoch": epoch, "global_step": step}))
    torch.save({"lr": 0.1}, path / "optimizer.pt")
    if ending == "bin":
        torch.save(state, path / "pytorch_model.bin")
    elif shards == 1:
        save_file(state, path / "model.safetensors")
    else:
        place = {
            name: f"model-{i % shards:05d}-of-{shards:05d}.safetensors"
            for i, name in enumerate(state)
        }
        for shard in {*place.values()}:
            save_file({n: t for n, t in state.items() if place[n] == shard}, path / shard)
        (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": place}))


@pytest.mark.parametrize("kind", [{"shards": 1}, {"shards": 3}, {"ending": "bin"}])
def test_folders_of_the_trainer(tmp_path, kind):
    for epoch in (1, 2, 10):
        save_as_trainer(tmp_path, 50 * epoch, float(epoch), **kind)
    save_file(weights(0), tmp_path / "model.safetensors")  # what the Trainer leaves at the end
    store = SnapshotStore.adopt(tmp_path)
    assert store.epochs == [1, 2, 10]
    assert same(store.load(10), weights(500))
    model = network()
    store.load_into(model, 2)
    assert same(model.state_dict(), weights(100))
    assert len({store.sha256(epoch) for epoch in store}) == 3


def test_steps_where_epochs_are_not_whole(tmp_path):
    for step in (50, 100):
        save_as_trainer(tmp_path, step, step / 80)
    assert SnapshotStore.adopt(tmp_path).epochs == [50, 100]


@pytest.mark.parametrize(("off", "epochs"), [(0.9e-6, [1, 2]), (1.2e-6, [50, 100])])
def test_an_epoch_is_whole_to_a_millionth(tmp_path, off, epochs):
    for epoch in (1, 2):
        save_as_trainer(tmp_path, 50 * epoch, epoch - off)
    assert SnapshotStore.adopt(tmp_path).epochs == epochs


def test_a_copy_of_a_sharded_checkpoint_is_left_out_and_what_shares_a_shard_is_not(tmp_path):
    save_as_trainer(tmp_path, 50, 1.0, shards=2)
    best = tmp_path / "checkpoint-best"
    shutil.copytree(tmp_path / "checkpoint-50", best)
    (best / "trainer_state.json").write_text('{"epoch": 2}')
    assert SnapshotStore.adopt(tmp_path).epochs == [1]
    first, second = sorted(best.glob("model-*"))
    save_file({name: tensor for name, tensor in weights(2).items() if "1" in name}, second)
    assert SnapshotStore.adopt(tmp_path).epochs == [1, 2]
    shutil.copy(first, best / "model.safetensors")  # is read alone, without the shards
    assert SnapshotStore.adopt(tmp_path).epochs == [1, 2]


def test_a_missing_shard_is_named(tmp_path):
    save_as_trainer(tmp_path, 50, 1.0, shards=2)
    shard = tmp_path / "checkpoint-50" / "model-00001-of-00002.safetensors"
    shard.unlink()
    index = tmp_path / "checkpoint-50" / "model.safetensors.index.json"
    with refuses(CorruptFile, index, f"got no {shard.name}"):
        SnapshotStore.adopt(tmp_path)
    index.write_text("[]")
    with refuses(CorruptFile, index, "got something else"):
        SnapshotStore.adopt(tmp_path)


@pytest.mark.parametrize("prefix", ["module.", "model.", "_orig_mod.", "model._orig_mod.module."])
def test_prefixes_of_wrappers_go(tmp_path, prefix):
    torch.save(weights(5, prefix), tmp_path / "epoch-1.pt")
    store = SnapshotStore.adopt(tmp_path)
    assert same(store.load(1), weights(5))
    model = network()
    store.load_into(model, 1)
    assert same(model.state_dict(), weights(5))


def test_a_compiled_part_is_found_under_its_own_name(tmp_path):
    state = {name.replace("0.", "0._orig_mod.", 1): t for name, t in weights(5).items()}
    assert any("_orig_mod" in name for name in state)
    torch.save(state, tmp_path / "epoch-1.pt")
    assert same(SnapshotStore.adopt(tmp_path).load(1), weights(5))


def test_a_network_among_other_things(tmp_path):
    """A LightningModule's checkpoint holds whatever the module does, under any name."""
    torch.save({**weights(5, "net."), "loss.weight": torch.ones(2)}, tmp_path / "epoch-1.pt")
    model = network()
    SnapshotStore.adopt(tmp_path).load_into(model, 1)
    assert same(model.state_dict(), weights(5))


def test_a_module_whose_own_names_begin_with_model(tmp_path):
    class Wrapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = network()

    torch.save(weights(5, "model."), tmp_path / "epoch-1.pt")
    wrapped = Wrapped()
    SnapshotStore.adopt(tmp_path).load_into(wrapped, 1)
    assert same(wrapped.state_dict(), weights(5, "model."))


def test_two_networks_in_one_checkpoint(tmp_path):
    torch.save({**weights(1, "student."), **weights(2, "teacher.")}, tmp_path / "epoch-1.pt")
    model = network()
    with refuses(
        InvalidInput,
        "got it under 'student.' and 'teacher.'",
        "state='student'",
        "--state student ",
    ):
        SnapshotStore.adopt(tmp_path).load_into(model, 1)
    store = SnapshotStore.adopt(tmp_path, state="teacher.")
    store.load_into(model, 1)
    assert same(model.state_dict(), weights(2))
    assert same(store.load(1), weights(2))
    assert same(SnapshotStore.adopt(tmp_path, state="teacher").load(1), weights(2))
    assert store.sha256(1) != SnapshotStore.adopt(tmp_path, state="student").sha256(1)
    content = {"state_dict": {**weights(1, "student."), **weights(3, "teacher.")}}
    torch.save(content, tmp_path / "epoch-1.pt")  # as Lightning does
    assert same(SnapshotStore.adopt(tmp_path, state="teacher").load(1), weights(3))
    torch.save({**weights(1, "student."), **weights(2, "teacher.")}, tmp_path / "epoch-1.pt")
    mistyped = SnapshotStore.adopt(tmp_path, state="techer.")
    for function, given in ((mistyped.load, (1,)), (mistyped.load_into, (model, 1))):
        with refuses(InvalidInput, "`state`", "got 'techer'", "student.0, "):
            function(*given)
    for state in (5, True, b"teacher", ["teacher"], Path("teacher")):
        with refuses(InvalidInput, "`state`", f"got {state!r}", "state='ema'"):
            SnapshotStore.adopt(tmp_path, state=state)


@pytest.mark.parametrize(
    ("second", "name"),
    [
        ({"state_dict_ema": weights(2)}, "state_dict_ema"),
        ({"ema": {"decay": 0.99, "shadow": weights(2, "module.")}}, "ema.shadow"),
        ({"swa": weights(2, "module.") | {"n_averaged": torch.tensor(3)}}, "swa"),
    ],
)
def test_a_moving_average_beside_the_weights_is_a_choice(tmp_path, second, name):
    content = {"state_dict": weights(1), "optimizer": {"state": {0: weights(9)}}, **second}
    torch.save(content, tmp_path / "epoch-1.pt")
    model = network()
    with pytest.warns(UserWarning, match=rf"'state_dict' and as '{name}'.*state='{name}'"):
        SnapshotStore.adopt(tmp_path).load_into(model, 1)
    assert same(model.state_dict(), weights(1))
    chosen = SnapshotStore.adopt(tmp_path, state=name)
    chosen.load_into(model, 1)
    assert same(model.state_dict(), weights(2))
    confirmed = SnapshotStore.adopt(tmp_path, state="state_dict")
    assert same(confirmed.load(1), weights(1))
    assert chosen.sha256(1) != confirmed.sha256(1)


def test_weights_that_were_tied_and_left_out(tmp_path):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
            self.second.weight = self.first.weight

    model = Tied()
    state = {name: tensor + 1 for name, tensor in model.state_dict().items()}
    del state["second.weight"]
    save_file(state, tmp_path / "epoch-1.safetensors")
    SnapshotStore.adopt(tmp_path).load_into(model, 1)
    assert torch.equal(model.second.weight, state["first.weight"])
    assert torch.equal(model.second.bias, state["second.bias"])
    del state["first.weight"]
    save_file(state, tmp_path / "epoch-1.safetensors")
    with refuses(WrongArchitecture, "missing in the snapshot: first.weight, second.weight"):
        SnapshotStore.adopt(tmp_path).load_into(model, 1)


def test_another_architecture_is_told(tmp_path):
    torch.save(weights(1, "model."), tmp_path / "epoch-1.pt")
    other = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 7))
    with refuses(
        WrongArchitecture,
        f"epoch 1 ({tmp_path / 'epoch-1.pt'})",
        "got differences: of another shape: 2.bias (2,) for (7,), 2.weight (2, 4) for (7, 4)",
    ):
        SnapshotStore.adopt(tmp_path).load_into(other, 1)


class RunsCode:
    def __reduce__(self):
        return os.mkdir, ("ran",)


class Hidden:
    """Hides a call in something that is allowed."""

    def __init__(self, kind):
        self.kind = kind

    def __reduce__(self):
        run = RunsCode()
        kinds = {
            "namespace": (Namespace, (), {"a": run}),
            "path": (Path, (run,)),
            "array": (np._core.multiarray.scalar, (np.dtype("O"), run)),
        }
        return kinds[self.kind]


@pytest.mark.parametrize("kind", ["namespace", "path", "array"])
def test_a_call_hidden_in_something_allowed_runs_nothing(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    torch.save({"state_dict": weights(1), "more": Hidden(kind)}, tmp_path / "epoch-1.ckpt")
    with pytest.raises((UnsafeFile, CorruptFile)):
        SnapshotStore.adopt(tmp_path).load(1)
    assert not (tmp_path / "ran").exists()


def test_the_old_pickle_format_is_read(tmp_path):
    content = {"epoch": 7, "state_dict": weights(3)}
    torch.save(content, tmp_path / "last.pt", _use_new_zipfile_serialization=False)
    store = SnapshotStore.adopt(tmp_path)
    assert store.epochs == [7]
    assert same(store.load(7), weights(3))


def test_a_folder_above_will_do_and_two_trainings_will_not(tmp_path):
    deep = tmp_path / "lightning_logs" / "version_0" / "checkpoints"
    deep.mkdir(parents=True)
    torch.save(weights(1), deep / "epoch=1.ckpt")
    assert SnapshotStore.adopt(tmp_path).epochs == [1]
    other = tmp_path / "lightning_logs" / "version_1" / "checkpoints"
    other.mkdir(parents=True)
    torch.save(weights(1), other / "epoch=1.ckpt")
    with refuses(InvalidInput, "`folder`", f"got some in {deep} and in {other}"):
        SnapshotStore.adopt(tmp_path)


def test_stores_below_are_left_out(tmp_path):
    SnapshotStore(tmp_path / "ours").save(network(), 1)
    torch.save(weights(1), tmp_path / "epoch-7.pt")
    assert SnapshotStore.adopt(tmp_path).epochs == [7]
    (tmp_path / "epoch-7.pt").unlink()
    with pytest.raises(InvalidInput, match="got none in"):
        SnapshotStore.adopt(tmp_path)


def test_a_single_folder_of_the_trainer_and_an_adapter(tmp_path):
    save_as_trainer(tmp_path, 50, 1.0)
    assert SnapshotStore.adopt(tmp_path / "checkpoint-50").epochs == [1]
    folder = tmp_path / "checkpoint-60"
    folder.mkdir()
    save_file(weights(1), folder / "adapter_model.safetensors")
    with refuses(InvalidInput, "`folder`", f"got both in {tmp_path}"):
        SnapshotStore.adopt(tmp_path)


def test_a_file_without_weights(tmp_path):
    save_file({}, tmp_path / "epoch-1.safetensors")
    with refuses(InvalidInput, tmp_path / "epoch-1.safetensors", "got none"):
        SnapshotStore.adopt(tmp_path).load(1)


def test_a_file_is_no_folder(tmp_path):
    torch.save(weights(1), tmp_path / "epoch-1.pt")
    with refuses(InvalidInput, "`folder`", ".ckpt", "checkpoint-*", "got a file", tmp_path):
        SnapshotStore.adopt(tmp_path / "epoch-1.pt")
    with refuses(InvalidInput, "`snapshots`", tmp_path, "is a file, not a folder"):
        score(network(), tmp_path / "epoch-1.pt", torch.ones(1, 2))


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (None, "does not exist"),
        ([], "has nothing"),
        (["a.onnx", "b.pkl", "c.txt", "d/e.bin"], "a.onnx, b.pkl, c.txt and 1 more"),
    ],
)
def test_nothing_there(tmp_path, names, found):
    folder = tmp_path / "run"
    for name in names or []:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    if names == []:
        folder.mkdir()
    with refuses(InvalidInput, "`folder`", ".pth.tar", f"got none in {folder}", found):
        SnapshotStore.adopt(folder)
    with refuses(InvalidInput, "`snapshots`", f"got none in {folder}", found, ".pth.tar"):
        score(network(), folder, torch.rand(2, 3), progress=False)


def test_a_store_is_no_folder_of_others(tmp_path):
    SnapshotStore(tmp_path).save(network(), 1)
    with refuses(InvalidInput, "`folder`", f"got {tmp_path}", "SnapshotStore("):
        SnapshotStore.adopt(tmp_path)


def test_what_changes_after_adoption_is_noticed(tmp_path):
    path = tmp_path / "epoch-1.pt"
    torch.save(weights(1), path)
    store = SnapshotStore.adopt(tmp_path)
    store.verify()
    torch.save({**weights(2), "more": torch.ones(99)}, path)
    with refuses(CorruptFile, f"epoch 1 ({path})", "got another file", "Adopt"):
        store.load(1)
    path.unlink()
    for function in (store.load, store.sha256):
        with refuses(CorruptFile, f"epoch 1 ({path})", "got no file"):
            function(1)
    with pytest.raises(CorruptFile):
        store.verify()
    with refuses(InvalidInput, "`epoch`", "got 2"):
        store.load(2)


@pytest.mark.parametrize("end", ["pt", "safetensors"])
def test_what_was_read_does_not_change_with_the_file(tmp_path, end):
    """A training that rewrites its newest checkpoint in place, or cuts it."""
    path = tmp_path / f"epoch-1.{end}"
    save = torch.save if end == "pt" else save_file
    save(weights(1), path)
    store = SnapshotStore.adopt(tmp_path)
    state = store.load(1)
    content = path.read_bytes()
    with path.open("r+b") as file:
        file.write(bytes(len(content)))
    assert same(state, weights(1))
    os.truncate(path, 0)  # would end a process that reads a mapped file
    assert same(state, weights(1))


@pytest.mark.parametrize("end", ["pt", "safetensors"])
@pytest.mark.parametrize("how", ["load", "load_into", "sha256"])
def test_a_file_written_while_it_is_read(tmp_path, monkeypatch, end, how):
    path = tmp_path / f"epoch-1.{end}"
    (torch.save if end == "pt" else save_file)(weights(1), path)
    store = SnapshotStore.adopt(tmp_path)

    def write_then(function):
        def write(*given, **options):
            result = function(*given, **options)
            with path.open("r+b") as file:  # as many bytes as before
                file.write(b"PK" if end == "pt" else path.read_bytes()[:2])
            return result

        return write

    if how == "sha256":
        monkeypatch.setattr(_files, "sha256", write_then(_files.sha256))
    else:
        monkeypatch.setattr(_weights, "read_checkpoint", write_then(_weights.read_checkpoint))
    with refuses(CorruptFile, f"epoch 1 ({path})", "still being written", "Adopt"):
        getattr(store, how)(*([network()] if how == "load_into" else []), 1)


def test_a_rewriting_of_the_same_moment_is_noticed(tmp_path):
    """Times of files stand still for some milliseconds, in which a file may be written twice."""
    path = tmp_path / "epoch-1.pt"
    torch.save(weights(1), path)
    for number in range(2, 12):
        torch.save(weights(number), path)
        store = SnapshotStore.adopt(tmp_path)
        torch.save(weights(number + 1), path)
        with refuses(CorruptFile, "got another file"):
            store.load(1)


@pytest.mark.parametrize("age", [0, 0.01, -0.01, 1, -3600])
def test_a_folder_that_has_just_changed_is_waited_for(tmp_path, monkeypatch, age):
    """Until a later writing gets a later time, as clocks of file systems go; no longer."""
    path, pauses = tmp_path / "epoch-1.pt", []
    torch.save(weights(1), path)
    os.utime(path, (1000, 1000))
    clock = SimpleNamespace(time=lambda: 1000 + age, sleep=pauses.append)
    monkeypatch.setattr(_adopt, "time", clock)
    SnapshotStore.adopt(tmp_path)
    assert sum(pauses) == (0.02 if abs(age) < 0.02 else 0)


def test_it_cannot_be_recorded_into(tmp_path):
    torch.save(weights(1), tmp_path / "epoch-1.pt")
    with refuses(InvalidInput, "`store`", "got CheckpointFolder"):
        Recorder(SnapshotStore.adopt(tmp_path))


def test_scored_like_a_store_and_left_as_it_was(digits, tmp_path):
    folder = tmp_path / "theirs"
    folder.mkdir()
    for epoch in digits.store:
        state = {f"module.{name}": t for name, t in digits.store.load(epoch).items()}
        torch.save({"state_dict": state, "epoch": epoch}, folder / f"epoch={epoch}.ckpt")
    before = files(folder)
    ours, theirs = (
        score(digits.model(), source, digits.test, SoftmaxResponse(), progress=False)
        for source in (digits.store, str(folder))
    )
    assert np.array_equal(ours.kappa("softmax"), theirs.kappa("softmax"))
    assert np.array_equal(ours.epochs, theirs.epochs)
    together = Ensemble([digits.store, folder])
    table = score(digits.model(), together, digits.test, progress=False)
    # Two networks at once may add numbers in another order than one does.
    assert np.allclose(table.kappa("softmax"), ours.kappa("softmax"), rtol=0, atol=1e-12)
    assert files(folder) == before


def test_a_compressed_checkpoint_is_read_as_what_it_holds(tmp_path):
    plain, packed = tmp_path / "epoch-1.pt", tmp_path / "packed.pt"
    # Mapped, w would be the bytes of its packed form, and of z after it.
    state = {"w": torch.arange(5000.0) % 7, "z": torch.randn(50_000)}
    torch.save({"epoch": 2, "state_dict": state}, plain)
    with ZipFile(plain) as source, ZipFile(packed, "w", ZIP_DEFLATED) as target:
        for entry in source.infolist():
            target.writestr(entry.filename, source.read(entry))
    assert packed.stat().st_size < plain.stat().st_size
    torch.save(state, plain)
    store = SnapshotStore.adopt(tmp_path)
    for epoch in (1, 2):
        assert same(store.load(epoch), state)


def test_a_keras_file_without_weights_is_told_of(tmp_path):
    import h5py

    class Reader(nn.Module):
        def load_weights(self, filepath):
            raise AssertionError("it must not come to that")

    path = tmp_path / "epoch-1.weights.h5"
    with h5py.File(path, "w") as file:
        file.create_group("layers")
    store = SnapshotStore.adopt(tmp_path)
    for call in (store.verify, lambda: store.load(1), lambda: store.load_into(Reader(), 1)):
        with refuses(InvalidInput, path, "got none"):
            call()
