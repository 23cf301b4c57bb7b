"""How often the monitor is wrong, and how soon it is right: `python -m benchmarks.monitor`.

Prints the numbers of monitor.md, in a quarter of an hour on one core. In parts: given one number,
the delays after so many good answers; given two, false alarms in the streams between them.
"""

import copy
import sys
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest  # type: ignore[import-untyped]

from snapsure import Monitor, Threshold

STREAMS, POINTS = 2000, 10**5
REFERENCE = 2000  # held-out examples, drawn for every stream
ALPHA = 0.05
RUNS, AFTER = 200, 10**4  # of each shift, and answers after it
GOOD = (1000, 50_000)  # answers before it

# κ = U^(1/4), of which 70 % are accepted, and a chance of (1 − κ) / 2 to be wrong: on the whole
# 10 %, among the accepted 5.5 %, which is just what is promised.
SHAPE, COVERAGE = 4.0, 0.7
THETA = (1 - COVERAGE) ** (1 / SHAPE)
RISK = (1 - 0.8 * (1 - THETA**5) / COVERAGE) / 2

Rng = np.random.Generator
Answers = tuple[NDArray[np.float64], NDArray[np.bool_]]


def usual(rng: Rng, n: int, *, shape: float = SHAPE, wrong: float = 0.5) -> Answers:
    kappa = rng.random(n) ** (1 / shape)
    return kappa, rng.random(n) < (1 - kappa) * wrong


def more_errors(rng: Rng, n: int) -> Answers:
    """Twice as many, at every confidence."""
    return usual(rng, n, wrong=1.0)


def less_sure(rng: Rng, n: int) -> Answers:
    """60 % are accepted instead of 70 %."""
    return usual(rng, n, shape=np.log(0.4) / np.log(THETA))


def overconfident(rng: Rng, n: int) -> Answers:
    """As many errors as before and the same confidences, which tell nothing any more."""
    return rng.random(n) ** (1 / SHAPE), rng.random(n) < 0.1


SHIFTS: dict[str, Callable[[Rng, int], Answers]] = {
    "errors double": more_errors,
    "share accepted falls from 0.7 to 0.6": less_sure,
    "over-confident, same confidences": overconfident,
}


def made(rng: Rng, seed: int) -> Monitor:
    held_out, _ = usual(rng, REFERENCE)
    return Monitor(Threshold(THETA, COVERAGE), held_out, risk=RISK, alpha=ALPHA, seed=seed)


def false_alarms(first: int, last: int) -> None:
    """Streams in which nothing changes, watched after every answer."""
    kinds: list[str] = []
    any_at_all = 0
    for seed in range(first, last):
        rng = np.random.default_rng([seed, 0])
        monitor = made(rng, seed)
        monitor.update(*usual(rng, POINTS))
        kinds += [alarm.kind for alarm in monitor.alarms]
        any_at_all += bool(monitor.alarms)
    n = last - first
    above = binomtest(any_at_all, n, ALPHA, alternative="greater").pvalue
    print(
        f"streams {first}–{last}: {any_at_all} of {n} with a false alarm ({any_at_all / n:.2%}; "
        f"risk {kinds.count('risk')}, shift {kinds.count('shift')}), allowed {ALPHA:.0%}, "
        f"p = {above:.3g} for more"
    )


def delays(good: int) -> None:
    """How many answers each shift takes, after so many good ones."""
    found: dict[tuple[str, str], list[float]] = {}
    for seed in range(RUNS):
        rng = np.random.default_rng([seed, 1])
        before = made(rng, seed)
        before.update(*usual(rng, good))
        for name, shift in SHIFTS.items():
            monitor = copy.deepcopy(before)
            monitor.update(*shift(rng, AFTER))
            since = {alarm.kind: alarm.since for alarm in monitor.alarms}
            for kind, start in (("risk", before.labelled), ("shift", before.seen)):
                waited = since.get(kind, np.inf) - start
                if waited > 0:  # else it was false
                    found.setdefault((name, kind), []).append(waited)
    for (name, kind), waits in found.items():
        middle, late = np.quantile(waits, [0.5, 0.9], method="higher")
        share = np.isfinite(waits).mean()
        print(
            f"| {good:,} | {name} | {kind} | {middle:,.0f} | {late:,.0f} | {share:.1%} "
            f"of {len(waits)} |"
        )


def main() -> None:
    chosen = [int(word) for word in sys.argv[1:]]
    if len(chosen) == 2:
        false_alarms(*chosen)
        return
    print(
        "| good before | shift | alarm | median delay | 90 % | found |\n|--:|---|---|--:|--:|--:|"
    )
    for good in chosen or GOOD:
        delays(good)
    if not chosen:
        false_alarms(0, STREAMS)


if __name__ == "__main__":
    main()
