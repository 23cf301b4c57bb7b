"""The Ray executor on a real cluster of two nodes, whose workers, nodes and drivers are killed."""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import psutil
import pytest
import ray
import torch
from ray.cluster_utils import Cluster
from torch.utils.data import DataLoader, TensorDataset

from snapsure import Ensemble, MCDropout, NNDistance, SnapshotStore, SoftmaxResponse, score
from snapsure.errors import InvalidInput, ScoringFailed
from snapsure.kappas import Entropy
from snapsure.networks._ways import WAYS
from snapsure.scoring import RayExecutor, _plan
from snapsure.scoring._plan import make_plan
from snapsure.scoring._ray import _Job
from tests.support import processes
from tests.support.faults import Blocking, Broken, Deadly, Killing, Watched
from tests.support.folders import read_files
from tests.support.ways import X, record, slow_network

pytestmark = pytest.mark.slow

NODE = {"num_cpus": 1, "object_store_memory": 100 * 2**20, "include_dashboard": False}


@pytest.fixture(scope="module")
def cluster():
    """Two nodes, of one core each."""
    with ExitStack() as running:
        cluster = Cluster(initialize_head=True, head_node_args=NODE)
        running.callback(cluster.shutdown)
        cluster.other = cluster.add_node(**NODE)
        running.callback(ray.shutdown)
        ray.init(cluster.address, log_to_driver=False, logging_level="error")
        yield cluster


@pytest.fixture(autouse=True)
def shards(monkeypatch):
    monkeypatch.setattr(_plan, "_SHARD", 300)  # of 256 rows, each of four batches


def kappas(digits):
    return [SoftmaxResponse(), NNDistance(digits.train, k=40), MCDropout(3)]


def scored(digits, data, out, executor=None, **options):
    loader = DataLoader(data, batch_size=64)
    options = {"progress": False, "out": out, "executor": executor, **options}
    return score(digits.model(), digits.store, loader, kappas(digits), **options)


@pytest.fixture(scope="module")
def undisturbed(digits, tmp_path_factory):
    """The files of a table that this process scored alone."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(_plan, "_SHARD", 300)
        scored(digits, Watched(digits.test, folder / "data"), folder / "out")
    return read_files(folder / "out")


def test_the_bytes_are_those_of_one_process(digits, cluster, tmp_path, undisturbed, capsys):
    data, out = Watched(digits.test, tmp_path / "data"), tmp_path / "out"
    scored(digits, data, out, RayExecutor(group=2), progress=True)
    assert read_files(out) == undisturbed
    assert "4782/4782 ·" in capsys.readouterr().err
    # Three groups went over the rows, and each worker looked at the first two.
    assert len(data.noted()) >= 3 * len(data)
    # A second start has nothing to do, and asks nobody.
    written = {path: path.stat().st_mtime_ns for path in out.rglob("*.npy")}
    before = len(data.noted())
    scored(digits, data, out, RayExecutor(group=2))
    assert len(data.noted()) == before
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.npy")} == written


def test_scores_of_something_else_are_overwritten(digits, cluster, tmp_path, undisturbed):
    data, out = Watched(digits.test, tmp_path / "data"), tmp_path / "out"
    score(digits.model(), digits.store, digits.test, Entropy(), out=out, progress=False)
    scored(digits, data, out, RayExecutor(group=2), overwrite=True)
    assert read_files(out) == undisturbed


def test_one_worker_chooses_the_way_for_all(cluster, tmp_path):
    model, out = slow_network(), tmp_path / "out"
    store, data = record(model, tmp_path / "run", (1, 2, 3)), X.repeat(20, 1, 1, 1)
    table = score(model, store, data, out=out, executor=RayExecutor(group=1), progress=False)
    assert table.provenance["way"] in WAYS[1:]
    whole = read_files(out)
    for piece in (out / "softmax").rglob("*.npy"):
        piece.unlink()
    score(model, store, data, out=out, progress=False)  # in this process, in the same way
    assert read_files(out) == whole


def test_an_ensemble_whose_store_is_being_written_to(
    digits, other_digits, cluster, tmp_path, undisturbed
):
    """A store's lock stays with the process that holds it."""
    stores = [SnapshotStore(tmp_path / "a"), other_digits.store]
    for epoch in digits.store.epochs:
        stores[0].save(digits.store.load(epoch), epoch)
    trees = []
    for name, executor in (("local", None), ("ray", RayExecutor())):
        out = tmp_path / name
        score(
            digits.model(),
            Ensemble(stores),
            digits.test,
            out=out,
            executor=executor,
            progress=False,
        )
        trees.append(read_files(out))
    assert trees[0] == trees[1]
    stores[0].save(digits.store.load(6), 7)


