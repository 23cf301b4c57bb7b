"""Compute every table and picture that the pages show, from the archives in `results/`.

    make results

A table becomes a snippet, `docs/snippets/NAME.md`, which a page of the site includes by
`--8<-- "NAME.md"`. README.md and results/README.md, which are read in the repository too, have
the same table inline, after a comment that names it: `<!-- NAME -->`. The paper's tables below
`results/` are not made here but by `snapsure reproduce`.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from snapsure._types import Floats
from snapsure.estimators.registry import AVERAGED
from snapsure.evaluation import Board, Comparison, Result, compare
from snapsure.metrics import aurc
from snapsure.paper.tables import COMPARED, published
from snapsure.report import pictures
from snapsure.report.tables import Column, Table, signed, to_markdown
from tools import charts, studies
from tools.studies import (
    AES,
    BOTH,
    CHOSEN_GEN,
    EMBEDDED,
    FINAL,
    FIVE,
    LES,
    LES2,
    LES3,
    LES4,
    PNORM,
    POWERS,
    PREDICTOR,
    PUBLISHED_GEN,
    RESULTS,
    ROOT,
    STARTS,
    THINNED,
    THINNED_UNTIED,
    UNTIED,
    Record,
    Task,
)

SNIPPETS = ROOT / "docs" / "snippets"
IMAGES = ROOT / "docs" / "images"
INLINE = (ROOT / "README.md", RESULTS / "README.md")
_PLACE = re.compile(r"^<!-- ([\w-]+) -->\n+(?:\|.*\n)*\n*", re.M)


def render_table(head: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> str:
    """Return a table in Markdown; all columns but the first few `words` are aligned right."""
    columns = [Column(name, text=i < words) for i, name in enumerate(head)]
    return to_markdown(Table(columns, rows))


def format_signed(number: float) -> str:
    """Return a number with its sign and one digit; never −0.0."""
    return f"{round(number, 1) + 0.0:+.1f}"


def format_percent(share: float | np.floating[Any], digits: int = 0) -> str:
    """Return a share in percent."""
    return f"{100 * share:.{digits}f} %"


def format_range(numbers: Sequence[float], form: str) -> str:
    """Return the least and the most, or the one that both are."""
    low, high = (form.format(round(end, 1) + 0.0) for end in (min(numbers), max(numbers)))
    return low if low == high else f"{low} … {high}"


def format_gain(row: Result) -> str:
    """Return percent less than the reference, bold where that is significant."""
    written = format_signed(row.saved.estimate)
    return f"**{written}**" if row.p_holm is not None and row.p_holm < 0.05 else written


# Few passes -----------------------------------------------------------------------------------

LABELS = "held-out labels"
README_ROWS = {
    "`LES()`: learned early stopping": (LES, LABELS),
    "`LES(passes=3)`": (LES3, LABELS),
    "`AES()`: averaged early stopping": (AES, "nothing"),
    "averaged weights of the checkpoints": ("averaged weights", "nothing"),
    "for comparison: an `Ensemble` of two networks": (BOTH, "one more training"),
}
# On top of each such network's own final softmax: the method, its key in rivals.json, its cost.
RIVAL_ROWS = {
    "`LES()` on networks trained with SAM, EMA, SWA, FMFP or RegMixup": (LES, "LES", LABELS),
    "averaged weights of the same networks": ("averaged weights", "averaged aurc", "nothing"),
}
SUMMARY_ROWS = {
    "`AES()`, no labels": AES,
    "`LES()`, held-out labels": LES,
    "`LES(passes=3)`, held-out labels": LES3,
    "`SelfAdaptive`, a loss for the training itself": "SAT",
    "`Student(labels=0)` answering itself: one more training": "student",
    "for comparison: a second network, and the mean of both": BOTH,
}
PASSES_ROWS = (
    *(BOTH, "second network and the old, of the old answers"),
    *("student and the old, of the old answers", LES, "second network, of the old answers"),
    *(LES4, LES3, LES2, "averaged weights", "mean probabilities", AES),
    *("student, of the old answers", "SAT", FINAL, "CRL", "FMFP", "student", "label smoothing"),
    *("student of the final", "student of all epochs"),
)


def tabulate_readme(found: Comparison) -> str:
    """Tabulate five methods over all tasks, and two on networks trained for confidence."""
    boards, pooled = list(found.boards.values()), _pooled(found)
    rows = []
    for words, (method, cost) in README_ROWS.items():
        passes, saved = f"{pooled[method].passes:.0f}", format_signed(pooled[method].saved.estimate)
        rows.append([words, passes, f"{saved} %", _count_better(boards, method), cost])
    for words, (method, key, cost) in RIVAL_ROWS.items():
        gains = [
            [
                100 * (1 - one[key] / one["aurc"])
                for seed in seeds.values()
                for way, one in seed.items()
                if way != "plain"
            ]
            for seeds in _read_rivals().values()
        ]
        each = [gain for some in gains for gain in some]
        passes = f"{np.mean([found.boards[name][method].passes for name in _read_rivals()]):.0f}"
        saved = format_signed(float(np.mean([np.mean(some) for some in gains])))
        better = f"{sum(gain > 0 for gain in each)} of {len(each)}"
        rows.append([words, passes, f"{saved} %", better, cost])
    heads = ["method", "passes per answer", "AURC reduced by", "better in", "what it needs"]
    return render_table(heads, rows)


def tabulate_passes_summary(found: Comparison) -> str:
    """Tabulate the gains of a few methods on every task."""
    boards, pooled = list(found.boards.values()), _pooled(found)
    heads = [f"{board.name} ({format_percent(board[FINAL].error)} wrong)" for board in boards]
    rows = [
        [words, f"{pooled[method].passes:.0f}", _count_better(boards, method)]
        + [format_gain(board[method]) for board in boards]
        for words, method in SUMMARY_ROWS.items()
    ]
    first = "percent less AURC than the final softmax"
    return render_table([first, "passes", "better in", *heads], rows)


def tabulate_passes(found: Comparison) -> str:
    """Tabulate every method with its error, AURC and gain, the best over all tasks first."""
    boards, pooled = list(found.boards.values()), _pooled(found)
    rows = []
    for method in sorted(PASSES_ROWS, key=lambda method: -pooled[method].saved.estimate):
        row, is_final = pooled[method], method == FINAL
        cells = [method, f"{row.passes:.0f}", f"{row.trainings:.3g}"]
        cells += ["", ""] if is_final else [_count_better(boards, method), format_gain(row)]
        for one in (board[method] for board in boards):
            cell = f"{format_percent(one.error, 1)}, {1e3 * one.aurc:.1f}"
            cells.append(cell if is_final else f"{cell}, {format_gain(one)}")
        rows.append(cells)
    heads = ["method", "passes", "trainings", "better in", "all", *(one.name for one in boards)]
    return render_table(heads, rows)


def _count_better(boards: Sequence[Board], method: str) -> str:
    gains = [gain for board in boards for gain in board[method].gains]
    return f"{sum(gain is not None and gain > 0 for gain in gains)} of {len(gains)}"


def _pooled(found: Comparison) -> Board:
    assert found.pooled is not None
    return found.pooled


# The contest ----------------------------------------------------------------------------------

# AES, PES and LES over κ other than softmax are left to `snapsure compare`.
CONTEST_ROWS = (
    *(LES, LES4, LES3, LES2, AES, "mean probabilities"),
    *("best snapshot", "averaged weights", "PES", PNORM, PREDICTOR),
    *("temperature by AURC", "temperature by NLL", "final of doctor", "final of entropy", "gen"),
    *("PES (paper)", "nn_distance", "mc_dropout_variance", "final of margin"),
    *("final of max_logit", "final of energy", "SPTD", "deep_knn"),
)


def tabulate_contest(found: Comparison) -> str:
    """Tabulate the gains on every board, the best over all tasks first."""
    pooled = _pooled(found)
    rows = [
        [pooled.label(row), f"{row.passes:.0f}"]
        + [format_gain(board[row.method, row.kappa]) for board in found.every]
        for row in pooled.rows
        if pooled.label(row) in CONTEST_ROWS
    ]
    return render_table(["method", "passes", *(board.name for board in found.every)], rows)


def tabulate_gen() -> str:
    """Tabulate GEN with its authors' γ, and with γ and the number of classes chosen by halves."""
    found, chosen = studies.compare_gen()
    rows = []
    for name, board in found.boards.items():
        published, best = board[PUBLISHED_GEN], board[CHOSEN_GEN]
        interval = f"{format_gain(best)} [{best.saved.low:+.1f} … {best.saved.high:+.1f}]"
        each = [number for number in best.gains if number is not None]
        better = f"{sum(number > 0 for number in each)} of {len(each)}"
        gammas, tops = zip(*chosen[name], strict=True)
        cells = [f"{min(some):g} … {max(some):g}" for some in (gammas, tops)]
        rows.append([name, format_gain(published), interval, better, *cells])
    heads = ["percent less E-AURC", "γ = 0.1", "γ and classes chosen", "better in"]
    return render_table([*heads, "γ", "classes"], rows)


