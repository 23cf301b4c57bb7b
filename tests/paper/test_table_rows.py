"""What `snapsure reproduce` prints and writes."""

import io
import json

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from snapsure import ScoreTable
from snapsure.errors import InvalidInput
from snapsure.paper import tables
from snapsure.paper.archive import Experiment
from snapsure.report.tables import to_terminal
from tests.support.experiments import simulate_ensemble as ensemble
from tests.support.experiments import simulate_network as network

pytestmark = pytest.mark.slow

TABLES = ["networks", "table1", "table2", "table3", "table4", "saturation", "motivation"]


@pytest.fixture(scope="module")
def shown(experiment):
    return tables.compute(experiment, TABLES)


def test_all_is_every_part():
    assert tables.select_parts("all") == [*TABLES, "figures"]
    assert tables.select_parts("table2") == ["table2"]
    with pytest.raises(InvalidInput, match=r"`what` must be .*table1.*figures.*, got 'table5'"):
        tables.select_parts("table5")


def test_the_papers_numbers_stand_beside_ours(shown):
    rows = {name: [" ".join(row) for row in part.table.rows] for name, part in shown.items()}
    papers = {name: [row for row in each if "paper" in row] for name, each in rows.items()}
    assert papers["table1"] == [
        " paper 50.97 41.64 (+18.3 %) 39.90 (+21.7 %) 39.68 (+22.2 %)",
        " paper 47.68 49.45 (−3.7 %) 46.56 (+2.3 %) 46.50 (+2.5 %)",
        " paper, 5 networks 34.73 31.10 (+10.5 %) 30.72 (+11.5 %) 30.75 (+11.5 %)",
    ]
    assert shown["table3"].table.heads[-2:] == ["paper", "its gain"]
    assert {row[1]: row[-2:] for row in shown["table3"].table.rows} == {
        "final": ["51.32 ± 0.43", ""],
        "AES": ["", ""],
        "PES": ["", ""],
        "PES (paper)": ["41.96 ± 0.39", "+18.2 %"],
        "best snapshot": ["", ""],
        "LES": ["", ""],
        "LES (3 passes)": ["", ""],
    }
    independent = [row for row in rows["table1"] if "Moon" in row]
    assert independent == [" Moon et al. 2020 38.61 37.09 (+3.9 %)  "]
    assert papers["table4"] == [" paper 50.97 ± 0.56 41.64 ± 1.81 39.90 ± 1.61 39.68 ± 1.59"]
    assert papers["table2"][0] == " paper 0.539 0.430 +20.2 % 0.178 0.137 +23.0 %"


def test_ours_is_times_a_thousand_with_its_interval(shown):
    content, rows = shown["table1"].content["softmax"], shown["table1"].table.rows
    assert rows[0][:3] == ["softmax", "ours, mean of 2", f"{content['final']['eaurc'] * 1e3:.2f}"]
    _, low, high = content["k30"]["difference"]
    expected = f"{low * 1e3:+.2f} … {high * 1e3:+.2f}".replace("-", "−")
    assert rows[1][4] == expected


def test_the_gain_of_each_network_is_listed_where_there_are_several(shown):
    content, rows = shown["table1"].content, shown["table1"].table.rows
    listed = [row for row in rows if row[1].startswith("gain of each")]
    several = [part for part in content.values() if part["networks"] > 1]
    assert len(listed) == len(several) == 3
    for row, part in zip(listed, several, strict=True):
        for cell, k in zip(row[3:], ("k10", "k30", "k50"), strict=True):
            assert cell.replace("−", "-") == " ".join(f"{gain:+.1f}" for gain in part[k]["gains"])
    content, rows = shown["table3"].content, shown["table3"].table.rows
    for row, part in zip(rows, content.values(), strict=True):
        gains = " ".join(f"{gain:+.1f}" for gain in part.get("gains", []))
        assert row[5].replace("−", "-") == gains


def test_of_one_network_there_are_no_gains_of_each_and_no_errors(experiment):
    about = {**experiment.about, "networks": experiment.about["networks"][:1]}
    alone = Experiment(about, [network(0)])
    made = tables.compute(alone, ["table1", "table3", "table4"])
    assert not [row for row in made["table1"].table.rows if row[1].startswith("gain of each")]
    assert {row[5] for row in made["table3"].table.rows} == {""}
    assert made["table4"].table.rows == []
    assert "one training has none" in made["table4"].table.title


def test_a_name_stands_in_the_first_of_its_rows(shown):
    first = [row[0] for row in shown["table3"].table.rows]
    assert first == ["softmax", *[""] * (len(first) - 1)]
    firsts = [row[0] for row in shown["motivation"].table.rows]
    assert firsts == ["softmax", "", "mc_dropout_variance", "", "mc_dropout", "", "ensemble"]
    assert "12 epochs" in shown["motivation"].table.title


