"""What `snapsure reproduce` shows: tables with the paper's numbers beside ours, and figures."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.table import Table as RichTable

from snapsure import _files
from snapsure.errors import InvalidInput
from snapsure.estimators import AES
from snapsure.paper import figures, tables
from snapsure.paper.archive import Experiment
from snapsure.report.tables import Column, Table, to_markdown, to_terminal

Content = dict[str, Any]

_MINUS = "−"
_COMPARED = {
    "aes": "AES k=30",
    "pes": "PES",
    "pes_paper": "PES to the letter",
    "snapshot": "best snapshot",
    "les": "LES (ours)",
    "les_in_3": "LES in 3 passes (ours)",
}
_THREE_GAINS = re.compile(rf"((?:[+{_MINUS}][\d.]+ ){{2}}[+{_MINUS}][\d.]+) ")
_INDEPENDENT = "Moon et al. 2020"


@dataclass(frozen=True)
class Shown:
    """A table: numbers for programs, and rows of words for people."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    content: Content

    @property
    def table(self) -> Table:
        """The rows as a table, the first two columns being words."""
        columns = [Column(head, text=i < 2) for i, head in enumerate(self.columns)]
        return Table(columns, self.rows, self.title)

    def display(self) -> RichTable:
        """Render the table for a terminal; gains of many networks take two lines."""
        rows = [[_THREE_GAINS.sub(r"\1\n", cell) for cell in row] for row in self.rows]
        return to_terminal(replace(self.table, rows=rows))

    def markdown(self) -> str:
        """Render the table for a page."""
        return f"### {self.title}\n\n{to_markdown(self.table)}"


def named(what: str) -> list[str]:
    """The parts that a word asks for."""
    known = [*_TABLES, "figures"]
    if what == "all":
        return known
    if what not in known:
        raise InvalidInput(
            f"`what` must be one of {', '.join(known)}, all, got {what!r}: choose among these"
        )
    return [what]


def compute(experiment: Experiment, names: Sequence[str]) -> dict[str, Shown]:
    """The tables among `names`."""
    return {name: _TABLES[name](experiment) for name in names if name in _TABLES}


def write(
    experiment: Experiment, names: Sequence[str], shown: Mapping[str, Shown], folder: Path
) -> list[Path]:
    """Write what was computed: a page and numbers for each table, and pictures of figures."""
    _files.make_folder(folder)
    paths = []
    for name, table in shown.items():
        content = json.dumps(table.content, indent=1) + "\n"
        for path, text in (
            (folder / f"{name}.md", table.markdown()),
            (folder / f"{name}.json", content),
        ):
            _files.write_bytes(path, text.encode())
            paths.append(path)
    if "figures" in names:
        paths += figures.draw(experiment, folder)
    return paths


def _table1(experiment: Experiment) -> Shown:
    content = tables.table1(experiment)
    published = {
        "paper": _paper(experiment, "table1_aes"),
        _INDEPENDENT: _paper(experiment, "table1_independent"),
    }
    rows = []
    for name, row in content.items():
        whose = _whose(experiment, name)
        rows.append([name, whose, _area(row["final"]["eaurc"]), *_cells(row)])
        spread = [_interval(row[f"k{k}"]["difference"]) for k in tables.AVERAGED]
        rows.append(["", "Δ [95 %]", "", *spread])
        if row["networks"] > 1:
            rows.append(["", "gain of each, %", "", *_gains(row)])
        for whose, paper in published.items():
            if name in paper:
                base, *averaged = (
                    paper[name].get(key)
                    for key in ("baseline", *map("k{}".format, tables.AVERAGED))
                )
                cells = [_with_gain(value, base) if value else "" for value in averaged]
                rows.append(["", _theirs(whose, name), f"{base:.2f}", *cells])
    columns = ["κ", "", "final", *(f"AES k={k}" for k in tables.AVERAGED)]
    title = f"Table 1: E-AURC ×10³ of AES ({_networks(experiment)}){_fewer(experiment)}"
    return Shown(title, columns, rows, content)