def test_a_worker_killed_in_a_piece(digits, cluster, tmp_path, undisturbed):
    data = Killing(digits.test, tmp_path / "data")
    scored(digits, data, tmp_path / "out", RayExecutor(group=3))
    (killed,) = data.noted("killed")
    processes.until(lambda: not Path(f"/proc/{killed}").exists())
    assert read_files(tmp_path / "out") == undisturbed


def test_a_piece_that_always_fails_is_named_and_the_others_finish(
    digits, cluster, tmp_path, undisturbed
):
    data, out = Broken(digits.test, tmp_path / "data"), tmp_path / "out"
    with pytest.raises(ScoringFailed) as caught:
        scored(digits, data, out, RayExecutor(group=3, retries=1))
    assert str(caught.value).startswith(
        "Every piece must be scored, got 1 that failed at every try: "
        "epoch 6, rows 256…511 (OSError: image 300 is truncated)"
    )
    assert isinstance(caught.value, RuntimeError)
    assert len(data.noted("tries")) == 2 + 2  # the group, then the final snapshot alone
    assert {path.name for path in (out / "labels").iterdir()} == {
        f"epoch-00000{epoch}.0000{shard}.npy" for epoch in range(1, 7) for shard in (0, 2, 3)
    }
    assert not json.loads((out / "table.json").read_text())["finished"]

    (data.folder / "fixed").touch()
    (data.folder / "reads").unlink()
    scored(digits, data, out, RayExecutor(group=3, retries=1))
    assert read_files(out) == undisturbed
    beyond_the_first_look = {i for i in data.noted() if i >= 64}
    assert beyond_the_first_look == {*range(256, 512)}
    assert len([i for i in data.noted() if i >= 64]) == 2 * 256


def test_a_damaged_snapshot_leaves_its_group_whole(digits, cluster, tmp_path):
    store = SnapshotStore(tmp_path / "run")
    for epoch in (1, 2, 3):
        store.save(digits.store.load(epoch), epoch)
    path = store.path / "epoch-000002.safetensors"
    whole = path.read_bytes()
    arguments = (digits.model(), store, digits.test, SoftmaxResponse())
    expected = score(*arguments, out=tmp_path / "whole", progress=False)
    path.write_bytes(whole[:-5])
    options = {"out": tmp_path / "out", "executor": RayExecutor(retries=0), "progress": False}
    with pytest.raises(ScoringFailed) as caught:
        score(*arguments, **options)
    cause = (
        f"CorruptFile: Snapshot of epoch 2 ({path}) must be as it was saved, got "
        f"{len(whole) - 5} bytes for {len(whole)}"
    )
    message = str(caught.value)
    rows = [f"epoch 2, rows {low}…{min(low + 255, 796)}" for low in range(0, 797, 256)]
    assert message.startswith("Every piece must be scored, got 4 that failed at every try: epoch 2")
    assert all(piece in message for piece in rows)
    assert f"({cause}" in message
    assert "epoch 1" not in message
    assert len(list((tmp_path / "out" / "labels").glob("epoch-00000[13].*"))) == 8
    path.write_bytes(whole)
    score(*arguments, **options)
    assert read_files(tmp_path / "out") == read_files(tmp_path / "whole")
    assert expected.epochs.tolist() == [1, 2, 3]


def test_a_piece_that_kills_its_workers(digits, cluster, tmp_path):
    data, out = Deadly(digits.test, tmp_path / "data"), tmp_path / "out"
    with pytest.raises(ScoringFailed) as caught:
        scored(digits, data, out, RayExecutor(retries=0))
    assert str(caught.value).startswith(
        "Every piece must be scored, got 1 that failed at every try: "
        "epoch 6, rows 512…767 (WorkerCrashedError: "
    )
    assert len(list((out / "labels").iterdir())) == 3 * 6


