"""Groups of snapshots per pass over the data, against snapshot by snapshot."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from benchmarks.harness import Case, process_peak
from snapsure import SnapshotStore, SoftmaxResponse, score
from snapsure.scoring import LocalExecutor

SNAPSHOTS, FILES, SIDE, BATCH = 16, 400, 224, 25


class Jpegs(Dataset[tuple[Tensor, int]]):
    """Files that are decoded whenever they are asked for, as an image folder's are."""

    def __init__(self, folder: Path) -> None:
        self._files = sorted(folder.glob("*.jpg"))

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        with Image.open(self._files[i]) as image:
            pixels = np.asarray(image.convert("RGB"), dtype=np.float32)
        return torch.from_numpy(pixels).permute(2, 0, 1) / 255, 0


def photographs(folder: Path) -> None:
    """Noise of several sizes, the coarse the stronger, which is how photographs look to a coder."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    for i in range(FILES):
        pixels = np.zeros((SIDE, SIDE, 3))
        for side, strength in ((4, 60.0), (14, 30.0), (56, 15.0), (SIDE, 12.0)):
            grain = Image.fromarray(rng.integers(0, 256, (side, side, 3), dtype=np.uint8))
            large = grain.resize((SIDE, SIDE), Image.Resampling.BICUBIC)
            pixels += strength * (np.asarray(large) / 127.5 - 1)
        image = Image.fromarray((128 + pixels).clip(0, 255).astype(np.uint8))
        image.save(folder / f"{i:04d}.jpg", quality=90)


def network() -> nn.Sequential:
    """Strided convolutions: light, so that decoding is most of the work."""
    layers: list[nn.Module] = []
    for before, after, stride in ((3, 16, 8), (16, 32, 2), (32, 64, 2)):
        layers += [nn.Conv2d(before, after, stride, stride), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def work(folder: Path, group: int | None) -> None:
    """Score all snapshots of a folder on the images beside them."""
    data = DataLoader(Jpegs(folder / "images"), batch_size=BATCH)
    executor = LocalExecutor(group)
    score(
        network(),
        folder / "snapshots",
        data,
        SoftmaxResponse(),
        executor=executor,
        progress=False,
    )


def cases() -> Iterator[Case]:
    """Every row of the table."""
    with tempfile.TemporaryDirectory() as name:
        folder = _made(Path(name))
        yield Case(
            f"score, {SNAPSHOTS} snapshots × {FILES} JPEG files of {SIDE} px, in groups",
            "snapshot by snapshot",
            partial(work, folder, None),
            partial(work, folder, 1),
            at_least=3,
            rounds=3,
        )


def memory() -> dict[str, float]:
    """Peak megabytes of processes of their own, above what they hold before."""
    peaks = {}
    with tempfile.TemporaryDirectory() as name:
        folder = _made(Path(name))
        for group, words in ((1, "snapshot by snapshot"), (8, "in groups of 8")):
            command = [sys.executable, "-m", "benchmarks.groups", str(folder), str(group)]
            printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            peaks[f"score of JPEG files, {words}"] = float(printed)
    return peaks


def _made(folder: Path) -> Path:
    torch.manual_seed(0)
    photographs(folder / "images")
    store = SnapshotStore(folder / "snapshots")
    for epoch in range(1, SNAPSHOTS + 1):
        store.save(network(), epoch)
    return folder


if __name__ == "__main__":
    before = process_peak()
    work(Path(sys.argv[1]), int(sys.argv[2]))
    print(process_peak() - before)
