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

Second round, written after the first run: without neighbours, which a predictor does not have, the
base reached 11.1, 10.3 and 9.0 percent (the last over draws with 30 errors), below the bar. Added
were offsets of the predicted class, by one Newton step after the fit, and some variants of these.
The offsets are part of LES now, although the rule above speaks against them: the worst draw loses
more with them (13 instead of 11 percent). They lift the lowest task from 0.4 to 2.5 percent.

Third round, written after a first look at the worst draw: one of clothes-strong, which loses 13
percent. `examine_worst` asks why. It bootstraps the judged examples with the weights as they are;
fits LES to the judged half itself, and to all examples; asks AES, which learns nothing; and draws
100 other halves of the same training. `REMEDIES` each change one thing that shrinks LES towards the
final softmax: the penalty by errors, that on offsets, that on the final numbers, a blend with
Platt's curve, a mean of fits. A remedy passes if the bar holds, means and draws.

No remedy alone passes: that draw speaks against all but the blend at 50 errors, which gains 1.2
percent less than LES from 300 examples (of the 23 trainings that were run until then). `COMBINED`
joins those that cost nothing; one of them had been tried on that draw before. So only six new draws
(6 … 11) can judge them, and these are of the same trainings. The penalty on offsets is estimated
where that is safe: by moments, the variance of offsets is Σ (g² − i) / Σ i² (g: gradient, i:
information of each class), from 100 errors on ("many"); or less one standard error of what chance
gives, √Σ (2 i² + i) / Σ i², so that few errors leave 0 ("safe"). One of them replaces LES if on the
new draws the bar of the means holds, its gain is lower than that of LES by more than 0.2 at no
size, and its worst draw is not lower; of several, the highest mean gain over the three sizes. That
is `CHOSEN`.

Fourth round, written before its run: averaged weights as one more pass. The features are the
log-odds of the final answer under the averaged weights, and whether they give the final label.
Archives hold κ of their own label alone: where it is another one, min(κ, 1 − κ) bounds the share
of the final answer from above, and stands for it. Compared are two passes (final and averaged with
`LES(passes=2)`), three (averaged beside the two of LES, with `LES(passes=3)`), and all: given
averaged weights always, and given only where the search of LES chooses them. They join LES if, with
two or with three passes, the mean difference over tasks is above twice its standard error over
tasks for half of the examples and for 1,000, and not negative for 300. They do not: where the
search may choose them, the difference is within twice its error, and where they take the place of a
chosen snapshot, LES gains less. (LES is that of the second round here.)

Then the learning curve of LES, by errors and not by labels: examples are drawn in random order
until 10, 30, 85, 300 or 1,000 of them are wrong, at most half of all, and the rest is judged; the
same six seeds. Ten errors are too few for LES: the curve shows what it would do without its limit.

About 40 minutes of one core. `results/les-features.json` has the numbers, and `make results` writes
the tables of the docs from it.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from scipy.special import ndtri  # type: ignore[import-untyped]

from snapsure import _files
from snapsure._logistic import fit_logistic, logit, platt_curve, sigmoid
from snapsure._logit_scores import FINAL_NUMBERS
from snapsure._spacing import choose
from snapsure._types import Floats, Ints
from snapsure.estimators import AES, LES, Estimator, _les
from snapsure.estimators._search import Search
from snapsure.estimators.registry import AVERAGED
from snapsure.evaluation._archive import open_contest
from snapsure.evaluation._run import Run
from snapsure.metrics import eaurc
from snapsure.table import ScoreTable

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "les-features.json"
STUDIES = ("contest", "passes", "regime", "labels", "intents", "images")
SIZES: tuple[str | int, ...] = ("half", 1000, 300)
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
    power: float = 1.0  # it rises by this power of what is lacking
    on_numbers: float = 1.0  # how much higher it is on the numbers of the final logits
    classes: float = 0.0  # the penalty on offsets of predicted classes; 0 for no offsets
    offsets: str = (
        "errors"  # it rises as that on weights; "200", "each"; "estimated", "many", "safe"
    )
    blend: float = 0.0  # errors for which the mean with Platt's curve is half and half
    folds: int = 0  # the mean of so many fits, each without one fold
    passes: int = 20
    averaged: str = ""  # beside the passes: "always", or one of them where it is "chosen"