def test_a_node_removed_in_mid_run(digits, cluster, tmp_path, undisturbed):
    data, out = Blocking(digits.test, tmp_path / "data"), tmp_path / "out"

    def remove():
        while not data.noted("blocked"):
            time.sleep(0.01)
        cluster.remove_node(cluster.other, allow_graceful=False)

    removal = threading.Thread(target=remove, daemon=True)
    removal.start()
    scored(digits, data, out, RayExecutor(group=3))
    removal.join()
    assert data.noted("blocked")
    assert not cluster.other.any_processes_alive()
    assert read_files(out) == undisturbed
    cluster.other = cluster.add_node(**NODE)


DRIVER = """
    import sys, torch
    from torch.utils.data import DataLoader
    from snapsure import MCDropout, NNDistance, SnapshotStore, SoftmaxResponse, score
    from snapsure.scoring import RayExecutor
    from snapsure.scoring import _plan
    from tests.support.network import digits_network
    from tests.support.faults import Held
    _plan._SHARD, _plan._EVERY = 300, 0
    store, data, address, out = sys.argv[1:]
    train, test = torch.load(data)
    loader = DataLoader(Held(test, out + "-data"), batch_size=64)
    kappas = [SoftmaxResponse(), NNDistance(train, k=40), MCDropout(3)]
    score(digits_network(), store, loader, kappas, out=out, progress=False,
          executor=RayExecutor(address, group=1))
"""


def recorded_labels(out):
    if not (out / "table.json").exists():
        return []
    hashes = json.loads((out / "table.json").read_text())["hashes"]
    return [out / name for name in hashes if name.startswith("labels/")]


def test_the_driver_killed_and_started_again(digits, cluster, tmp_path, undisturbed):
    torch.save((digits.train, digits.test), tmp_path / "data.pt")
    out = tmp_path / "out"
    arguments = (digits.store.path, tmp_path / "data.pt", cluster.address, out)
    options = {"loaded": ("snapsure.scoring", "tests.support.network", "torch._dynamo")}
    with processes.forked(DRIVER, *arguments, **options) as driver:
        while len(recorded_labels(out)) < 3:  # all but the last shard can be done
            assert driver.poll() is None, driver.stderr
            time.sleep(0.005)
        driver.kill()
    assert not json.loads((out / "table.json").read_text())["finished"]
    done = {path: path.stat().st_mtime_ns for path in recorded_labels(out)}
    assert 3 <= len(done) <= 3 * 6
    (tmp_path / "out-data" / "free").touch()
    again = processes.run(DRIVER, *arguments, **options)
    assert again.returncode == 0, again.stderr
    assert read_files(out) == undisturbed
    assert {path: path.stat().st_mtime_ns for path in done} == done


def test_the_command_line(digits, cluster, tmp_path):
    code = "from tests.support.network import digits_network as network\n"
    (tmp_path / "mine.py").write_text(code)
    np.savez(tmp_path / "test.npz", x=digits.test[0].numpy(), y=digits.test[1].numpy())
    code = "from snapsure.cli import app; app()"
    options = [
        "score",
        "--model",
        "mine:network",
        "--snapshots",
        digits.store.path,
        "--data",
        "test.npz",
    ]
    trees = []
    for name, more in (
        ("local", []),
        ("ray", ["--executor", "ray", "--address", cluster.address]),
    ):
        loaded = ("snapsure.cli", "snapsure.scoring", "tests.support.network", "torch._dynamo")
        arguments = (*options, "--out", name, "--json", *more)
        run = processes.run(code, *arguments, cwd=tmp_path, loaded=loaded)
        assert run.returncode == 0, run.stderr
        told = {"table": name, "names": ["softmax"], "shape": [6, 797]}
        assert json.loads(run.stdout) == told
        trees.append(read_files(tmp_path / name))
    assert trees[0] == trees[1]


SCRIPT = """
    import torch
    from tests.support.network import digits_network
    model, (train_data, test_data) = digits_network(), torch.load("data.pt")
"""


