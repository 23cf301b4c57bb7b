"""`snapsure decide`."""

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from snapsure.cli._app import command
from snapsure.cli._logs import Confidence, Log, read_file
from snapsure.cli._options import Delta, Json, Risk, option, read_risk


@command("Use", "snapsure decide log.csv --confidence score --correct ok --risk 0.05")
def decide(
    log: Log,
    confidence: Confidence,
    correct: Annotated[str, option("Column that is 1 (right) or 0 (wrong).")],
    risk: Risk,
    delta: Delta = 0.05,
    group: Annotated[
        str | None, option("Column of a group: each group gets its own threshold.")
    ] = None,
    small: Annotated[
        Literal["refuse", "join", "review"],
        option(
            "Groups with too few rows: refuse them, join them into one, or send all their "
            "answers to review."
        ),
    ] = "refuse",
    out: Annotated[Path, option("File for the threshold.")] = Path("threshold.json"),
    report: Annotated[
        Path | None, option("HTML page to write about the threshold and the log.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Find which answers to accept, from a log of confidences and right or wrong of any system."""
    from snapsure.decisions import Threshold

    limit = read_risk(risk)
    assert limit is not None
    frame = read_file(log)
    threshold = Threshold.from_frame(
        frame,
        confidence=confidence,
        correct=correct,
        risk=limit,
        delta=delta,
        group=group,
        small=small,
    )
    threshold.save(out)
    if report is not None:
        import numpy as np

        from snapsure.decisions._log import read_log
        from snapsure.report.log import render_log
        from snapsure.report.page import write_page

        rows = read_log(frame, confidence, correct, group)
        known = ~np.isnan(rows.errors)
        page = render_log(
            rows.confidence[known],
            rows.errors[known] == 1,
            threshold,
            None if rows.groups is None else rows.groups[known],
            name=confidence,
            origin={"command": shlex.join(["snapsure", *sys.argv[1:]]), "log": str(log)},
        )
        write_page(page, report)
    if as_json:
        typer.echo(json.dumps({"threshold": str(out), **threshold.as_dict()}))
        return
    if threshold.groups is None:
        typer.echo(f"Accept an answer if {confidence} is at least {threshold.theta!r}.")
    else:
        typer.echo(f"Accept an answer if {confidence} is at least:")
        for name, theta in threshold.groups.items():
            typer.echo(f"  {name}: {'(review all)' if theta == float('inf') else repr(theta)}")
    assert threshold.risk is not None
    typer.echo(
        f"This accepts {threshold.coverage:.1%} of {threshold.n:,} answers. At most "
        f"{100 * threshold.risk:g}% of the accepted ones are wrong, with probability "
        f"{100 - 100 * delta:g}%, for new answers like these."
    )
    typer.echo(f"written: {out}{'' if report is None else f', {report}'}")
    if threshold.groups is None:
        words = [str(out), "new.csv", "--confidence", confidence, "--correct", correct]
        typer.echo(f"Later: snapsure monitor {shlex.join(words)} --state monitor.json")
