"""Answers to many inputs in a file: written part by part, resumed where it stopped.

Answers gather in a hidden file beside the one asked for, as records of one size, so that what an
interruption left is whole up to the last record. In the end they become the file.
"""

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from snapsure import _files
from snapsure._types import Ints
from snapsure.errors import InvalidInput
from snapsure.monitor import Monitor
from snapsure.networks._data import Rows
from snapsure.predictor._parts import rows_of
from snapsure.predictor._predictor import Answer, Predictor

_RECORD = np.dtype([("label", "<i8"), ("confidence", "<f8"), ("accepted", "?"), ("y", "<i8")])
_NO_LABEL = np.iinfo(np.int64).min
_AT_ONCE = 1 << 16  # records

Records = NDArray[Any]


def write_answers(
    predictor: Predictor,
    data: Any,
    out: Path,
    identity: str,
    advance: Callable[[int, int], None] = lambda done, total: None,
    monitor: Path | None = None,
) -> dict[str, int]:
    """Answer for all inputs, write `.csv`, `.jsonl` or `.parquet`, and count.

    Answers that an interruption left are kept if they are of the same predictor, by its
    `identity`, and the same data. A monitor in a file, or a new one, is shown all of them when the
    last is there.
    """
    refuse_unknown_form(out)
    rows = rows_of(data)
    partial, note = (out.with_name(f".partial-{out.name}{end}") for end in ("", ".json"))
    done = _resumed(partial, note, {"predictor": identity, "data": rows.identity()}, rows)
    advance(done, rows.n)
    with partial.open("ab") as file:
        for answer, y in predictor.labelled_answers(rows, start=done) if done < rows.n else ():
            file.write(_records(answer, y).tobytes())
            file.flush()
            done += answer.label.size
            advance(done, rows.n)
    records: Records = np.memmap(partial, _RECORD, mode="r")
    with _files.replacing(out) as written:
        _WRITERS[out.suffix](written, records, predictor.classes)
    counted = _counted(records)
    if monitor is not None:
        _show(records, predictor, monitor)
    del records
    partial.unlink()
    note.unlink()
    return counted


def refuse_unknown_form(out: Path) -> None:
    """Refuse a file that nobody knows how to write."""
    if out.suffix not in _WRITERS:
        raise InvalidInput(
            f"`out` must end with {', '.join(_WRITERS)}, got {out.name}: choose one of them"
        )


def _resumed(partial: Path, note: Path, identity: dict[str, Any], rows: Rows) -> int:
    """How many rows have been answered already; what is of something else goes."""
    partial.parent.mkdir(parents=True, exist_ok=True)
    try:
        same = json.loads(note.read_bytes()) == json.loads(json.dumps(identity))
    except (OSError, ValueError):
        same = False
    if not (same and partial.exists() and rows.divisible):
        partial.unlink(missing_ok=True)
        _files.write_bytes(note, json.dumps(identity).encode())
        return 0
    whole = partial.stat().st_size // _RECORD.itemsize
    done = rows.n if whole == rows.n else whole // rows.batch_size * rows.batch_size
    with partial.open("r+b") as file:
        file.truncate(done * _RECORD.itemsize)
    return done


def _records(answer: Answer, y: Ints | None) -> Records:
    records = np.empty(answer.label.size, _RECORD)
    records["label"], records["confidence"] = answer.label, answer.confidence
    records["accepted"] = answer.accepted
    records["y"] = _NO_LABEL if y is None else y
    return records


def _show(records: Records, predictor: Predictor, path: Path) -> None:
    """Update the monitor in a file, or begin one there."""
    watching = Monitor.load(path) if path.exists() else predictor.monitor()
    for start in range(0, records.size, _AT_ONCE):
        part = records[start : start + _AT_ONCE]
        labelled = part["y"][0] != _NO_LABEL
        watching.update(part["confidence"], part["y"] != part["label"] if labelled else None)
    watching.save(path)


def _counted(records: Records) -> dict[str, int]:
    counted = {"inputs": records.size, "accepted": int(records["accepted"].sum())}
    if records["y"][0] != _NO_LABEL:
        wrong = records["y"] != records["label"]
        counted["errors"] = int(wrong.sum())
        counted["accepted errors"] = int((wrong & records["accepted"]).sum())
    return counted


def _columns(records: Records, names: Sequence[str] | None) -> Iterator[dict[str, list[Any]]]:
    """Some records at a time, by column."""
    for start in range(0, records.size, _AT_ONCE):
        part = records[start : start + _AT_ONCE]
        label = part["label"].tolist()
        columns = {
            "row": list(range(start, start + part.size)),
            "label": label if names is None else [names[i] for i in label],
            "confidence": part["confidence"].tolist(),
            "accepted": part["accepted"].tolist(),
        }
        if part["y"][0] != _NO_LABEL:
            columns["right"] = (part["y"] == part["label"]).tolist()
        yield columns


def _csv(file: BinaryIO, records: Records, names: Sequence[str] | None) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
    writer = csv.writer(text, lineterminator="\n")
    for i, columns in enumerate(_columns(records, names)):
        if i == 0:
            writer.writerow(columns)
        columns |= {
            name: [str(value).lower() for value in columns[name]]
            for name in ("accepted", "right")
            if name in columns
        }
        writer.writerows(zip(*columns.values(), strict=True))
    text.flush()
    text.detach()


def _jsonl(file: BinaryIO, records: Records, names: Sequence[str] | None) -> None:
    for columns in _columns(records, names):
        for values in zip(*columns.values(), strict=True):
            line = json.dumps(dict(zip(columns, values, strict=True)), ensure_ascii=False)
            file.write(line.encode() + b"\n")


def _parquet(file: BinaryIO, records: Records, names: Sequence[str] | None) -> None:
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    writer = None
    for columns in _columns(records, names):
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(file, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


_WRITERS = {".csv": _csv, ".jsonl": _jsonl, ".parquet": _parquet}
