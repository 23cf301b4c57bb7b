"""Options that `train` and `reproduce` share."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from snapsure.paper.run import Study

DataSet = Annotated[str, typer.Option(help="cifar10, cifar100, svhn or imagenet-1k.")]
Scale = Annotated[
    str,
    typer.Option(
        help="paper (a GPU, days), cpu-full (all images, an hour a network), cpu (a part of the "
        "images, half an hour); cpu-full-underfitted and cpu-underfitted, their contrasts."
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(help="Folder of the parquet files or images; the Hugging Face hub if not given."),
]
Out = Annotated[
    Path | None,
    typer.Option(
        help="Folder for all that comes out; if not given, snapsure-DATASET-SCALE, and nothing is "
        "written with --from."
    ),
]
Accelerator = Annotated[str, typer.Option(help="As Lightning Fabric calls it: cpu, cuda, mps.")]
Devices = Annotated[int, typer.Option(min=1, help="Processes that train together (DDP).")]
Precision = Annotated[str, typer.Option(help="As Fabric calls it: 32-true, 16-mixed, bf16-mixed.")]


def study(dataset: str, scale: str, data: Path | None, out: Path | None) -> "Study":
    """The experiment that the options name."""
    from snapsure.paper.run import Study

    return Study(dataset, scale, out or Path(f"snapsure-{dataset}-{scale}"), data)
