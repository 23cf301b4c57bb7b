"""Interleaved timing: two noisy cores are fair only to what runs side by side."""

import os
import platform
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

Work = Callable[[], Any]


@dataclass(frozen=True)
class Case:
    """One comparison.

    `at_most` bounds ours / theirs, `at_least` theirs / ours, `at_most_more` ours − theirs, seconds.
    """

    name: str
    reference: str
    ours: Work
    theirs: Work
    at_most: float | None = None
    at_least: float | None = None
    at_most_more: float | None = None
    rounds: int = 9


@dataclass(frozen=True)
class Result:
    """Medians in seconds, and the median of the rounds' ratios with its quartiles."""

    name: str
    reference: str
    ours: float
    theirs: float
    ratio: float
    low: float
    high: float
    goal: str
    met: bool | None


def measure(case: Case) -> Result:
    """Run both by turns; a ratio is of neighbours in time."""
    case.ours(), case.theirs()
    ours, theirs = [], []
    for _ in range(case.rounds):
        ours.append(_seconds(case.ours))
        theirs.append(_seconds(case.theirs))
    faster = case.at_least is not None
    pairs = list(zip(ours, theirs, strict=True))
    ratios = [t / o if faster else o / t for o, t in pairs]
    ratio = median(ratios)
    goal, met = "", None
    if case.at_least is not None:
        goal, met = f"≥ {case.at_least:g}× faster", ratio >= case.at_least
    elif case.at_most is not None:
        goal, met = f"≤ {case.at_most:g}×", ratio <= case.at_most
    elif case.at_most_more is not None:
        more = median(o - t for o, t in pairs)
        goal = f"≤ {_time(case.at_most_more)} more (is {_time(more)})"
        met = more <= case.at_most_more
    low, high = np.quantile(ratios, [0.25, 0.75])
    return Result(
        case.name,
        case.reference,
        median(ours),
        median(theirs),
        ratio,
        float(low),
        float(high),
        goal,
        met,
    )


def peak_megabytes(work: Work) -> float:
    """The most that `work` holds at once beyond what was there before, as NumPy reports it."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


def process_peak() -> float:
    """The most this process has held; not getrusage's, which begins with the parent's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def machine() -> str:
    """What the figures were measured on."""
    model = platform.processor()
    try:
        with open("/proc/cpuinfo") as lines:  # noqa: PTH123
            model = next(line.split(":")[1].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        pass
    found = np.show_config(mode="dicts")["SIMD Extensions"]["found"]
    vectors = "AVX-512" if {"X86_V4", "AVX512_SKX"} & {*found} else "no AVX-512"
    if os.environ.get("NPY_DISABLE_CPU_FEATURES"):
        vectors += " for NumPy, switched off by NPY_DISABLE_CPU_FEATURES"
    if os.environ.get("ONEDNN_MAX_CPU_ISA"):
        vectors += f", {os.environ['ONEDNN_MAX_CPU_ISA']} for PyTorch by ONEDNN_MAX_CPU_ISA"
    return (
        f"{model}, {os.cpu_count()} cores, {vectors}, Python {platform.python_version()}, "
        f"NumPy {np.__version__}"
    )


def _seconds(work: Work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _time(seconds: float) -> str:
    return f"{seconds:.3g} s" if abs(seconds) >= 0.1 else f"{1e3 * seconds:.3g} ms"
