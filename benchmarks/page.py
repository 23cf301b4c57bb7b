"""Write docs/results/speed.md and its appendix from what was measured."""

from pathlib import Path
from typing import Any

_RESULTS = Path(__file__).parents[1] / "docs" / "results"
PAGE, APPENDIX = _RESULTS / "speed.md", _RESULTS / "appendix" / "speed.md"
# Parts whose first row the short page shows, beside all rows that miss their goal.
_SHORT = ("scoring", "groups", "metrics", "neighbours", "deploy")
_HEAD = """# How fast

**Each row compares snapsure with what you would use instead, side by side in one process.** The
ratio is the median over pairs of runs, with its quartiles.

"""
_CAVEATS = """
The last rows are those that miss their goal. Passes of convolutional networks take less time than
bare ones because `score` and `Predictor` choose [how they run](../how-to/score.md#speed). Other
networks gain little or nothing. Reading and checking snapshots, data and scores comes on top: it
weighs most where a snapshot scores few examples, and where the CPU has no instructions for SHA-256.

Three caveats:

- **Few machines**: {machines}. Other machines give other ratios.
- **Rows are of the last run.** A ratio near its goal may miss it in the next run.
- **Times depend on the load**; ratios much less, because both sides run by turns.

The appendix has [every row, its goal, its load and its command](appendix/speed.md).
"""
_APPENDIX_HEAD = """# How fast: every row

The two sides of a row run by turns in one process: a ratio is the median over pairs of neighbours
in time, with its quartiles. `make bench` measures all rows again and names the machine; the command
of a row measures its part. With `NPY_DISABLE_CPU_FEATURES="X86_V4 AVX512_ICL"` before it, NumPy
runs as on a machine without AVX-512, and PyTorch with `ONEDNN_MAX_CPU_ISA=AVX2
ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2`. "Load" is the number of processes that
wanted a core when a row was measured, this one among them, and its priority if that was raised.
"""
_COLUMNS = (
    "| work | ours | against | theirs | ratio (quartiles) | goal | load | command |\n"
    "|---|---|---|---|---|---|---|---|\n"
)


def write(rows: list[dict[str, Any]]) -> None:
    """Write the page of few rows, and the appendix with a table for each machine."""
    timed = [row for row in rows if "megabytes" not in row]
    first = {row["part"]: row for row in reversed(timed)}
    short = [first[part] for part in _SHORT if part in first]
    short += [row for row in timed if row["met"] is False and row not in short]
    table = "| work | against | ratio (quartiles) |\n|---|---|---|\n"
    table += "".join(f"| {row['name']} | {row['reference']} | {_ratio(row)} |\n" for row in short)
    machines = "; ".join(dict.fromkeys(row["machine"] for row in short))
    PAGE.write_text(_HEAD + table + _CAVEATS.format(machines=machines))

    parts = [
        f"\n## {name}\n\n" + _tabulate([row for row in rows if row["machine"] == name])
        for name in dict.fromkeys(row["machine"] for row in rows)
    ]
    APPENDIX.write_text(_APPENDIX_HEAD + "".join(parts))


def _tabulate(rows: list[dict[str, Any]]) -> str:
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
        _ratio(row),
        row["goal"] + {True: "", False: " (missed)", None: ""}[row["met"]],
        _load(row),
        f"`python -m benchmarks {row['part']}`",
    )
    return f"| {' | '.join(cells)} |\n"


def _ratio(row: dict[str, Any]) -> str:
    unit = "faster" if "faster" in row["goal"] else "its time"
    return f"{row['ratio']:.2f} × {unit} ({row['low']:.2f} … {row['high']:.2f})"


def _load(row: dict[str, Any]) -> str:
    return f"{row['load']:.0f}" + (f", nice {row['nice']}" if row["nice"] else "")


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"
