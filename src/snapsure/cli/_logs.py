"""Files of logs: one row per answer of any system."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from snapsure.cli import _data
from snapsure.cli._options import option
from snapsure.errors import InvalidInput

if TYPE_CHECKING:
    from snapsure.decisions._log import Frame

Log = Annotated[Path, typer.Argument(help="Log: .csv, .jsonl or (with pandas) .parquet.")]
Confidence = Annotated[str, option("Column of the confidence.")]


def read_file(path: Path) -> "Frame":
    """Read the columns of a log by the ending of its name."""
    if path.suffix == ".parquet":
        import pandas as pd  # type: ignore[import-untyped]

        try:
            frame: Frame = pd.read_parquet(path)
        except ValueError as error:  # those of pyarrow are
            raise InvalidInput(
                f"LOG must be a .parquet file, got {path} ({error}). Check it."
            ) from None
        return frame
    if path.suffix != ".jsonl":
        return _data.read_columns(path, "LOG")
    rows = []
    for i, line in enumerate(_data.read_lines(path, "LOG"), 1):
        if not line.strip():
            continue
        try:
            rows.append(dict(json.loads(line)))
        except (ValueError, TypeError, RecursionError):
            raise InvalidInput(
                f"LOG must have one JSON object in every line, got {line[:40]!r} in line {i} of "
                f"{path}. Check it."
            ) from None
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}
