"""How often the monitor is wrong, and how soon it is right: `python -m benchmarks.monitor`.

Prints the numbers of monitor.md, in a quarter of an hour on one core. In parts: given one number,
the delays after so many good answers; given two, false alarms in the streams between them; given
`rivals`, the delay beside CUSUM and MAPIE's RiskMonitoring (pip install -r requirements.txt); given
`batches`, false alarms where answers depend on each other.
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


def cusum(wrong: NDArray[np.bool_], ratio: float = 2.0) -> NDArray[np.float64]:
    """Page's CUSUM after each answer, for odds of an error that become `ratio` times as high."""
    normal = 1 + RISK * (ratio - 1)
    steps = np.where(wrong, np.log(ratio / normal), -np.log(normal))
    total = np.cumsum(steps)
    return total - np.minimum.accumulate(np.minimum(np.append(0, total)[:-1], 0))


def rivals() -> None:
    """Print the delay of alarms on the risk, in labelled answers, where errors double."""
    from mapie.exchangeability_testing import RiskMonitoring

    quiet = [cusum(np.random.default_rng([i, 2]).random(AFTER) < RISK).max() for i in range(1000)]
    limit = float(np.quantile(quiet, 1 - ALPHA))  # 5 % false alarms in 10,000 answers

    def first(alarm: NDArray[np.bool_]) -> float:
        return float(np.argmax(alarm)) + 1 if alarm.any() else np.inf

    def ours(wrong: NDArray[np.bool_]) -> float:
        monitor = Monitor(Threshold(0.0, 1.0), risk=RISK, alpha=ALPHA)
        monitor.update(np.full(wrong.size, 0.5), wrong)
        return monitor.alarms[0].since if monitor.alarms else np.inf

    def mapies(wrong: NDArray[np.bool_]) -> float:
        # Half of its level is for a reference, which a given threshold does not need.
        watch = RiskMonitoring("accuracy", test_level=2 * ALPHA, threshold=RISK, warn=False)
        watch.update(np.ones(wrong.size, dtype=int), (~wrong).astype(int))
        return first(watch.online_risk_lower_bound_sequence_history > RISK)

    ways: dict[str, Callable[[NDArray[np.bool_]], float]]
    ways = {"ours": ours, "MAPIE": mapies, "CUSUM": lambda wrong: first(cusum(wrong) >= limit)}
    print("| good before | alarm | median delay | 90 % | found | false before |")
    print("|--:|---|--:|--:|--:|--:|")
    after = 4000
    for good in (0, 1000, 5000):
        rate = np.repeat([RISK, 2 * RISK], [good, after])
        for name, way in ways.items():
            rng = np.random.default_rng(good)
            runs = RUNS // 10 if name == "MAPIE" else RUNS  # it takes seconds for each stream
            waits = np.array([way(rng.random(rate.size) < rate) - good for _ in range(runs)])
            late = waits[waits > 0]
            middle, most = np.quantile(late, [0.5, 0.9], method="higher")
            found, false = np.isfinite(late).mean(), (waits <= 0).mean()
            cells = f"{middle:,.0f} | {most:,.0f} | {found:.1%} | {false:.1%} of {runs}"
            print(f"| {good:,} | {name} | {cells} |", flush=True)


def batches(size: int = 100, count: int = 200, runs: int = 50) -> None:
    """Print false alarms where the answers of a batch share how often they are wrong."""
    print("| correlation in batches of 100 | one by one | `batch=True` |\n|--:|--:|--:|")
    for correlation in (0.0, 0.05, 0.2):
        found = {False: 0, True: 0}
        for seed in range(runs):
            for batch in found:
                rng = np.random.default_rng([seed, 3])
                monitor = Monitor(Threshold(0.0, 1.0), risk=RISK, alpha=ALPHA, batch=batch)
                for _ in range(count):
                    rate = RISK
                    if correlation:
                        spread = 1 / correlation - 1
                        rate = rng.beta(RISK * spread, (1 - RISK) * spread)
                    monitor.update(np.full(size, 0.5), rng.random(size) < rate)
                found[batch] += bool(monitor.alarms)
        cells = " | ".join(f"{found[batch]} of {runs}" for batch in (False, True))
        print(f"| {correlation} | {cells} |", flush=True)


def main() -> None:
    if sys.argv[1:] in (["rivals"], ["batches"]):
        {"rivals": rivals, "batches": batches}[sys.argv[1]]()
        return
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