BASE = Variant()
OFFSETS = replace(BASE, classes=10.0)
_STEADY = replace(OFFSETS, errors=300, power=0.5, on_numbers=5)
CHOSEN = replace(_STEADY, offsets="many")
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
    "class offsets": OFFSETS,
    "class offsets, penalty 5": replace(OFFSETS, classes=5),
    "class offsets, penalty 20": replace(OFFSETS, classes=20),
    "class offsets, without agreement": replace(OFFSETS, agreement="none"),
    "class offsets, without the final numbers": replace(OFFSETS, numbers=False),
    "class offsets, with neighbours": replace(OFFSETS, neighbours=True),
}
REMEDIES = {
    "penalty rises below 200 errors": replace(OFFSETS, errors=200),
    "penalty rises by √(300 / errors)": replace(OFFSETS, errors=300, power=0.5),
    "offsets' penalty rises below 200 errors": replace(OFFSETS, offsets="200"),
    "offsets' penalty by errors per class": replace(OFFSETS, offsets="each"),
    "offsets' penalty estimated": replace(OFFSETS, offsets="estimated"),
    "twice the penalty on final numbers": replace(OFFSETS, on_numbers=2),
    "five times the penalty on final numbers": replace(OFFSETS, on_numbers=5),
    "blend, half at 20 errors": replace(OFFSETS, blend=20),
    "blend, half at 50 errors": replace(OFFSETS, blend=50),
    "mean of five fits": replace(OFFSETS, folds=5),
}
COMBINED = {
    "class offsets": OFFSETS,
    "steady: penalty √(300 / errors), five times on final numbers": _STEADY,
    "LES: steady, offsets' penalty estimated from 100 errors on": CHOSEN,
    "steady, offsets' penalty safely estimated": replace(_STEADY, offsets="safe"),
    "offsets' penalty safely estimated": replace(OFFSETS, offsets="safe"),
}
AVERAGED_TOO = {
    "1 pass": replace(OFFSETS, passes=1),
    "2 passes": replace(OFFSETS, passes=2),
    "2 passes, averaged weights always": replace(OFFSETS, passes=1, averaged="always"),
    "2 passes, averaged weights chosen": replace(OFFSETS, passes=2, averaged="chosen"),
    "3 passes": replace(OFFSETS, passes=3),
    "3 passes, averaged weights always": replace(OFFSETS, passes=2, averaged="always"),
    "3 passes, averaged weights chosen": replace(OFFSETS, passes=3, averaged="chosen"),
    "20 passes": OFFSETS,
    "20 passes, averaged weights too": replace(OFFSETS, averaged="always"),
}
ERRORS = (10, 30, 85, 300, 1000)
METHODS: dict[str, Callable[[], Estimator]] = {
    "LES": LES,
    "LES (3 passes)": partial(LES, passes=3),
    "LES (1 pass)": partial(LES, passes=1),
    "AES": AES,
}


def open_runs() -> Iterator[tuple[str, int, Run]]:
    """Yield every archived training, with the name of its task and its number."""
    for study in STUDIES:
        for name, runs in open_contest(ROOT / "results" / study).items():
            yield from ((f"{study}/{name}", i, run) for i, run in enumerate(runs))


