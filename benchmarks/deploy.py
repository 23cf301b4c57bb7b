"""Answers to new inputs, against the bare passes that they are made of."""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import onnxruntime  # type: ignore[import-untyped]
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from benchmarks.harness import Case, process_peak
from snapsure import AES, Predictor, SnapshotStore

PASSES = (1, 3, 13, 30)
BATCH = 256


def network() -> nn.Sequential:
    """Convolutions over 32 × 32 pixels, 100 classes: 0.7 million weights."""
    layers: list[nn.Module] = []
    for before, after, stride in ((3, 32, 1), (32, 64, 2), (64, 128, 2), (128, 256, 2)):
        layers += [nn.Conv2d(before, after, 3, stride, 1), nn.BatchNorm2d(after), nn.ReLU()]
    layers += [nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(1024, 256), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(256, 100))


def layer() -> nn.Linear:
    """Next to nothing: what is left of an answer's time is the predictor's own."""
    return nn.Linear(10, 100)


class Deployed:
    """A predictor of k passes, and the same networks bare."""

    def __init__(self, folder: Path, k: int, make: Callable[[], nn.Module] = network) -> None:
        torch.manual_seed(0)
        store = SnapshotStore(folder / f"{make.__name__}-{k}")
        for epoch in range(1, k + 1):
            store.save(make(), epoch)
        self.path = folder / f"predictor-{make.__name__}-{k}"
        factory = f"benchmarks.deploy:{make.__name__}"
        Predictor(factory, store, AES(k, start=0)).save(self.path)
        self.answer = Predictor.load(self.path, factory)
        self.networks = list(self.answer.networks.modules())

    @torch.inference_mode()
    def bare(self, x: Tensor) -> None:
        """One pass of each network."""
        for module in self.networks:
            module(x)

    def states(self) -> None:
        """The weights of each file, loaded into a network."""
        for path in sorted(self.path.rglob("*.safetensors")):
            network().load_state_dict(load_file(path))


def cases() -> Iterator[Case]:
    """Every row of the table."""
    torch.manual_seed(0)
    many, one = torch.rand(BATCH, 3, 32, 32), torch.rand(1, 3, 32, 32)
    with tempfile.TemporaryDirectory() as name:
        for k in PASSES:
            deployed = Deployed(Path(name), k)
            answer, bare = deployed.answer, deployed.bare
            yield Case(
                f"Predictor, batch of {BATCH}, {k} snapshots",
                "bare passes",
                partial(answer, many),
                partial(bare, many),
                at_most=0.7,
            )
            yield Case(
                f"Predictor, one input, {k} snapshots",
                "bare passes",
                partial(answer, one),
                partial(bare, one),
                at_most_more=0.3e-3,
                rounds=601,
            )
            light, numbers = Deployed(Path(name), k, layer), torch.rand(1, 10)
            yield Case(
                f"Predictor, one input, {k} snapshots of one linear layer",
                "bare passes",
                partial(light.answer, numbers),
                partial(light.bare, numbers),
                at_most_more=0.3e-3,
                rounds=601,
            )
            if k == 3:
                path = Path(name) / "model.onnx"
                answer.export(path, many)
                session = onnxruntime.InferenceSession(path)
                for x, words in ((many, f"batch of {BATCH}"), (one, "one input")):
                    given = {"input": x.numpy()}
                    yield Case(
                        f"ONNX Runtime, {words}, {k} snapshots",
                        "Predictor",
                        partial(session.run, None, given),
                        partial(answer, x),
                        rounds=21,
                    )
            if k == 13:
                yield Case(
                    f"Predictor.load, {k} snapshots",
                    "safetensors into networks",
                    partial(Predictor.load, deployed.path, trust=True),
                    deployed.states,
                )


def memory() -> dict[str, float]:
    """Peak megabytes of a process that loads and answers, above what it holds before."""
    peaks = {}
    with tempfile.TemporaryDirectory() as name:
        for k in (1, 30):
            path = Deployed(Path(name), k).path
            weights = sum(file.stat().st_size for file in path.rglob("*.safetensors")) / 2**20
            command = [sys.executable, "-m", "benchmarks.deploy", str(path)]
            printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            peaks[f"Predictor, {k} snapshots ({weights:.0f} MB), batch of {BATCH}"] = float(printed)
    return peaks


if __name__ == "__main__":
    network()(torch.rand(BATCH, 3, 32, 32))  # what PyTorch keeps for a batch, whoever asks
    before = process_peak()
    Predictor.load(sys.argv[1], trust=True)(torch.rand(BATCH, 3, 32, 32))
    print(process_peak() - before)
