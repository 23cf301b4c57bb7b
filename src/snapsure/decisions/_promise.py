"""Prove which thresholds keep a risk, by exact binomial tests from the most confident example on.

Tied examples are accepted together, so a threshold accepts a group of ties and everything above it.
The hypothesis that its risk exceeds the limit is rejected where so few errors would be too rare: an
exact binomial p-value of at most the delta at hand. Delta is allocated to rungs that depend on the
number of examples alone:

- half of it at the first count at which examples without an error could suffice;
- half in equal shares at n, n/√2, n/2, … examples, as far down as a share can reject anything.

A proved threshold passes its delta on to the next one, and the next rung adds its own share. At a
threshold that is not proved, the delta carried so far is lost, and the next rung starts again. This
is the fallback procedure (Wiens 2003).

Proof that at most delta of the promises are broken: let T be the first threshold that is proved but
violates the limit. The previous violating threshold was not proved, so the delta at which T is
tested was allocated after it. These stretches do not overlap, each breaks at most the delta
allocated on it, and all allocations sum to delta.

Where a walk starts, the example that defines the threshold does not count as right: it was chosen
by its place. The examples above it are an independent sample of what lies above it; it is not.
"""

import math
from collections.abc import Sequence
from copy import copy
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from snapsure._types import Bools, Floats, Ints, Scores
from snapsure.metrics._rank import tie_groups


def upper_bound(errors: int, n: int, delta: float) -> float:
    """Return the exact upper bound (Clopper & Pearson) of an error rate at level 1 − delta.

    It is the largest error rate at which `errors` or fewer in n have probability delta.

    Examples
    --------
    No error among 300 examples: at most 1 % are wrong, with probability 95 %.

    >>> round(upper_bound(0, 300, 0.05), 4)
    0.0099
    """
    if errors == n:
        return 1.0
    from scipy.special import betaincinv  # type: ignore[import-untyped]

    return float(betaincinv(errors + 1, n - errors, 1 - delta))


def p_value(errors: ArrayLike, n: ArrayLike, risk: float) -> Floats:
    """Return P(Binomial(n, risk) ≤ errors): small where the true risk is hardly above `risk`."""
    from scipy.special import betainc

    k = np.asarray(errors, dtype=np.float64)
    right = np.asarray(n, dtype=np.float64) - k
    p: Floats = betainc(np.maximum(right, 1), k + 1, 1 - risk)
    return np.where(right > 0, p, 1.0)


def min_examples(risk: float, level: float) -> int:
    """Return how many examples without an error reject a risk at a level."""
    # Not one more where a power of 1 − risk equals the level.
    return max(1, math.ceil(math.log(level) / math.log1p(-risk) - 1e-9))


class Risk(NamedTuple):
    """The counts of one risk at each threshold, most confident first."""

    limit: float
    counted: Ints  # accepted examples it is about
    wrong: Ints  # errors among them


class Rungs(NamedTuple):
    """The thresholds at which delta is added, in order, and how much."""

    at: Ints
    delta: Floats


class Proof(NamedTuple):
    """The last threshold that is proved (−1 for none), and the delta carried past the very last."""

    last: int
    left: float


