"""What snapshots of half the size cost: E-AURC of float32 weights, and of the same in bfloat16.

    python -m experiments.passes.precision runs cifar10 cifar100 --results results/precision.json

It scores the plain trainings that `experiments.passes` or `experiments.passes.labels` made.
"""

import json
import tempfile
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from experiments.contest.packing import Packages, Seeds, Threads
from experiments.passes.__main__ import NAMES, make_task
from experiments.passes.tasks import Task
from experiments.passes.trainings import PLAIN, locate_training
from snapsure import AES, SnapshotStore, _files, eaurc, score


def main(
    out: Annotated[Path, typer.Argument(help="Folder of trainings.")],
    names: Annotated[list[str], typer.Argument(help=f"Some of {', '.join(NAMES)}.")],
    results: Annotated[Path, typer.Option(help="Write the figures here.")],
    packages: Packages = Path("node_modules"),
    cifar: Annotated[Path | None, typer.Option(help="CIFAR-100, as for `snapsure train`.")] = None,
    seed: Seeds = None,
    threads: Threads = 1,
) -> None:
    """Score the trainings as they are and in bfloat16."""
    torch.set_num_threads(threads)
    figures = {
        name: [judge(task, out / name / f"seed-{one}") for one in seed or [0]]
        for name, task in ((name, make_task(name, packages, cifar)) for name in names)
    }
    _files.write_bytes(results, json.dumps({"tasks": figures}, indent=1).encode() + b"\n")


def judge(task: Task, folder: Path) -> dict[str, Any]:
    """Return E-AURC of the final softmax and of AES by both, and how many answers differ."""
    full = SnapshotStore(locate_training(folder, PLAIN.name) / "snapshots")
    with tempfile.TemporaryDirectory() as name:
        half = SnapshotStore(name)
        for epoch in full.epochs:
            half.save(full.load(epoch), epoch, dtype="bfloat16")
        tables = {
            dtype: score(task.network(), store, task.test, progress=False)
            for dtype, store in (("float32", full), ("bfloat16", half))
        }
        sizes = {"float32": _count_bytes(full.path), "bfloat16": _count_bytes(half.path)}
    figures: dict[str, Any] = {
        dtype: {
            "bytes": sizes[dtype],
            "error": float(table.errors.mean()),
            "final": float(eaurc(table.kappa("softmax")[-1], table.errors)),
            "AES": float(eaurc(AES().confidence(table), table.errors)),
        }
        for dtype, table in tables.items()
    }
    first, second = tables.values()
    figures["other_answers"] = float((first.y_hat != second.y_hat).mean())
    return figures


def _count_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


if __name__ == "__main__":
    typer.run(main)
