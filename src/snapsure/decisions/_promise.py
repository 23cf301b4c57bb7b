"""Which thresholds are proved to keep a risk: a walk from the surest point on.

Tied points are accepted together, so a threshold is a group of ties and everything surer. That its
risk is above the limit is rejected where so few errors would be too rare: an exact binomial
p-value not above the delta at hand. Delta comes in at rungs that are fixed by the number of points:

- half of it at the first count where a set without errors could be enough;
- half in equal shares at n, n/√2, n/2, … points, as far down as a share can reject anything.

What was proved hands its delta on to the next threshold, to which the next rung adds its own share;
at a threshold that is not proved, what was carried is lost, and the next rung begins anew. This is
the fallback procedure (Wiens 2003). Why it breaks no more than delta of its promises: let T be the
first threshold that is proved and should not be. The one before it among those that should not be
was not proved, so the delta that T is tested at came in after that one. These stretches do not
overlap, each breaks at most what came in on it, and all that comes in is delta.

Where a walk begins, the point that fixes the threshold is not counted as a right one: it was chosen
by its place, and the points above it are an independent sample of what lies above it; it is not.
"""

from collections.abc import Sequence
from copy import copy
from typing import NamedTuple

import numpy as np

from snapsure._types import Bools, Floats, Ints, Scores
from snapsure.decisions._binomial import needed, so_few
from snapsure.metrics._rank import tie_groups


class Risk(NamedTuple):
    """What is known of one risk at each threshold, from the surest on."""

    limit: float
    counted: Ints  # points it is taken of
    wrong: Ints  # errors among them


class Rungs(NamedTuple):
    """Thresholds at which delta comes in, rising, and how much."""

    at: Ints
    delta: Floats


class Proof(NamedTuple):
    """The last threshold that was proved (−1: none), and the delta that reached the very last."""

    last: int
    left: float


class Sample:
    """Points ranked by confidence, and the risks to be kept on them.

    `within` has further risks, (mask of the points it is taken of, its limit). A threshold is
    proved where each risk is proved at the full delta (an intersection-union test: one that breaks
    any of the limits must pass the test of that limit).
    """

    def __init__(
        self,
        score: Scores,
        wrong: Bools,
        limit: float,
        within: Sequence[tuple[Bools, float]] = (),
    ) -> None:
        self.theta, self.end, errors = tie_groups(score, wrong)
        self.risks = [Risk(limit, self.end, errors.astype(np.int64))]
        for mask, other in within:
            counted, inside = tie_groups(score, mask).loss, tie_groups(score, mask & wrong).loss
            self.risks.append(Risk(other, counted.astype(np.int64), inside.astype(np.int64)))

    @property
    def n(self) -> int:
        """How many points."""
        return int(self.end[-1])

    def with_limit(self, limit: float) -> "Sample":
        """The same points under another limit of the first risk."""
        other = copy(self)
        other.risks = [self.risks[0]._replace(limit=limit), *self.risks[1:]]
        return other

    def rungs(self, delta: float) -> Rungs:
        """Where delta comes in; nowhere if n points cannot prove anything."""
        strictest = min(risk.limit for risk in self.risks)
        counts, shares = rungs(self.n, strictest, delta, even=len(self.risks) > 1)
        at, which = np.unique(np.searchsorted(self.end, counts), return_inverse=True)
        return Rungs(at, np.bincount(which, shares, at.size).astype(np.float64))

    def proves_any(self, delta: float) -> bool:
        """Whether any walk begins."""
        at, shares = self.rungs(delta)
        p = [so_few(risk.wrong[at], risk.counted[at] - 1, risk.limit) for risk in self.risks]
        return bool((np.max(p, axis=0) <= shares).any())

    def prove(self, rungs: Rungs) -> Proof:
        """Walk down from the surest point."""
        last, carried = -1, 0.0
        stops = [*rungs.at.tolist(), self.end.size][1:]
        for start, stop, share in zip(rungs.at.tolist(), stops, rungs.delta.tolist(), strict=True):
            begins = carried == 0
            carried += share
            if any(_p(risk, start, begins) > carried for risk in self.risks):
                carried = 0.0
                continue
            reached = min(_reached(risk, start, stop, carried) for risk in self.risks)
            last = reached - 1
            if reached < stop:
                carried = 0.0
        return Proof(last, carried)


def rungs(n: int, limit: float, delta: float, *, even: bool) -> tuple[Ints, Floats]:
    """At how many points delta comes in, and how much; with `even`, as much at the first rung.

    Only n, the limit and delta say so, never an error: a share that could not reject its threshold
    even without an error goes to the others.
    """
    ladder = np.unique(np.ceil(n / 2 ** (np.arange(2 * n.bit_length()) / 2)).astype(np.int64))
    first = needed(limit, delta / 2) + 1
    begin = delta / 2 if first <= n and not even else 0.0
    while ladder.size:
        share = (delta - begin) / ladder.size
        reachable = ladder[ladder > needed(limit, share)]
        if reachable.size == ladder.size:
            break
        ladder = reachable
    if not ladder.size:
        alone = needed(limit, delta) + 1
        return (np.array([alone]), np.array([delta])) if alone <= n else (ladder, np.zeros(0))
    shares = np.full(ladder.size, (delta - begin) / ladder.size)
    if begin:
        ladder, shares = np.append(ladder, first), np.append(shares, begin)
    return ladder, shares


def prove_all(samples: Sequence[Sample], delta: float) -> list[Proof]:
    """One promise for all samples: each begins with an equal share of delta.

    A sample that is proved to its last point needs its delta no more: what reached that point goes
    to the others in equal parts, which walk again with more. Delta is only handed on by what was
    proved and never made, and more of it proves no less, so that all promises together break at
    most delta (Goeman & Solari 2010, the sequential rejection principle; Holm's is a case of it).
    """
    share = budget = delta / len(samples)
    rungs = [sample.rungs(share) for sample in samples]
    proofs = [Proof(-1, 0.0) for _ in samples]
    still = list(range(len(samples)))
    while still:
        for i in still:
            at, shares = rungs[i]
            proofs[i] = samples[i].prove(Rungs(at, shares * (budget / share)))
        done = {i for i in still if proofs[i].last == samples[i].end.size - 1}
        still = [i for i in still if i not in done]
        if not done or not still:
            break
        budget += sum(proofs[i].left for i in done) / len(still)
    return proofs


def smallest_risk(sample: Sample, delta: float) -> float | None:
    """The smallest risk, in steps of 0.0001, that these points could have promised."""
    low, high = 0, 10_000
    while high - low > 1:
        middle = (low + high) // 2
        possible = sample.with_limit(middle / 10_000).proves_any(delta)
        low, high = (low, middle) if possible else (middle, high)
    return high / 10_000 if high < 10_000 else None


def _p(risk: Risk, at: int, begins: bool) -> float:
    counted = int(risk.counted[at]) - begins
    return float(so_few(risk.wrong[at], counted, risk.limit))


def _reached(risk: Risk, start: int, stop: int, delta: float) -> int:
    """The first threshold after `start` that is not proved; right points can only help."""
    rises = start + 1 + np.flatnonzero(np.diff(risk.wrong[start:stop]))
    p = so_few(risk.wrong[rises], risk.counted[rises], risk.limit)
    broken = rises[p > delta]
    return int(broken[0]) if broken.size else stop
