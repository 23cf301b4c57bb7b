"""The page of `snapsure decide`: what a threshold accepts of a log of confidences."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from snapsure._types import Array, Bools, Floats
from snapsure.decisions import Threshold
from snapsure.evaluation._trajectories import best_curve
from snapsure.metrics import rc_curve
from snapsure.report import charts
from snapsure.report.accept import (
    CAPTION,
    POSITIONS,
    bound_risk,
    find_positions,
    show_positions,
    write_threshold,
)
from snapsure.report.chapter import Bar, Block, Chart
from snapsure.report.page import render_page
from snapsure.report.tables import Column, Table, percent, write_limit


def render_log(
    confidence: Floats,
    wrong: Bools,
    threshold: Threshold,
    groups: Array | None = None,
    *,
    name: str = "confidence",
    origin: Mapping[str, Any] | None = None,
) -> str:
    """Render a page about a threshold that promises a risk, and the labelled log it was made from.

    `name` is what the log calls the confidence, and `origin` is listed at the end of the page.
    """
    assert threshold.risk is not None
    assert threshold.delta is not None
    accepted = threshold.accepts(confidence, groups)
    share = float(accepted.mean())
    if groups is None:
        rule, each = write_threshold(float(threshold.theta)), ""
        blocks = _show_curve(confidence, wrong, threshold, name)
    else:
        rule, each = "the threshold of its group", " in each group"
        finite = [theta for theta in (threshold.groups or {}).values() if theta != np.inf]
        if len({*finite}) < len(finite):
            each += " (joined groups count as one)"
        blocks = [_tabulate_groups(wrong, threshold, groups, accepted)]
    return render_page(
        title="Which answers can be accepted?",
        sentences=[
            f"Accept an answer if {name} is at least {rule}.",
            f"This accepts {percent(share)} of {wrong.size:,} answers. At most "
            f"{write_limit(threshold.risk)} of the accepted ones are wrong{each}, with "
            f"probability {100 - 100 * threshold.delta:g} %, for new answers like these.",
        ],
        is_final=False,
        summary=[
            Bar("accepted", share, percent(share), charts.GREEN),
            Bar("sent to review", 1 - share, percent(1 - round(share, 3)), charts.GUIDE),
        ],
        chapters=[("log", "", [("What accepting the surest answers does", blocks)])],
        made=dict(origin or {}),
    )


def _show_curve(confidence: Floats, wrong: Bools, threshold: Threshold, name: str) -> list[Block]:
    assert threshold.risk is not None
    strange = np.zeros_like(wrong)
    positions = find_positions(confidence, wrong, strange, POSITIONS, float(threshold.theta))
    coverage = float(positions.coverage[positions.start])
    chosen = coverage, float(positions.risk[positions.start])
    curves = {name: rc_curve(confidence, wrong)}
    drawn = charts.draw_risk(curves, best_curve(wrong), threshold.risk, chosen, coverage)
    shown = show_positions({name: positions}, {name: name}, wrong, threshold.risk)
    return [Chart("risk", drawn, CAPTION), *shown]


def _tabulate_groups(wrong: Bools, threshold: Threshold, groups: Array, accepted: Bools) -> Table:
    """Tabulate each group: its threshold, and the errors among what it accepts.

    The promise is made for groups that were joined together, not for each of them.
    """
    rows = []
    for group in np.unique(groups).tolist():
        inside = groups == group
        n, errors = int((inside & accepted).sum()), int((inside & accepted & wrong).sum())
        theta = (threshold.groups or {}).get(group, np.inf)
        risk = "–"
        if n:
            low, high = (float(end[0]) for end in bound_risk(np.array([errors]), np.array([n])))
            risk = f"{percent(errors / n)} ({percent(low)} … {percent(high)})"
        rule = "review all" if theta == np.inf else write_threshold(theta)
        rows.append((str(group), rule, int(inside.sum()), n / inside.sum(), risk))
    columns = [
        Column("group", text=True),
        Column("accept ≥"),
        Column("answers", "{:,}".format),
        Column("accepted", percent),
        Column("wrong among the accepted (95 % interval)"),
    ]
    return Table(columns, rows, "Joined groups have the same threshold")
