"""Write the answers to many inputs into a file, part by part, and resume where it stopped.

Answers gather in a hidden file beside the one asked for, as records of one size, so that an
interruption leaves whole records. Notes beside it say which answers are whole. At the end the
records become the file.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypedDict

import msgspec
import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import ArrayLike, NDArray

from snapsure import _files, _json, _validate
from snapsure._types import Ints
from snapsure.decisions import Monitor
from snapsure.errors import CorruptFile, InvalidInput
from snapsure.networks._data import Batch, Digest, Rows, row_count
from snapsure.networks._ways import Way
from snapsure.predictor._folder import describe
from snapsure.predictor._predictor import Predictor, read_inputs

_RECORD = np.dtype([("label", "<i8"), ("confidence", "<f8"), ("accepted", "?"), ("y", "<i8")])
_NO_LABEL = np.iinfo(np.int64).min
_AT_ONCE = 1 << 16  # records
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # how a cell begins that a spreadsheet would compute

Records = NDArray[Any]


class _Note(TypedDict):
    """How far the answers are, how passes ran, and the digests of inputs and answers so far."""

    done: _json.Count
    way: Way
    inputs: str
    answers: str


def write_answers(
    predictor: Predictor,
    data: Any,
    out: Path,
    advance: Callable[[int, int], None] = lambda done, total: None,
    monitor: Path | None = None,
    groups: ArrayLike | None = None,
    raw: bool = False,
) -> dict[str, int]:
    """Answer all inputs, write `.csv`, `.jsonl` or `.parquet`, and count.

    Answers that an interruption left are kept if they are of the same predictor and of the same
    inputs, which are read again for that. A monitor in a file, or a new one, counts the answers to
    the same inputs once. Class names that a spreadsheet would compute get an apostrophe in `.csv`,
    unless they are wanted `raw`.
    """
    refuse_unknown_form(out)
    if monitor is not None:
        _read_monitor(predictor, monitor)  # refuses another promise before the work begins
    rows = _DigestedRows(read_inputs(data))
    groups = None if groups is None else _validate.groups(groups, (rows.n,), of="data")
    described = describe(predictor)
    del described["provenance"]["way"]  # which the first batch may decide: notes have it
    identity = {
        "predictor": _json.digest(described),
        "data": rows.identity(),
        "groups": None if groups is None else _json.digest(groups.tolist()),
    }
    _files.make_folder(out.parent)
    work = _Work(out)
    with work.alone():
        records: Records
        last = work.resume(identity, rows, predictor.networks.way)
        done = 0
        if last is not None:
            done, predictor.networks.way = last["done"], last["way"]
        advance(done, rows.n)
        if done < rows.n:
            for answer, y in predictor.labelled_answers(rows, groups, start=done):
                _refuse_unknown_labels(y, predictor.networks.classes, done)
                done += answer.label.size
                records = np.empty(answer.label.size, _RECORD)
                for name, column in zip(answer._fields, answer, strict=True):
                    records[name] = column
                records["y"] = _NO_LABEL if y is None else y
                way = predictor.networks.way or "eager"
                work.append(records.tobytes(), done, way, rows.digest_until(done))
                advance(done, rows.n)
        records = np.memmap(work.answers, _RECORD, mode="r")
        if records.size != rows.n:
            raise CorruptFile(
                f"{work.answers} must hold {rows.n} answers, got {records.size}. Delete it, and "
                "run the same command again."
            )
        with _files.replacing(out) as file:
            names = predictor.classes
            if names is not None and out.suffix == ".csv":
                names = [_quote(name, raw) for name in names]
            _WRITERS[out.suffix](file, records, names)
        counts = _count(records)
        if monitor is not None:
            run = _json.digest({**identity, "data": rows.digest_until(rows.n)})[:16]
            _update_monitor(predictor, monitor, records, run)
        del records
        work.finish()
    return counts


class _DigestedRows(Rows):
    """Rows, and the digest of those that were read, up to the end of each batch."""

    def __init__(self, rows: Rows) -> None:
        super().__init__(rows.name, rows.n, rows.batch_size)
        self._rows, self._digest, self._at = rows, Digest(), 0
        self._known: dict[int, str] = {}

    @property
    def divisible(self) -> bool:
        return self._rows.divisible

    def read(self, start: int, stop: int) -> Iterator[Batch]:
        at = start if self.divisible else 0
        for inputs, labels in self._rows.read(start, stop):
            if at == self._at:
                self._digest.add(inputs, labels)
                self._at += row_count(inputs)
                self._known[self._at] = self._digest.hex()
            at += row_count(inputs)
            yield inputs, labels

    def identity(self) -> dict[str, Any]:
        return self._rows.identity()

    def digest_until(self, stop: int) -> str:
        """Return the digest of the rows up to here; "" where no batch ends."""
        if self._at < stop:
            for _ in self.batches(self._at, stop):
                pass
        return self._known.get(stop, "")


class _Work:
    """The files beside the one asked for, while its answers are not complete."""

    def __init__(self, out: Path) -> None:
        self._out, self._hash = out, hashlib.sha256()
        self.answers, self._notes, self._lock = (
            out.with_name(f".partial-{out.name}{end}") for end in ("", ".notes", ".lock")
        )

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Refuse a second command that writes the same file."""
        lock = FileLock(self._lock)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise InvalidInput(
                f"`out` must have one writer, got a second for {self._out}. Wait for the other "
                "command, or choose another file."
            ) from None
        except OSError as error:
            raise _files.cannot_write(str(self._lock), error) from None
        try:
            yield
        finally:
            lock.release()
            self._lock.unlink(missing_ok=True)

    def resume(
        self, identity: dict[str, Any], rows: _DigestedRows, way: Way | None
    ) -> _Note | None:
        """Return the last note of the same work; remove answers to anything else."""
        last = self._find_last_note(identity, rows, way)
        with _files.writing(f"to {self._out.parent}"):
            if last is not None:
                os.truncate(self.answers, last["done"] * _RECORD.itemsize)
                return last
            self.answers.unlink(missing_ok=True)
            self._notes.unlink(missing_ok=True)
            self.answers.touch()
        self._hash = hashlib.sha256()
        self._add_line(identity)
        return None

    def _find_last_note(
        self, identity: dict[str, Any], rows: _DigestedRows, way: Way | None
    ) -> _Note | None:
        """Return the last note whose answers are whole, if all is of the same work."""
        files = (self.answers, self._notes)
        if not rows.divisible or any(path.is_symlink() or not path.is_file() for path in files):
            return None
        first, *lines = self._notes.read_bytes().splitlines() or [b""]
        if first != json.dumps(identity).encode():
            return None
        whole = self.answers.stat().st_size // _RECORD.itemsize
        notes: list[_Note] = []
        for line in lines:
            try:
                notes.append(msgspec.json.decode(line, type=_Note))
            except (msgspec.DecodeError, RecursionError):  # the last may be torn
                break
        last = next((n for n in reversed(notes) if 0 < n["done"] <= min(whole, rows.n)), None)
        if last is None or (way is not None and way != last["way"]):
            return None
        if rows.digest_until(last["done"]) != last["inputs"]:
            return None
        with self.answers.open("rb") as file:
            self._hash = hashlib.sha256(file.read(last["done"] * _RECORD.itemsize))
        return last if self._hash.hexdigest() == last["answers"] else None

    def append(self, records: bytes, done: int, way: Way, inputs: str) -> None:
        """Write more answers, and note how far they are."""
        with _files.writing(f"to {self._out.parent}"), self.answers.open("ab") as file:
            file.write(records)
        self._hash.update(records)
        note = {"done": done, "way": way, "inputs": inputs, "answers": self._hash.hexdigest()}
        self._add_line(note)

    def _add_line(self, content: dict[str, Any]) -> None:
        with _files.writing(f"to {self._out.parent}"), self._notes.open("ab") as file:
            file.write(json.dumps(content).encode() + b"\n")

    def finish(self) -> None:
        """Leave nothing but the file."""
        self.answers.unlink()
        self._notes.unlink()