def make_features(run: Run, variant: Variant, learn: Ints) -> dict[str, Floats]:
    """Return the features by name, (n,) each, the final log-odds last."""
    table = run.table
    kappa, epochs, agree = table.kappa("softmax"), table.epochs, table.labels == table.y_hat
    used = choose(epochs, 20, 0.0)
    odds, averaged = logit(kappa[used]), {}
    if variant.averaged:
        own, labels, *_ = run.others[AVERAGED]
        same = labels == table.y_hat
        averaged = {
            "averaged": logit(np.where(same, own, np.minimum(own, 1 - own))),
            "averaged agree": same.astype(np.float64),
        }
    pool = [averaged["averaged"], *odds] if variant.averaged == "chosen" else odds
    if variant.passes < len(pool):
        scores = [to_normal_scores(x[learn], x[learn], variant.knots) for x in pool]
        scores = [(x - x.mean()) / max(x.std(), 1e-9) for x in scores]
        found = Search().rows(np.array(scores), table.errors[learn], variant.passes)
        if variant.averaged == "chosen":
            averaged = averaged if found[0] == 0 else {}
            found = [i - 1 for i in found if i]
        used, odds = used[found], odds[found]

    late = used[epochs[used] >= 0.4 * epochs[-1]]
    x = {f"epoch {epochs[i]}": row for i, row in zip(used[:-1], odds, strict=False)} | averaged
    if variant.agreement != "none":
        among = used if variant.agreement == "used" else np.arange(len(epochs))
        weight = epochs[among, None] / epochs[-1]
        x["agreement"] = agree[among].mean(axis=0)
        x["weighted agreement"] = (agree[among] * weight).sum(axis=0)
        x["late agreement"] = agree[among[epochs[among] >= 0.4 * epochs[-1]]].mean(axis=0)
    if variant.mean:
        x["late mean"] = logit(kappa[late].mean(axis=0))
    if variant.numbers and table.final is not None:
        x |= zip(FINAL_NUMBERS, logit(table.final.T), strict=True)
    if variant.neighbours:
        names = [name for name in ("deep_knn", "nn_distance") if name in run.others]
        x |= {name: logit(run.others[name][0]) for name in names}
    return x | {"final": odds[-1]}


def fit_and_score(run: Run, learn: Ints, rest: Ints, variant: Variant) -> Floats:
    """Return the confidence of the examples in `rest`, in log-odds."""
    if variant.folds:
        fold = np.arange(learn.size) % variant.folds
        some, each = replace(variant, folds=0), range(variant.folds)
        fits = [fit_and_score(run, learn[fold != number], rest, some) for number in each]
        mean: Floats = np.mean(fits, axis=0)
        return mean

    x, wrong, y_hat = make_features(run, variant, learn), run.table.errors, run.table.y_hat
    raw = {"normal": 0, "raw final": 1, "raw": len(x)}[variant.transform]
    mapped = np.array([*x.values()])
    for row in mapped[: len(x) - raw]:
        row[:] = to_normal_scores(row, row[learn], variant.knots)
    center = mapped[:, learn].mean(axis=1, keepdims=True)
    spread = mapped[:, learn].std(axis=1, keepdims=True)
    spread[spread < 1e-9] = np.inf
    design = np.vstack(((mapped - center) / spread, np.ones(wrong.size)))
    right = (~wrong[learn]).astype(np.float64)
    errors = min(right.sum(), (1 - right).sum())
    scale = max(1, variant.errors / errors) ** variant.power
    penalty = np.full(len(design), variant.penalty * scale)
    penalty[:-1][[name in FINAL_NUMBERS for name in x]] *= variant.on_numbers
    penalty[-2:] = 0.3, 0.0
    z = fit_logistic(np.ascontiguousarray(design[:, learn].T), right, penalty) @ design

    if variant.classes:
        p, size = sigmoid(z[learn]), int(y_hat.max()) + 1
        gradient = np.bincount(y_hat[learn], right - p, size)
        information = np.bincount(y_hat[learn], p * (1 - p), size)
        known = np.count_nonzero(information)
        rises = {"errors": scale, "200": max(1, 200 / errors), "each": max(1, 10 * known / errors)}
        held = variant.classes * rises.get(variant.offsets, 1.0)
        is_known = variant.offsets == "many" and errors >= 100
        if is_known or variant.offsets in ("estimated", "safe"):
            excess = (gradient**2 - information).sum()  # E g² = i + i² · variance of offsets
            if variant.offsets == "safe":
                excess -= np.sqrt((2 * information**2 + information).sum())
            held = 1 / max(excess / (information**2).sum(), 1e-6)
        elif variant.offsets == "many":
            held *= scale
        z += (gradient / (held + information))[y_hat]
    if variant.blend:
        slope, intercept = platt_curve(x["final"][learn], wrong[learn])
        share = errors / (errors + variant.blend)
        z = share * z + (1 - share) * (slope * x["final"] + intercept)
    score: Floats = z[rest]
    return score


