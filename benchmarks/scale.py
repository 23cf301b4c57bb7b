"""Time of scoring against snapshots, examples and workers: `python -m benchmarks.scale`.

Prints the tables of scale.md. Needs both cores for some minutes, and nothing beside it.
"""

import logging
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import ray
import torch
from torch import nn
from torch.utils.data import DataLoader, Subset

from benchmarks.groups import BATCH, SIDE, Jpegs, network, photographs
from snapsure import NNDistance, SnapshotStore, SoftmaxResponse, score
from snapsure.scoring import LocalExecutor, RayExecutor
from snapsure.scoring._executor import Executor

ROUNDS = 3
SNAPSHOTS = (1, 4, 8, 16)
POINTS = (100, 200, 400, 800)
FILES = 400
MADE = 200  # examples, where snapshots or workers are counted


def heavier() -> nn.Sequential:
    """Where the network is what costs, and not the decoding."""
    layers: list[nn.Module] = []
    for before, after in ((3, 16), (16, 32), (32, 48), (48, 64)):
        layers += [nn.Conv2d(before, after, 3, 2, 1), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def seconds(work: Callable[[], object]) -> float:
    """Median of a few runs."""
    taken = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begin)
    return median(taken)


def scored(
    make: Callable[[], nn.Module], store: Path, files: Path, examples: int, executor: Executor
) -> object:
    """All snapshots of a store on so many JPEG files, the folder's ones over and over."""
    rows = [i % FILES for i in range(examples)]
    data = DataLoader(Subset(Jpegs(files), rows), batch_size=BATCH)
    return score(make(), store, data, SoftmaxResponse(), executor=executor, progress=False)


def recorded(make: Callable[[], nn.Module], folder: Path, snapshots: int) -> Path:
    """A store of so many snapshots."""
    store = SnapshotStore(folder / f"{make.__name__}-{snapshots}")
    for epoch in range(1, snapshots + 1):
        store.save(make(), epoch)
    return store.path


def table(heads: list[str], rows: list[list[str]]) -> None:
    """A Markdown table."""
    for line in (heads, ["--:"] * len(heads), *rows):
        print(f"| {' | '.join(line)} |")
    print(flush=True)


def main() -> None:
    """Everything, on one thread per process."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        photographs(folder / "images")
        images = folder / "images"
        by_snapshots(folder, images)
        by_examples(folder, images)
        by_workers(folder, images)
        neighbours()
        decoding(images)


def by_snapshots(folder: Path, images: Path) -> None:
    """Fixed examples."""
    rows = []
    for count in SNAPSHOTS:
        line = [str(count)]
        for make in (network, heavier):
            store = recorded(make, folder, count)
            for executor in (LocalExecutor(), LocalExecutor(group=1)):
                taken = seconds(lambda: scored(make, store, images, MADE, executor))  # noqa: B023
                line.append(f"{taken:.2f} ({1e3 * taken / count / MADE:.2f})")
        rows.append(line)
    print(f"Seconds (and ms per snapshot and example), {MADE} JPEG files of {SIDE} px, one core:\n")
    heads = ["snapshots", "light, groups", "light, one by one", "heavier, groups"]
    table([*heads, "heavier, one by one"], rows)


def by_examples(folder: Path, images: Path) -> None:
    """Fixed snapshots."""
    store = recorded(network, folder, 8)
    rows = []
    for count in POINTS:
        taken = seconds(lambda: scored(network, store, images, count, LocalExecutor()))  # noqa: B023
        rows.append([f"{count:,}", f"{taken:.2f}", f"{1e3 * taken / count / 8:.2f}"])
    print("8 snapshots of the light network, one core:\n")
    table(["examples", "seconds", "ms per snapshot and example"], rows)


def by_workers(folder: Path, images: Path) -> None:
    """Ray's workers against this process; the cluster is up before the clock starts."""
    rows = []
    for make in (network, heavier):
        store = recorded(make, folder, 16)
        alone = seconds(lambda: scored(make, store, images, MADE, LocalExecutor(group=4)))  # noqa: B023
        rows.append([make.__name__, "this process", f"{alone:.1f}", "1.00"])
        for workers in (1, 2):
            ray.init(num_cpus=workers, include_dashboard=False, logging_level=logging.ERROR)
            try:
                taken = seconds(
                    lambda: scored(make, store, images, MADE, RayExecutor(group=4))  # noqa: B023
                )
            finally:
                ray.shutdown()
            words = f"Ray, {workers} worker{'s' if workers > 1 else ''}"
            rows.append([make.__name__, words, f"{taken:.1f}", f"{alone / taken:.2f}"])
    print(f"16 snapshots, {MADE} files, groups of 4 (one shard, four pieces):\n")
    table(["network", "who", "seconds", "speed-up"], rows)


def neighbours() -> None:
    """NN-distance against the size of its reference; the network is one linear layer."""
    rows = []
    torch.manual_seed(0)
    queries = torch.randn(2000, 512)
    model = nn.Linear(512, 10)
    for count in (12_500, 25_000, 50_000, 100_000):
        reference = (torch.randn(count, 512), torch.randint(0, 10, (count,)))
        with tempfile.TemporaryDirectory() as name:
            SnapshotStore(name).save(model, 1)
            kappa = NNDistance(reference)
            taken = seconds(lambda: score(model, name, queries, kappa, progress=False))  # noqa: B023
        rows.append([f"{count:,}", f"{taken:.2f}", f"{1e9 * taken / count / 2000:.1f}"])
    print("NN-distance, 512 numbers per embedding, 2,000 queries, k = 500, one core:\n")
    table(["reference", "seconds", "ns per pair"], rows)


def decoding(images: Path) -> None:
    """What a core decodes."""
    data = Jpegs(images)
    taken = seconds(lambda: [data[i] for i in range(FILES)])
    print(f"Decoding alone: {FILES / taken:.0f} files of {SIDE} px a second on one core.")


if __name__ == "__main__":
    main()
