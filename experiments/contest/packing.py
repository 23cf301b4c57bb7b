"""Trainings that are finished are kept, and added to what is packed of a study."""

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.contest.runs import Training, make_lean_run
from snapsure.evaluation._archive import ABOUT, pack, place

DONE = "training.json"  # written last: what has none is trained again

About = dict[str, list[dict[str, Any]]]

# Options that the studies' commands share.
Seeds = Annotated[list[int] | None, typer.Option(help="Some of the seeds; all if not given.")]
Packed = Annotated[
    Path | None, typer.Option(help="Pack what is finished into this folder; train nothing.")
]
Threads = Annotated[int, typer.Option(help="Of PyTorch; results depend on it a little.")]


def told(folder: Path) -> dict[str, Any]:
    """What a finished training says of itself."""
    found: dict[str, Any] = json.loads((folder / DONE).read_text())
    return found


def unless_done(folder: Path, work: Callable[[], None]) -> None:
    """Do the work of a training that is not finished, and tell what it came to."""
    begin = time.monotonic()
    if not (folder / DONE).exists():
        work()
    found = told(folder)
    sys.stderr.write(
        f"{folder}: {found['training_accuracy']:.1%} right in training, "
        f"{found['test_error']:.1%} wrong in test, {time.monotonic() - begin:.0f} s\n"
    )


def add_finished(
    packed: Path,
    folders: Mapping[str, Sequence[Path]],
    training: Callable[[str, Path], Training],
    *,
    board: str = "{}",
    points: int | None = None,
    keep_logits: bool = True,
) -> About:
    """Seeds after those that are packed, up to the first that is not finished; what all say.

    Of each, every rival's scores on the first so many test points; `board` names the runs' folder.
    """
    path = packed / ABOUT
    about: About = json.loads(path.read_text())["trainings"] if path.exists() else {}
    for name, seeds in folders.items():
        known = about.pop(name, [])
        for seed, folder in enumerate(seeds):
            if seed < len(known):
                continue
            if not (folder / DONE).exists():
                break
            run = make_lean_run(training(name, folder), points=points, keep_logits=keep_logits)
            pack(run, place(packed, board.format(name), seed))
            known.append(told(folder))
        if known:
            about[name] = known
    return about