def to_normal_scores(x: Floats, learn: Floats, knots: int) -> Floats:
    """Map x through a table: mean ranks r of some learnt values to Φ⁻¹(r / (n + 1))."""
    ordered = np.sort(learn)
    places = np.rint(np.linspace(0, learn.size - 1, min(knots, learn.size))).astype(int)
    values = np.unique(ordered[places])
    rank = np.searchsorted(ordered, values) + np.searchsorted(ordered, values, "right")
    return np.interp(x, values, ndtri((rank + 1) / 2 / (learn.size + 1)))


def split(run: Run, size: str | int, draw: int) -> tuple[Ints, Ints]:
    """Return the examples to learn from and those to judge."""
    n = run.table.y_hat.size
    order = np.random.default_rng(draw).permutation(n)
    count = n // 2 if isinstance(size, str) else size
    return np.sort(order[:count]), np.sort(order[count:])


def measure_gain(run: Run, score: Floats, rest: Ints) -> float:
    """Return percent of the final softmax's E-AURC that a score of some examples saves."""
    final, wrong = run.table.kappa("softmax")[-1, rest], run.table.errors[rest]
    return 100 * (1 - float(eaurc(score, wrong)) / float(eaurc(final, wrong)))


def measure_variants(
    run: Run, variants: Mapping[str, Variant], draws: Iterable[int] = DRAWS
) -> list[dict[str, Any]]:
    """Return the gain of every variant for each size and draw of one training."""
    found = []
    for size, draw in product(SIZES, draws):
        learn, rest = split(run, size, draw)
        errors = int(run.table.errors[learn].sum())
        for name, variant in variants.items():
            gain = 0.0
            if min(errors, learn.size - errors) >= FEW:
                gain = measure_gain(run, fit_and_score(run, learn, rest, variant), rest)
            found.append({"name": name, "size": size, "draw": draw, "errors": errors, "gain": gain})
    return found


def examine_worst(run: Run, draw: int) -> dict[str, Any]:
    """Return how far one draw of half of a training's examples is from what others say of it."""

    def fit(learn: Ints, rest: Ints, variant: Variant = OFFSETS) -> float:
        return measure_gain(run, fit_and_score(run, learn, rest, variant), rest)

    learn, rest = split(run, "half", draw)
    score, rng = fit_and_score(run, learn, rest, OFFSETS), np.random.default_rng(0)
    picks = [rng.integers(0, rest.size, rest.size) for _ in range(1000)]
    again = [measure_gain(run, score[pick], rest[pick]) for pick in picks]
    others = [fit(*split(run, "half", 100 + number)) for number in range(100)]
    mean = AES().fit(run.table).confidence(run.table)
    numbers = {
        "gain": fit(learn, rest),
        "standard error, by the bootstrap": float(np.std(again)),
        "on the examples learnt from": fit(learn, learn),
        "fitted to the judged examples": fit(rest, rest),
        "fitted to all examples": fit(np.arange(run.table.y_hat.size), rest),
        "AES": measure_gain(run, mean[rest], rest),
        "AES, on the examples learnt from": measure_gain(run, mean[learn], learn),
        "100 other halves, mean": float(np.mean(others)),
        "100 other halves, standard deviation": float(np.std(others)),
        "100 other halves, lowest": min(others),
        **{f"remedy: {name}": fit(learn, rest, variant) for name, variant in REMEDIES.items()},
        **{f"combined: {name}": fit(learn, rest, variant) for name, variant in COMBINED.items()},
    }
    return {name: round(number, 2) for name, number in numbers.items()}


