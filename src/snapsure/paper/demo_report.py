"""What the demo shows: a table with intervals, plots, a decision at a stated risk, and the page."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from snapsure.errors import Infeasible
from snapsure.estimators import AES
from snapsure.evaluation import evaluate, trajectories
from snapsure.evaluation._numbers import best_curve
from snapsure.metrics import rc_curve
from snapsure.report import pictures
from snapsure.report.display import results_table
from snapsure.report.page import Report, origin_of
from snapsure.table import ScoreTable
from snapsure.threshold import Threshold

RISK, DELTA = 0.01, 0.1
SURE = 0.8


def show(
    tables: Sequence[ScoreTable],
    ensemble: ScoreTable,
    pixels: NDArray[np.float32],
    folder: Path,
    console: Console,
) -> None:
    """Print the table, write the plots, choose thresholds."""
    results = {"": evaluate(tables), "ensemble": evaluate(ensemble)}
    wrong = np.mean([table.errors.mean() for table in tables])
    title = (
        f"digits: {tables[0].y_hat.size} test images, {wrong:.1%} wrong, mean of {len(tables)} "
        f"seeds; the ensemble of them {ensemble.errors.mean():.1%} wrong"
    )
    console.print(results_table(results, title))
    for seed, table in enumerate(tables):
        console.print(f"seed {seed}: {_decision(table)}", highlight=False)
    plots = _draw(tables, folder)
    console.print(f"plots: {', '.join(str(path) for path in plots)}", highlight=False)
    named = {f"seed {seed}": table for seed, table in enumerate(tables)}
    origin = {"command": f"snapsure demo --out {folder}"}
    for seed, name in enumerate(named):
        origin |= {f"{name}: seed of training": str(seed)}
        origin |= origin_of(tables[seed], name)
    title = "Which digits can be trusted?"
    page = Report(named, images=pixels, origin=origin, title=title).save(folder / "report.html")
    console.print(f"the page to look at: {page}", highlight=False)
    console.print(f"again in a second: snapsure evaluate {folder / 'scores-0'}", highlight=False)


def _decision(table: ScoreTable) -> str:
    """A threshold from 70 % of the points, and what it does on the others."""
    held_out, new = table.split(0.7, seed=0)
    aes = AES()
    seen = aes.confidence(held_out)
    try:
        chosen = Threshold.at_risk(seen, held_out.errors, RISK, DELTA)
    except Infeasible as error:
        return f"a risk of {RISK:.0%} cannot be promised: {error}"
    accepted = chosen.accepts(aes.confidence(new))
    return (
        f"for a risk of {RISK:.0%} (delta {DELTA:g}) accept AES ≥ {chosen.theta:.4f}; of images "
        f"not used for that it accepts {accepted.mean():.0%}, {new.errors[accepted].sum()} of "
        f"{accepted.sum()} wrong"
    )


def _draw(tables: Sequence[ScoreTable], folder: Path) -> list[Path]:
    paths = [folder / "rc-curves.png", folder / "green-red.png"]
    panels, best = {}, {}
    for seed, table in enumerate(tables):
        kappa, errors, title = table.kappa("softmax"), table.errors, f"seed {seed}"
        panels[title] = {
            "AES k=30": rc_curve(AES().confidence(table), errors),
            "final softmax": rc_curve(kappa[-1], errors),
        }
        best[title] = best_curve(errors)
    pictures.save(pictures.rc_curves(panels, best), paths[0])

    # Halves, as in the paper, would show nothing here: the surest half has no error at all.
    kappa, errors = tables[0].kappa("softmax"), tables[0].errors
    sure, unsure = trajectories(kappa, errors, SURE), trajectories(kappa, errors, 1 - SURE)
    result = sure._replace(red_kappa=unsure.red_kappa, red_eaurc=unsure.red_eaurc)
    groups = (f"the surest {SURE:.0%}", f"the least sure {1 - SURE:.0%}")
    title = "digits, softmax response, seed 0"
    pictures.save(pictures.trajectories(tables[0].epochs, result, groups, title), paths[1])
    return paths
