"""How often 95 % intervals hold the truth: `python -m benchmarks.intervals`, minutes.

Prints the tables of intervals.md. Populations are score tables in `results/contest`: samples are
drawn from them with replacement, so that the truth is known. The first table has intervals of few
errors: of E-AURC, of its difference between AES and the final softmax, and of the ratio that
`compare` reports. The second has intervals of methods that learn. Their truth is the mean
difference on the population of what is learned from as many examples: 70 % of a sample, or half.
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from snapsure import AES, ScoreTable, compare, eaurc, evaluate
from snapsure.estimators import Final, registry
from snapsure.evaluation import Comparison, Splits
from snapsure.evaluation._archive import open_contest
from snapsure.metrics._intervals import bootstrap_each, compute_intervals

CONTEST = Path(__file__).parent.parent / "results" / "contest"
FEW, LEARNERS = (11, 21, 31, 41), ("LES", "PES", "best snapshot")
METHODS = ("final", *LEARNERS)
RESAMPLES = 400


def main() -> None:
    """Draw samples, count the intervals that hold, print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--only", choices=("few", "splits"))
    options = parser.parse_args()
    if options.only != "splits":
        print("| population | errors | interval | E-AURC | difference | ratio |")
        print("|---|--:|---|--:|--:|--:|")
        for row in measure_few(options.draws):
            print(row, flush=True)
    if options.only != "few":
        print(
            "\n| population | examples | by | method | held, % | width / ideal | bias / deviation |"
        )
        print("|---|--:|---|---|--:|--:|--:|")
        for row in measure_splits(options.draws):
            print(row, flush=True)


def populations() -> Iterator[tuple[str, ScoreTable]]:
    """Yield one training of each task, with the softmax alone."""
    for name, runs in open_contest(CONTEST).items():
        table = runs[0].table
        yield (
            name,
            ScoreTable(
                {"softmax": table.kappa("softmax")}, table.labels, table.y, epochs=table.epochs
            ),
        )


def measure_few(draws: int) -> Iterator[str]:
    """Yield how many intervals of so many expected errors hold, by both ways."""
    for name, population in populations():
        if population.errors.mean() > 0.5:  # few errors would be few examples
            continue
        scores = {"AES": AES().confidence(population), "final": Final().confidence(population)}
        truth = {key: float(eaurc(score, population.errors)) for key, score in scores.items()}
        change = truth["AES"] - truth["final"]
        gain = 100 * (1 - truth["AES"] / truth["final"])
        for errors in FEW:
            n = round(errors / population.errors.mean())
            rng = np.random.default_rng(errors)
            held = {way: np.zeros(3) for way in (bootstrap_each, compute_intervals)}
            done = 0
            while done < draws:
                rows = rng.integers(population.y_hat.size, size=n)
                wrong = population.errors[rows]
                if not 4 <= wrong.sum() < 50:
                    continue
                done += 1
                both = {key: score[rows] for key, score in scores.items()}
                for way, counts in held.items():
                    one, two = way(
                        eaurc, [({"a": both["AES"]}, wrong), (both, wrong)], RESAMPLES, 0.95, 0
                    )
                    counts[0] += one.low <= truth["AES"] <= one.high
                    counts[1] += two.low <= change <= two.high
                ratio = compare(
                    population.rows(rows), methods=["final", "AES"], resamples=RESAMPLES
                )["AES"].saved
                held[compute_intervals][2] += ratio.low <= gain <= ratio.high
            for way, counts in held.items():
                label = "percentile" if way is bootstrap_each else "jackknife"
                shares = [f"{share:.1f}" for share in 100 * counts / draws]
                shares[2] = "" if way is bootstrap_each else shares[2]
                yield f"| {name} | {errors} | {label} | {' | '.join(shares)} |"


def measure_splits(draws: int) -> Iterator[str]:
    """Yield how many intervals of methods that learn hold, and how wide they are.

    Samples have no example twice, because one to learn from must not be judged. The ideal interval
    is as wide as the estimates of all samples spread: 2 · 1.96 deviations.
    """
    ways: dict[str, tuple[float, Callable[[ScoreTable], Comparison]]] = {
        "evaluate": (0.7, lambda table: evaluate(table, methods=METHODS, resamples=RESAMPLES)),
        "compare": (0.5, lambda table: compare(table, methods=METHODS, resamples=RESAMPLES)),
        "compare, ten splits": (
            0.7,
            lambda table: compare(table, methods=METHODS, resamples=RESAMPLES, protocol=Splits(10)),
        ),
    }
    for name, population in populations():
        final = float(eaurc(Final().confidence(population), population.errors))
        n = min(round(130 / population.errors.mean()), population.y_hat.size // 2)
        rng = np.random.default_rng(n)
        samples = [
            population.rows(rng.permutation(population.y_hat.size)[:n]) for _ in range(draws // 4)
        ]
        for way, (share, judge) in ways.items():
            results = [judge(sample) for sample in samples]
            for key in LEARNERS:
                fitted = [
                    registry.get(key).make().fit(sample.split(share, 0)[0]) for sample in samples
                ]
                areas = [eaurc(one.confidence(population), population.errors) for one in fitted]
                truth = float(np.mean(areas)) - final
                ends = np.array([result[key].difference for result in results])
                held = np.mean((ends[:, 1] <= truth) & (truth <= ends[:, 2]))
                width = np.mean(ends[:, 2] - ends[:, 1]) / (2 * 1.96 * ends[:, 0].std())
                yield f"| {name} | {n:,} | {way} | {key} | {100 * held:.1f} | {width:.2f} |"


if __name__ == "__main__":
    main()
