"""The paper's tables, computed from an experiment's score tables. NumPy alone.

Each has numbers for programs and rows of text for people, the paper's numbers beside ours. Areas
are fractions among the numbers and × 10³ in the rows. A difference is the method's metric less the
final snapshot's, below 0 is better, with a 95 % interval: paired bootstrap over the test examples.
Of several networks, it is the mean of estimates and of intervals' ends, which is at least as wide
as the interval of the mean.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from snapsure import _files, _validate
from snapsure.estimators import AES, Estimator, Final, Method
from snapsure.estimators._base import best_snapshot
from snapsure.estimators.registry import FINAL
from snapsure.evaluation import Result, Run, Splits, evaluate, trajectories
from snapsure.evaluation._engine import (
    Candidate,
    Judged,
    judge,
    mean_interval,
    percent_saved,
    standard_error,
)
from snapsure.metrics import bootstrap_difference, brier, eaurc, nll
from snapsure.paper import figures
from snapsure.paper.archive import Experiment
from snapsure.report.tables import Column, Table, signed, thousandths, to_markdown
from snapsure.table import ScoreTable

Content = dict[str, Any]

# The paper's MC-dropout is the variance; the mean stands beside it.
KAPPAS = ("softmax", "nn_distance", "mc_dropout_variance", "mc_dropout")
AVERAGED = (10, 30, 50)  # k of AES
COMPARED = {  # in table 3
    "aes": "AES",
    "pes": "PES",
    "pes_paper": "PES (paper)",
    "snapshot": "best snapshot",
    "les": "LES",
    "les_in_3": "LES (3 passes)",
}
SPLITS = 10
RESAMPLES = 1000

_AES = {f"k{k}": Method(f"AES (k={k})", partial(AES, k)) for k in AVERAGED}
_AES_HEADS = ["κ", "", "final", *(f"AES k={k}" for k in AVERAGED)]


class PaperTable(NamedTuple):
    """A table of the paper: numbers for programs, and rows of text for people."""

    content: Content
    table: Table


def select_parts(what: str) -> list[str]:
    """Return the names of the parts that a word asks for."""
    known = [*TABLES, "figures"]
    _validate.choice(what, (*known, "all"), "what")
    return known if what == "all" else [what]


def compute(experiment: Experiment, names: Sequence[str]) -> dict[str, PaperTable]:
    """Compute the tables among `names`."""
    return {name: TABLES[name](experiment) for name in names if name in TABLES}


def write(
    experiment: Experiment, names: Sequence[str], made: Mapping[str, PaperTable], folder: Path
) -> list[Path]:
    """Write a page and the numbers of each table, and the figures if they are among `names`."""
    _files.make_folder(folder)
    paths = []
    for name, part in made.items():
        page = f"### {part.table.title}\n\n{to_markdown(part.table)}"
        numbers = json.dumps(part.content, indent=1) + "\n"
        for ending, text in (("md", page), ("json", numbers)):
            paths.append(folder / f"{name}.{ending}")
            _files.write_bytes(paths[-1], text.encode())
    if "figures" in names:
        paths += figures.draw(experiment, folder)
    return paths


def tabulate_networks(experiment: Experiment) -> PaperTable:
    """How well the networks fit their training set, and how often they err."""
    fitted = [history[-1]["training_accuracy"] for history in experiment.about["networks"]]
    wrong = [float(table.errors.mean()) for table in experiment.tables]
    ensembles = {of: float(table.errors.mean()) for of, table in experiment.ensembles.items()}
    content = {
        "dataset": experiment.about["dataset"],
        "scale": experiment.about["scale"],
        "networks": len(experiment.tables),
        "test_points": int(experiment.tables[0].y_hat.size),
        "training_accuracy": fitted,
        "test_error": wrong,
        "ensembles": [{"seeds": [*of], "test_error": share} for of, share in ensembles.items()],
    }
    rows = [
        [f"seed {seed}", "", f"{right:.1%}", f"{share:.1%}"]
        for seed, right, share in zip(experiment.seeds, fitted, wrong, strict=True)
    ]
    rows += [
        [f"ensemble of {_list(of)}", "", "", f"{share:.1%}"] for of, share in ensembles.items()
    ]
    heads = ["network", "", "right in training", "wrong in test"]
    return PaperTable(content, _table(f"The networks: {_describe(experiment)}", heads, rows))


def tabulate_table1(experiment: Experiment) -> PaperTable:
    """AES with k = 10, 30, 50 against the final snapshot, for each κ (table 1)."""
    content: Content = {}
    rows = []
    for name, tables, kappa in _group(experiment):
        found = evaluate(tables, kappa=kappa, methods=(FINAL, *_AES.values()), protocol=Splits(1))
        final = found[FINAL].eaurc
        parts = {key: _compare_with_final(found[method.name]) for key, method in _AES.items()}
        content[name] = {"networks": len(tables), "final": {"eaurc": final}, **parts}

        areas = [f"{thousandths(p['eaurc'])} ({_percent(p['gain'])})" for p in parts.values()]
        rows.append([name, _whose(experiment, name), thousandths(final), *areas])
        rows.append(["", "Δ [95 %]", "", *(_interval(p["difference"]) for p in parts.values())])
        if len(tables) > 1:
            rows.append(["", "gain of each, %", "", *(_gains(p["gains"]) for p in parts.values())])
        for whose, table in (("paper", "table1_aes"), ("Moon et al. 2020", "table1_independent")):
            if theirs := _read_paper(experiment, table).get(name):
                base = theirs["baseline"]
                cells = [_with_gain(theirs[key], base) if key in theirs else "" for key in _AES]
                rows.append(["", _theirs(whose, name), f"{base:.2f}", *cells])
    title = f"Table 1: E-AURC ×10³ of AES ({_describe(experiment)}){_say_fewer(experiment)}"
    return PaperTable(content, _table(title, _AES_HEADS, rows))


def _say_fewer(experiment: Experiment) -> str:
    """Say which k of table 1 ask for more snapshots than there are."""
    counts: dict[int, str] = {}  # of snapshots, and the first κ that has so many
    for name, (table, *_), _ in _group(experiment):
        if name in KAPPAS:
            counts.setdefault(len(AES(max(AVERAGED)).snapshots(table.epochs)), name)
    text = ""
    for count, name in counts.items():
        if more := [f"k={k}" for k in AVERAGED if k > count]:
            verb = "averages" if len(more) == 1 else "average"
            text += f"; {' and '.join(more)} {verb} the {count} snapshots there are"
            text += f" of {name}" if len(counts) > 1 else ""
    return text


def tabulate_table2(experiment: Experiment) -> PaperTable:
    """NLL and Brier score after Platt scaling, of the final snapshot and of AES (table 2)."""
    paper = _read_paper(experiment, "table2_platt_k30")
    content: Content = {}
    rows = []
    for name, tables, kappa in _group(experiment):
        final, averaged = (
            [_calibrate_half(table, kappa, make, seed) for seed, table in enumerate(tables)]
            for make in (Final, AES)
        )
        content[name] = {"networks": len(tables)}
        ours, spread = [name, _whose(experiment, name)], ["", "Δ [95 %]"]
        theirs = ["", _theirs("paper", name)]
        for metric in (nll, brier):
            base, area = (
                _mean(metric(one.p, one.errors) for one in some) for some in (final, averaged)
            )
            difference = mean_interval(
                bootstrap_difference(metric, b.p, a.p, a.errors, resamples=RESAMPLES)
                for a, b in zip(final, averaged, strict=True)
            )
            part = {"final": base, "k30": area, "gain": percent_saved(area, base)}
            content[name][metric.__name__] = {**part, "difference": difference}
            ours += [f"{base:.4f}", f"{area:.4f}", _percent(part["gain"])]
            spread += ["", f"{signed(difference.low, 4)} … {signed(difference.high, 4)}", ""]
            if name in paper:
                base, area = paper[name][metric.__name__]
                theirs += [f"{base:.3f}", f"{area:.3f}", _percent(percent_saved(area, base))]
        rows += [ours, spread, *([theirs] if name in paper else [])]
    heads = ["κ", "", "NLL final", "NLL AES k=30", "gain", "Brier final", "Brier AES k=30", "gain"]
    title = f"Table 2: after Platt scaling on half the examples ({_describe(experiment)})"
    return PaperTable(content, _table(title, heads, rows))


def _calibrate_half(table: ScoreTable, kappa: str, make: type[Estimator], seed: int) -> Judged:
    """Calibrate a method on one half of the examples, and judge it on the other."""
    run = Run(table)
    ((learn, rest),) = Splits(1, 0.5, seed).parts(table.y_hat.size)
    return judge(Candidate(make.__name__, kappa, make), run.rows(learn), run.rows(rest))


def tabulate_table3(experiment: Experiment) -> PaperTable:
    """PES over softmax response: ten 70/30 splits of each network (table 3).

    AES learns nothing and is judged on the same examples as what does. The best snapshot is the
    simplest rival: the one that ranks the same labelled examples best. LES is ours.
    """
    found = evaluate(
        experiment.tables,
        kappa="softmax",
        methods=(FINAL, *COMPARED.values()),
        protocol=Splits(SPLITS, whole=False),
    )
    theirs = {}
    if paper := _read_paper(experiment, "table3_pes_softmax"):
        area, averaged = ("{:.2f} ± {:.2f}".format(*paper[key]) for key in ("sr", "pes"))
        gain = _percent(paper["improvement_percent"])
        theirs = {"final": [area, ""], "pes_paper": [averaged, gain]}
    content: Content = {}
    rows = []
    for key, method in {"final": FINAL, **COMPARED}.items():
        row = found[method]
        part: Content = {"eaurc": row.eaurc, "standard_error": row.standard_error}
        compared = ["", "", ""]
        if key != "final":
            part |= _compare_with_final(row)
            each = _gains(part["gains"]) if len(part["gains"]) > 1 else ""
            compared = [_percent(part["gain"]), _interval(part["difference"]), each]
        content[key] = part
        first = "softmax" if key == "final" else ""
        rows.append([first, method, _with_error(part), *compared, *theirs.get(key, ["", ""])])
    heads = ["κ", "", "E-AURC", "gain", "Δ [95 %]", "gain of each, %", "paper", "its gain"]
    title = (
        f"Table 3: E-AURC ×10³, {SPLITS} splits 70/30, ± standard error over the splits "
        f"({_describe(experiment)})"
    )
    return PaperTable(content, _table(title, heads, rows))


def tabulate_table4(experiment: Experiment) -> PaperTable:
    """Mean and standard error over repeated trainings (the appendix's table)."""
    values = _read_paper(experiment, "table1_aes")
    errors = _read_paper(experiment, "table1_standard_errors")
    estimators = {"final": Final(), **{f"k{k}": AES(k) for k in AVERAGED}}
    content: Content = {}
    rows = []
    for name, tables, kappa in _group(experiment):
        if len(tables) > 1:
            content[name] = {}
            for key, estimator in estimators.items():
                areas = [_area(estimator.fit(table, kappa), table) for table in tables]
                spread = standard_error(areas)
                content[name][key] = {"eaurc": _mean(areas), "standard_error": spread}
            cells = [_with_error(part) for part in content[name].values()]
            rows.append([name, _whose(experiment, name), *cells])
            if name in errors:
                keys = ("baseline", *_AES)
                cells = [f"{values[name][key]:.2f} ± {errors[name][key]:.2f}" for key in keys]
                rows.append(["", "paper", *cells])
    title = f"Table 4: E-AURC ×10³ ± standard error over trainings ({_describe(experiment)})"
    if not content:
        title += ": one training has none"
    return PaperTable(content, _table(title, _AES_HEADS, rows))


def tabulate_saturation(experiment: Experiment) -> PaperTable:
    """What AES gains over an exact softmax, and over one that float32 has rounded.

    In float32, κ of confident examples becomes exactly 1.0. Whatever an average does to them, it
    unties them: the difference of both gains is that, and no better ranking.
    """
    content: Content = {}
    rows = []
    for name, arithmetic in (("exact", np.float64), ("float32", np.float32)):
        rounded = [
            ScoreTable.from_kappa(
                table.kappa("softmax").astype(arithmetic), table.errors, table.epochs
            )
            for table in experiment.tables
        ]
        ones = _mean((table.kappa("softmax")[-1] == 1).mean() for table in rounded)
        areas = [[_area(make(), table) for table in rounded] for make in (Final, AES)]
        final, averaged = map(_mean, areas)
        gain = percent_saved(averaged, final)
        gains = [percent_saved(ours, base) for base, ours in zip(*areas, strict=True)]
        part = {"ones": ones, "final": final, "k30": averaged, "gain": gain, "gains": gains}
        content[name] = part
        cells = [f"{ones:.1%}", thousandths(final), thousandths(averaged), _percent(gain)]
        rows.append([name, *cells, _gains(gains)])
    heads = ["softmax", "κ = 1.0", "final", "AES k=30", "gain", "gain of each, %"]
    title = f"Saturation: E-AURC ×10³ of an exact softmax and of float32 ({_describe(experiment)})"
    return PaperTable(content, _table(title, heads, rows))


def tabulate_motivation(experiment: Experiment) -> PaperTable:
    """Which epoch ranks the surer and the less sure half best, of each network (figure 2)."""
    content: Content = {}
    rows = []
    for name, tables, kappa in _group(experiment):
        alone = [(seed,) for seed in experiment.of(kappa)]
        seeds = [*experiment.ensembles] if name == "ensemble" else alone
        content[name] = []
        for members, table in zip(seeds, tables, strict=True):
            halves = trajectories(table.kappa(kappa), table.errors, 0.5)
            part: Content = {"seeds": [*members], "last_epoch": int(table.epochs[-1])}
            cells = ["" if content[name] else name, _list(members)]
            for group, areas in (("surer", halves.green_eaurc), ("less_sure", halves.red_eaurc)):
                at = best_snapshot(areas)
                epoch, best, final = int(table.epochs[at]), float(areas[at]), float(areas[-1])
                part[group] = {"best_epoch": epoch, "best": best, "final": final}
                cells += [str(epoch), thousandths(best), thousandths(final)]
            content[name].append(part)
            rows.append(cells)
    heads = ["κ", "seed", "surer half: best epoch", "best", "final"]
    heads += ["less sure half: best epoch", "best", "final"]
    last = experiment.tables[0].epochs[-1]
    title = f"E-AURC ×10³ of both halves along {last} epochs"
    return PaperTable(content, _table(title, heads, rows))


TABLES: dict[str, Callable[[Experiment], PaperTable]] = {
    "networks": tabulate_networks,
    "table1": tabulate_table1,
    "table2": tabulate_table2,
    "table3": tabulate_table3,
    "table4": tabulate_table4,
    "saturation": tabulate_saturation,
    "motivation": tabulate_motivation,
}


def published() -> dict[str, Content]:
    """Return the paper's numbers, E-AURC × 10³."""
    text = resources.files("snapsure.paper").joinpath("published.json").read_text()
    return json.loads(text)  # type: ignore[no-any-return]


def _read_paper(experiment: Experiment, table: str) -> Content:
    dataset, _, _ = experiment.about["dataset"].partition("-")  # imagenet-1k, imagenet-tiny
    return published()[table].get(dataset, {})


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Make a table whose first two columns are text."""
    return Table([Column(head, text=i < 2) for i, head in enumerate(heads)], rows, title)


def _group(experiment: Experiment) -> Iterator[tuple[str, Sequence[ScoreTable], str]]:
    """Yield the name of each row, its score tables, and their κ: networks by κ, then ensembles."""
    for name in KAPPAS:
        if tables := experiment.of(name):
            yield name, [*tables.values()], name
    if ensembles := [*experiment.ensembles.values()]:
        yield "ensemble", ensembles, ensembles[0].names[0]


def _compare_with_final(result: Result) -> Content:
    return {
        "eaurc": result.eaurc,
        "gain": None if result.gain is None else result.gain.estimate,
        "difference": result.difference,
        "gains": list(result.gains),
    }


def _area(estimator: Estimator, table: ScoreTable) -> float:
    return float(eaurc(estimator.confidence(table), table.errors))


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


def _describe(experiment: Experiment) -> str:
    facts, count = experiment.about, len(experiment.tables)
    networks = f"{count} networks" if count > 1 else "one network"
    return f"{facts['dataset']}, scale {facts['scale']}, {networks}"


def _whose(experiment: Experiment, name: str) -> str:
    """Say that a row is ours, and of which networks where that is a question."""
    if name == "ensemble":
        count, size = len(experiment.ensembles), len(next(iter(experiment.ensembles)))
        return f"ours, {f'{count} × ' if count > 1 else ''}{size} networks"
    if len(experiment.tables) == 1:
        return "ours"
    seeds = [*experiment.of(name)]
    if seeds == experiment.seeds:
        return f"ours, mean of {len(seeds)}"
    return f"ours, {'seeds' if len(seeds) > 1 else 'seed'} {_list(seeds)}"


def _theirs(whose: str, name: str) -> str:
    return f"{whose}, 5 networks" if name == "ensemble" else whose


def _list(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds))


def _with_error(part: Content) -> str:
    return f"{thousandths(part['eaurc'])} ± {thousandths(part['standard_error'])}"


def _with_gain(value: float, base: float) -> str:
    return f"{value:.2f} ({_percent(percent_saved(value, base))})"


def _interval(difference: Sequence[float]) -> str:
    _, low, high = difference
    return f"{signed(low * 1e3, 2)} … {signed(high * 1e3, 2)}"


def _percent(gain: float | None) -> str:
    return "–" if gain is None else f"{signed(gain)} %"


def _gains(gains: Sequence[float | None]) -> str:
    """List the gain of each network, three to a line."""
    written = ["–" if gain is None else signed(gain) for gain in gains]
    return "\n".join(" ".join(written[i : i + 3]) for i in range(0, len(written), 3))
