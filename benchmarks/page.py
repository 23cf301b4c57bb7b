"""docs/results/speed.md, from what was measured."""

from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "docs" / "results" / "speed.md"
_HEAD = """# How fast

Ratios against what one would use instead. The two run by turns, in one process: a ratio is the
median of neighbours in time, with its quartiles. `make bench` makes all rows anew and names the
machine; the command of a row makes those of its part. With
`NPY_DISABLE_CPU_FEATURES="X86_V4 AVX512_ICL"` before it, NumPy is that of a machine without
AVX-512. Load: how many processes wanted a core when a row was measured, this one among
them, and its priority if that was raised, which counts for less where the kernel shares out
its time by session first. Rows are of one run, the last: another may put a ratio that is near
its goal on the other side of it.
"""
_COLUMNS = (
    "| work | ours | against | theirs | ratio (quartiles) | goal | load | command |\n"
    "|---|---|---|---|---|---|---|---|\n"
)


def write(rows: list[dict[str, Any]]) -> None:
    """Write it: a table for each machine."""
    machines = dict.fromkeys(row["machine"] for row in rows)
    parts = [
        f"\n## {name}\n\n" + _of([row for row in rows if row["machine"] == name])
        for name in machines
    ]
    PAGE.write_text(_HEAD + "".join(parts))


def _of(rows: list[dict[str, Any]]) -> str:
    timed = [_line(row) for row in rows if "megabytes" not in row]
    held = [
        f"- {row['name']}: {row['megabytes']:.0f} MB above its inputs\n"
        for row in rows
        if "megabytes" in row
    ]
    table = _COLUMNS + "".join(timed) if timed else ""
    return table + ("\nMemory:\n\n" + "".join(held) if held else "")


def _line(row: dict[str, Any]) -> str:
    cells = (
        row["name"],
        _time(row["ours"]),
        row["reference"],
        _time(row["theirs"]),
        f"{row['ratio']:.2f} × {'faster' if 'faster' in row['goal'] else 'its time'} "
        f"({row['low']:.2f} … {row['high']:.2f})",
        row["goal"] + {True: "", False: " (missed)", None: ""}[row["met"]],
        _load(row),
        f"`python -m benchmarks {row['part']}`",
    )
    return f"| {' | '.join(cells)} |\n"


def _load(row: dict[str, Any]) -> str:
    return f"{row['load']:.0f}" + (f", nice {row['nice']}" if row["nice"] else "")


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"
