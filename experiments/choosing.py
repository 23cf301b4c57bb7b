"""How `choose` should choose: `python -m experiments.choosing`, about three minutes of one core.

Protocol, written before the first run. The first training of each archived task takes part: the
five data sets of the contest and 13 others. Half of a table's examples, at most 2,000, are held out
for the choice; the others are fresh. For each seed 0 … 7, the half of the held-out examples that
`choose` would take chooses a method by each of these ways. It is fitted on this half, and judged on
the fresh examples:

- *splits, best*: of what is significantly better than the final softmax in ten random splits of
  70 to 30 % (the mean of their intervals), the method of the lowest AURC; this is what `choose` did
- *folds, best*: the same by cross-fitting in five folds, where each example is judged once and the
  interval is of all examples
- *folds, cheapest*: of these, the one of fewest passes that is not significantly worse than the
  best; of equals, the lower AURC
- LES and LES (3 passes) without asking, for comparison

Candidates are those of `choose`, with LES of two and three passes; and once more with LES of one
pass, which learns from the final logits alone ("and one pass").

Measured are, over all tables and seeds: how often the final softmax is chosen; how often two seeds
of the same held-out examples choose different methods (share of the 28 pairs, mean over tables);
percent less E-AURC than the final softmax on the fresh examples (mean over tasks; the worst fit;
how many fits lose); and the passes of an answer.

`choose` takes "folds, cheapest". LES of one pass is a candidate if the mean gain is not lower by
more than 0.3 percent with it.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from snapsure import _files
from snapsure.estimators import LES, registry
from snapsure.estimators.registry import FINAL, Method
from snapsure.evaluation import Board, Folds, Run, evaluate
from snapsure.evaluation._archive import open_contest
from snapsure.evaluation._compare import hold_contest, make_board
from snapsure.evaluation._engine import list_candidates
from snapsure.metrics import eaurc
from snapsure.table import ScoreTable
from snapsure.table._table import random_cut

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "choosing.json"
STUDIES = ("contest", "images", "intents", "labels", "regime", "passes")
SEEDS, MOST = range(8), 2000
ONE = Method("LES (1 pass)", partial(LES, passes=1), needs=("labels",))
BEFORE = (FINAL, "AES", "LES", "PES", "best snapshot")
METHODS = [*map(registry.get, (*BEFORE, "LES (3 passes)", "LES (2 passes)")), ONE]


def choose_in_every_way(table: ScoreTable, seed: int) -> dict[str, str]:
    """Return the method that each way chooses from these examples."""
    by_splits = evaluate(table, methods=BEFORE, seed=seed).boards["softmax"]
    ways = {"splits, best": find_best(by_splits), "LES": "LES", "LES (3 passes)": "LES (3 passes)"}
    run = Run(table)
    candidates = list_candidates(run, METHODS, ["softmax"])
    keys = [candidate.key for candidate in candidates]
    contest = hold_contest([run], candidates, "eaurc", Folds(5, seed), 1000, (seed, 0))
    for some, words in ((keys[:-1], ""), (keys, ", and one pass")):
        reference = (FINAL, "softmax")
        board = make_board("", [contest.select(some)], reference, "softmax", 0.95, "none")
        ways[f"folds, best{words}"] = find_best(board)
        ways[f"folds, cheapest{words}"] = find_cheapest(board)
    return ways


def find_best(board: Board) -> str:
    """Return the method of the lowest AURC among those significantly better than the final one."""
    better = [row for row in board.rows if row.outcome == "better"]
    return min(better, key=lambda row: row.difference.estimate).method if better else FINAL


def find_cheapest(board: Board) -> str:
    """Return the method of fewest passes among those not significantly worse than the best."""
    better = [row for row in board.rows if row.outcome == "better"]
    equal = [row for row in better if row.behind is None or row.behind.low <= 0]
    cost = [(round(row.passes), row.difference.estimate, row.method) for row in equal]
    return min(cost)[2] if cost else FINAL


def measure(table: ScoreTable) -> dict[str, list[dict[str, Any]]]:
    """Return what each way chooses for each seed, and what that gains on fresh examples."""
    n = table.y_hat.size
    held, fresh = random_cut(n, min(n // 2, MOST), 0)
    held_out, new = table.rows(held), table.rows(fresh)
    base = float(eaurc(new.kappa("softmax")[-1], new.errors))
    make, found = {method.name: method.make for method in METHODS}, defaultdict(list)
    for seed in SEEDS:
        learn = held_out.rows(random_cut(held.size, round(0.5 * held.size), seed)[0])
        ways = choose_in_every_way(learn, seed)
        fitted = {name: make[name]().fit(learn) for name in {*ways.values()}}
        for way, name in ways.items():
            gain = 100 * (1 - float(eaurc(fitted[name].confidence(new), new.errors)) / base)
            passes = len({*fitted[name].snapshots(table.epochs), int(table.epochs[-1])})
            found[way].append({"method": name, "gain": round(gain, 2), "passes": passes})
    return found


def summarize(tasks: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Return the numbers of one way, from its fits of each task."""
    fits = [fit for some in tasks.values() for fit in some]
    pairs = [[*combinations([fit["method"] for fit in some], 2)] for some in tasks.values()]
    gains = [np.mean([fit["gain"] for fit in some]) for some in tasks.values()]
    return {
        "fits": len(fits),
        "final": sum(fit["method"] == FINAL for fit in fits),
        "changes": round(100 * float(np.mean([[a != b for a, b in some] for some in pairs])), 1),
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
            for way, fits in measure(runs[0].table).items():
                found[way][f"{study}/{task}"] = fits
            content = {way: {**summarize(tasks), "tasks": tasks} for way, tasks in found.items()}
            _files.write_bytes(RESULTS, (json.dumps(content, indent=1) + "\n").encode())
            print(study, task, flush=True)
    for way, tasks in found.items():
        print(way, summarize(tasks))


if __name__ == "__main__":
    main()