class Sample:
    """Examples ranked by confidence, and the risks to keep on them.

    `within` holds further risks: (mask of the examples it is about, limit). A threshold is proved
    where each risk is proved at the full delta (an intersection-union test: a threshold that
    violates any limit must pass the test of that limit).
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
        """The number of examples."""
        return int(self.end[-1])

    def with_limit(self, limit: float) -> "Sample":
        """Return the same examples with another limit of the first risk."""
        other = copy(self)
        other.risks = [self.risks[0]._replace(limit=limit), *self.risks[1:]]
        return other

    def rungs(self, delta: float) -> Rungs:
        """Allocate delta to thresholds; to none if n examples cannot prove anything."""
        strictest = min(risk.limit for risk in self.risks)
        counts, shares = allocate_delta(self.n, strictest, delta, even=len(self.risks) > 1)
        at, which = np.unique(np.searchsorted(self.end, counts), return_inverse=True)
        return Rungs(at, np.bincount(which, shares, at.size).astype(np.float64))

    def can_prove(self, delta: float) -> bool:
        """Decide whether any threshold can be proved, without walking."""
        at, shares = self.rungs(delta)
        p = [p_value(risk.wrong[at], risk.counted[at] - 1, risk.limit) for risk in self.risks]
        return bool((np.max(p, axis=0) <= shares).any())

    def prove(self, rungs: Rungs) -> Proof:
        """Walk down from the most confident example."""
        last, carried = -1, 0.0
        stops = [*rungs.at.tolist(), self.end.size][1:]
        for start, stop, share in zip(rungs.at.tolist(), stops, rungs.delta.tolist(), strict=True):
            starts_here = carried == 0
            carried += share
            counts = [(r.wrong[start], r.counted[start] - starts_here, r.limit) for r in self.risks]
            if any(p_value(*each) > carried for each in counts):
                carried = 0.0
                continue

            end = min(_first_unproved(risk, start, stop, carried) for risk in self.risks)
            last = end - 1
            if end < stop:
                carried = 0.0
        return Proof(last, carried)


def _first_unproved(risk: Risk, start: int, stop: int, delta: float) -> int:
    """Find the first threshold after `start` that is not proved; only an error can stop a walk."""
    rises = start + 1 + np.flatnonzero(np.diff(risk.wrong[start:stop]))
    p = p_value(risk.wrong[rises], risk.counted[rises], risk.limit)
    unproved = rises[p > delta]
    return int(unproved[0]) if unproved.size else stop


def allocate_delta(n: int, limit: float, delta: float, *, even: bool) -> tuple[Ints, Floats]:
    """Return at how many accepted examples delta is added, and how much.

    It depends on n, the limit and delta alone, never on an error. A share that could not reject its
    threshold even without an error goes to the others. With `even`, no half goes to the first rung.
    """
    ladder = np.unique(np.ceil(n / 2 ** (np.arange(2 * n.bit_length()) / 2)).astype(np.int64))
    first = min_examples(limit, delta / 2) + 1
    begin = delta / 2 if first <= n and not even else 0.0

    while ladder.size:
        share = (delta - begin) / ladder.size
        reachable = ladder[ladder > min_examples(limit, share)]
        if reachable.size == ladder.size:
            break
        ladder = reachable

    if not ladder.size:
        alone = min_examples(limit, delta) + 1
        return (np.array([alone]), np.array([delta])) if alone <= n else (ladder, np.zeros(0))
    shares = np.full(ladder.size, (delta - begin) / ladder.size)
    if begin:
        ladder, shares = np.append(ladder, first), np.append(shares, begin)
    return ladder, shares


def prove_together(samples: Sequence[Sample], delta: float) -> list[Proof]:
    """Prove thresholds of several samples under one promise for all of them.

    Each sample starts with an equal share of delta. A sample that is proved to its last example no
    longer needs its delta: what is left goes to the others in equal parts, which walk again with
    more. Only proved thresholds pass delta on, none is created, and more of it proves no less, so
    all promises together are broken with probability at most delta (Goeman & Solari 2010, the
    sequential rejection principle; Holm's procedure is a special case).
    """
    share = budget = delta / len(samples)
    rungs = [sample.rungs(share) for sample in samples]
    proofs = [Proof(-1, 0.0) for _ in samples]
    active = list(range(len(samples)))

    while active:
        for i in active:
            at, shares = rungs[i]
            proofs[i] = samples[i].prove(Rungs(at, shares * (budget / share)))
        done = {i for i in active if proofs[i].last == samples[i].end.size - 1}
        active = [i for i in active if i not in done]
        if not done or not active:
            break
        budget += sum(proofs[i].left for i in done) / len(active)
    return proofs


def find_smallest_risk(sample: Sample, delta: float) -> float | None:
    """Find the smallest risk, in steps of 0.0001, that these examples could have promised."""
    low, high = 0, 10_000
    while high - low > 1:
        middle = (low + high) // 2
        is_possible = sample.with_limit(middle / 10_000).can_prove(delta)
        low, high = (low, middle) if is_possible else (middle, high)
    return high / 10_000 if high < 10_000 else None
