"""How much a promised risk lets through, ours beside MAPIE's: `python -m benchmarks.decisions`.

Prints the first table of decisions.md; `adversarial` and `trainings` print the others. Every way
sees the same points and makes the same promise: with probability 1 − DELTA, at most a share `risk`
of what is accepted is wrong. For MAPIE this is the precision of a binary classifier whose positive
answer is "accept" and whose truth is "was right".
"""

import importlib.util
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.harness import Case, peak_megabytes
from snapsure import AES, ScoreTable, Threshold
from snapsure._types import Bools, Floats
from snapsure.decisions._promise import min_examples
from snapsure.decisions._threshold import prove_threshold
from snapsure.errors import Infeasible, InvalidInput
from snapsure.evaluation import Choice, choose
from snapsure.evaluation._archive import open_contest

DELTA, DRAWS = 0.05, 200


class Regime(NamedTuple):
    """Points of confidence 1 − u, u even in [0, 1], and how often they are wrong."""

    name: str
    points: int
    risk: float
    wrong: Callable[[Floats], Floats]
    true_risk: Callable[[float], float]  # of the surest share
    levels: int | None = None  # of the confidence


def _ordinary(u: Floats) -> Floats:
    return 0.3 * u**2


def _upside_down(u: Floats) -> Floats:
    return np.where(u < 0.004, 1, 0.3 * u**2)


def _upside_down_risk(share: float) -> float:
    top = min(share, 0.004)
    return (top - 0.1 * top**3 + 0.1 * share**3) / share


def _ordinary_risk(share: float) -> float:
    return 0.1 * share**2


REGIMES = [
    Regime("10 % wrong, 200 examples", 200, 0.05, _ordinary, _ordinary_risk),
    Regime("10 % wrong, 1,000 examples", 1000, 0.05, _ordinary, _ordinary_risk),
    Regime("10 % wrong, 5,000 examples", 5000, 0.05, _ordinary, _ordinary_risk),
    Regime("10 % wrong, 5,000 examples", 5000, 0.02, _ordinary, _ordinary_risk),
    Regime("17 levels of confidence", 1000, 0.05, _ordinary, _ordinary_risk, 17),
    Regime("the surest 0.4 % wrong", 1000, 0.05, _upside_down, _upside_down_risk),
    Regime("3 % wrong everywhere", 1000, 0.05, lambda u: 0.03 + 0 * u, lambda share: 0.03),
    Regime("5.01 % wrong everywhere", 1000, 0.05, lambda u: 0.0501 + 0 * u, lambda share: 0.0501),
]


def ours(kappa: Floats, errors: Bools, risk: float) -> float:
    """Our threshold, infinite where there is none."""
    try:
        return Threshold.at_risk(kappa, errors, risk, DELTA).theta
    except Infeasible:
        return np.inf


