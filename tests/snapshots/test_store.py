"""The store: what goes in comes out, or is refused with a sentence."""

import errno
import os
import pickle
import threading
from contextlib import ExitStack

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import snapsure
from snapsure import Budget, Evenly, Recorder, SnapshotStore, score
from snapsure.errors import (
    CorruptFile,
    InvalidInput,
    StorageError,
    StoreLocked,
    WrongArchitecture,
)
from tests.support import processes
from tests.support.refusals import refuses


@pytest.fixture
def store(tmp_path):
    return SnapshotStore(tmp_path / "run")


def network():
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def same(a, b):
    assert a.keys() == b.keys()
    return all(torch.equal(a[name], b[name]) and a[name].dtype == b[name].dtype for name in a)


def test_a_network_comes_back_buffers_and_all(store):
    model = network()
    model(torch.randn(8, 3))  # moves BatchNorm's buffers
    store.save(model, 3)
    assert same(store.load(3), model.state_dict())
    other = network()
    store.load_into(other, 3)
    assert same(other.state_dict(), model.state_dict())


def test_the_file_is_plain_safetensors(store):
    model = network()
    store.save(model, 3)
    assert same(load_file(store.path / "epoch-000003.safetensors"), model.state_dict())
    for length in range(1, 9):  # numbers begin at a multiple of 8, however long the names are
        store.save({"w" * length: torch.ones(2)}, 10 + length)
        content = (store.path / f"epoch-0000{10 + length}.safetensors").read_bytes()
        assert int.from_bytes(content[:8], "little") % 8 == 0


def test_a_store_that_writes_can_be_sent_to_another_process(store):
    store.save(network(), 1)  # it holds a lock now, which stays here
    sent = pickle.loads(pickle.dumps(store))
    assert sent.path == store.path
    assert same(sent.load(1), store.load(1))
    store.save(network(), 2)
    assert sent.epochs == [1, 2]


def test_epochs_in_order(store):
    for epoch in (10, 2, 7):
        store.save(network(), epoch)
    assert store.epochs == list(store) == [2, 7, 10]
    assert len(store) == 3
    assert 7 in store
    assert 8 not in store


def test_a_store_that_was_never_written_is_empty_and_makes_no_folder(store):
    assert store.epochs == []
    assert not store.path.exists()


def test_every_type_and_layout_of_tensor(store):
    base = torch.randn(4, 6)
    state = {
        "transposed": base.T,
        "slice": base[1:3, ::2],
        "channels_last": torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
        "scalar": torch.tensor(5),
        "empty": torch.zeros(0, 3),
        "also_empty": torch.zeros(0, 3),
        "bool": torch.tensor([True, False]),
        "gradient": torch.ones(2, requires_grad=True),
        **{
            str(dtype): torch.ones(3, dtype=dtype)
            for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8)
        },
    }
    store.save(state, 1)
    assert same(store.load(1), {name: tensor.detach() for name, tensor in state.items()})


def test_tied_weights_are_written_once_and_come_back_tied(store):
    model = nn.Sequential(nn.Linear(50, 50), nn.Linear(50, 50))
    store.save(model, 1)
    model[1].weight = model[0].weight
    store.save(model, 2)
    sizes = [(store.path / f"epoch-00000{i}.safetensors").stat().st_size for i in (1, 2)]
    assert sizes[1] < 0.6 * sizes[0]
    state = store.load(2)
    assert state["0.weight"].data_ptr() == state["1.weight"].data_ptr()
    store.load_into(model, 2)


def test_bfloat16_halves_the_disk_and_comes_back_as_it_was(store):
    model = nn.Sequential(nn.Linear(100, 100), nn.BatchNorm1d(100))
    store.save(model, 1)
    store.save(model, 2, dtype="bfloat16")
    sizes = [(store.path / f"epoch-00000{i}.safetensors").stat().st_size for i in (1, 2)]
    assert sizes[1] < 0.55 * sizes[0]
    assert store.nbytes == sum(sizes)
    state = store.load(2)
    assert {name: t.dtype for name, t in state.items()} == {
        name: t.dtype for name, t in model.state_dict().items()
    }
    torch.testing.assert_close(state["0.weight"], model[0].weight.detach(), rtol=1e-2, atol=0)
    store.load_into(model, 2)


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")  # torch.compile's own
@pytest.mark.slow
def test_wrapped_networks_are_saved_as_themselves(store):
    model = network()
    store.save(nn.DataParallel(model), 1)
    store.save(torch.compile(model), 2)
    assert same(store.load(1), model.state_dict())
    assert same(store.load(2), model.state_dict())
    store.load_into(torch.compile(network()), 1)


def test_saving_an_epoch_again_replaces_it_and_leaves_no_file(store):
    for _ in range(3):
        model = network()
        store.save(model, 1)
        assert same(store.load(1), model.state_dict())
        assert len(list(store.path.glob("*.safetensors"))) == 1


