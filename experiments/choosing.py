"""How `choose` should choose: `python -m experiments.choosing`, about three minutes of one core.

Protocol. One training of each archived task takes part. Half of a table's examples, at most 2,000,
are held out for the choice; the others are fresh. For each seed 0 … 7, the half of the held-out
examples that `choose` would take chooses a method by each of these ways. It is fitted on this half,
and judged on the fresh examples:

- *splits, best*: of what is significantly better than the final softmax in ten random splits of
  70 to 30 % (the mean of their intervals), the method of the lowest AURC; this is what `choose` did
- *folds, cheapest*: of what is significantly better by cross-fitting in five folds, where each
  example is judged once, the method of fewest passes that is not significantly worse than the best
- *choose*: what `choose` does now, by the same folds. LES need not be significantly better than the
  final softmax; of LES in three and in twenty passes, the cheaper one that is not significantly
  worse than the best method; another method only if LES is significantly worse than the best
- LES and LES (3 passes) without asking, for comparison

Measured are, over all tables and seeds: how often the final softmax is chosen; how often two seeds
of the same held-out examples choose different methods (share of the 28 pairs, mean over tables),
LES in three and in twenty passes being different, and being the same; percent less E-AURC than the
final softmax on the fresh examples (mean over tasks; the worst fit; how many fits lose); passes.

Three rounds; the first and the third were written before they were run, and the first was cut to
fewer tables before its results were read. Rounds 1 and 2 had LES as it was before its third round
of `experiments.les_features`:

1. The first trainings compared the first two ways, with LES of two passes, and of one, among the
   candidates, and all with the same drawn half. "Folds, cheapest" fell back to the final softmax
   less often than "splits, best" (70 of 144 fits instead of 91), in fewer passes (4.3 instead of
   7.0), for the same gain (5.9 instead of 6.0 %); it changed with the seed more often. LES without
   asking gained 11.5 % and lost in no fit: to ask for significance costs more than it saves.
2. The second trainings, each with a half of its own, compared about 50 rules on the same folds.
   Best by estimate is worse than LES alone: single snapshots and PES lose up to 47 %. Two passes
   cost gain and change more often. "Choose" was found here.
3. The third trainings (where there are three) judge it: this is what runs, and what
   `results/choosing.json` has.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from snapsure import _files
from snapsure.estimators import registry
from snapsure.estimators.registry import FINAL
from snapsure.evaluation import Result, evaluate
from snapsure.evaluation._archive import open_contest
from snapsure.evaluation._choose import choose_estimator
from snapsure.metrics import eaurc
from snapsure.table import ScoreTable
from snapsure.table._table import random_cut

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "choosing.json"
STUDIES = ("contest", "images", "intents", "labels", "passes", "regime")
SEEDS, MOST, TRAINING = range(8), 2000, 2
BEFORE = (FINAL, "AES", "LES", "PES", "best snapshot")


def choose_in_every_way(table: ScoreTable, seed: int) -> dict[str, str]:
    """Return the method that each way chooses from these examples."""
    by_splits = evaluate(table, kappa="softmax", methods=BEFORE, seed=seed).boards["softmax"].rows
    better = [row for row in by_splits if row.outcome == "better"]
    best = min(better, key=lambda row: row.difference.estimate).method if better else FINAL
    choice = choose_estimator(table, "softmax", None, seed)
    return {
        "splits, best": best,
        "folds, cheapest": find_cheapest(choice.candidates),
        "choose": choice.method,
        **{name: name for name in ("LES", "LES (3 passes)")},
    }


def find_cheapest(rows: Sequence[Result]) -> str:
    """Return the method of fewest passes among those not significantly worse than the best."""
    better = [row for row in rows if row.outcome == "better"]
    equal = [row for row in better if row.behind is None or row.behind.low <= 0]
    cost = [(round(row.passes), row.difference.estimate, row.method) for row in equal]
    return min(cost)[2] if cost else FINAL


def measure(table: ScoreTable, cut: int) -> dict[str, list[dict[str, Any]]]:
    """Return what each way chooses for each seed, and what that gains on fresh examples."""
    n = table.y_hat.size
    held, fresh = random_cut(n, min(n // 2, MOST), cut)
    held_out, new = table.rows(held), table.rows(fresh)
    base = float(eaurc(new.kappa("softmax")[-1], new.errors))
    found = defaultdict(list)
    for seed in SEEDS:
        learn = held_out.rows(random_cut(held.size, round(0.5 * held.size), seed)[0])
        ways = choose_in_every_way(learn, seed)
        fitted = {name: registry.get(name).make().fit(learn) for name in {*ways.values()}}
        for way, name in ways.items():
            gain = 100 * (1 - float(eaurc(fitted[name].confidence(new), new.errors)) / base)
            passes = len({*fitted[name].snapshots(table.epochs), int(table.epochs[-1])})
            found[way].append({"method": name, "gain": round(gain, 2), "passes": passes})
    return found


def summarize(tasks: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Return the numbers of one way, from its fits of each task."""
    fits = [fit for some in tasks.values() for fit in some]
    names = [[fit["method"] for fit in some] for some in tasks.values()]
    kinds = [[name.removesuffix(" (3 passes)") for name in some] for some in names]
    changes, of_kind = (
        [a != b for some in each for a, b in combinations(some, 2)] for each in (names, kinds)
    )
    gains = [np.mean([fit["gain"] for fit in some]) for some in tasks.values()]
    return {
        "fits": len(fits),
        "final": sum(fit["method"] == FINAL for fit in fits),
        "changes": round(100 * float(np.mean(changes)), 1),
        "changes of the kind": round(100 * float(np.mean(of_kind)), 1),
        "gain": round(float(np.mean(gains)), 2),
        "worst": min(fit["gain"] for fit in fits),
        "losses": sum(fit["gain"] < 0 for fit in fits),
        "passes": round(float(np.mean([fit["passes"] for fit in fits])), 1),
    }


def main() -> None:
    """Measure every way, print the numbers and write them after each task."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(dict)
    for study in STUDIES:
        for task, runs in open_contest(ROOT / "results" / study).items():
            if len(runs) <= TRAINING:
                continue
            cut = 200 + len(found["choose"])
            for way, fits in measure(runs[TRAINING].table, cut).items():
                found[way][f"{study}/{task}"] = fits
            content = {way: {**summarize(tasks), "tasks": tasks} for way, tasks in found.items()}
            _files.write_bytes(RESULTS, (json.dumps(content, indent=1) + "\n").encode())
            print(study, task, flush=True)
    for way, tasks in found.items():
        print(way, summarize(tasks))


if __name__ == "__main__":
    main()