def _fewer(experiment: Experiment) -> str:
    """Which k of table 1 ask for more snapshots than there are."""
    there: dict[int, str] = {}  # how many there are, and the first κ of which there are so many
    for name in tables.KAPPAS:
        for table in [*experiment.of(name).values()][:1]:
            there.setdefault(len(AES(max(tables.AVERAGED)).snapshots(table.epochs)), name)
    told = ""
    for count, name in there.items():
        if more := [f"k={k}" for k in tables.AVERAGED if k > count]:
            verb = "averages" if len(more) == 1 else "average"
            told += f"; {' and '.join(more)} {verb} the {count} snapshots there are"
            told += f" of {name}" if len(there) > 1 else ""
    return told


def _table2(experiment: Experiment) -> Shown:
    content = tables.table2(experiment)
    paper = _paper(experiment, "table2_platt_k30")
    rows = []
    for name, row in content.items():
        ours, spread = [name, _whose(experiment, name)], ["", "Δ [95 %]"]
        for metric in ("nll", "brier"):
            part = row[metric]
            ours += [f"{part['final']:.4f}", f"{part['k30']:.4f}", _percent(part["gain"])]
            _, low, high = part["difference"]
            spread += ["", f"{_signed(low, 4)} … {_signed(high, 4)}", ""]
        rows += [ours, spread]
        if name in paper:
            theirs = ["", _theirs("paper", name)]
            for metric in ("nll", "brier"):
                base, averaged = paper[name][metric]
                gain = 100 * (1 - averaged / base)
                theirs += [f"{base:.3f}", f"{averaged:.3f}", _percent(gain)]
            rows.append(theirs)
    columns = ["κ", "", "NLL final", "NLL AES k=30", "gain"]
    columns += ["Brier final", "Brier AES k=30", "gain"]
    title = f"Table 2: after Platt scaling on half the points ({_networks(experiment)})"
    return Shown(title, columns, rows, content)


def _table3(experiment: Experiment) -> Shown:
    content = tables.table3(experiment)
    paper = _paper(experiment, "table3_pes_softmax")
    rows = [["softmax", "final", _with_error(content["final"]), "", "", "", "", ""]]
    for method, name in _COMPARED.items():
        part = content[method]
        each = " ".join(_gain(gain) for gain in part["gains"]) if len(part["gains"]) > 1 else ""
        gain, change = _percent(part["gain"]), _interval(part["difference"])
        rows.append(["", name, _with_error(part), gain, change, each, "", ""])
    if paper:
        (base, error), (pes, pes_error) = paper["sr"], paper["pes"]
        at = [*_COMPARED].index("pes_paper") + 1
        rows[0][-2] = f"{base:.2f} ± {error:.2f}"
        rows[at][-2:] = [f"{pes:.2f} ± {pes_error:.2f}", _percent(paper["improvement_percent"])]
    columns = ["κ", "", "E-AURC", "gain", "Δ [95 %]", "gain of each, %", "paper", "its gain"]
    title = (
        f"Table 3: E-AURC ×10³, {tables.SPLITS} splits 70/30, ± standard error over the splits "
        f"({_networks(experiment)})"
    )
    return Shown(title, columns, rows, content)


def _table4(experiment: Experiment) -> Shown:
    content = tables.table4(experiment)
    values, errors = _paper(experiment, "table1_aes"), _paper(experiment, "table1_standard_errors")
    methods = ["final", *(f"k{k}" for k in tables.AVERAGED)]
    rows = []
    for name, row in content.items():
        rows.append(
            [name, _whose(experiment, name), *(_with_error(row[method]) for method in methods)]
        )
        if name in errors:
            keys = ["baseline", *methods[1:]]
            cells = [f"{values[name][key]:.2f} ± {errors[name][key]:.2f}" for key in keys]
            rows.append(["", "paper", *cells])
    columns = ["κ", "", "final", *(f"AES k={k}" for k in tables.AVERAGED)]
    title = f"Table 4: E-AURC ×10³ ± standard error over trainings ({_networks(experiment)})"
    if not content:
        title += ": one training has none"
    return Shown(title, columns, rows, content)


def _saturation(experiment: Experiment) -> Shown:
    content = tables.saturation(experiment)
    rows = [
        [
            name,
            f"{row['ones']:.1%}",
            _area(row["final"]),
            _area(row["k30"]),
            _percent(row["gain"]),
            " ".join(_gain(gain) for gain in row["gains"]),
        ]
        for name, row in content.items()
    ]
    columns = ["softmax", "κ = 1.0", "final", "AES k=30", "gain", "gain of each, %"]
    title = f"Saturation: E-AURC ×10³ of an exact softmax and of float32 ({_networks(experiment)})"
    return Shown(title, columns, rows, content)