def family(mark):
    """Processes that inherited a mark in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            found += [path.parent.name] if mark in path.read_text(errors="replace") else []
        except OSError:  # it has ended meanwhile
            continue
    return found


def listening(pid):
    """The addresses at which a process waits for others."""
    try:
        found = psutil.Process(int(pid)).net_connections("inet")
    except psutil.Error:  # it has ended meanwhile
        return []
    return [connection.laddr.ip for connection in found if connection.status == "LISTEN"]


def test_the_page_on_scale_and_a_ray_of_its_own(digits, tmp_path):
    """As it stands there, with warnings as errors; the Ray that it starts ends with it.

    Until then no other machine can reach it.
    """
    page = Path(__file__).parents[2] / "docs" / "how-to" / "scale.md"
    block = re.search(r'```python title="Not run[^"]*"\n(.*?)```', page.read_text(), re.S).group(1)
    torch.save((digits.train, digits.test), tmp_path / "data.pt")
    (tmp_path / "snapshots").symlink_to(digits.store.path)
    mark = f"SNAPSURE_TEST={tmp_path}"
    code = textwrap.dedent(SCRIPT) + block + "print(table)"
    sources = os.pathsep.join(str(page.parents[2] / name) for name in ("src", "."))
    options = {
        "cwd": tmp_path,
        "env": {**os.environ, "PYTHONPATH": sources, "SNAPSURE_TEST": str(tmp_path)},
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
    }
    addresses = set()
    with processes.started([sys.executable, "-W", "error", "-c", code], **options) as run:
        while run.poll() is None:
            addresses |= {ip for pid in family(mark) for ip in listening(pid)}
            time.sleep(0.2)
        stdout, stderr = run.communicate()
    assert run.returncode == 0, stderr
    assert stdout == "<ScoreTable: softmax, nn_distance; 6 snapshots × 797 examples>\n"
    assert [line for line in stderr.splitlines() if "scoring" not in line] == []
    assert addresses
    assert addresses <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}
    processes.until(lambda: not family(mark))


def test_without_ray_a_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ModuleNotFoundError) as caught:
        RayExecutor()
    assert "RayExecutor needs Ray" in str(caught.value)
    assert "pip install 'snapsure[ray]'" in str(caught.value)


def test_a_folder_that_a_worker_does_not_see(digits, tmp_path):
    (tmp_path / "o").mkdir()
    plan = make_plan(digits.model(), digits.store, digits.test, SoftmaxResponse(), tmp_path / "o")
    shutil.rmtree(tmp_path / "o")
    with pytest.raises(InvalidInput) as caught:
        _Job(plan, digits.model(), Path.cwd(), 1).worker()
    assert str(caught.value).startswith(
        f"`out` must be a folder that every worker sees, got {tmp_path / 'o'}, which "
        f"{platform.node()} does not"
    )


def test_what_cannot_be_sent(digits, cluster, tmp_path):
    data = Watched(digits.test, tmp_path / "data")
    data.busy = threading.Lock()
    with pytest.raises(InvalidInput) as caught:
        scored(digits, data, tmp_path / "out", RayExecutor())
    assert str(caught.value).startswith(
        "`model`, `data` and `kappas` must be such that pickle can send them to workers, got an "
        "error (cannot pickle '_thread.lock' object)"
    )


def test_another_address_than_that_of_this_process(digits, cluster, tmp_path):
    own = ray.get_runtime_context().gcs_address
    executor = RayExecutor("elsewhere:1234")
    with pytest.raises(InvalidInput) as caught:
        score(digits.model(), digits.store, digits.test, SoftmaxResponse(), executor=executor)
    assert str(caught.value).startswith(
        f"`address` must be that of the Ray that this process is connected to, {own}, got "
        "'elsewhere:1234'"
    )


def test_a_loader_whose_workers_are_running_can_be_sent(digits, cluster, tmp_path):
    data = TensorDataset(digits.test[0][:100], digits.test[1][:100])
    loader = DataLoader(
        data, batch_size=64, num_workers=1, persistent_workers=True, multiprocessing_context="spawn"
    )
    next(iter(loader))
    executor = RayExecutor(group=6)
    table = score(
        digits.model(),
        digits.store,
        loader,
        SoftmaxResponse(),
        executor=executor,
        progress=False,
    )
    assert table.labels.shape == (6, len(data))


def test_what_is_no_executor(digits):
    with pytest.raises(InvalidInput) as caught:
        score(digits.model(), digits.store, digits.test, SoftmaxResponse(), executor="ray")
    assert str(caught.value).startswith("`executor` must be an Executor, got 'ray'")