def test_every_table_has_all_its_cells(shown):
    for name, part in shown.items():
        assert {len(row) for row in part.table.rows} == {len(part.table.heads)}, name
        texts = [column.text for column in part.table.columns]
        assert texts == [True, True, *[False] * (len(texts) - 2)]


def test_a_terminal_shows_every_number_of_many_networks(experiment):
    history = [{"epoch": 12, "training_accuracy": 0.99}]
    about = {"dataset": "cifar100", "scale": "cpu", "networks": [history] * 6}
    many = Experiment(about, [*experiment.tables] * 3, experiment.ensembles)
    for part in tables.compute(many, TABLES).values():
        console = Console(width=130, file=io.StringIO())
        console.print(to_terminal(part.table))
        lines = console.file.getvalue().splitlines()
        written = {cell.strip() for line in lines for cell in line.split("│")[1:-1]}
        cells = {line for row in part.table.rows for cell in row for line in cell.split("\n")}
        assert cells <= written


def test_a_title_says_which_k_ask_for_more_snapshots_than_there_are():
    history = [{"epoch": 54, "training_accuracy": 0.99}]
    about = {"dataset": "cifar100", "scale": "cpu-full", "networks": [history]}
    epochs, rng = np.arange(1, 55), np.random.default_rng(0)
    kappa, y = rng.random((54, 90)), rng.integers(0, 2, 90)

    def scored(name, at):
        return ScoreTable({name: kappa[at]}, np.zeros((54, 90), int)[at], y, epochs=epochs[at])

    every, some = scored("softmax", slice(None)), scored("nn_distance", slice(2, None, 3))
    for table, costly, note in (
        (every, {}, "k=50 averages the 34 snapshots there are"),
        (scored("softmax", slice(48)), {}, "k=50 averages the 30 snapshots there are"),
        (
            every,
            {0: some},
            "k=50 averages the 34 snapshots there are of softmax; k=30 and k=50 average the 12 "
            "snapshots there are of nn_distance",
        ),
    ):
        shown = tables.compute(Experiment(about, [table], costly=costly), ["table1"])["table1"]
        title = "Table 1: E-AURC ×10³ of AES (cifar100, scale cpu-full, one network)"
        assert shown.table.title == f"{title}; {note}"


def test_written_files(experiment, tmp_path):
    shown = tables.compute(experiment, ["table1"])
    paths = tables.write(experiment, ["table1", "figures"], shown, tmp_path)
    assert [path.name for path in paths] == [
        "table1.md", "table1.json", "figure1.png", "figure2.png", "figure3.png",
    ]  # fmt: skip
    lines = (tmp_path / "table1.md").read_text().splitlines()
    assert lines[0] == f"### {shown['table1'].table.title}"
    assert len({line.count("|") for line in lines[2:]}) == 1
    content = json.loads((tmp_path / "table1.json").read_text())
    assert content["softmax"]["networks"] == 2
    for path in paths[2:]:
        with Image.open(path) as picture:
            assert picture.width > 400


def test_a_row_says_of_which_networks_it_is():
    some = ScoreTable(
        {"softmax": network(1).kappa("softmax")},
        network(1).labels,
        network(1).y,
    )
    history = [{"epoch": 12, "training_accuracy": 0.99}]
    about = {"dataset": "cifar100", "scale": "cpu", "networks": [history, history]}
    both = Experiment({**about, "seeds": [3, 5]}, [network(0), some], {(3, 5): ensemble()})
    expected = {
        "softmax": "ours, mean of 2",
        "mc_dropout_variance": "ours, seed 3",
        "mc_dropout": "ours, seed 3",
        "ensemble": "ours, 2 networks",
    }
    assert {table: _whose(both, table) for table in ("table1", "table2", "table4")} == {
        "table1": expected,
        "table2": expected,
        "table4": {"softmax": "ours, mean of 2"},
    }
    facts = {**about, "seeds": [0, 1], "networks": [history, history]}
    four = both.beside(Experiment(facts, [network(0), network(1)], {(0, 1): ensemble()}))
    assert _whose(four, "table4") == {
        "softmax": "ours, mean of 4",
        "mc_dropout_variance": "ours, seeds 0, 1, 3",
        "mc_dropout": "ours, seeds 0, 1, 3",
        "ensemble": "ours, 2 × 2 networks",
    }
    alone = Experiment({**about, "networks": [history]}, [some])
    assert _whose(alone, "table1") == {"softmax": "ours"}


def _whose(experiment, table):
    return {
        row[0]: row[1] for row in tables.compute(experiment, [table])[table].table.rows if row[0]
    }
