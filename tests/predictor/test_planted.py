"""Nothing in a data folder runs code without --trust: modules are planted beside every file."""

import numpy as np
import pytest
import torch
from torch import nn

from snapsure import AES, Predictor, SnapshotStore
from tests.support.commands import run

pytestmark = pytest.mark.slow

# Every name that a command could import from a file, or by accident from the folder it works on.
NAMES = ("planted", "mine", "numpy", "torch", "snapsure", "sitecustomize", "predictor", "manifest")
NETWORK = "from torch import nn\n\ndef make():\n    return nn.Linear(4, 3)\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A table, a predictor and snapshots in folders full of modules that leave a trace if run."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "nets.py").write_text(NETWORK)
    data = folder / "data"
    store = SnapshotStore(data / "run")
    for epoch in range(1, 5):
        store.save(nn.Linear(4, 3), epoch)
    rng = np.random.default_rng(0)
    np.savez(data / "test.npz", x=rng.normal(size=(400, 4)).astype("f4"), y=rng.integers(0, 3, 400))
    (data / "planted_nets.py").write_text(f"import nets\nfrom nets import make\n{trace(folder)}")
    spec = str(data / "planted_nets.py") + ":make"
    score = ("score", "--snapshots", "data/run", "--data", "data/test.npz", "--out", "data/scores")
    run(*score, "--model", spec, cwd=folder)
    predictor = Predictor(nn.Linear(4, 3), store, AES())
    predictor.factory = spec
    predictor.save(data / "predictor")
    for place in (data, data / "scores", data / "run", data / "predictor"):
        for name in NAMES:
            (place / f"{name}.py").write_text(trace(folder))
    (folder / "ran.txt").unlink()  # by making these files
    return folder


def trace(folder):
    return f"open({str(folder / 'ran.txt')!r}, 'a').write(__file__ + chr(10))\n"


MODEL = ("--model", "nets:make")
COMMANDS = [
    (("fit", "data/scores", *MODEL, "--out", "fitted"), 0),
    (("fit", "data/scores", "--out", "fitted"), 2),
    (("predict", "data/predictor", *MODEL, "--data", "data/test.npz", "--out", "a.csv"), 0),
    (("predict", "data/predictor", "--data", "data/test.npz", "--out", "a.csv"), 2),
    (("evaluate", "data/scores"), 0),
    (("compare", "data/scores"), 0),
    (("report", "data/scores", "--out", "page.html"), 0),
    (("rebuild", "data/run"), 2),
    (
        ("score", *MODEL, "--snapshots", "data/run", "--data", "data/test.npz", "--out", "again"),
        0,
    ),
]


@pytest.mark.parametrize(("command", "status"), COMMANDS, ids=lambda part: str(part)[:60])
def test_no_planted_module_runs(place, command, status):
    run(*command, cwd=place, status=status)
    assert not (place / "ran.txt").exists()


def test_nothing_runs_in_python(place):
    store = SnapshotStore(place / "data" / "run")
    assert store.load(1)
    predictor = Predictor.load(place / "data" / "predictor", nn.Linear(4, 3))
    assert predictor(torch.rand(2, 4)).label.shape == (2,)
    assert not (place / "ran.txt").exists()


def test_with_trust_it_runs(place):
    """So that the trace above would be seen."""
    run("fit", "data/scores", "--trust", "--out", "trusting", cwd=place)
    assert "planted_nets" in (place / "ran.txt").read_text()
    (place / "ran.txt").unlink()
