"""Draws what was computed elsewhere; computes nothing."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from snapsure.analysis import Trajectories
from snapsure.metrics import RCCurve
from snapsure.report.build import Result

_COLOURS = ("#0b6e99", "#d1495b", "#2e933c", "#8e5aa8", "#c77d0a")


def results_table(results: Sequence[Result], title: str) -> Table:
    """E-AURC × 10³ of each κ and method, with what it gains and how sure that is."""
    table = Table(title=title, caption="Δ is method − final κ: below 0 is better")
    for heading, side in (
        ("κ", "left"),
        ("method", "left"),
        ("E-AURC ×10³", "right"),
        ("final", "right"),
        ("gain", "right"),
        ("Δ ×10³ [95 %]", "right"),
        ("NLL", "right"),
        ("Brier", "right"),
    ):
        table.add_column(heading, justify=side, no_wrap=True)  # type: ignore[arg-type]
    several = any(row.gains for row in results)
    if several:
        table.add_column("gain of each seed, %", justify="right", no_wrap=True)
    for name, rows in groupby(results, key=lambda result: result.kappa):
        for i, row in enumerate(rows):
            gain = "" if row.improvement is None else f"{row.improvement:+.1f} %"
            low, high = row.difference.low * 1e3, row.difference.high * 1e3
            table.add_row(
                name if i == 0 else "",
                row.method,
                f"{row.eaurc * 1e3:.2f}",
                f"{row.final_eaurc * 1e3:.2f}",
                "" if row.method == "final" else gain,
                "" if row.method == "final" else f"{low:+.2f} … {high:+.2f}",
                f"{row.nll:.4f}",
                f"{row.brier:.4f}",
                *_gains(row, several),
            )
        table.add_section()
    return table


def _gains(row: Result, several: bool) -> list[str]:
    if not several:
        return []
    gains = ("–" if gain is None else f"{gain:+.0f}" for gain in row.gains)
    return ["" if row.method == "final" else " ".join(gains)]


def draw_rc_curves(
    panels: Mapping[str, Mapping[str, RCCurve]], best: Mapping[str, RCCurve], path: Path
) -> None:
    """Risk against coverage, panel by panel, the best order in hindsight below."""
    plot = _pyplot()
    size = (1.2 + 3.4 * len(panels), 3.6)
    figure, axes = plot.subplots(
        1, len(panels), figsize=size, layout="constrained", sharey=True, squeeze=False
    )
    for part, (title, curves) in zip(axes[0], panels.items(), strict=True):
        hindsight = best[title]
        part.fill_between(
            hindsight.coverage, hindsight.risk, color="#d9d9d9", label="κ* (in hindsight)"
        )
        for (name, curve), colour in zip(curves.items(), _COLOURS, strict=False):
            part.plot(curve.coverage, curve.risk, color=colour, label=name, linewidth=1.5)
        part.set(xlabel="coverage", xlim=(0, 1), title=title)
        part.set_ylim(bottom=0)
    axes[0][0].set_ylabel("selective risk")
    axes[0][0].legend(frameon=False, loc="upper left")
    _finish(plot, figure, axes[0], path)


def draw_trajectories(
    epochs: NDArray[np.int64],
    result: Trajectories,
    groups: tuple[str, str],
    path: Path,
    title: str,
    areas: tuple[str, str] | None = None,
) -> None:
    """Mean κ and E-AURC of the surest and the least sure points along training.

    `areas` names the groups of E-AURC where they are others than those of κ.
    """
    areas = areas or groups
    plot = _pyplot()
    figure, axes = plot.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
    green, red = "#2e933c", "#d1495b"
    axes[0].plot(epochs, result.green_kappa, color=green, label=groups[0])
    axes[0].plot(epochs, result.red_kappa, color=red, linestyle="--", label=groups[1])
    axes[0].set(xlabel="epoch", ylabel="mean κ", title="confidence", ylim=(0, 1.02))
    axes[0].legend(frameon=False)
    best = epochs[result.best]
    axes[1].plot(epochs, result.green_eaurc * 1e3, color=green)
    axes[1].axvline(best, color="#888888", linestyle=":", linewidth=1)
    axes[1].set(xlabel="epoch", ylabel="E-AURC ×10³", title=f"{areas[0]}: best at epoch {best}")
    axes[2].plot(epochs, result.red_eaurc * 1e3, color=red, linestyle="--")
    axes[2].set(xlabel="epoch", ylabel="E-AURC ×10³", title=areas[1])
    for part in axes[1:]:
        part.set_ylim(bottom=0)
    figure.suptitle(title)
    _finish(plot, figure, axes, path)


def _pyplot() -> Any:
    """Matplotlib without a screen."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    return pyplot


def _finish(plot: Any, figure: Any, axes: Any, path: Path) -> None:
    for part in np.atleast_1d(axes):
        part.spines[["top", "right"]].set_visible(False)
        part.grid(alpha=0.25)
    figure.savefig(path, dpi=140)
    plot.close(figure)