def _read_monitor(predictor: Predictor, path: Path) -> Monitor:
    """Read the monitor in a file, if it is of this predictor, or make a new one."""
    fresh = predictor.monitor()
    if not path.exists():
        return fresh
    known = Monitor.load(path)
    if known.terms != fresh.terms:
        raise InvalidInput(
            f"--monitor must be of this predictor, got {path} of another promise ({known.terms} "
            f"for {fresh.terms}). Choose another file."
        )
    return known


def _update_monitor(predictor: Predictor, path: Path, records: Records, run: str) -> None:
    """Count the answers of a run once, whatever other commands count into the same file."""
    _files.make_folder(path.parent)
    with _files.locking(path.parent):
        monitor = _read_monitor(predictor, path)
        if run in monitor.runs:
            return
        for start in range(0, records.size, _AT_ONCE):
            part = records[start : start + _AT_ONCE]
            wrong = part["y"] != part["label"] if part["y"][0] != _NO_LABEL else None
            monitor.update(part["confidence"], wrong)
        monitor.runs.append(run)
        monitor.save(path)


def refuse_unknown_form(out: Path) -> None:
    """Refuse a file whose ending names no format."""
    if out.suffix not in _WRITERS:
        raise InvalidInput(
            f"`out` must end with {', '.join(_WRITERS)}, got {out.name}. Choose one of them."
        )