def test_remove_and_rewind(store):
    for epoch in range(1, 6):
        store.save(network(), epoch)
    store.remove(2)
    store.rewind(3)
    manifest = (store.path / "manifest.json").stat().st_ino
    store.rewind(3)  # nothing is left to remove
    assert (store.path / "manifest.json").stat().st_ino == manifest
    assert store.epochs == [1, 3]
    assert len(list(store.path.glob("*.safetensors"))) == 2


def test_another_object_sees_what_is_added(store):
    store.save(network(), 1)
    reader = SnapshotStore(store.path)
    store.save(network(), 2)
    assert reader.epochs == [1, 2]


def test_wrong_arguments(store):
    with refuses(InvalidInput, "`epoch`", "got -1"):
        store.save(network(), -1)
    with refuses(InvalidInput, "`epoch`", "got 1.0"):
        store.save(network(), 1.0)
    with refuses(InvalidInput, "`model_or_state_dict`", "got int"):
        store.save(3, 1)
    with refuses(InvalidInput, "`model_or_state_dict`", "got float at 'lr'"):
        store.save({"lr": 0.1}, 1)
    with refuses(InvalidInput, "`model_or_state_dict`", "got none"):
        store.save(nn.ReLU(), 1)
    with refuses(InvalidInput, "`dtype`", "got 'int8'"):
        store.save(network(), 1, dtype="int8")
    with refuses(InvalidInput, "`dtype`", "got 'int8'"):
        Recorder(store, dtype="int8")  # before a first epoch is trained
    assert store.epochs == []


def test_an_epoch_that_is_not_there(store):
    for call in (store.load, store.remove):
        with refuses(InvalidInput, "`epoch`", "got 1"):
            call(1)
    store.save(network(), 4)
    for call in (store.load, store.remove):
        with refuses(InvalidInput, "`epoch`", "got 1"):
            call(1)


def test_a_snapshot_of_another_architecture(store):
    store.save(nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5)), 1)
    model = nn.Sequential(nn.Linear(3, 4), nn.Identity(), nn.Linear(4, 2))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with refuses(
        WrongArchitecture,
        store.path,
        "missing in the snapshot: 2.bias, 2.weight; ",
        "unknown to the model: 1.bias, 1.num_batches_tracked, 1.running_mean and 2 more; ",
        "of another shape: 0.bias (5,) for (4,), 0.weight (5, 3) for (4, 3)",
    ):
        store.load_into(model, 1)
    assert same(model.state_dict(), before)


def check_damage(store, damage, got):
    """Of three snapshots the second is damaged, and nothing reads it."""
    for epoch in (1, 2, 3):
        store.save(network(), epoch)
    path = store.path / "epoch-000002.safetensors"
    damage(path)
    for call in (store.verify, lambda: store.load(2), lambda: store.load_into(network(), 2)):
        with refuses(CorruptFile, f"epoch 2 ({path})", f"got {got}", ".remove"):
            call()
    store.load(1), store.load(3)
    store.remove(2)  # as it says
    store.verify()


def flip(path, place):
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def test_a_truncated_file(store):
    store.save(network(), 2)
    size = (store.path / "epoch-000002.safetensors").stat().st_size
    store.remove(2)
    cut = size - 1
    check_damage(store, lambda path: os.truncate(path, cut), f"{cut} bytes for {size}")


@pytest.mark.parametrize("place", [0, 20, -1])
def test_a_flipped_bit(store, place):
    check_damage(store, lambda path: flip(path, place), "other bytes")


def test_a_file_that_is_gone(store):
    check_damage(store, lambda path: path.unlink(), "no file")


@pytest.mark.parametrize("moment", ["write", "fsync", "replace"])
def test_a_full_disk_loses_nothing(store, monkeypatch, moment):
    first = network()
    store.save(first, 1)

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    target = {
        "write": "snapsure.snapshots._weights.write",
        "fsync": "os.fsync",
        "replace": "pathlib.Path.replace",
    }[moment]
    with monkeypatch.context() as patched:
        patched.setattr(target, full)
        for epoch in (1, 2):
            with pytest.raises(StorageError) as caught:
                store.save(network(), epoch)
    assert caught.value.errno == errno.ENOSPC
    assert f"epoch-000002.safetensors in {store.path}" in caught.value.strerror
    assert store.epochs == [1]
    assert same(store.load(1), first.state_dict())
    assert not list(store.path.glob(".partial-*"))
    store.save(network(), 2)
    store.verify()


