"""Prove which thresholds keep a risk, by exact binomial tests from the most confident example on.

This is the fallback procedure (Wiens 2003, "A fixed sequence Bonferroni procedure for testing
multiple endpoints") with rungs at order statistics.

1. Fixed before looking: the limit r, and rungs. A rung is a number of accepted examples that adds a
   share of delta; all shares together are delta.
2. One walk down. A threshold is proved where so few errors would have probability at most the
   delta at hand if its risk were r. It passes its delta on to the next one, and each further rung
   adds its share. At a threshold that is not proved, the delta carried so far is lost; the next
   rung whose own share suffices starts again.
3. Ties are accepted together: a threshold accepts one tie and everything above it. To start at a
   rung, two tests must pass: one of the rung's first examples, in which a tie that the rung cuts
   counts its errors first and the very last example is not counted as right (its place chose it);
   and one of the whole tie.

Theorem. The deployed threshold has a risk above r with probability at most delta.

Proof. Order ties at random, by (score, uniform number), so that R(x), the risk of what lies above
place x, is continuous. Taking errors first within a tie is stricter than any order, and so than
this one. Call a place bad where R(x) ≥ r. The places that are not bad form open intervals; let
(top, bottom) be one of them, and N(x) the number of examples above x. Consider the first bad place
that is proved.

a. It is the place x of a rung, with nothing carried. Given x, the examples above it are independent
   with risk R(x) ≥ r, so the first test passes with probability at most that rung's share.
b. Or a walk came to it from such an interval. It carries at most the shares of the rungs inside,
   those whose count lies in (N(top), N(bottom)], as nothing was carried at `top`. By continuity
   R(bottom) = r, and R(top) = r (or nothing lies above it). Hence examples between the two are
   wrong with probability r as well, and the number of errors above `bottom` is independent of
   N(top), given N(bottom): whatever is carried, the test passes with at most that probability.
   Where the walk tests only the end of a tie that contains `bottom`, the examples between have a
   risk of at least r in place of what lies above them, which makes errors more frequent still.

Each rung is counted once, in a or in b: by the union bound, the probabilities add up to at most the
sum of all shares, which is delta. ∎

Several risks: a threshold is proved where each risk is proved at the full delta (an
intersection-union test). Step b then needs that the risks do not fall as more is accepted.
Several samples share delta by `prove_together`, and `find_smallest` has a proof of its own.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from snapsure._types import Bools, Floats, Ints, Scores
from snapsure.metrics._rank import tie_groups

_FEW = 3.5  # up to so many times what a risk needs, all of delta is at the first count
_LEAST = 20  # accepted examples of the smallest risk


def upper_bound(errors: int, n: int, delta: float) -> float:
    """Return the exact upper bound (Clopper & Pearson) of an error rate at level 1 − delta.

    It is the largest error rate at which `errors` or fewer in n have probability delta.

    Examples
    --------
    No error among 300 examples: at most 1 % are wrong, with probability 95 %.

    >>> round(upper_bound(0, 300, 0.05), 4)
    0.0099
    """
    if errors >= n:
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
    """The numbers of accepted examples at which delta is added, in order, and how much."""

    counts: Ints
    delta: Floats


class Proof(NamedTuple):
    """The last threshold that is proved (−1 for none), and the delta carried past the very last."""

    last: int
    left: float


class Sample:
    """Examples ranked by confidence, and the risks to keep on them.

    `within` holds further risks: (mask of the examples it is about, limit).
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

    def rungs(self, delta: float) -> Rungs:
        """Return rungs that depend on n, the limits and delta alone."""
        strictest = min(risk.limit for risk in self.risks)
        return allocate_delta(self.n, strictest, delta, even=len(self.risks) > 1)

    def prove(self, rungs: Rungs) -> Proof:
        """Walk down from the most confident example."""
        last, carried = -1, 0.0
        starts = np.searchsorted(self.end, rungs.counts)
        stops = np.append(starts, self.end.size)[1:]
        for count, share, start, stop in zip(*rungs, starts.tolist(), stops.tolist(), strict=True):
            if not carried and any(
                p_value(*self.first(start, count, risk), risk.limit) > share for risk in self.risks
            ):
                continue
            carried += share
            end = min(_first_unproved(risk, start, stop, carried) for risk in self.risks)
            if end > start:
                last = end - 1
            if end < stop:
                carried = 0.0
        return Proof(last, float(carried))

    def first(self, at: int, count: int, risk: Risk) -> tuple[int, int]:
        """Return at most how many of the first `count` examples are wrong, and of how many.

        The last are in the tie `at`. Its errors come first, and one example is not counted.
        """
        above, wrong, counted = (
            (0, 0, 0) if at == 0 else (self.end[at - 1], risk.wrong[at - 1], risk.counted[at - 1])
        )
        taken, others = count - above, self.end[at] - above - (risk.counted[at] - counted)
        errors = min(risk.wrong[at] - wrong, taken)
        return int(wrong + errors), int(counted + max(errors, taken - others) - 1)


