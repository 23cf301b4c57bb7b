"""Options that several commands share."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from snapsure.errors import InvalidInput

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Seed = Annotated[int, typer.Option(min=0, help="Random seed.")]
Classes = Annotated[Path | None, typer.Option(help="Text file with one class name per line.")]

Risk = Annotated[
    str | None,
    typer.Option(
        metavar="FLOAT|smallest",
        help="Error limit: the share of accepted answers that may be wrong, such as 0.02; "
        "`smallest` promises the smallest that the examples can.",
    ),
]
Delta = Annotated[float, typer.Option(help="Probability that the promise fails.")]

# Networks, snapshots and data.
Model = Annotated[
    str, typer.Option(help="package.module:factory that makes the network, or file.py:factory.")
]
Snapshots = Annotated[
    Path, typer.Option(help="Folder of snapshots, or of another tool's checkpoints.")
]
State = Annotated[
    str | None,
    typer.Option(
        help="Which weights, such as model_ema or student, if another tool's checkpoints hold "
        "several of the network."
    ),
]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Read checkpoints even if they can run code of their author. A warning names each.",
    ),
]
BatchSize = Annotated[
    int | None,
    typer.Option(
        min=1, help="Examples per forward pass.", show_default="256, or that of the DataLoader"
    ),
]
Device = Annotated[
    str | None,
    typer.Option(help="cpu, cuda, cuda:1 or mps.", show_default="an accelerator, or cpu"),
]

# Training by Lightning Fabric.
Accelerator = Annotated[
    str, typer.Option(help="cpu, cuda or mps, as in Lightning Fabric.", rich_help_panel="Hardware")
]
Devices = Annotated[
    int,
    typer.Option(min=1, help="Processes that train together (DDP).", rich_help_panel="Hardware"),
]
Precision = Annotated[
    str,
    typer.Option(
        help="32-true, 16-mixed or bf16-mixed, as in Lightning Fabric.", rich_help_panel="Hardware"
    ),
]

# The paper's experiments.
DataSet = Annotated[str, typer.Option(help="cifar10, cifar100, svhn or imagenet-1k.")]
Scale = Annotated[
    str,
    typer.Option(
        help="paper (a GPU, days), cpu-full (all images, an hour a network), cpu (a part of the "
        "images, half an hour); cpu-full-underfitted, the contrast of cpu-full."
    ),
]
DataFolder = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the parquet files or images.", show_default="the Hugging Face hub"
    ),
]
StudyFolder = Annotated[
    Path | None, typer.Option(help="Folder for the results.", show_default="snapsure-DATASET-SCALE")
]


def read_risk(risk: str | None) -> float | Literal["smallest"] | None:
    """Return what --risk says."""
    if risk is None or risk == "smallest":
        return risk  # type: ignore[return-value]
    try:
        return float(risk)
    except ValueError:
        raise InvalidInput(
            f"--risk must be a number between 0 and 1 or smallest, got {risk!r}. Write 5 % as 0.05."
        ) from None
