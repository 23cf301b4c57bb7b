"""Train what is not trained yet, record it, and add what is finished to a packed study."""

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from torch import Tensor, nn

from experiments.contest.runs import Training, make_lean_run, predict
from snapsure import _files
from snapsure.evaluation._archive import ABOUT, locate_run, pack, write_manifest
from snapsure.scoring._recorded import RecordedLogits
from snapsure.snapshots import Recorder, SnapshotStore

DONE = "training.json"  # written last; a training without it is repeated

About = dict[str, list[dict[str, Any]]]

# Options that the studies' commands share.
Seeds = Annotated[list[int] | None, typer.Option(help="Some of the seeds; by default all.")]
Packed = Annotated[
    Path | None, typer.Option(help="Pack what is finished into this folder; train nothing.")
]
Packages = Annotated[Path, typer.Option(help="Folder of npm's packages.")]
Threads = Annotated[int, typer.Option(help="Threads of PyTorch; results depend on it a little.")]


def show(line: str) -> None:
    """Print a line of progress."""
    sys.stderr.write(f"{line}\n")


def train_once(folder: Path, train: Callable[[], None]) -> None:
    """Train unless the folder has a finished training, and show its accuracy and error."""
    begin = time.monotonic()
    if not (folder / DONE).exists():
        train()
    about = read_training(folder)
    show(
        f"{folder}: {about['training_accuracy']:.1%} right in training, "
        f"{about['test_error']:.1%} wrong in test, {time.monotonic() - begin:.0f} s"
    )


def make_recorder(folder: Path, test: tuple[Tensor, Tensor]) -> Callable[[nn.Module, int], None]:
    """Return a function that records a network's snapshot and its logits of the test examples."""
    recorder = Recorder(SnapshotStore(folder / "snapshots"))
    recorder.store.rewind(0)
    logits = RecordedLogits(folder / "validation")
    x, y = test

    def record(network: nn.Module, epoch: int) -> None:
        recorder.record(network, epoch)
        logits.write(epoch, predict(network, x).numpy(), y.numpy())

    return record


def write_training(folder: Path, about: Mapping[str, Any]) -> None:
    """Mark a training as finished, with what there is to know of it."""
    _files.write_bytes(folder / DONE, json.dumps(about, indent=1).encode())


def read_training(folder: Path) -> dict[str, Any]:
    """Read what a finished training wrote."""
    about: dict[str, Any] = json.loads((folder / DONE).read_text())
    return about


def read_packed(packed: Path) -> About:
    """Read what is known of the packed trainings, by task, in the order of their runs."""
    path = packed / ABOUT
    about: About = json.loads(path.read_text())["trainings"] if path.exists() else {}
    return about


def pack_finished(
    packed: Path,
    folders: Mapping[str, Sequence[Path]],
    open_training: Callable[[str, Path], Training],
    *,
    read: Callable[[Path], dict[str, Any]] = read_training,
    suffix: str = "",
    points: int | None = None,
    keep_logits: bool = True,
) -> None:
    """Pack the seeds of each task up to the first that is not finished; keep what is packed.

    Parameters
    ----------
    packed : path
        The folder of the study.
    folders : mapping of str to paths
        The folders of each task's trainings, by seed.
    open_training : callable
        Takes a task's name and a folder, returns the `Training`.
    read : callable
        Takes a folder, returns what is known of the training; FileNotFoundError if not finished.
    suffix : str
        If given, runs have examples of no class: the board NAME + suffix has all examples, and the
        board NAME those of a class.
    points : int, optional
        How many test examples to pack, the first ones; by default all.
    keep_logits : bool
        Whether to pack the final logits.
    """
    about = read_packed(packed)
    for name, seeds in folders.items():
        known = about.pop(name, [])
        for seed, folder in enumerate(seeds):
            if seed < len(known):
                continue
            try:
                found = read(folder)
            except FileNotFoundError:
                break
            run = make_lean_run(open_training(name, folder), points=points, keep_logits=keep_logits)
            pack(run, locate_run(packed, name + suffix, seed))
            known.append(found)
            show(f"{folder}: packed")
        if known:
            about[name] = known
    boards = {name + end: len(some) for name, some in about.items() for end in {"": 0, suffix: 0}}
    known_classes = {"known": {name: name + suffix for name in about}} if suffix else {}
    write_manifest(boards, {**known_classes, "trainings": about}, packed)
