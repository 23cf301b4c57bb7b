"""Do snapshots still help on images unlike those trained on? CIFAR's test images, corrupted.

    snapsure reproduce all --dataset cifar100 --scale cpu-full --data cifar100 --out runs
    python -m experiments.shift runs cifar100 results/shift.json
    make results  # the table in docs/

Takes the networks that `snapsure reproduce` left in a folder. The first 2,000 test images are
corrupted by noise, blur, contrast and JPEG at severities 1, 3 and 5 of CIFAR-100-C (Hendrycks &
Dietterich 2019), and scored by the snapshots. Methods that learn do so from the other test images,
uncorrupted. Scores are kept beside the snapshots, and the same command resumes.
"""

import io
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from PIL import Image
from torch import Tensor, nn

from experiments.corruptions import CORRUPTIONS, SEVERITIES
from snapsure import _files
from snapsure.evaluation import compare
from snapsure.evaluation._protocol import Parts as Divided
from snapsure.evaluation._protocol import Protocol
from snapsure.paper.run import Study
from snapsure.paper.train import Parts, build, is_finished, open_logits
from snapsure.scoring import score
from snapsure.scoring._recorded import score_recorded
from snapsure.snapshots import SnapshotStore
from snapsure.table import ScoreTable

POINTS = 2000
QUALITY = (80, 58, 40)  # of JPEG
CLEAN = "none"
KINDS = ("final", "AES", "LES", "LES (3 passes)")
METRICS = ("eaurc", "aurc")


@dataclass(frozen=True)
class Apart(Protocol):
    """Learn from all examples but the last `judged`, which are judged."""

    judged: int

    def parts(self, n: int) -> Divided:
        """Return one division."""
        return [(np.arange(n - self.judged), np.arange(n - self.judged, n))]


def jpeg(pixels: Tensor, severity: int) -> Tensor:
    """Compress and read again."""
    quality = QUALITY[SEVERITIES.index(severity)]
    images = []
    for each in pixels.round().clamp(0, 255).to(torch.uint8).numpy():
        file = io.BytesIO()
        Image.fromarray(each).save(file, "JPEG", quality=quality)
        images.append(np.asarray(Image.open(file)))
    return torch.from_numpy(np.stack(images)).float()


SHIFTS: dict[str, Callable[[Tensor, int], Tensor]] = {**CORRUPTIONS, "jpeg": jpeg}


def shift_images(pixels: Tensor) -> Iterator[tuple[str, int, Tensor]]:
    """Yield images (n, side, side, 3) of uint8: unchanged, and under every shift."""
    yield CLEAN, 0, pixels
    for name, corrupt in SHIFTS.items():
        for severity in SEVERITIES:
            changed = corrupt(pixels.float(), severity)
            yield name, severity, changed.round().clamp(0, 255).to(torch.uint8)


def join_tables(clean: ScoreTable, judged: ScoreTable) -> ScoreTable:
    """Put the examples to judge after the examples to learn from."""
    assert clean.y is not None
    assert judged.y is not None
    return ScoreTable(
        {"softmax": np.hstack([clean.kappa("softmax"), judged.kappa("softmax")])},
        np.hstack([clean.labels, judged.labels]),
        np.concatenate([clean.y, judged.y]),
        y_hat=np.concatenate([clean.y_hat, judged.y_hat]),
        epochs=clean.epochs,
    )


def score_shifts(
    network: nn.Module, folder: Path, parts: Parts, points: int, every: int
) -> Iterator[ScoreTable]:
    """Yield one network's table of every shift: clean examples to learn from, then shifted ones."""
    store = SnapshotStore(folder / "snapshots")
    some = store.select(store.epochs[::-every][::-1])
    whole = score_recorded(open_logits(folder).select(some.epochs))
    clean = whole.rows(np.arange(points, whole.y_hat.size))
    labels = parts.test.labels[:points]
    for name, severity, pixels in shift_images(parts.test.pixels[:points]):
        out = folder / f"shift-{points}-{every}" / f"{name}-{severity}"
        yield join_tables(clean, score(network, some, (pixels, labels), out=out, progress=False))
        sys.stderr.write(f"{out}: scored\n")


def judge_shift(tables: Sequence[ScoreTable], points: int) -> dict[str, Any]:
    """Compare the methods under one shift, network by network, with intervals over examples.

    Networks are few: the results show each of them, and their spread widens no interval.
    """
    ways: dict[str, dict[str, Any]] = {}
    wrong = []
    for table in tables:
        for metric in METRICS:
            found = compare(table, methods=KINDS, metric=metric, protocol=Apart(points))
            (board,) = found.boards.values()
            for row in board.rows:
                way = ways.setdefault(row.method, {"passes": row.passes})
                way.setdefault(metric, []).append(round(getattr(row, metric), 7))
                if row.outcome != "reference":
                    saved = [round(end, 3) for end in row.saved]
                    way.setdefault(f"{metric}_saved", []).append(saved)
        wrong.append(round(board.rows[0].error, 6))
    return {"wrong": wrong, "ways": ways}


def run(study: Study, points: int, every: int) -> dict[str, Any]:
    """Judge every network of a study whose training is finished."""
    parts = study.load(lambda line: None)
    folders = [
        folder for folder in sorted(study.out.glob("seed-*")) if is_finished(study.recipe, folder)
    ]
    network = build(study.recipe, parts)
    each = [list(score_shifts(network, folder, parts, points, every)) for folder in folders]
    names = [(CLEAN, 0), *((name, severity) for name in SHIFTS for severity in SEVERITIES)]
    rows = [
        {"shift": name, "severity": severity, **judge_shift(tables, points)}
        for (name, severity), tables in zip(names, zip(*each, strict=True), strict=True)
    ]
    return {
        "dataset": study.dataset,
        "scale": study.scale,
        "networks": [folder.name for folder in folders],
        "points": points,
        "learnt_from": len(parts.test) - points,
        "snapshots": each[0][0].epochs.size,
        "rows": rows,
    }


def main(
    out: Annotated[Path, typer.Argument(help="Folder of `snapsure reproduce`.")],
    data: Annotated[Path, typer.Argument(help="The data set, as for `snapsure reproduce`.")],
    result: Annotated[Path, typer.Argument(help="JSON to write, or to add this data set to.")],
    points: Annotated[int, typer.Option(help="Test images that are corrupted.")] = POINTS,
    every: Annotated[int, typer.Option(help="Use every so many-th snapshot.")] = 3,
    threads: Annotated[int, typer.Option(help="Threads of PyTorch.")] = 1,
) -> None:
    """Corrupt, score, compare."""
    torch.set_num_threads(threads)
    about = json.loads((out / "study.json").read_text())
    study = Study(about["dataset"], about["scale"], out, data)
    known = json.loads(result.read_text()) if result.exists() else {}
    known[study.dataset] = run(study, points, every)
    _files.write_bytes(result, json.dumps(known, indent=1).encode() + b"\n")


if __name__ == "__main__":
    typer.run(main)