def test_a_second_process_is_told(store):
    store.save(network(), 1)
    code = f"""
        import torch
        from snapsure import SnapshotStore
        from snapsure.errors import StoreLocked
        store = SnapshotStore({str(store.path)!r})
        print(store.epochs)
        try:
            store.save(torch.nn.Linear(2, 2), 2)
        except StoreLocked as error:
            print(error)
    """
    run = processes.run(code)
    assert run.returncode == 0, run.stderr
    epochs, message = run.stdout.splitlines()
    assert epochs == "[1]"
    assert message.startswith(f"{store.path} must have one writer")
    assert f"process {os.getpid()} writes there" in message
    assert store.epochs == [1]
    assert issubclass(StoreLocked, OSError)


def test_two_objects_of_one_process_may_write(store):
    store.save(network(), 1)
    again = SnapshotStore(store.path)
    again.save(network(), 2)
    store.save(network(), 3)
    assert store.epochs == again.epochs == [1, 2, 3]


def test_the_lock_goes_with_its_store(tmp_path):
    SnapshotStore(tmp_path).save(network(), 1)
    code = (
        f"import torch; from snapsure import SnapshotStore as S; "
        f"S({str(tmp_path)!r}).save(torch.nn.Linear(2, 2), 2)"
    )
    assert processes.run(code).returncode == 0
    assert SnapshotStore(tmp_path).epochs == [1, 2]


def test_a_forked_child_neither_has_nor_releases_the_lock(tmp_path):
    code = f"""
        import gc, os, sys
        from snapsure import SnapshotStore
        from snapsure.errors import StoreLocked

        def forked(does):
            child = os.fork()
            if child:
                return os.waitpid(child, 0)
            does()
            sys.exit()

        def write(some):
            try:
                some.save({{"w": torch.ones(1)}}, 2)
                print("written", flush=True)
            except StoreLocked as error:
                print(str(error).split(": ")[1].split(".")[0], flush=True)

        def drop():
            global store
            del store
            gc.collect()

        import torch
        store = SnapshotStore({str(tmp_path)!r})
        store.save({{"w": torch.ones(1)}}, 1)
        print(f"process {{os.getpid()}} writes there", flush=True)
        forked(lambda: write(store))
        forked(lambda: None)
        forked(drop)
        forked(lambda: write(SnapshotStore({str(tmp_path)!r})))
        del store
        forked(lambda: write(SnapshotStore({str(tmp_path)!r})))
    """
    run = processes.run(code)
    assert run.returncode == 0, run.stderr
    writer, *children = run.stdout.splitlines()
    assert children == [writer, writer, "written"]


def test_recorder_follows_its_schedule(store):
    recorder = Recorder(store, Evenly(10, k=4))
    assert [recorder.record(network(), epoch) for epoch in range(1, 11)] == [
        epoch in (4, 6, 8, 10) for epoch in range(1, 11)
    ]
    assert store.epochs == [4, 6, 8, 10]


def test_recorder_keeps_within_its_budget_at_every_moment(store, monkeypatch):
    files = []
    save = SnapshotStore.save

    def watched(self, *arguments, **options):
        save(self, *arguments, **options)
        files.append(len(list(self.path.glob("*.safetensors"))))

    monkeypatch.setattr(SnapshotStore, "save", watched)
    recorder = Recorder(store.path, Budget(3))
    for epoch in range(1, 20):
        assert recorder.record(network(), epoch)
    assert max(files) == 3
    assert recorder.store.epochs[-1] == 19


def test_a_budget_loses_nothing_when_saving_fails(store, monkeypatch):
    recorder = Recorder(store, Budget(3))
    for epoch in range(1, 11):
        recorder.record(network(), epoch)
    held = store.epochs

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("snapsure.snapshots._weights.write", full)
        with pytest.raises(StorageError):
            recorder.record(network(), 11)
    with pytest.raises(InvalidInput):
        recorder.record("no network", 11)
    assert store.epochs == held
    store.verify()


def test_a_reader_beside_a_writer_sees_whole_snapshots(store):
    store.save({"w": torch.zeros(1000)}, 1)
    stop, problems = threading.Event(), []

    def read():
        reader = SnapshotStore(store.path)
        while not stop.is_set():
            try:
                state = reader.load(1)["w"]
                assert (state == state[0]).all()
            except Exception as error:
                problems.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        for i in range(60):
            store.save({"w": torch.full((1000,), float(i))}, 1)
    finally:
        stop.set()
        thread.join()
    assert problems == []


def test_a_folder_that_is_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    with refuses(StorageError, tmp_path / "file" / "run", "Not a directory"):
        SnapshotStore(tmp_path / "file" / "run").save(network(), 1)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_tensors_that_cannot_be_stored(store):
    with refuses(InvalidInput, "`model_or_state_dict`", "got a torch.sparse_csr tensor at 'w'"):
        store.save({"w": torch.ones(2, 2).to_sparse_csr()}, 1)
    with refuses(InvalidInput, "got a meta or lazy tensor at 'w'"):
        store.save({"w": torch.ones(2, device="meta")}, 1)
    with refuses(InvalidInput, "`dtype`", "got float16 for 'w', which it makes infinite"):
        store.save({"w": torch.tensor([1e6])}, 1, dtype="float16")
    assert store.epochs == []


