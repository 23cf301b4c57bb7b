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
from snapsure.report.tables import Column, Table, thousandths, to_markdown, to_terminal

Content = dict[str, Any]

_COMPARED = {
    "aes": "AES k=30",
    "pes": "PES",
    "pes_paper": "PES to the letter",
    "snapshot": "best snapshot",
    "les": "LES (ours)",
    "les_in_3": "LES in 3 passes (ours)",
}
_KEYS = [f"k{k}" for k in tables.AVERAGED]
_AES_COLUMNS = ["κ", "", "final", *(f"AES k={k}" for k in tables.AVERAGED)]
_THREE_GAINS = re.compile(r"((?:[+−][\d.]+ ){2}[+−][\d.]+) ")


@dataclass(frozen=True)
class Shown:
    """A table: numbers for programs, and rows of text for people."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    content: Content

    @property
    def table(self) -> Table:
        """The rows as a table, the first two columns being text."""
        columns = [Column(head, text=i < 2) for i, head in enumerate(self.columns)]
        return Table(columns, self.rows, self.title)

    def display(self) -> RichTable:
        """Render the table for a terminal; gains of many networks take two lines."""
        rows = [[_THREE_GAINS.sub(r"\1\n", cell) for cell in row] for row in self.rows]
        return to_terminal(replace(self.table, rows=rows))

    def markdown(self) -> str:
        """Render the table for a page."""
        return f"### {self.title}\n\n{to_markdown(self.table)}"


def select_parts(what: str) -> list[str]:
    """Return the names of the parts that a word asks for."""
    known = [*_TABLES, "figures"]
    if what == "all":
        return known
    if what not in known:
        raise InvalidInput(
            f"`what` must be one of {', '.join(known)} and all, got {what!r}. Choose one of these."
        )
    return [what]


def compute(experiment: Experiment, names: Sequence[str]) -> dict[str, Shown]:
    """Compute the tables among `names`."""
    return {name: _TABLES[name](experiment) for name in names if name in _TABLES}


def write(
    experiment: Experiment, names: Sequence[str], shown: Mapping[str, Shown], folder: Path
) -> list[Path]:
    """Write a page and the numbers of each table, and the figures if they are among `names`."""
    _files.make_folder(folder)
    paths = []
    for name, table in shown.items():
        numbers = json.dumps(table.content, indent=1) + "\n"
        for ending, text in (("md", table.markdown()), ("json", numbers)):
            paths.append(folder / f"{name}.{ending}")
            _files.write_bytes(paths[-1], text.encode())
    if "figures" in names:
        paths += figures.draw(experiment, folder)
    return paths


def _show_networks(experiment: Experiment) -> Shown:
    content = tables.about(experiment)
    shares = zip(content["training_accuracy"], content["test_error"], strict=True)
    rows = [
        [f"seed {seed}", "", f"{right:.1%}", f"{wrong:.1%}"]
        for seed, (right, wrong) in zip(experiment.seeds, shares, strict=True)
    ]
    for one in content["ensembles"]:
        rows.append([f"ensemble of {_list(one['seeds'])}", "", "", f"{one['test_error']:.1%}"])
    columns = ["network", "", "right in training", "wrong in test"]
    return Shown(f"The networks: {_describe(experiment)}", columns, rows, content)


def _show_table1(experiment: Experiment) -> Shown:
    content = tables.table1(experiment)
    rows = []
    for name, row in content.items():
        parts = [row[key] for key in _KEYS]
        areas = [f"{thousandths(part['eaurc'])} ({_percent(part['gain'])})" for part in parts]
        rows.append([name, _whose(experiment, name), thousandths(row["final"]["eaurc"]), *areas])
        rows.append(["", "Δ [95 %]", "", *(_interval(part["difference"]) for part in parts)])
        if row["networks"] > 1:
            rows.append(["", "gain of each, %", "", *(_gains(part["gains"]) for part in parts)])
        for whose, table in (("paper", "table1_aes"), ("Moon et al. 2020", "table1_independent")):
            if theirs := _read_paper(experiment, table).get(name):
                base = theirs["baseline"]
                cells = [_with_gain(theirs[key], base) if key in theirs else "" for key in _KEYS]
                rows.append(["", _theirs(whose, name), f"{base:.2f}", *cells])
    title = f"Table 1: E-AURC ×10³ of AES ({_describe(experiment)}){_say_fewer(experiment)}"
    return Shown(title, _AES_COLUMNS, rows, content)


def _say_fewer(experiment: Experiment) -> str:
    """Say which k of table 1 ask for more snapshots than there are."""
    counts: dict[int, str] = {}  # of snapshots, and the first κ that has so many
    for name in tables.KAPPAS:
        for table in [*experiment.of(name).values()][:1]:
            counts.setdefault(len(AES(max(tables.AVERAGED)).snapshots(table.epochs)), name)
    text = ""
    for count, name in counts.items():
        if more := [f"k={k}" for k in tables.AVERAGED if k > count]:
            verb = "averages" if len(more) == 1 else "average"
            text += f"; {' and '.join(more)} {verb} the {count} snapshots there are"
            text += f" of {name}" if len(counts) > 1 else ""
    return text


def _show_table2(experiment: Experiment) -> Shown:
    content = tables.table2(experiment)
    paper = _read_paper(experiment, "table2_platt_k30")
    rows = []
    for name, row in content.items():
        ours, spread = [name, _whose(experiment, name)], ["", "Δ [95 %]"]
        theirs = ["", _theirs("paper", name)]
        for metric in ("nll", "brier"):
            part = row[metric]
            ours += [f"{part['final']:.4f}", f"{part['k30']:.4f}", _percent(part["gain"])]
            _, low, high = part["difference"]
            spread += ["", f"{_signed(low, 4)} … {_signed(high, 4)}", ""]
            if name in paper:
                base, averaged = paper[name][metric]
                gain = _percent(100 * (1 - averaged / base))
                theirs += [f"{base:.3f}", f"{averaged:.3f}", gain]
        rows += [ours, spread, *([theirs] if name in paper else [])]
    columns = ["κ", "", "NLL final", "NLL AES k=30", "gain"]
    columns += ["Brier final", "Brier AES k=30", "gain"]
    title = f"Table 2: after Platt scaling on half the examples ({_describe(experiment)})"
    return Shown(title, columns, rows, content)


def _show_table3(experiment: Experiment) -> Shown:
    content = tables.table3(experiment)
    rows = [["softmax", "final", _with_error(content["final"]), "", "", "", "", ""]]
    for method, name in _COMPARED.items():
        part = content[method]
        each = _gains(part["gains"]) if len(part["gains"]) > 1 else ""
        gain, change = _percent(part["gain"]), _interval(part["difference"])
        rows.append(["", name, _with_error(part), gain, change, each, "", ""])
    if paper := _read_paper(experiment, "table3_pes_softmax"):
        rows[0][-2] = "{:.2f} ± {:.2f}".format(*paper["sr"])
        cells = ["{:.2f} ± {:.2f}".format(*paper["pes"]), _percent(paper["improvement_percent"])]
        rows[1 + [*_COMPARED].index("pes_paper")][-2:] = cells
    columns = ["κ", "", "E-AURC", "gain", "Δ [95 %]", "gain of each, %", "paper", "its gain"]
    title = (
        f"Table 3: E-AURC ×10³, {tables.SPLITS} splits 70/30, ± standard error over the splits "
        f"({_describe(experiment)})"
    )
    return Shown(title, columns, rows, content)


def _show_table4(experiment: Experiment) -> Shown:
    content = tables.table4(experiment)
    values = _read_paper(experiment, "table1_aes")
    errors = _read_paper(experiment, "table1_standard_errors")
    rows = []
    for name, row in content.items():
        cells = [_with_error(row[key]) for key in ("final", *_KEYS)]
        rows.append([name, _whose(experiment, name), *cells])
        if name in errors:
            keys = ("baseline", *_KEYS)
            cells = [f"{values[name][key]:.2f} ± {errors[name][key]:.2f}" for key in keys]
            rows.append(["", "paper", *cells])
    title = f"Table 4: E-AURC ×10³ ± standard error over trainings ({_describe(experiment)})"
    if not content:
        title += ": one training has none"
    return Shown(title, _AES_COLUMNS, rows, content)


def _show_saturation(experiment: Experiment) -> Shown:
    content = tables.saturation(experiment)
    rows = []
    for name, row in content.items():
        areas = [thousandths(row[key]) for key in ("final", "k30")]
        gains = [_percent(row["gain"]), _gains(row["gains"])]
        rows.append([name, f"{row['ones']:.1%}", *areas, *gains])
    columns = ["softmax", "κ = 1.0", "final", "AES k=30", "gain", "gain of each, %"]
    title = f"Saturation: E-AURC ×10³ of an exact softmax and of float32 ({_describe(experiment)})"
    return Shown(title, columns, rows, content)


def _show_motivation(experiment: Experiment) -> Shown:
    content = tables.motivation(experiment)
    rows = []
    for name, networks in content.items():
        for i, network in enumerate(networks):
            cells = [name if i == 0 else "", _list(network["seeds"])]
            for part in (network["surer"], network["less_sure"]):
                areas = (thousandths(part[key]) for key in ("best", "final"))
                cells += [str(part["best_epoch"]), *areas]
            rows.append(cells)
    columns = ["κ", "seed", "surer half: best epoch", "best", "final"]
    columns += ["less sure half: best epoch", "best", "final"]
    last = experiment.tables[0].epochs[-1]
    return Shown(f"E-AURC ×10³ of both halves along {last} epochs", columns, rows, content)


_TABLES: dict[str, Callable[[Experiment], Shown]] = {
    "networks": _show_networks,
    "table1": _show_table1,
    "table2": _show_table2,
    "table3": _show_table3,
    "table4": _show_table4,
    "saturation": _show_saturation,
    "motivation": _show_motivation,
}


def _describe(experiment: Experiment) -> str:
    facts, count = experiment.about, len(experiment.tables)
    networks = f"{count} networks" if count > 1 else "one network"
    return f"{facts['dataset']}, scale {facts['scale']}, {networks}"


def _read_paper(experiment: Experiment, table: str) -> Content:
    name = experiment.about["dataset"].removesuffix("-1k")
    content: Content = tables.published()[table].get(name, {})
    return content


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
    return f"{value:.2f} ({_percent(100 * (1 - value / base))})"


def _interval(difference: Sequence[float]) -> str:
    _, low, high = difference
    return f"{_signed(low * 1e3, 2)} … {_signed(high * 1e3, 2)}"


def _percent(gain: float | None) -> str:
    return "–" if gain is None else f"{_signed(gain, 1)} %"


def _gains(gains: Sequence[float | None]) -> str:
    return " ".join("–" if gain is None else _signed(gain, 1) for gain in gains)


def _signed(value: float, digits: int) -> str:
    return f"{value:+.{digits}f}".replace("-", "−")
