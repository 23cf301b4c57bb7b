"""`snapsure monitor`."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from snapsure import _files
from snapsure.cli._app import command
from snapsure.cli._logs import Confidence, Log, read_file
from snapsure.cli._options import Json, option
from snapsure.errors import InvalidInput


@command("Use", "snapsure monitor threshold.json new.csv --confidence score --correct ok")
def monitor(
    threshold: Annotated[Path, typer.Argument(help="Threshold that `snapsure decide` wrote.")],
    log: Log,
    confidence: Confidence,
    correct: Annotated[
        str | None, option("Column that is 1 (right), 0 (wrong) or empty (not known).")
    ] = None,
    state: Annotated[
        Path | None, option("File of the monitor, which continues from log to log.")
    ] = None,
    held_out: Annotated[
        Path | None, option("Log that gave the threshold: adds the alarm for shifted confidences.")
    ] = None,
    batch: Annotated[
        str | None, option("Column of a session or document whose answers depend on each other.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check whether new answers keep a threshold's promise; an alarm ends with exit code 1."""
    from snapsure.decisions import Monitor, Threshold
    from snapsure.decisions._log import read_log

    rows = read_log(read_file(log), confidence, correct, batch)
    run = _files.sha256(log)
    known = None if held_out is None else read_log(read_file(held_out), confidence)
    reference = None if known is None else known.confidence
    watching = Monitor(Threshold.load(threshold), reference, batch=batch is not None)

    if state is not None:
        _files.make_folder(state.parent)
    with nullcontext() if state is None else _files.locking(state.parent):
        if state is not None and state.exists():
            fresh, watching = watching, Monitor.load(state)
            if watching.terms != fresh.terms:
                raise InvalidInput(
                    f"--state must be of the same threshold and options, got {watching.terms} in "
                    f"{state} for {fresh.terms}. Start a new one."
                )
            if run in watching.runs:
                raise InvalidInput(
                    f"LOG must be new to {state}, got {log}, which it has counted. Pass new rows."
                )
        # A batch is whole even if answers of others come between its own.
        batches: dict[str | None, list[int]] = {}
        names = [None] * rows.confidence.size if rows.groups is None else rows.groups.tolist()
        for row, name in enumerate(names):
            batches.setdefault(name, []).append(row)
        for part in batches.values() or [[]]:
            watching.update(rows.confidence[part], rows.errors[part])
        watching.runs.append(run)
        if state is not None:
            watching.save(state)  # with the run: killed before or after, a rerun counts it once

    alarms = watching.alarms
    if as_json:
        content = {
            "seen": watching.seen,
            "coverage": watching.coverage,
            "labelled": watching.labelled,
            "risk": watching.risk,
            "expected_risk": watching.expected_risk,
            "evidence": watching.evidence,
            "alarms": [alarm._asdict() for alarm in alarms],
        }
        typer.echo(json.dumps(content))
    else:
        typer.echo(f"{watching!r}"[1:-1])
        for alarm in alarms:
            typer.echo(f"ALARM: {alarm}")
    raise typer.Exit(1 if alarms else 0)