def mapies(kappa: Floats, errors: Bools, risk: float, method: Any, highest: float = 0.99) -> float:
    """MAPIE's threshold among 100, infinite where there is none."""
    from mapie.risk_control import BinaryClassificationController

    controller = BinaryClassificationController(
        predict_function=lambda x: np.column_stack([1 - x, x]),
        risk="precision",
        target_level=1 - risk,
        confidence_level=1 - DELTA,
        best_predict_param_choice="recall",
        list_predict_params=np.linspace(0, highest, 100),
        fwer_method=method,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        controller.calibrate(kappa, (~errors).astype(int))
    best = controller.best_predict_param
    return np.inf if best is None else float(best)


def ways(regime: Regime) -> dict[str, Callable[[Floats, Bools, float], float]]:
    """Ours, and what MAPIE offers; the last with a start that its user must know."""
    from mapie.risk_control.fwer_control import FWERFixedSequenceTesting

    start = 1 - 1.25 * min_examples(regime.risk, DELTA) / regime.points  # room for chance
    return {
        "ours": ours,
        "Holm (its default)": partial(mapies, method="bonferroni_holm"),
        "fixed sequence": partial(mapies, method="fixed_sequence"),
        "10 starts": partial(mapies, method=FWERFixedSequenceTesting(10)),
        "begun by hand": partial(mapies, method="fixed_sequence", highest=start),
    }


def measured(regime: Regime) -> Iterator[tuple[str, float, float]]:
    """Each way's mean coverage, and how often its promise was broken."""
    for name, way in ways(regime).items():
        coverage, broken = np.zeros(DRAWS), np.zeros(DRAWS, dtype=bool)
        for seed in range(DRAWS):
            rng = np.random.default_rng(seed)
            u = rng.random(regime.points)
            kappa = 1 - u
            if regime.levels:
                kappa = np.ceil(kappa * regime.levels) / regime.levels
            theta = way(kappa, rng.random(regime.points) < regime.wrong(u), regime.risk)
            if regime.levels and theta < np.inf:  # the lower edge of its level
                theta = (np.ceil(round(theta * regime.levels, 9)) - 1) / regime.levels
            share = 1 - max(theta, 0)
            coverage[seed] = max(share, 0)
            broken[seed] = share > 0 and regime.true_risk(share) > regime.risk
        yield name, float(coverage.mean()), float(broken.mean())


def main() -> None:
    """Print the table, or the one that is named."""
    if sys.argv[1:] in (["adversarial"], ["trainings"]):
        {"adversarial": adversarial, "trainings": trainings}[sys.argv[1]]()
        return
    if importlib.util.find_spec("mapie") is None:
        raise SystemExit("MAPIE must be installed: pip install -r benchmarks/requirements.txt")
    names = list(ways(REGIMES[0]))
    print(f"Accepted, % (promises broken, %); delta = {DELTA:.0%}, {DRAWS} draws\n")
    print("| points | risk | " + " | ".join(names) + " |")
    print("|---|--:|" + "--:|" * len(names))
    for regime in REGIMES:
        cells = [f"{100 * c:.1f} ({100 * b:.1f})" for _, c, b in measured(regime)]
        print(f"| {regime.name} | {regime.risk:.0%} | " + " | ".join(cells) + " |", flush=True)


def both_at_the_limit(points: int, levels: int | None, groups: bool, draws: int = 1000) -> float:
    """How often `Choice.promise` is broken where every threshold of both methods breaks it.

    5.01 % are wrong everywhere, at a promised 5 %: whatever is accepted breaks the promise. With
    `groups`, each of four groups is promised the same, by `Threshold.at_risk` at delta.
    """
    broken = 0
    for seed in range(draws):
        rng = np.random.default_rng([seed, points])
        kappa, wrong = rng.random((2, points)), rng.random(points) < 0.0501
        if levels:
            kappa = np.ceil(kappa * levels) / levels
        rows = rng.permutation(points)
        learn, rest = rows[: points // 2], rows[points // 2 :]
        try:
            if groups:
                Threshold.at_risk(kappa[0], wrong, 0.05, DELTA, groups=rng.integers(0, 4, points))
            else:
                table = ScoreTable.from_kappa(kappa, wrong)
                aes = AES().fit(table)
                # Two candidates: a method was chosen.
                candidates: Any = (None, None)
                choice = Choice(
                    *("AES", "softmax", "softmax", aes, None, "", candidates, learn, rest)
                )
                choice.promise(table, 0.05, DELTA)
        except Infeasible:
            continue
        broken += 1
    return broken / draws


def adversarial() -> None:
    """Print how often promises are broken where nothing may be accepted."""
    print("| 5.01 % wrong everywhere, at 5 % | broken, % |\n|---|--:|")
    for name, *settings in (
        ("`fit`, 200 examples", 200, None, False),
        ("`fit`, 1,000 examples", 1000, None, False),
        ("`fit`, 1,000 examples, 9 levels of confidence", 1000, 9, False),
        ("`fit`, 140 examples, 7 errors", 140, None, False),
        ("four groups, 1,200 examples", 1200, None, True),
    ):
        print(f"| {name} | {100 * both_at_the_limit(*settings):.1f} |", flush=True)


def trainings(draws: int = 3) -> None:
    """Print what is accepted with real trainings as populations, and how often it is broken."""
    print("| population | risk | examples | half, chosen method | all, final softmax | `fit` |")
    print("|---|--:|--:|--:|--:|--:|")
    runs = open_contest(Path("results/contest"))
    for name, risk in (("clothes", 0.02), ("words", 0.05)):
        tables = [run.table for key, some in runs.items() if key.startswith(name) for run in some]
        for n in (500, 1000, 3000):
            found: dict[str, list[tuple[float, bool]]] = {"half": [], "all": [], "fit": []}
            for seed, table in product(range(draws), tables):
                drawn = table.rows(
                    np.random.default_rng([seed, n]).integers(0, table.y_hat.size, n)
                )
                try:
                    choice = choose(drawn, seed=seed)
                except InvalidInput:  # packed logits that disagree with labels in a small part
                    continue
                rest = drawn.rows(choice.rest)
                final, whole = drawn.kappa("softmax")[-1], table.kappa("softmax")[-1]
                half = prove_threshold(choice.confidence(rest), rest.errors, risk, DELTA)
                alone = prove_threshold(final, drawn.errors, risk, DELTA)
                ours, deployed = None, choice
                with suppress(Infeasible):
                    deployed = choice.promise(drawn, risk, DELTA)
                    ours = deployed.threshold
                for way, threshold, score in (
                    ("half", half, choice.confidence(table)),
                    ("all", alone, whole),
                    ("fit", ours, deployed.confidence(table)),
                ):
                    accepted = np.zeros(table.y_hat.size, dtype=bool)
                    if threshold is not None:
                        accepted = threshold.accepts(score)
                    wrong = table.errors[accepted].mean() if accepted.any() else 0.0
                    found[way].append((float(accepted.mean()), bool(wrong > risk)))
            cells = []
            for each in found.values():
                accepted_mean, broken = np.mean(each, axis=0)
                cells.append(f"{100 * accepted_mean:.1f} ({100 * broken:.1f})")
            print(f"| {name} | {risk:.0%} | {n:,} | " + " | ".join(cells) + " |", flush=True)


def _million() -> tuple[Floats, Bools]:
    rng = np.random.default_rng(0)
    u = rng.random(10**6)
    return 1 - u, rng.random(10**6) < _ordinary(u)


def cases() -> Iterator[Case]:
    """Every row of the table of times."""
    kappa, errors = _million()
    yield Case(
        "Threshold.at_risk, 10⁶ examples",
        "np.argsort",
        lambda: Threshold.at_risk(kappa, errors, 0.05),
        lambda: np.argsort(-kappa),
        at_most=5,
        rounds=5,
    )


def memory() -> dict[str, float]:
    """Peak megabytes."""
    kappa, errors = _million()
    return {
        "Threshold.at_risk, 10⁶ examples": peak_megabytes(
            lambda: Threshold.at_risk(kappa, errors, 0.05)
        )
    }


if __name__ == "__main__":
    main()
