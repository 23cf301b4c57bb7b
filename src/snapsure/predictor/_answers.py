"""Answers to many inputs in a file: written part by part, resumed where it stopped.

Answers gather in a hidden file beside the one asked for, as records of one size, so that what an
interruption left is whole up to the last record. In the end they become the file.
"""

import csv
import hashlib
import io
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypedDict

import msgspec
import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from snapsure import _files, _json
from snapsure._types import Ints
from snapsure.decisions import Monitor
from snapsure.errors import CorruptFile, InvalidInput
from snapsure.networks._data import Batch, Digest, Rows, row_count
from snapsure.predictor._predictor import Answer, Predictor, read_inputs

_RECORD = np.dtype([("label", "<i8"), ("confidence", "<f8"), ("accepted", "?"), ("y", "<i8")])
_NO_LABEL = np.iinfo(np.int64).min
_AT_ONCE = 1 << 16  # records

Records = NDArray[Any]


class _Note(TypedDict, total=False):
    """What a line of the notes holds, if anything of this."""

    done: _json.Count
    digest: str
    answers: str


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
    `identity`, and of the same inputs, which are read again for that. A monitor in a file, or a new
    one, is shown all answers once, when the last is there.
    """
    refuse_unknown_form(out)
    watching = None if monitor is None else _watching(predictor, monitor)
    rows = _Digested(read_inputs(data))
    _files.make_folder(out.parent)
    work = _Work(out)
    with work.alone():
        done = work.resumed({"predictor": identity, "data": rows.identity()}, rows)
        advance(done, rows.n)
        for answer, y in predictor.labelled_answers(rows, start=done) if done < rows.n else ():
            work.append(_records(answer, y).tobytes())
            done += answer.label.size
            work.add({"done": done, "digest": rows.digested(done), "answers": work.hexdigest()})
            advance(done, rows.n)
        records: Records = np.memmap(work.answers, _RECORD, mode="r")
        if records.size != rows.n:
            raise CorruptFile(
                f"{work.answers} must hold {rows.n} answers, got {records.size}: delete it and run "
                "the same command again"
            )
        with _files.replacing(out) as written:
            _WRITERS[out.suffix](written, records, predictor.classes)
        counted = _counted(records)
        if monitor is not None and watching is not None:
            work.show(records, watching, monitor)
        del records
        work.finish()
    return counted


class _Digested(Rows):
    """Rows that remember what was read of them, in order, by batch."""

    def __init__(self, rows: Rows) -> None:
        super().__init__(rows.name, rows.n, rows.batch_size)
        self._rows, self._digest, self._at = rows, Digest(), 0
        self._known = {0: self._digest.hex()}

    @property
    def divisible(self) -> bool:
        """As the rows themselves."""
        return self._rows.divisible

    def read(self, start: int, stop: int) -> Iterator[Batch]:
        """Batches, each digested when it is read for the first time."""
        at = start if self.divisible else 0
        for inputs, labels in self._rows.read(start, stop):
            if at == self._at:
                self._digest.add(inputs, labels)
                self._at += row_count(inputs)
                self._known[self._at] = self._digest.hex()
            at += row_count(inputs)
            yield inputs, labels

    def identity(self) -> dict[str, Any]:
        """Of some batches."""
        return self._rows.identity()

    def digested(self, stop: int) -> str:
        """The digest of the rows up to here, which are read if they have not been."""
        if self._at < stop:
            for _ in self.batches(self._at, stop):
                pass
        return self._known.get(stop, "")  # which is none where no batch ends


class _Work:
    """What lies beside a file while its answers are not all there."""

    def __init__(self, out: Path) -> None:
        self._out, self._hashed = out, hashlib.sha256()
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
                f"`out` must have one writer, got a second for {self._out}: wait for the other "
                "command, or choose another file"
            ) from None
        try:
            yield
        finally:
            lock.release()
            self._lock.unlink(missing_ok=True)

    def resumed(self, identity: dict[str, Any], rows: "_Digested") -> int:
        """How many rows have been answered already; answers of something else go."""
        notes = self._read()
        whole = self.answers.stat().st_size // _RECORD.itemsize if self.answers.exists() else 0
        same = bool(notes) and notes[0] == json.loads(json.dumps(identity))
        most = min(whole, rows.n)
        kept = [note for note in notes[1:] if 0 < note.get("done", 0) <= most and "digest" in note]
        last = kept[-1] if same and kept and rows.divisible else {}
        known = bool(last) and self._is_whole(last) and rows.digested(last["done"])
        if not known or known != last["digest"]:
            with _files.writing(f"to {self._out.parent}"):
                self.answers.unlink(missing_ok=True)
                self._notes.unlink(missing_ok=True)
                self.answers.touch()
            self._hashed = hashlib.sha256()
            self.add(identity)
            return 0
        with _files.writing(f"to {self._out.parent}"):
            os.truncate(self.answers, last["done"] * _RECORD.itemsize)
        return int(last["done"])

    def _is_whole(self, note: dict[str, Any]) -> bool:
        """Whether answers up to a note are as they were written; earlier versions do not say."""
        with self.answers.open("rb") as file:
            self._hashed = hashlib.sha256(file.read(note["done"] * _RECORD.itemsize))
        return bool(note.get("answers", self.hexdigest()) == self.hexdigest())

    def hexdigest(self) -> str:
        """Of all answers so far."""
        return self._hashed.hexdigest()

    def append(self, records: bytes) -> None:
        """Write more answers."""
        with _files.writing(f"to {self._out.parent}"), self.answers.open("ab") as file:
            file.write(records)
        self._hashed.update(records)

    def add(self, note: dict[str, Any]) -> None:
        """Note how far it is."""
        with (
            _files.writing(f"to {self._out.parent}"),
            self._notes.open("a", encoding="utf-8") as file,
        ):
            file.write(json.dumps(note) + "\n")

    def show(self, records: Records, watching: Monitor, path: Path) -> None:
        """Show all answers to the monitor, once, wherever an interruption comes."""
        ready = path.with_name(f".partial-{path.name}")
        if not any("shown" in note for note in self._read()):
            for start in range(0, records.size, _AT_ONCE):
                part = records[start : start + _AT_ONCE]
                labelled = part["y"][0] != _NO_LABEL
                wrong = part["y"] != part["label"] if labelled else None
                watching.update(part["confidence"], wrong)
            watching.save(ready)
            self.add({"shown": True})
        if ready.exists():
            ready.replace(path)

    def finish(self) -> None:
        """Leave nothing but the file."""
        self.answers.unlink()
        self._notes.unlink()

    def _read(self) -> list[dict[str, Any]]:
        if not self._notes.exists():
            return []
        found = []
        for line in self._notes.read_bytes().splitlines():
            try:
                note = msgspec.json.decode(line)
                msgspec.convert(note, _Note)
            except (msgspec.DecodeError, ValueError, RecursionError):  # the last may be torn
                break
            found.append(note)
        return found


def _watching(predictor: Predictor, path: Path) -> Monitor:
    """The monitor in a file, if it is of this predictor, or a new one."""
    fresh = predictor.monitor()
    if not path.exists():
        return fresh
    known = Monitor.load(path)
    if known.terms != fresh.terms:
        raise InvalidInput(
            f"--monitor must be of this predictor, got {path} of another promise ({known.terms} "
            f"for {fresh.terms}): choose another file"
        )
    return known


def refuse_unknown_form(out: Path) -> None:
    """Refuse a file that nobody knows how to write."""
    if out.suffix not in _WRITERS:
        raise InvalidInput(
            f"`out` must end with {', '.join(_WRITERS)}, got {out.name}: choose one of them"
        )


def _records(answer: Answer, y: Ints | None) -> Records:
    records = np.empty(answer.label.size, _RECORD)
    records["label"], records["confidence"] = answer.label, answer.confidence
    records["accepted"] = answer.accepted
    records["y"] = _NO_LABEL if y is None else y
    return records


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