def test_integers_for_weights_are_refused(store):
    store.save({"weight": torch.ones(2, 3, dtype=torch.int64), "bias": torch.ones(2)}, 1)
    with refuses(WrongArchitecture, "of another kind of number: weight"):
        store.load_into(nn.Linear(3, 2), 1)


def test_recorder_refuses_a_folder_of_another_run(store):
    Recorder(store).record(network(), 5)
    with refuses(InvalidInput, "`epoch`", "latest 5", "got 2", "after epoch 1,", ".rewind(1)"):
        Recorder(store).record(network(), 2)
    snapsure.SnapshotStore(str(store.path)).rewind(1)  # as it says, beside the store that is there
    assert Recorder(store, dtype="bfloat16").record(network(), 2)
    assert store.epochs == [2]


def test_recorder_takes_the_same_epoch_again(store):
    """As a cell of a notebook that is run twice does."""
    recorder = Recorder(store, Budget(3))
    for epoch in (1, 2, 3):
        recorder.record({"w": torch.zeros(1)}, epoch)
    assert recorder.record({"w": torch.ones(1)}, 3)
    assert store.epochs == [1, 2, 3]
    assert float(store.load(3)["w"]) == 1.0


@pytest.mark.slow
def test_only_rank_0_writes(tmp_path):
    code = f"""
        import sys
        import torch
        from snapsure import Recorder, SnapshotStore
        rank = int(sys.argv[1])
        torch.distributed.init_process_group(
            "gloo", init_method="file://{tmp_path}/meet", rank=rank, world_size=2)
        torch.manual_seed(0)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
        taken = Recorder({str(tmp_path / "run")!r}).record(model, 1)
        SnapshotStore({str(tmp_path / "run")!r}).save(model, 2)
        torch.distributed.barrier()
        print(taken, SnapshotStore({str(tmp_path / "run")!r}).epochs)
        torch.distributed.destroy_process_group()
    """
    with ExitStack() as running:
        runs = [running.enter_context(processes.forked(code, rank)) for rank in range(2)]
        assert [run.wait() for run in runs] == [0, 0], [run.stderr for run in runs]
        assert [run.stdout.strip() for run in runs] == ["True [1, 2]", "False [1, 2]"]
    assert sorted(SnapshotStore(tmp_path / "run").load(1)) == ["bias", "weight"]


def test_checkpoints_of_other_tools_are_saved_by_path(tmp_path):
    model = network()
    torch.save(model.state_dict(), tmp_path / "plain.pt")
    torch.save({"state_dict": model.state_dict(), "epoch": 3}, tmp_path / "lightning.ckpt")
    save_file(model.state_dict(), tmp_path / "plain.safetensors")
    store = SnapshotStore(tmp_path / "run")
    for epoch, name in enumerate(("plain.pt", "lightning.ckpt", "plain.safetensors"), 1):
        store.save(tmp_path / name, epoch)
        assert same(store.load(epoch), model.state_dict())
    (tmp_path / "cut.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{")
    with refuses(CorruptFile, tmp_path / "cut.safetensors", "ends early"):
        store.save(tmp_path / "cut.safetensors", 4)
    with refuses(InvalidInput, tmp_path / "none.pt", "got none"):
        store.save(tmp_path / "none.pt", 4)
    assert store.epochs == [1, 2, 3]


def test_a_recorder_that_never_records_leaves_no_folder(tmp_path):
    Recorder(tmp_path / "run")
    assert not (tmp_path / "run").exists()
    (tmp_path / "there").mkdir()
    Recorder(tmp_path / "there")
    assert (tmp_path / "there").exists()


def test_epochs_of_many_digits_are_read_back_or_refused(tmp_path):
    store = SnapshotStore(tmp_path)
    numbers = [10**17, 10**18, 1_794_966_217_937_610_254, 2**63 - 1]
    for number in numbers:
        store.save(nn.Linear(3, 2), number)
    with refuses(InvalidInput, "`epoch` must be less than 2**63", f"got {2**63}"):
        store.save(nn.Linear(3, 2), 2**63)
    again = SnapshotStore(tmp_path)
    assert again.epochs == numbers
    again.verify()
    (tmp_path / "manifest.json").unlink()
    again.rebuild()
    assert SnapshotStore(tmp_path).epochs == numbers
    out = tmp_path / "scores"
    table = score(nn.Linear(3, 2), again, torch.ones(4, 3), out=out, progress=False)
    assert table.epochs.tolist() == numbers
