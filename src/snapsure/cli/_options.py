"""How options are described, and those that several commands share."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from snapsure.errors import InvalidInput


def option(text: str, *names: str, **more: Any) -> Any:
    """Describe an option: its help, and its names if it is not called like the parameter."""
    return typer.Option(*names, help=text, **more)


def hardware(text: str, **more: Any) -> Any:
    """Describe an option of Lightning Fabric."""
    return option(text, rich_help_panel="Hardware", **more)


Json = Annotated[bool, option("Print JSON for programs.", "--json")]
Seed = Annotated[int, option("Random seed.", min=0)]
Classes = Annotated[Path | None, option("Text file with one class name per line.")]

Risk = Annotated[
    str | None,
    option(
        "Error limit: the share of accepted answers that may be wrong, such as 0.02; "
        "`smallest` promises the smallest that the examples can.",
        metavar="FLOAT|smallest",
    ),
]
Delta = Annotated[float, option("Probability that the promise fails.")]

# Networks, snapshots and data.
Model = Annotated[str, option("package.module:factory that makes the network, or file.py:factory.")]
Snapshots = Annotated[Path, option("Folder of snapshots, or of another tool's checkpoints.")]
State = Annotated[
    str | None,
    option(
        "Which weights, such as model_ema or student, if another tool's checkpoints hold several "
        "of the network."
    ),
]
Trust = Annotated[
    bool,
    option(
        "Read checkpoints even if they can run code of their author. A warning names each.",
        "--trust",
    ),
]
BatchSize = Annotated[
    int | None,
    option("Examples per forward pass.", min=1, show_default="256, or that of the DataLoader"),
]
Device = Annotated[
    str | None, option("cpu, cuda, cuda:1 or mps.", show_default="an accelerator, or cpu")
]
Speed = Annotated[
    Literal["auto", "exact"],
    option(
        "auto: run the network in the fastest way that gives the same logits within 1e-5; "
        "exact: as PyTorch runs it."
    ),
]
Accelerator = Annotated[str, hardware("cpu, cuda or mps, as in Lightning Fabric.")]
Devices = Annotated[int, hardware("Processes that train together (DDP).", min=1)]
Precision = Annotated[str, hardware("32-true, 16-mixed or bf16-mixed, as in Lightning Fabric.")]

# The paper's experiments.
DataSet = Annotated[str, option("cifar10, cifar100, svhn, imagenet-1k or imagenet-tiny.")]
Scale = Annotated[
    str,
    option(
        "paper (a GPU, days), cpu-full (all images, an hour a network), cpu (a part of the "
        "images, half an hour); cpu-full-underfitted, the contrast of cpu-full."
    ),
]
DataFolder = Annotated[
    Path | None,
    option("Folder of the parquet files or images.", show_default="the Hugging Face hub"),
]
StudyFolder = Annotated[
    Path | None, option("Folder for the results.", show_default="snapsure-DATASET-SCALE")
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