def _motivation(experiment: Experiment) -> Shown:
    content = tables.motivation(experiment)
    rows = []
    for name, networks in content.items():
        for i, network in enumerate(networks):
            cells = []
            for group in ("surer", "less_sure"):
                part = network[group]
                cells += [str(part["best_epoch"]), _area(part["best"]), _area(part["final"])]
            rows.append([name if i == 0 else "", _listed(network["seeds"]), *cells])
    columns = ["κ", "seed", "surer half: best epoch", "best", "final"]
    columns += ["less sure half: best epoch", "best", "final"]
    last = experiment.tables[0].epochs[-1]
    return Shown(f"E-AURC ×10³ of both halves along {last} epochs", columns, rows, content)


def _about(experiment: Experiment) -> Shown:
    content = tables.about(experiment)
    rows = [
        [f"seed {seed}", "", f"{right:.1%}", f"{wrong:.1%}"]
        for seed, right, wrong in zip(
            experiment.seeds, content["training_accuracy"], content["test_error"], strict=True
        )
    ]
    for one in content["ensembles"]:
        rows.append([f"ensemble of {_listed(one['seeds'])}", "", "", f"{one['test_error']:.1%}"])
    columns = ["network", "", "right in training", "wrong in test"]
    return Shown(f"The networks: {_networks(experiment)}", columns, rows, content)


_TABLES: dict[str, Callable[[Experiment], Shown]] = {
    "networks": _about,
    "table1": _table1,
    "table2": _table2,
    "table3": _table3,
    "table4": _table4,
    "saturation": _saturation,
    "motivation": _motivation,
}


def _networks(experiment: Experiment) -> str:
    facts = experiment.about
    count = len(experiment.tables)
    plural = f"{count} networks" if count > 1 else "one network"
    return f"{facts['dataset']}, scale {facts['scale']}, {plural}"


def _paper(experiment: Experiment, table: str) -> Content:
    name = experiment.about["dataset"].removesuffix("-1k")
    content: Content = tables.published()[table].get(name, {})
    return content


def _whose(experiment: Experiment, name: str) -> str:
    """Ours, and of which networks where that is a question."""
    if name == "ensemble":
        count, size = len(experiment.ensembles), len(next(iter(experiment.ensembles)))
        return f"ours, {f'{count} × ' if count > 1 else ''}{size} networks"
    if len(experiment.tables) == 1:
        return "ours"
    seeds = [*experiment.of(name)]
    if seeds == experiment.seeds:
        return f"ours, mean of {len(seeds)}"
    return f"ours, {'seeds' if len(seeds) > 1 else 'seed'} {_listed(seeds)}"


def _theirs(whose: str, name: str) -> str:
    return f"{whose}, 5 networks" if name == "ensemble" else whose


def _listed(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds))


def _area(value: float) -> str:
    return f"{value * 1e3:.2f}"


def _with_error(part: Content) -> str:
    return f"{_area(part['eaurc'])} ± {_area(part['standard_error'])}"


def _cells(row: Content) -> list[str]:
    parts = [row[f"k{k}"] for k in tables.AVERAGED]
    return [f"{_area(part['eaurc'])} ({_percent(part['gain'])})" for part in parts]


def _gains(row: Content) -> list[str]:
    return [" ".join(_gain(gain) for gain in row[f"k{k}"]["gains"]) for k in tables.AVERAGED]


def _with_gain(value: float, base: float) -> str:
    return f"{value:.2f} ({_percent(100 * (1 - value / base))})"


def _interval(difference: Sequence[float]) -> str:
    _, low, high = difference
    return f"{_signed(low * 1e3, 2)} … {_signed(high * 1e3, 2)}"


def _percent(gain: float | None) -> str:
    return "–" if gain is None else f"{_signed(gain, 1)} %"


def _gain(gain: float | None) -> str:
    return "–" if gain is None else _signed(gain, 1)


def _signed(value: float, digits: int) -> str:
    return f"{value:+.{digits}f}".replace("-", _MINUS)