def tabulate_embeddings() -> str:
    """Tabulate what heads on the embedding gain over the final softmax, each network."""
    found = _read_embeddings()
    tasks: dict[str, list[Any]] = {}
    for name, seeds in sorted(found["errors"].items(), reverse=True):
        for seed, one in seeds.items():
            one["methods"] |= found["stacked"][name][seed]
            tasks.setdefault(name, []).append(one)
    return _tabulate_networks(tasks)


def tabulate_unknowns(task: str) -> str:
    """Tabulate percent less AURC of errors and unknowns together, each network."""
    seeds = [*_read_embeddings()["unknowns"][task].values()]
    return _tabulate_networks({name: [seed[name] for seed in seeds] for name in seeds[0]})


def tabulate_promises(task: str) -> str:
    """Tabulate what a promised 5 % accepts with unknowns, and how much of it is wrong."""
    first, *others = _read_embeddings()["unknowns"][task].values()
    del first["no unknowns"]
    rows = []
    for method in next(iter(first.values()))["methods"]:
        cells = ["**final softmax**" if method == FINAL else method]
        for name in first:
            some = [seed[name]["methods"][method] for seed in (first, *others)]
            taken = " ".join(f"{100 * one['accepted']:.1f}" for one in some)
            shares = [one["wrong of accepted"] for one in some]
            wrong = " ".join("–" if one is None else f"{100 * one:.1f}" for one in shares)
            cells.append(f"{taken} ({wrong})")
        rows.append(cells)
    return render_table(["accepted, % (wrong of these, %)", *first], rows)


def _read_embeddings() -> Any:
    return json.loads((RESULTS / "embeddings.json").read_text())