def _refuse_unknown_labels(y: Ints | None, classes: int | None, start: int) -> None:
    """Refuse labels that the network cannot predict: each would count as an error."""
    if y is None or classes is None:
        return
    outside = np.flatnonzero((y < 0) | (y >= classes))
    if outside.size:
        at = int(outside[0])
        raise InvalidInput(
            f"`y` must hold classes from 0 to {classes - 1}, got {y[at]} in row {start + at}. "
            "Number the classes as in training, or leave the labels out."
        )


def _count(records: Records) -> dict[str, int]:
    counts = {"inputs": records.size, "accepted": int(records["accepted"].sum())}
    if records["y"][0] != _NO_LABEL:
        wrong = records["y"] != records["label"]
        counts["errors"] = int(wrong.sum())
        counts["accepted errors"] = int((wrong & records["accepted"]).sum())
    return counts


def _read_columns(records: Records, names: Sequence[str] | None) -> Iterator[dict[str, list[Any]]]:
    """Yield some records at a time, by column."""
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


def _quote(name: str, raw: bool) -> str:
    """Write a class name as a cell; the csv module leaves a lone carriage return unquoted."""
    text = name if raw or not name.startswith(_FORMULA) else f"'{name}"
    return '"' + text.replace('"', '""') + '"' if re.search('[",\r\n]', text) else text


def _write_csv(file: BinaryIO, records: Records, names: Sequence[str] | None) -> None:
    for i, columns in enumerate(_read_columns(records, names)):
        if i == 0:
            file.write(",".join(columns).encode() + b"\n")
        for flags in columns.keys() & {"accepted", "right"}:
            columns[flags] = ["true" if value else "false" for value in columns[flags]]
        lines = (",".join(map(str, values)) for values in zip(*columns.values(), strict=True))
        file.write("\n".join(lines).encode() + b"\n")


def _write_jsonl(file: BinaryIO, records: Records, names: Sequence[str] | None) -> None:
    for columns in _read_columns(records, names):
        for values in zip(*columns.values(), strict=True):
            line = json.dumps(dict(zip(columns, values, strict=True)), ensure_ascii=False)
            file.write(line.encode() + b"\n")


def _write_parquet(file: BinaryIO, records: Records, names: Sequence[str] | None) -> None:
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    writer = None
    for columns in _read_columns(records, names):
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(file, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


_WRITERS = {".csv": _write_csv, ".jsonl": _write_jsonl, ".parquet": _write_parquet}
