"""Run benchmarks, print their table, write results.json and the page made from it.

`python -m benchmarks` runs all; `python -m benchmarks metrics scoring` some of them, and leaves the
rows of the others as they were, with the machine that they name.
"""

import argparse
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import (
    commands,
    decisions,
    deploy,
    groups,
    metrics,
    neighbours,
    page,
    scoring,
    sketch,
)
from benchmarks.harness import Result, machine, measure

PARTS: dict[str, Any] = {
    "metrics": metrics,
    "commands": commands,
    "sketch": sketch,
    "scoring": scoring,
    "neighbours": neighbours,
    "groups": groups,
    "decisions": decisions,
    "deploy": deploy,
}
RESULTS = Path(__file__).with_name("results.json")


def main() -> None:
    """Measure the parts asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"some of {', '.join(PARTS)}; all if not given")
    wanted = parser.parse_args().parts or list(PARTS)
    for part in wanted:
        if part not in PARTS:
            parser.error(f"parts must be some of {', '.join(PARTS)}, got {part}")
    here, console = machine(), Console(width=140)
    rows = [row for row in known() if row["part"] not in wanted or row["machine"] != here]
    measured = []
    for part in wanted:
        own = {"part": part, "machine": here}
        for case in PARTS[part].cases():
            result = measure(case)
            measured.append(result)
            rows.append(asdict(result) | own | {"load": os.getloadavg()[0], "nice": os.nice(0)})
            _write(rows)  # what is stopped keeps what it measured
            console.print(f"measured: {result.name} against {result.reference}")
        peaks = PARTS[part].memory()
        rows += [{"name": name, "megabytes": peak} | own for name, peak in peaks.items()]
    _write(rows)
    console.print(_table(measured))


def known() -> list[dict[str, Any]]:
    """What was measured before, row by row."""
    rows: list[dict[str, Any]] = json.loads(RESULTS.read_text())
    return rows


def _write(rows: list[dict[str, Any]]) -> None:
    RESULTS.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")
    page.write(rows)


def _table(results: list[Result]) -> Table:
    table = Table("work", "ours", "reference", "reference is", "ratio (quartiles)", "goal", "")
    for result in results:
        table.add_row(
            result.name,
            f"{result.ours * 1e3:.1f} ms",
            f"{result.theirs * 1e3:.1f} ms",
            result.reference,
            f"{result.ratio:.2f} ({result.low:.2f}-{result.high:.2f})",
            result.goal,
            {True: "met", False: "MISSED", None: ""}[result.met],
        )
    return table


if __name__ == "__main__":
    main()
