"""What LES learns from, and from how many errors: `python -m experiments.les_features`.

Protocol, written before the first run. Every training that is archived in `results/` with each
snapshot's labels takes part: 69 of 18 tasks. For each, six random draws (seeds 0 … 5) of half of
the examples, of 1,000 and of 300 are learnt from, and the rest is judged: percent of the final
softmax's E-AURC that is saved. A task's gain is the mean over its trainings and draws; the gain of
a variant is the mean over tasks. With fewer than 30 errors (or right examples) in the draw, every
variant is Platt's curve on the final softmax, which gains 0.

The base is what DESIGN says: log-odds of κ at up to 20 snapshots; the share of these snapshots that
give the final label, over all, from 40 % of the training on, and weighted by epoch; their mean κ
from 40 % on; five numbers of the final logits; all through normal scores of the drawn examples, by
257 knots; a penalty of 30 · max(1, 100 / errors), and of 0.3 on the final log-odds. `errors` is the
smaller count of wrong and right. Each open question changes one thing of the base (`VARIANTS`).

A variant replaces the base if it can be deployed, its gain is higher by at least 0.2 percent of the
E-AURC at two of the three sizes and lower by 0.2 at none, and it loses no more in its worst draw;
of equals, the simpler stays. Bar for the result: a gain of at least 11.5 (half), 10.5 (1,000) and
9 (300) percent, no task below −2, no draw with 30 errors or more below −8.

Then the result's learning curve, by errors and not by labels: examples are drawn in random order
until 10, 30, 85, 300 or 1,000 of them are wrong, at most half of all, and the rest is judged; the
same six seeds. Ten errors are too few for LES: the curve shows what it would do without its limit.

About 20 minutes of one core. `results/les-features.json` has the numbers, and `make results` writes
the tables of the docs from it.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtri  # type: ignore[import-untyped]

from snapsure import _files
from snapsure._logistic import fit_logistic, logit
from snapsure._spacing import choose
from snapsure._types import Bools, Floats, Ints
from snapsure.evaluation._archive import open_contest
from snapsure.evaluation._run import Run
from snapsure.metrics import eaurc

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "les-features.json"
STUDIES = ("contest", "passes", "regime", "labels", "intents", "images")
SIZES = ("half", 1000, 300)
DRAWS = range(6)
FEW = 30


@dataclass(frozen=True)
class Variant:
    """One way to make features and to fit weights."""

    agreement: str = "used"  # of the snapshots in use, of "all" in the table, or "none"
    mean: bool = True
    numbers: bool = True  # of the final logits
    neighbours: bool = False  # of the training embeddings, which a predictor does not have
    transform: str = "normal"  # scores of all features; "raw final": but the final log-odds; "raw"
    knots: int = 257
    penalty: float = 30.0
    errors: float = 100.0  # below so many, the penalty rises


BASE = Variant()
VARIANTS = {
    "base": BASE,
    "before": Variant(
        agreement="none", mean=False, numbers=False, transform="raw", penalty=10, errors=0
    ),
    "agreement of all snapshots": replace(BASE, agreement="all"),
    "without agreement": replace(BASE, agreement="none"),
    "without the mean": replace(BASE, mean=False),
    "without the final numbers": replace(BASE, numbers=False),
    "with neighbours": replace(BASE, neighbours=True),
    "final log-odds as they are": replace(BASE, transform="raw final"),
    "all features as they are": replace(BASE, transform="raw"),
    "65 knots": replace(BASE, knots=65),
    "a knot per example": replace(BASE, knots=10_000),
    "penalty 15": replace(BASE, penalty=15),
    "penalty 60": replace(BASE, penalty=60),
    "penalty rises below 200 errors": replace(BASE, errors=200),
    "penalty does not rise": replace(BASE, errors=0),
}


def open_runs() -> Iterator[tuple[str, int, Run]]:
    """Yield every archived training, with the name of its task and its number."""
    for study in STUDIES:
        for name, runs in open_contest(ROOT / "results" / study).items():
            yield from ((f"{study}/{name}", i, run) for i, run in enumerate(runs))


def make_features(run: Run, variant: Variant) -> Floats:
    """Return the features, (d, n), the final log-odds last."""
    table = run.table
    kappa, epochs, agree = table.kappa("softmax"), table.epochs, table.labels == table.y_hat
    used = choose(epochs, 20, 0.0)
    late = used[epochs[used] >= 0.4 * epochs[-1]]
    rows = [logit(kappa[i]) for i in used[:-1]]
    if variant.agreement != "none":
        among = used if variant.agreement == "used" else np.arange(len(epochs))
        weight = epochs[among, None] / epochs[-1]
        rows += [agree[among].mean(axis=0), (agree[among] * weight).sum(axis=0)]
        rows += [agree[among[epochs[among] >= 0.4 * epochs[-1]]].mean(axis=0)]
    if variant.mean:
        rows.append(logit(kappa[late].mean(axis=0)))
    if variant.numbers and table.final is not None:
        rows += [*logit(table.final.T)]
    if variant.neighbours:
        rows += [
            logit(run.others[name][0]) for name in ("deep_knn", "nn_distance") if name in run.others
        ]
    return np.array([*rows, logit(kappa[-1])])


def fit_and_score(x: Floats, wrong: Bools, learn: Ints, rest: Ints, variant: Variant) -> Floats:
    """Return the confidence of the examples in `rest`, in log-odds."""
    mapped = np.empty_like(x)
    raw = {"normal": 0, "raw final": 1, "raw": len(x)}[variant.transform]
    for j, feature in enumerate(x):
        mapped[j] = (
            feature
            if j >= len(x) - raw
            else to_normal_scores(feature, feature[learn], variant.knots)
        )
    center = mapped[:, learn].mean(axis=1, keepdims=True)
    spread = mapped[:, learn].std(axis=1, keepdims=True)
    spread[spread < 1e-9] = np.inf
    mapped = np.vstack(((mapped - center) / spread, np.ones(wrong.size)))
    few = min(wrong[learn].sum(), (~wrong[learn]).sum())
    penalty = np.full(len(x) + 1, variant.penalty * max(1, variant.errors / few))
    penalty[-2:] = 0.3, 0.0
    right = (~wrong[learn]).astype(np.float64)
    weights = fit_logistic(np.ascontiguousarray(mapped[:, learn].T), right, penalty)
    score: Floats = weights @ mapped[:, rest]
    return score


def to_normal_scores(x: Floats, learn: Floats, knots: int) -> Floats:
    """Map x through a table: mean ranks r of some learnt values to Φ⁻¹(r / (n + 1))."""
    ordered = np.sort(learn)
    places = np.rint(np.linspace(0, learn.size - 1, min(knots, learn.size))).astype(int)
    values = np.unique(ordered[places])
    rank = np.searchsorted(ordered, values) + np.searchsorted(ordered, values, "right")
    return np.interp(x, values, ndtri((rank + 1) / 2 / (learn.size + 1)))


def measure_variants(run: Run, variants: Mapping[str, Variant]) -> list[dict[str, Any]]:
    """Return the gain of every variant for each size and draw of one training."""
    wrong, final, found = run.table.errors, run.table.kappa("softmax")[-1], []
    features = {name: make_features(run, variant) for name, variant in variants.items()}
    for size in SIZES:
        for draw in DRAWS:
            order = np.random.default_rng(draw).permutation(wrong.size)
            count = wrong.size // 2 if isinstance(size, str) else size
            learn, rest = np.sort(order[:count]), np.sort(order[count:])
            errors = int(wrong[learn].sum())
            base = float(eaurc(final[rest], wrong[rest]))
            for name, variant in variants.items():
                gain = 0.0
                if min(errors, count - errors) >= FEW:
                    score = fit_and_score(features[name], wrong, learn, rest, variant)
                    gain = 100 * (1 - float(eaurc(score, wrong[rest])) / base)
                found.append(
                    {"variant": name, "size": size, "draw": draw, "errors": errors, "gain": gain}
                )
    return found


def main() -> None:
    """Measure every variant and the learning curve, and write both."""
    tasks: dict[str, list[dict[str, Any]]] = {}
    for task, seed, run in open_runs():
        tasks.setdefault(task, []).extend(measure_variants(run, VARIANTS))
        print(task, seed, flush=True)
    variants = {
        name: {
            str(size): {
                task: summarize([r for r in rows if (r["variant"], r["size"]) == (name, size)])
                for task, rows in tasks.items()
            }
            for size in SIZES
        }
        for name in VARIANTS
    }
    content = {"draws": len(DRAWS), "variants": variants}
    _files.write_bytes(RESULTS, (json.dumps(content, indent=1) + "\n").encode())
    for name, sizes in variants.items():
        means = [float(np.mean([t["mean"] for t in tasks.values()])) for tasks in sizes.values()]
        lows = [min(t["mean"] for t in tasks.values()) for tasks in sizes.values()]
        worst = [min(t["worst"] for t in tasks.values()) for tasks in sizes.values()]
        print(f"{name:32}", *(f"{x:6.2f}" for x in (*means, *lows, *worst)))


def summarize(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the mean, the worst draw with enough errors, and how many draws gain."""
    gains = [row["gain"] for row in rows]
    return {
        "mean": round(float(np.mean(gains)), 2),
        "worst": round(min((r["gain"] for r in rows if r["errors"] >= FEW), default=0.0), 2),
        "errors": round(float(np.mean([row["errors"] for row in rows])), 1),
        "better": sum(gain > 0 for gain in gains),
        "draws": len(gains),
    }


if __name__ == "__main__":
    main()
