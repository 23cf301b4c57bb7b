"""From what methods scored to a board: order, gains, p-values and verdicts."""

from collections.abc import Sequence

import numpy as np

from snapsure._types import Floats
from snapsure.evaluation._contest import Contest
from snapsure.evaluation._numbers import gain
from snapsure.evaluation._result import Board, Result
from snapsure.metrics import Interval

SIGNIFICANT = 0.05


def board(name: str, found: Sequence[Contest], reference: str, level: float) -> Board:
    """Methods in order; of several data sets, by the mean of their log-ratios."""
    methods = found[0].methods
    base = methods.index(reference)
    ratio = np.mean([_log_ratio(one.ranked, one.ranked[base]) for one in found], axis=0)
    drawn = np.mean([_drawn_ratio(one, base) for one in found], axis=0)
    best = int(ratio.argmin())
    p = _p_values(drawn)
    corrected = _holm(p, base)
    from_best = _holm(_p_values(drawn - drawn[best]), best)
    means = {
        field: np.mean([getattr(one, field) for one in found], axis=0) for field in Contest.MEANS
    }
    changes = np.mean([_differences(one, base) for one in found], axis=0)
    metric = found[0].metric
    ranked = means[metric]
    known = [one.bytes for one in found if one.bytes is not None]
    size = np.mean(known, axis=0) if len(known) == len(found) else None
    rows = []
    for i in np.argsort(ratio, kind="stable").tolist():
        saved = _percent(-ratio[i], -drawn[i], level, sign=-1)
        numbers = {field: float(values[i]) for field, values in means.items()}
        verdict = _verdict(saved, corrected[i], None if i == base else reference)
        if i == best:
            verdict += "; the best here"
        elif from_best[i] >= SIGNIFICANT:
            verdict += "; no significant difference from the best"
        if numbers["error"] != means["error"][base]:
            verdict += f"; of a classifier that is wrong in {numbers['error']:.1%}"
        rows.append(
            Result(
                method=methods[i],
                kappa=found[0].kappas[i],
                **numbers,
                bytes=None if size is None else float(size[i]),
                standard_error=None,
                reference_eaurc=float(means["eaurc"][base]),
                difference=_interval(ranked[i] - ranked[base], changes[i], level),
                gain=saved,
                gains=tuple(gain(run[i], run[base]) for one in found for run in one.each),
                verdict=verdict,
                p=float(p[i]),
                p_holm=float(corrected[i]),
                behind=_percent(ratio[i] - ratio[best], drawn[i] - drawn[best], level, sign=1),
            )
        )
    counted = sum(one.runs for one in found), sum(one.points for one in found)
    return Board(name, reference, *counted, rows, metric)


def _differences(found: Contest, base: int) -> Floats:
    """The metric less the reference's under other points and other runs, (methods, resamples)."""
    each = found.each - found.each[:, [base]]
    other_runs: Floats = found.luck @ (each - each.mean(axis=0))
    drawn: Floats = found.drawn - found.drawn[base] + other_runs.T
    return drawn


def _interval(estimate: float, drawn: Floats, level: float) -> Interval:
    tail = (1 - level) / 2
    return Interval(float(estimate), *map(float, np.quantile(drawn, [tail, 1 - tail])))


def _drawn_ratio(found: Contest, base: int) -> Floats:
    """Log-ratios under other points and other runs, (methods, resamples)."""
    each = np.array([_log_ratio(run, run[base]) for run in found.each])
    other_runs: Floats = found.luck @ (each - each.mean(axis=0))
    return _log_ratio(found.drawn, found.drawn[base]) + other_runs.T


def _log_ratio(ours: Floats, base: Floats) -> Floats:
    """Of a perfect ranking, as if it had a thousandth of the mean E-AURC: 0 has no logarithm."""
    least = 1e-3 * float(np.mean(ours)) or 1.0  # all are perfect
    ratio: Floats = np.log(np.maximum(ours, least)) - np.log(np.maximum(base, least))
    return ratio


def _percent(estimate: float, drawn: Floats, level: float, *, sign: int) -> Interval:
    """100 (1 − e^−x) for what is saved, 100 (e^x − 1) for what is on top."""
    ends = _interval(estimate, drawn, level)
    return Interval(*(0.0 + float(100 * sign * np.expm1(sign * end)) for end in ends))  # no -0.0


def _p_values(drawn: Floats) -> Floats:
    """Twice the share of resamples on the rarer side of 0, counting the data themselves."""
    below, above = (drawn <= 0).sum(axis=1), (drawn >= 0).sum(axis=1)
    p: Floats = np.minimum(1.0, 2 * (1 + np.minimum(below, above)) / (1 + drawn.shape[1]))
    return p


def _holm(p: Floats, reference: int) -> Floats:
    """Holm (1979): the smallest p times how many there are, the next times one fewer, rising."""
    corrected = np.ones_like(p)
    others = [i for i in np.argsort(p, kind="stable") if i != reference]
    reached = 0.0
    for rank, i in enumerate(others):
        reached = max(reached, min(1.0, float(p[i]) * (len(others) - rank)))
        corrected[i] = reached
    return corrected


def _verdict(saved: Interval, p: float, reference: str | None) -> str:
    if reference is None:
        return "the reference"
    if p >= SIGNIFICANT:
        return f"no significant difference from {reference}"
    better = saved.estimate > 0
    return f"{'better' if better else 'worse'} than {reference} by {abs(saved.estimate):.1f} %"
