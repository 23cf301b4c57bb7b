"""The paper's own regime on the contest's boards: networks of all images of CIFAR.

    snapsure reproduce all --dataset cifar100 --scale cpu-full --data cifar100 --out runs/cifar100
    python -m experiments.contest.regime runs/cifar100 results/regime --data cifar100
    snapsure compare --from results/regime

Trains nothing. Packs every rival's scores on the first 5,000 test images, of the networks whose
training is finished, from seed 0 on. What is packed already is kept.
"""

from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from experiments.contest.packing import Threads, pack_finished, show
from experiments.contest.runs import Training
from snapsure.paper.run import Study
from snapsure.paper.train import build, is_finished
from snapsure.training._epochs import read_history

EXAMPLES = 5_000  # test images


def main(
    runs: Annotated[Path, typer.Argument(help="The --out of `snapsure reproduce`.")],
    packed: Annotated[Path, typer.Argument(help="Folder for the contest.")],
    data: Annotated[Path | None, typer.Option(help="Its --data.")] = None,
    dataset: Annotated[str, typer.Option(help="cifar10 or cifar100.")] = "cifar100",
    scale: Annotated[str, typer.Option(help="cpu-full or its contrast.")] = "cpu-full",
    threads: Threads = 1,
) -> None:
    """Pack what is finished and is not packed yet."""
    torch.set_num_threads(threads)
    study = Study(dataset, scale, runs, data)
    parts = study.load(show)
    train = (parts.train.pixels, parts.train.labels)
    name = f"{dataset}-{scale}"

    def open_training(_: str, folder: Path) -> Training:
        return Training(folder, build(study.recipe, parts), train, parts.test.pixels)

    def read(folder: Path) -> dict[str, Any]:
        if not is_finished(study.recipe, folder):
            raise FileNotFoundError(folder)
        log = read_history(folder)
        seed = int(folder.name.removeprefix("seed-"))
        last = {key: log[-1][key] for key in ("training_accuracy", "test_error")}
        return {"task": name, "seed": seed, **last, "log": log}

    folders = [study.folder(seed) for seed in range(study.recipe.networks)]
    pack_finished(
        packed, {name: folders}, open_training, read=read, points=EXAMPLES, keep_logits=False
    )


if __name__ == "__main__":
    typer.run(main)