def _tabulate_networks(columns: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Tabulate the gains of methods on columns of networks, the best on average first."""

    def gains(method: str) -> list[list[tuple[float, float, float]]]:
        return [[one["methods"][method]["saved"] for one in some] for some in columns.values()]

    def mean(method: str) -> float:
        return float(np.mean([np.mean([gain for gain, *_ in some]) for some in gains(method)]))

    methods = {*next(iter(columns.values()))[0]["methods"]} - {FINAL}
    rows = [[one, *map(format_networks, gains(one))] for one in sorted(methods, key=mean)[::-1]]
    wrong = {name: np.mean([one["wrong"] for one in some]) for name, some in columns.items()}
    heads = [f"{name} ({format_percent(share)} wrong)" for name, share in wrong.items()]
    return render_table(["percent saved", *heads], rows)


# Over every study -----------------------------------------------------------------------------

# Percent of AURC. Archived κ and logits are rounded, so one softmax computed by two ways differs.
ROUNDING = 0.05
CHOICES = (
    ("one network, nothing else", "softmax response", FINAL),
    ("held-out labels", "`MaxLogitPNorm()`", PNORM),
    ("held-out labels", "an error predictor on the logits", PREDICTOR),
    ("held-out labels", "an error predictor on logits and embedding", EMBEDDED),
    ("snapshots; one pass per answer", "the mean of their weights", "averaged weights"),
    ("snapshots, no labels", "`AES()`: a bet", AES),
    ("snapshots and held-out labels", "`LES()`", LES),
    ("the same, three passes", "`LES(passes=3)`", LES3),
    ("the same, two passes", "`LES(passes=2)`", LES2),
    ("a second training, two passes", "two networks, answering together (`Ensemble`)", BOTH),
    ("four more trainings, five passes", "five networks, answering together (`Ensemble`)", FIVE),
    ("a training to come, one pass", "the loss `SelfAdaptive`", "SAT"),
    ("snapshots and a second training, one pass", "`Student`", "student"),
)
SHORT_CHOICES = {
    "`AES()`: snapshots, no labels": AES,
    "`LES()`: snapshots and held-out labels": LES,
    "`LES(passes=3)`: the same in three passes": LES3,
    "the mean of the snapshots' weights": "averaged weights",
    "`Ensemble`: two networks, answering together": BOTH,
}
SUMMARY_HEADS = ("passes", "trainings", "better in", "percent less AURC, task by task")
TASK_COLUMNS = {
    "AES": AES,
    "LES": LES,
    "LES, 3 passes": LES3,
    "LES, 2 passes": LES2,
    "averaged weights": "averaged weights",
    "two networks": BOTH,
    "five networks": FIVE,
    "SAT": "SAT",
    "student": "student",
}
LOGIT_COLUMNS = {
    "GEN": "gen",
    "MaxLogit-pNorm": PNORM,
    "error predictor": PREDICTOR,
    "with embedding": EMBEDDED,
}
ACCURACY_COLUMNS = {
    "final softmax": FINAL,
    "AES": AES,
    "LES": LES,
    "LES, 3 passes": LES3,
    "SPTD": f"SPTD, k = {POWERS[1]}",
    UNTIED: UNTIED,
}


def tabulate_choices_short(tasks: Sequence[Task]) -> str:
    """Tabulate five methods: passes, trainings, in how many trainings each is better, its gain."""
    rows = [[words, *_summarise(tasks, method)] for words, method in SHORT_CHOICES.items()]
    return render_table(["method", *SUMMARY_HEADS], rows)


def tabulate_choices(tasks: Sequence[Task]) -> str:
    """Tabulate what you have, what to use, what it gained and what it costs."""
    rows = [[have, use, *_summarise(tasks, method)] for have, use, method in CHOICES]
    return render_table(["you have", "use", *SUMMARY_HEADS], rows, words=2)


def _summarise(tasks: Sequence[Task], method: str) -> list[str]:
    """Return the cells of a method under SUMMARY_HEADS, from the tasks that have it."""
    some = [task for task in tasks if method in task.methods]
    passes = format_range([task.mean(method, "passes") for task in some], "{:.0f}")
    trainings = f"{np.mean([task.mean(method, 'trainings') for task in some]):.3g}"
    if method == FINAL:
        return [passes, trainings, "", ""]
    gains = format_range([task.gain(method) for task in some], "{:+.1f}")
    return [passes, trainings, count_better(some, method), gains]


def count_better(tasks: Sequence[Task], method: str) -> str:
    """Return in how many trainings a method has less AURC than the final softmax."""
    gains = [gain for task in tasks if method in task.methods for gain in task.gains(method)]
    return f"{sum(gain > ROUNDING for gain in gains)} of {len(gains)}"


def tabulate_tasks(tasks: Sequence[Task], columns: Mapping[str, str]) -> str:
    """Tabulate percent less AURC than the final softmax, a row per task."""
    rows = []
    for task in tasks:
        wrong, right = task.mean(FINAL, "error"), np.mean(task.right)
        cells = [task.name, str(len(task.right)), format_percent(wrong), format_percent(right)]
        for method in columns.values():
            cells.append(format_signed(task.gain(method)) if method in task.methods else "")
        rows.append(cells)
    heads = ["task", "trainings", "wrong in test", "right in training", *columns]
    return render_table(heads, rows)


def tabulate_averaged() -> str:
    """Tabulate what averaged weights change on every task: error rate, and percent less AURC."""
    tasks: dict[str, list[tuple[float, float, float]]] = {}  # wrong before, now, and the gain
    for study in studies.STUDIES:
        for name, runs in studies.open_study(study).items():
            for run in runs:
                kappa, y_hat, *_ = run.others[AVERAGED]
                before, now = run.table.errors, y_hat != run.y
                gain = 100 * (1 - aurc(kappa, now) / aurc(run.table.kappa("softmax")[-1], before))
                numbers = float(before.mean()), float(now.mean()), gain
                tasks.setdefault(f"{study}/{name}", []).append(numbers)
    mean = float(np.mean([np.mean([gain for *_, gain in each]) for each in tasks.values()]))
    tasks["mean of the tasks"] = [numbers for each in tasks.values() for numbers in each]
    rows = []
    for name, each in tasks.items():
        *wrong, gain = np.mean(each, axis=0)
        better = f"{sum(one > 0 for *_, one in each)} of {len(each)}"
        shares = [format_percent(share, 1) for share in wrong]
        rows.append([name, str(len(each)), *shares, format_signed(float(gain)), better])
    rows[-1][-2] = format_signed(mean)  # not of the trainings
    heads = ["task", "trainings", "wrong before", "wrong now", "percent less AURC", "better in"]
    return render_table(heads, rows)


def tabulate_precision() -> str:
    """Tabulate what snapshots in bfloat16 cost, beside those in float32."""
    tasks = json.loads((RESULTS / "precision.json").read_text())["tasks"]
    rows = []
    for name, seeds in tasks.items():
        for one in seeds:
            cells = [f"{one[kind]['bytes'] / 1e6:.1f} MB" for kind in ("float32", "bfloat16")]
            for number in ("final", "AES"):
                full, half = (1000 * one[kind][number] for kind in ("float32", "bfloat16"))
                cells.append(f"{full:.2f} → {half:.2f}")
            rows.append([name, *cells, format_percent(one["other_answers"], 1)])
    head = ["task", "float32", "bfloat16", "E-AURC × 10³, final softmax", "AES", "other answers"]
    return render_table(head, rows)


def tabulate_adapters() -> str:
    """Tabulate what a training takes in adapters, and in whole networks."""
    found = json.loads((RESULTS / "adapters.json").read_text())
    kinds = ("adapters", "whole networks")
    count = found["adapters"]["snapshots"]
    names = {
        "snapshot_bytes": "a snapshot on disk",
        "memory_bytes": f"weights of {count} snapshots in memory",
        "folder_bytes": f"a saved predictor of {count} snapshots",
        "loading_seconds": f"loading {count} snapshots",
        "scoring_seconds": f"scoring 600 queries by {count} snapshots",
    }

    def format_cell(name: str, number: float) -> str:
        return f"{number / 1e6:.1f} MB" if name.endswith("bytes") else f"{number:.1f} s"

    rows = [
        [text, *(format_cell(name, found[kind][name]) for kind in kinds)]
        for name, text in names.items()
    ]
    shares = [format_percent(found[n], 1) for n in ("accepted", "error_of_accepted", "error")]
    deployed = (
        "At an error limit of 5 %, the predictor accepts {} of 900 test queries; {} of the "
        "accepted answers are wrong, and {} of all.\n"
    )
    return render_table(["", *kinds], rows) + "\n" + deployed.format(*shares)


def tabulate_student_labels() -> str:
    """Tabulate percent less AURC than the teacher's final softmax, by the weight of the labels."""
    tasks = json.loads((RESULTS / "student-labels.json").read_text())["tasks"]
    ways = [way for way in next(iter(next(iter(tasks.values())).values())) if way != "plain"]
    kinds = {"its own": "aurc", "the teacher's": "aurc_beside_final"}
    rows = []
    for way, (answers, number) in product(ways, kinds.items()):
        name = re.sub(r"^student (.*)", r"`Student(labels=\1)`", way)
        cells = [name, answers, "1" if number == "aurc" else "2"]
        for seeds in tasks.values():
            areas, plain = zip(
                *((one[way][number], one["plain"]["aurc"]) for one in seeds.values()), strict=True
            )
            cells.append(_list_gains(areas, plain))
            if number == "aurc":
                wrong = np.mean([one[way]["error"] for one in seeds.values()])
                cells[-1] += f", {format_percent(wrong, 1)} wrong"
        rows.append(cells)
    heads = ["percent less AURC than the teacher", "answers", "passes"]
    for name, seeds in tasks.items():
        wrong = np.mean([one["plain"]["error"] for one in seeds.values()])
        heads.append(f"{name} ({wrong:.1%} wrong)")
    return render_table(heads, rows, 2)


def tabulate_rivals() -> str:
    """Tabulate networks trained for a good confidence, and what their snapshots add."""
    rows = []
    for name, seeds in _read_rivals().items():
        for way in next(iter(seeds.values())):
            each = [one[way] for one in seeds.values()]
            wrong = np.mean([one["error"] for one in each])
            area = 1e3 * np.mean([one["aurc"] for one in each])
            cells = [name, way, format_percent(float(wrong), 1), f"{area:.1f}"]
            plain = [one["plain"]["aurc"] for one in seeds.values()]
            own = [one["aurc"] for one in each]
            cells.append("" if way == "plain" else _list_gains(own, plain))
            for method in ("AES", "LES", "LES (3 passes)", "averaged aurc"):
                cells.append(_list_gains([one[method] for one in each], own))
            rows.append(cells)
    heads = ["task", "trained by", "wrong", "AURC × 10³", "less than plain, %"]
    methods = ("AES", "LES", "LES, 3 passes", "averaged weights")
    return render_table(heads + [f"{name} on top, %" for name in methods], rows, 2)


def _read_rivals() -> Any:
    return json.loads((RESULTS / "rivals.json").read_text())["tasks"]


def _list_gains(areas: Sequence[float], before: Sequence[float]) -> str:
    """List how much less areas are, in percent: the mean, and that of each seed."""
    gains = [100 * (1 - new / old) for new, old in zip(areas, before, strict=True)]
    mean, *each = (format_signed(gain) for gain in (float(np.mean(gains)), *gains))
    return f"{mean} ({', '.join(each)})"


def tabulate_sptd(tasks: Sequence[Task]) -> str:
    """Tabulate how ties spoil SPTD: E-AURC × 10³ with and without them."""
    heads = [f"SPTD, k = {k}" for k in POWERS]
    methods = (FINAL, *heads, UNTIED, THINNED, THINNED_UNTIED)
    rows = [
        [task.name, format_percent(np.mean(task.undoubted))]
        + [f"{1e3 * task.mean(method, 'eaurc'):.1f}" for method in methods]
        for task in tasks
    ]
    last = [f"k = {POWERS[1]}, ties broken", "every second snapshot", "the same, ties broken"]
    return render_table(["task", "never doubted", "softmax", *heads, *last], rows)


def tabulate_accuracy(tasks: Sequence[Task]) -> str:
    """Tabulate the percentage of right answers among the accepted, at three coverages."""
    rows = [
        [task.name]
        + [
            " / ".join(f"{100 * share:.1f}" for share in task.accuracy(method))
            for method in ACCURACY_COLUMNS.values()
        ]
        for task in tasks
    ]
    return render_table(["right among accepted", *ACCURACY_COLUMNS], rows)


def tabulate_aes(tasks: Sequence[Task]) -> str:
    """Tabulate what AES gained in each training, the worst fitted to its training set first."""
    rows = []
    for task in sorted(tasks, key=lambda task: float(np.mean(task.right))):
        right = format_range([100 * share for share in task.right], "{:.1f}") + " %"
        gains = " ".join(format_signed(gain) for gain in task.gains(AES))
        rows.append([task.name, right, count_better([task], AES), gains])
    return render_table(
        ["AES on", "right in training", "better in", "percent less AURC of each"], rows
    )


AES_GROUPS = {
    "clothes": "clothes",
    "words": "contest/words|passes/words",
    "CIFAR": "/cifar.*(?<!wrong)$",
    "wrong training labels": "^labels/",
    "fine-tuned": "^intents/|^images/",
}


def tabulate_aes_short(tasks: Sequence[Task]) -> str:
    """Tabulate what AES gained by kind of task."""
    rows = []
    for words, pattern in AES_GROUPS.items():
        some = [task for task in tasks if re.search(pattern, task.name)]
        gains = [gain for task in some for gain in task.gains(AES)]
        rows.append([words, count_better(some, AES), format_range(gains, "{:+.1f}")])
    return render_table(["AES on", "better in", "percent less AURC, least … most"], rows)


CHOSEN_LES = "LES: steady, offsets' penalty estimated from 100 errors on"


def read_les_features() -> dict[str, Any]:
    """Read what `experiments/les_features.py` measured."""
    content: dict[str, Any] = json.loads((RESULTS / "les-features.json").read_text())
    return content


def tabulate_les_tasks() -> str:
    """Tabulate what LES gains on each task, and its worst draw, by how much it learns from."""
    sizes = read_les_features()["combined"][CHOSEN_LES]
    rows = []
    for task in sizes["half"]:
        cells = [task]
        for found in (sizes[size][task] for size in ("half", "1000", "300")):
            worst = found["worst of these"]
            known = "fewer than 30 errors" if worst is None else format_signed(worst)
            cells.append(f"{format_signed(found['mean'])} ({known})")
        rows.append(cells)
    return render_table(["task", "half", "1,000 examples", "300 examples"], rows)


def tabulate_les_variants(group: str) -> str:
    """Tabulate the mean gain over tasks, the lowest task and the worst draw of each variant."""
    rows = []
    for name, sizes in read_les_features()[group].items():
        cells = [name]
        for size in ("half", "1000", "300"):
            tasks = [one for one in sizes[size].values() if one["worst of these"] is not None]
            mean = float(np.mean([one["mean of draws with 30 errors"] for one in tasks]))
            lowest = min(one["mean"] for one in sizes[size].values())
            worst = min(one["worst of these"] for one in tasks)
            numbers = (format_signed(number) for number in (mean, lowest, worst))
            cells.append(" / ".join(numbers))
        rows.append(cells)
    return render_table(["variant", "half", "1,000 examples", "300 examples"], rows)


def tabulate_les_worst() -> str:
    """Tabulate what is known of the draw on which LES lost most: percent of E-AURC saved."""
    found = read_les_features()["worst"]
    rows = [[name, format_signed(x)] for name, x in found.items() if isinstance(x, float)]
    return render_table(["half of the examples, of one training", "percent"], rows)


def tabulate_les_averaged() -> str:
    """Tabulate averaged weights as a pass of LES, beside LES of as many passes."""
    found = read_les_features()["averaged"]
    rows = []
    for name, sizes in found.items():
        reference, cells = found.get(name.partition(",")[0]), [name]
        for size in ("half", "1000", "300"):
            means = {task: one["mean of draws with 30 errors"] for task, one in sizes[size].items()}
            gains = {task: mean for task, mean in means.items() if mean is not None}
            cell = format_signed(float(np.mean([*gains.values()])))
            if reference is not None and reference is not sizes:
                others = reference[size]
                more = [
                    gain - others[task]["mean of draws with 30 errors"]
                    for task, gain in gains.items()
                ]
                error = np.std(more, ddof=1) / len(more) ** 0.5
                cell += f" ({format_signed(float(np.mean(more)))} ± {error:.1f})"
            cells.append(cell)
        rows.append(cells)
    return render_table(["passes", "half", "1,000 examples", "300 examples"], rows)


def tabulate_errors_needed() -> str:
    """Tabulate the learning curve by errors: all tasks, then each."""
    curve = read_les_features()["curve"]
    sizes = list(curve["LES"])
    rows = []
    for method, found in curve.items():
        cells = [f"{method}, all tasks"]
        for size in sizes:
            tasks = found[size].values()
            mean = float(np.mean([one["mean"] for one in tasks]))
            better, draws = (sum(one[key] for one in tasks) for key in ("better", "draws"))
            worst = format_signed(min(one["worst"] for one in tasks))
            cells.append(f"{format_signed(mean)} ({worst}), {better} of {draws}")
        rows.append(cells)
    for task in curve["LES"][sizes[0]]:
        by_size = [curve["LES"][size].get(task) for size in sizes]
        cells = [
            "" if one is None else f"{format_signed(one['mean'])} ({format_signed(one['worst'])})"
            for one in by_size
        ]
        rows.append([f"LES, {task}", *cells])
    return render_table(["method", *(f"{int(size):,} errors" for size in sizes)], rows)


# When AES hurts -------------------------------------------------------------------------------

FEWEST = 4  # tasks that a correlation is computed from


def tabulate_starts(found: Comparison) -> str:
    """Tabulate what AES gains from each start, task by task."""
    starts = [f"from {start}" for start in STARTS]
    rows = []
    for board in found.boards.values():
        best = max(starts, key=lambda start, board=board: board[start].saved.estimate)  # type: ignore[misc]
        gains = board[best].saved.estimate > 0
        cells = [board.name, str(board.runs), *(format_gain(board[start]) for start in starts)]
        rows.append([*cells, best.removeprefix("from ") if gains else "none"])
    return render_table(["gain of AES, %", "networks", *starts, "best start"], rows)


def tabulate_records(records: Mapping[str, Record], found: Comparison) -> str:
    """Tabulate what the trainings recorded beside what AES gains, the least gain first."""
    rows = []
    for name in _order_by_gain(records, found):
        one, row = records[name], found.boards[name][f"from {STARTS[0]}"]
        loss, error = one.loss.mean(axis=0), one.error.mean(axis=0)
        known = bool(np.isfinite(loss).all())
        cells = [name, format_percent(one.accuracy.mean(), 1)]
        cells += [
            " → ".join(f"{value:.2f}" for value in loss) if known else "not kept",
            format_percent(one.fall.mean()) if known else "",
        ]
        cells += [" → ".join(format_percent(value, 1) for value in error)]
        cells += [format_percent(-one.improvement.mean()), format_gain(row)]
        rows.append([*cells, " ".join(f"{gain:+.1f}" for gain in row.gains)])
    heads = ["record", "right in training", "training loss, first → 0.4 T → last"]
    heads += ["of its fall, after 0.4 T", "wrong in test, 0.4 T → T", "of itself"]
    return render_table([*heads, "gain of AES, %", "gain of each, %"], rows)


def tabulate_rules(records: Mapping[str, Record], found: Comparison) -> str:
    """Tabulate whether a number of the record orders tasks as AES's gain does."""
    rules: dict[str, Callable[[Record], Floats]] = {
        "right in training": lambda one: one.accuracy,
        "the training loss's fall after 0.4 T": lambda one: -one.fall,
        "the held-out error's fall after 0.4 T": lambda one: -one.improvement,
    }
    start = f"from {STARTS[0]}"
    rows = []
    for words, rule in rules.items():
        values = {name: rule(records[name]) for name in _order_by_gain(records, found)}
        values = {name: each for name, each in values.items() if np.isfinite(each).all()}
        gains = [np.array(found.boards[name][start].gains, np.float64) for name in values]
        cells = ["too few"] * 3
        if len(values) >= FEWEST:
            means = [[float(each.mean()) for each in some] for some in (values.values(), gains)]
            value, gain = np.concatenate([*values.values()]), np.concatenate(gains)
            worst = np.argsort(value, kind="stable")[: int((gain < 0).sum())]
            losing = f"{int((gain[worst] < 0).sum())} of {len(worst)}"
            cells = [f"{_spearman(*means):+.2f}", f"{_spearman(value, gain):+.2f}", losing]
        rows.append([words, str(len(values)), *cells])
    heads = ["rule", "tasks that kept it", "rank correlation with the gain, tasks", "of networks"]
    return render_table([*heads, "networks where AES loses, among as many worst by it"], rows)


def _order_by_gain(records: Mapping[str, Record], found: Comparison) -> list[str]:
    start = f"from {STARTS[0]}"
    return sorted(
        (name for name in found.boards if name in records),
        key=lambda name: found.boards[name][start].saved.estimate,
    )


def _spearman(a: Sequence[float] | Floats, b: Sequence[float] | Floats) -> float:
    from scipy.stats import spearmanr  # type: ignore[import-untyped]

    return float(spearmanr(a, b).statistic)


# Fine-tuned networks, wrong labels, shifts ----------------------------------------------------


def tabulate_queries() -> str:
    """Tabulate the transformers: how well they fit, where they err."""
    rows, runs = [], studies.open_study("intents")
    for size, trainings in studies.read_trainings("intents").items():
        for one, run in zip(trainings, runs[f"{size}-oos"], strict=True):
            steps = max(row["step"] for row in one["log"])
            shares = (one["training_accuracy"], one["test_error"], run.table.errors.mean())
            rows.append([size, str(one["seed"]), f"{steps:,}"])
            rows[-1] += [format_percent(share, 1) for share in shares]
    heads = ["transformer", "seed", "steps", "right in training"]
    return render_table([*heads, "wrong of 4,500", "wrong of 5,500"], rows)


def tabulate_image_networks() -> str:
    """Tabulate the image networks."""
    shares = ("training_accuracy", "test_error")
    rows = [
        [name, str(one["seed"]), *(format_percent(one[key], 1) for key in shares)]
        for name, trainings in studies.read_trainings("images").items()
        for one in trainings
    ]
    return render_table(["image network", "seed", "right in training", "wrong in test"], rows)


def compare_tuned() -> dict[str, Board]:
    """Compare the methods on the fine-tuned networks, each pair of boards with its own draws."""
    runs = {**studies.open_study("intents"), **studies.open_study("images")}
    boards: dict[str, Board] = {}
    for names in (("intents", "intents-oos"), ("intents-few", "intents-few-oos"), ("images",)):
        boards.update(compare({name: runs[name] for name in names}).boards)
    return boards


SHORT_BOARD = (LES, LES3, AES, "averaged weights", PNORM, FINAL)


def tabulate_boards(boards: Mapping[str, Board], methods: Sequence[str] | None = None) -> str:
    """Tabulate every method that all boards have, or some of them, the best over all first."""
    first, *others = boards.values()
    names = [
        row.method
        for row in first.rows
        if all(row.method in [one.method for one in board.rows] for board in others)
        and (methods is None or row.method in methods)
    ]

    def sum_logs(name: str) -> float:
        return sum(float(np.log1p(-one[name].saved.estimate / 100)) for one in boards.values())

    rows = []
    for name in sorted(names, key=sum_logs):
        cells = [name, f"{first[name].passes:.0f}"]
        for board in boards.values():
            row = board[name]
            interval = f"{format_gain(row)} [{row.saved.low:+.1f} … {row.saved.high:+.1f}]"
            cells += [f"{1e3 * row.eaurc:.2f}", "" if row.outcome == "reference" else interval]
        rows.append(cells)
    heads = [head for name in boards for head in (f"{name}: E-AURC × 10³", "gain, %")]
    return render_table(["method", "passes", *heads], rows)


def tabulate_shifts(study: Mapping[str, Any]) -> str:
    """Tabulate what is saved under each shift and severity."""
    methods = {"AES": AES, "LES": LES, "LES, 3 passes": LES3}
    rows = []
    for row in study["rows"]:
        name = f"{row['shift']} {row['severity']}" if row["severity"] else "nothing"
        area = f"{1e3 * np.mean(row['ways'][FINAL]['eaurc']):.1f}"
        cells = [format_networks(row["ways"][method]["eaurc_saved"]) for method in methods.values()]
        rows.append([name, format_percent(np.mean(row["wrong"]), 1), area, *cells])
    return render_table(["shifted by", "wrong", "E-AURC × 10³", *methods], rows)


def format_networks(networks: Sequence[tuple[float, float, float]]) -> str:
    """Return the mean gain, each network's, and how many are significantly better / worse."""
    gains = [gain for gain, _, _ in networks]
    mean, *each = (format_signed(gain) for gain in (sum(gains) / len(gains), *gains))
    better, worse = sum(low > 0 for _, low, _ in networks), sum(high < 0 for *_, high in networks)
    return f"{mean} ({' '.join(each)}), {better} / {f'**{worse}**' if worse else 0}"


# The paper's tables, and the demo -------------------------------------------------------------

# A data set's columns: the paper's, and ours if there is any.
PAPER_SETS = {
    "cifar100": ("CIFAR-100: paper", "ours"),
    "cifar10": ("CIFAR-10: paper", "ours"),
    "svhn": ("SVHN: paper",),
    "imagenet-tiny": ("ImageNet: paper", "Tiny-ImageNet: ours"),
}
PAPER_AVERAGED = {
    "softmax": "softmax response",
    "nn_distance": "NN-distance",
    "mc_dropout_variance": "MC-dropout, variance",
    "mc_dropout": "MC-dropout, mean",
    "ensemble": "an ensemble",
}
PAPER_COMPARED = ("pes_paper", "pes", "les", "les_in_3")


def _read_part(name: str, part: str) -> Any:
    return json.loads((RESULTS / f"{name}-cpu-full" / f"{part}.json").read_text())


def tabulate_paper() -> str:
    """Tabulate what AES, PES and LES gain: the paper's numbers, and ours."""
    heads = ["percent less E-AURC"]
    rows = [["*test error, %*"], *([f"AES of {of}"] for of in PAPER_AVERAGED.values())]
    rows += [[COMPARED[method]] for method in PAPER_COMPARED]
    for name, titles in PAPER_SETS.items():
        heads += titles
        columns = [_list_paper(name.removesuffix("-tiny")), *(_list_ours(name) for _ in titles[1:])]
        for row, cells in zip(rows, zip(*columns, strict=True), strict=True):
            row += cells
    return render_table(heads, rows)


def _list_paper(name: str) -> list[str]:
    """Return the paper's column of a data set."""
    errors, areas = published()["validation_error_percent"], published()["table1_aes"][name]
    wrong = errors[name] if name in errors else 100 - errors[f"{name}_top1_accuracy"]
    cells = [f"*{wrong:.1f}*"]
    for kappa in PAPER_AVERAGED:
        area = areas.get(kappa)
        cells.append(_minus(100 * (1 - area["k30"] / area["baseline"]) if area else None))
    gain = published()["table3_pes_softmax"][name]["improvement_percent"]
    return cells + [_minus(gain if method == "pes_paper" else None) for method in PAPER_COMPARED]


def _list_ours(name: str) -> list[str]:
    """Return our column of a data set."""
    first, third = _read_part(name, "table1"), _read_part(name, "table3")
    wrong = [100 * share for share in _read_part(name, "networks")["test_error"]]
    cells = [f"*{min(wrong):.1f} … {max(wrong):.1f}*"]
    for kappa in PAPER_AVERAGED:
        ours = first.get(kappa)
        cells.append(_format_ours(ours["k30"], ours["final"]) if ours else "")
    return cells + [_format_ours(third[method], third["final"]) for method in PAPER_COMPARED]


def _format_ours(found: Mapping[str, Any], final: Mapping[str, Any]) -> str:
    """Return the gain with its interval on one line, bold where that excludes 0."""
    _, most, least = (-100 * end / final["eaurc"] for end in found["difference"])
    written = f"{_minus(found['gain'])} ({_minus(least)} … {_minus(most)})".replace(" ", "\xa0")
    return f"**{written}**" if least * most > 0 else written


def _minus(percent: float | None) -> str:
    return "" if percent is None else signed(percent)


def tabulate_published() -> str:
    """Tabulate E-AURC × 10³ of the final softmax and AES, as published and as ours."""
    rows = []
    for name, title in {"cifar100": "CIFAR-100", "cifar10": "CIFAR-10"}.items():
        for words, table, k in (
            ("the paper (ICLR 2019), VGG-16", "table1_aes", "k30"),
            ("Moon et al. 2020, VGG-16", "table1_independent", "k10"),
        ):
            row = published()[table][name]["softmax"]
            rows.append([title, words, *_format_pair(row["baseline"], row[k])])
        first, count = _read_part(name, "table1"), _read_part(name, "networks")["networks"]
        for words, kappa in (("ours", "softmax"), ("our ensembles of two", "ensemble")):
            final, aes = (1e3 * first[kappa][kind]["eaurc"] for kind in ("final", "k30"))
            rows.append([title, words, *_format_pair(final, aes)])
        rows[-2][1] += f", mean of {count}"
    return render_table(["data", "from", "softmax", "AES", "saved"], rows, words=2)


def _format_pair(final: float, averaged: float) -> list[str]:
    return [f"{final:.2f}", f"{averaged:.2f}", f"{_minus(100 * (1 - averaged / final))} %"]


def tabulate_demo() -> str:
    """Tabulate the least and the most over the demo's trainings."""
    settings = json.loads((RESULTS / "demo.json").read_text())
    runs = [run for seeds in settings.values() for run in seeds.values()]
    numbers = {
        "words answered wrong": [100 * run["error"] for run in runs],
        "less E-AURC by AES": [run["gain"]["AES"][0] for run in runs],
        "less E-AURC by LES": [run["gain"]["LES"][0] for run in runs],
        "accepted by the predictor": [100 * run["accepted"] for run in runs],
        "of these, wrong": [100 * run["wrong"] for run in runs],
        "accepted by the final softmax": [100 * run["plain"] for run in runs],
    }
    rows = [[words, format_range(each, "{:.1f}") + " %"] for words, each in numbers.items()]
    return render_table([f"{len(runs)} trainings of the demo", "least … most"], rows)


def tabulate_choosing() -> str:
    """Tabulate the ways to choose a method: how often each falls back, changes and loses."""
    ways = json.loads((RESULTS / "choosing.json").read_text())
    words = {
        "splits, best": "until 0.2.0: 30 % of the half judge, the best significant one",
        "folds, cheapest": "all of the half judge, the cheapest significant one",
        "choose": "`fit` now: LES by estimate, in few passes",
        "LES (3 passes)": "LES (3 passes), without asking",
        "LES": "LES, without asking",
    }
    rows = []
    for way, name in words.items():
        one = ways[way]
        rows.append(
            [
                name,
                f"{one['final']} of {one['fits']}",
                f"{one['changes of the kind']:.0f} % ({one['changes']:.0f} %)",
                format_signed(one["gain"]),
                f"{one['losses']} (worst {format_signed(one['worst'])})",
                f"{one['passes']:.1f}",
            ]
        )
    heads = ["way", "final softmax", "changes with the seed", "gain", "fits that lose", "passes"]
    return render_table(heads, rows)


# Snippets, inline tables, pictures ------------------------------------------------------------


def make_snippets() -> tuple[dict[str, str], Callable[[], None]]:
    """Return every table by its name, and a function that draws the pictures."""
    passes = compare(studies.open_study("passes"), metric="aurc")
    contest = compare(studies.open_study("contest"))
    labels = compare(studies.open_study("labels"))
    tuned = compare_tuned()
    tasks = studies.judge_tasks()

    networks = studies.open_networks()
    starts, records = studies.compare_starts(networks), studies.read_records(networks)
    intents, few = (
        {"in scope": tuned[name], "all queries": tuned[f"{name}-oos"]}
        for name in ("intents", "intents-few")
    )
    images = {"CIFAR-100": tuned["images"]}
    shifts = json.loads((RESULTS / "shift.json").read_text())

    snippets = {
        "readme": tabulate_readme(passes),
        "few-passes-summary": tabulate_passes_summary(passes),
        "few-passes": tabulate_passes(passes),
        "contest": tabulate_contest(contest),
        "gen": tabulate_gen(),
        "embeddings": tabulate_embeddings(),
        **{
            f"{what}-{task}": tabulate(task)
            for task in ("cifar10", "intents-oos", "intents-few-oos")
            for what, tabulate in (("unknowns", tabulate_unknowns), ("promises", tabulate_promises))
        },
        "choices-short": tabulate_choices_short(tasks),
        "choices": tabulate_choices(tasks),
        "tasks": tabulate_tasks(tasks, TASK_COLUMNS),
        "tasks-logits": tabulate_tasks(tasks, LOGIT_COLUMNS),
        "averaged": tabulate_averaged(),
        "student-labels": tabulate_student_labels(),
        "rivals": tabulate_rivals(),
        "precision": tabulate_precision(),
        "adapters": tabulate_adapters(),
        "sptd": tabulate_sptd(tasks),
        "accuracy": tabulate_accuracy(tasks),
        "aes-short": tabulate_aes_short(tasks),
        "aes-trainings": tabulate_aes(tasks),
        "errors-needed": tabulate_errors_needed(),
        "les-tasks": tabulate_les_tasks(),
        "choosing": tabulate_choosing(),
        "les-variants": tabulate_les_variants("variants"),
        "les-combined": tabulate_les_variants("combined"),
        "les-combined-new": tabulate_les_variants("combined, new draws"),
        "les-worst": tabulate_les_worst(),
        "les-averaged": tabulate_les_averaged(),
        "aes-starts": tabulate_starts(starts),
        "aes-records": tabulate_records(records, starts),
        "aes-rules": tabulate_rules(records, starts),
        "queries": tabulate_queries(),
        "intents-short": tabulate_boards(intents, SHORT_BOARD),
        "intents": tabulate_boards(intents),
        "intents-few": tabulate_boards(few),
        "image-networks": tabulate_image_networks(),
        "images-short": tabulate_boards(images, SHORT_BOARD),
        "images": tabulate_boards(images),
        "wrong-labels-short": tabulate_boards(labels.boards, SHORT_BOARD),
        "wrong-labels": tabulate_boards(labels.boards),
        **{f"shift-{name}": tabulate_shifts(study) for name, study in shifts.items()},
        "paper": tabulate_paper(),
        "published": tabulate_published(),
        "demo": tabulate_demo(),
    }

    def draw() -> None:
        gains = {task.name: task.gains(AES) for task in tasks}
        for name, spec in {
            "passes-all": pictures.draw_boards([_pooled(passes)], passes.level),
            "passes": pictures.draw_boards(passes.every, passes.level),
            "contest": pictures.draw_boards(contest.every, contest.level),
            "fine-tuned": pictures.draw_boards([tuned["images"]], labels.level),
            "wrong-labels": pictures.draw_boards([*labels.boards.values()], labels.level),
            "aes": charts.draw_gains(gains, "percent less AURC by AES, one point per training"),
            "method": charts.draw_method(RESULTS / "cifar100-cpu-full"),
        }.items():
            pictures.save(spec, IMAGES / f"{name}.png")

    return snippets, draw


def fill(page: str, snippets: Mapping[str, str]) -> str:
    """Return a page with every table that it names as it is now."""
    return _PLACE.sub(lambda place: f"<!-- {place[1]} -->\n\n{snippets[place[1]]}\n", page)


def main() -> None:
    """Write the snippets, the inline tables and the pictures."""
    snippets, draw = make_snippets()
    SNIPPETS.mkdir(exist_ok=True)
    for name, table in snippets.items():
        (SNIPPETS / f"{name}.md").write_text(table)
    for page in INLINE:
        page.write_text(fill(page.read_text(), snippets))
    draw()


if __name__ == "__main__":
    main()
