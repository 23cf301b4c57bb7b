"""Run every benchmark, print the table, write results.json."""

import itertools
import json
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import decisions, deploy, groups, metrics, scoring, sketch
from benchmarks.harness import machine, measure


def main() -> None:
    """Measure all cases."""
    console = Console(width=140)
    table = Table("work", "ours", "reference", "reference is", "ratio (quartiles)", "goal", "")
    results = []
    parts = (metrics, sketch, scoring, groups, decisions, deploy)
    for case in itertools.chain.from_iterable(part.cases() for part in parts):
        result = measure(case)
        results.append(result)
        table.add_row(
            result.name,
            f"{result.ours * 1e3:.1f} ms",
            f"{result.theirs * 1e3:.1f} ms",
            result.reference,
            f"{result.ratio:.2f} ({result.low:.2f}-{result.high:.2f})",
            result.goal,
            {True: "met", False: "MISSED", None: ""}[result.met],
        )
        console.print(f"measured: {result.name} against {result.reference}")
    console.print(table)
    peaks = {name: peak for part in parts for name, peak in part.memory().items()}
    for name, megabytes in peaks.items():
        console.print(f"peak memory above the inputs, {name}: {megabytes:.1f} MB")
    path = Path(__file__).with_name("results.json")
    content = {
        "machine": machine(),
        "results": [asdict(result) for result in results],
        "peak_megabytes": peaks,
    }
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