def measure_curve(run: Run) -> list[dict[str, Any]]:
    """Return the gain of each method by the number of errors it learns from."""
    whole, found = run.table, []
    kappa = whole.kappa("softmax")
    table = ScoreTable(
        {"softmax": kappa}, whole.labels, whole.y, epochs=whole.epochs, final=whole.final
    )
    wrong, final = table.errors, kappa[-1]
    for errors in ERRORS:
        for draw in DRAWS:
            order = np.random.default_rng(draw).permutation(wrong.size)
            count = int(np.searchsorted(np.cumsum(wrong[order]), errors)) + 1
            if count > wrong.size // 2:
                continue
            learn, rest = table.rows(np.sort(order[:count])), table.rows(np.sort(order[count:]))
            base = float(eaurc(final[np.sort(order[count:])], rest.errors))
            for name, make in METHODS.items():
                with mock.patch.object(_les, "FEW", min(FEW, errors)):
                    score = make().fit(learn).confidence(rest)
                gain = 100 * (1 - float(eaurc(score, rest.errors)) / base)
                found.append({"name": name, "size": errors, "errors": errors, "gain": gain})
    return found


def summarize(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the mean, over all draws and over those with enough errors, and the worst of these."""
    gains = [row["gain"] for row in rows]
    enough = [row["gain"] for row in rows if row["errors"] >= FEW]
    return {
        "mean": round(float(np.mean(gains)), 2),
        "mean of draws with 30 errors": round(float(np.mean(enough)), 2) if enough else None,
        "worst of these": round(min(enough), 2) if enough else None,
        "worst": round(min(gains), 2),
        "errors": round(float(np.mean([row["errors"] for row in rows])), 1),
        "better": sum(gain > 0 for gain in gains),
        "draws": len(gains),
    }


GROUPS = {
    "variants": (VARIANTS, DRAWS),
    "combined": (COMBINED, DRAWS),
    "combined, new draws": (COMBINED, range(6, 12)),
    "averaged": (AVERAGED_TOO, DRAWS),
}


def main() -> None:
    """Measure every variant and the learning curve, look at the worst draw, and write all."""
    found: dict[tuple[str, str, str, str], list[dict[str, Any]]] = {}
    worst: tuple[float, str, int, int] = (0.0, "", 0, 0)
    for task, seed, run in open_runs():
        rows = {group: measure_variants(run, *what) for group, what in GROUPS.items()}
        for group, some in (rows | {"curve": measure_curve(run)}).items():
            for row in some:
                found.setdefault((group, row["name"], str(row["size"]), task), []).append(row)
        for row in rows["combined"]:
            if (row["name"], row["size"]) == ("class offsets", "half") and row["errors"] >= FEW:
                worst = min(worst, (row["gain"], task, seed, row["draw"]))
        print(task, seed, flush=True)
    _, task, seed, draw = worst
    run = next(run for name, number, run in open_runs() if (name, number) == (task, seed))
    content: dict[str, Any] = {
        "draws": len(DRAWS),
        "worst": {"task": task, "training": seed, "draw": draw} | examine_worst(run, draw),
    }
    for (group, name, size, task), some in found.items():
        sizes = content.setdefault(group, {}).setdefault(name, {}).setdefault(size, {})
        sizes[task] = summarize(some)
    _files.write_bytes(RESULTS, (json.dumps(content, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