def _first_unproved(risk: Risk, start: int, stop: int, delta: float) -> int:
    """Find the first threshold from `start` on that is not proved; only an error stops a walk."""
    if start == stop:
        return stop
    rises = start + 1 + np.flatnonzero(np.diff(risk.wrong[start:stop]))
    tested = np.append(start, rises)
    p = p_value(risk.wrong[tested], risk.counted[tested], risk.limit)
    unproved = tested[p > delta]
    return int(unproved[0]) if unproved.size else stop


def allocate_delta(n: int, limit: float, delta: float, *, even: bool) -> Rungs:
    """Return rungs that depend on n, the limit and delta alone.

    Half of delta is at the first count at which examples without an error could suffice, half in
    equal shares at n, n/√2, n/2, … examples. A share that could not reject its threshold even
    without an error goes to the others. With `even`, no half goes to the first count. Where n is
    not many times that first count, all of delta is there.
    """
    alone = min_examples(limit, delta) + 1
    ladder = halve(n)
    first = min_examples(limit, delta / 2) + 1
    begin = delta / 2 if first <= n and not even else 0.0
    while ladder.size:
        share = (delta - begin) / ladder.size
        reachable = ladder[ladder > min_examples(limit, share)]
        if reachable.size == ladder.size:
            break
        ladder = reachable
    if not ladder.size or (n < _FEW * alone and not even):
        counts = np.array([alone] if alone <= n else [], dtype=np.int64)
        return Rungs(counts, np.full(counts.size, delta))

    counts, shares = ladder, np.full(ladder.size, share)
    if begin:
        counts, shares = np.append(counts, first), np.append(shares, begin)
    # One rung for each count.
    counts, which = np.unique(counts, return_inverse=True)
    return Rungs(counts, np.bincount(which, shares, counts.size).astype(np.float64))


def halve(n: int) -> Ints:
    """Return the counts n, n/√2, n/2, … down to 1, in increasing order."""
    return np.unique(np.ceil(n / 2 ** (np.arange(2 * n.bit_length()) / 2)).astype(np.int64))


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
            counts, shares = rungs[i]
            proofs[i] = samples[i].prove(Rungs(counts, shares * (budget / share)))
        done = {i for i in active if proofs[i].last == samples[i].end.size - 1}
        active = [i for i in active if i not in done]
        if not done or not active:
            break
        budget += sum(proofs[i].left for i in done) / len(active)
    return proofs


def find_smallest(sample: Sample, delta: float) -> tuple[float, int]:
    """Find the smallest risk that can be promised, and which threshold keeps it (−1 for none).

    Rungs and their shares of delta are fixed by n alone. The bound of each rung's risk is the
    greater of two by Clopper and Pearson at its share, of the two counts that start a walk there.
    All bounds hold together with probability 1 − delta, hence the least of them does too.

    Proof for one rung with share d, which accepts the tie of its count c. Let R be the risk of that
    tie's threshold and Q the risk of what lies above the tie. If Q ≥ R, the risk above the rung's
    place is at least R as well, and the bound of its first examples holds with 1 − d. If Q < R,
    the more of the accepted examples lie above the tie, the fewer errors there are. The rung
    accepts this tie where fewer than c lie above it, which makes too few errors less probable,
    and the bound of the whole tie holds with 1 − d. ∎
    """
    counts = halve(sample.n)
    counts = counts[counts >= _LEAST]
    best, last = 1.0, -1
    for count in counts.tolist():
        at = int(np.searchsorted(sample.end, count))
        started = sample.first(at, count, sample.risks[0])
        whole = int(sample.risks[0].wrong[at]), int(sample.end[at])
        bound = max(upper_bound(*some, delta / counts.size) for some in (started, whole))
        bound = math.ceil(bound * 10_000) / 10_000  # never shown smaller than it is
        if bound < 1 and bound <= best:
            best, last = bound, at
    return best, last
