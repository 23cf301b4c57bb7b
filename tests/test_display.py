"""Results as people hold them: data frames, HTML, pictures, and a real notebook with them all."""

import io
import sys
from html.parser import HTMLParser

import nbformat
import numpy as np
import pandas as pd
import pytest
from nbclient import NotebookClient
from PIL import Image

from snapsure import AES, Report, ScoreTable, compare, evaluate, rc_curve
from snapsure._display import Display
from snapsure.errors import InvalidInput
from snapsure.evaluation import Splits
from snapsure.report.tables import interval
from tests.support.runs import simulated

HOSTILE = '<script>alert("1")</script>'


@pytest.fixture(scope="module")
def table():
    return simulated()


@pytest.fixture(scope="module")
def found(table):
    return evaluate(table, protocol=Splits(2), resamples=100)


class Read(HTMLParser):
    """The cells of tables, row by row, and every tag there is."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.tags, self.words = [], [], []
        self.in_cell = False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag == "tr":
            self.rows.append([])
        self.in_cell = tag in ("td", "th")
        if self.in_cell:
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        self.in_cell = False

    def handle_data(self, data):
        self.words.append(data)
        if self.in_cell:
            self.rows[-1][-1] += data


def test_a_table_as_a_frame_of_its_points(table):
    frame = table.to_frame()
    assert list(frame.columns) == ["y", "y_hat", "wrong", "softmax", "mc_dropout"]
    assert frame.index.name == "row"
    assert frame.shape == (400, 5)
    assert np.array_equal(frame["y"], table.y)
    assert np.array_equal(frame["y_hat"], table.y_hat)
    assert np.array_equal(frame["wrong"], table.errors)
    for name in table.names:
        assert np.array_equal(frame[name], table.kappa(name)[-1])


def test_a_table_as_a_frame_of_all_snapshots():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, (4, 5))
    kappa = rng.random((4, 5))
    table = ScoreTable({"softmax": kappa}, labels, epochs=[2, 3, 5, 8])
    frame = table.to_frame("all")
    assert frame.index.names == ["epoch", "row"]
    assert list(frame.columns) == ["y_hat", "label", "softmax"]  # there are no true labels
    for t, epoch in enumerate((2, 3, 5, 8)):
        for row in range(5):
            seen = frame.loc[epoch, row]
            assert seen["softmax"] == kappa[t, row]
            assert seen["label"] == labels[t, row]
            assert seen["y_hat"] == labels[-1, row]


def test_what_a_frame_is_refused_for(table, monkeypatch):
    with pytest.raises(InvalidInput) as caught:
        table.to_frame("some")
    assert str(caught.value) == (
        '`snapshots` must be "final" or "all", got \'some\'. Choose one of them.'
    )
    odd = ScoreTable({"wrong": [[0.5]]}, [[0]], [0])
    with pytest.raises(InvalidInput, match="got 'wrong'"):
        odd.to_frame()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ModuleNotFoundError) as missing:
        table.to_frame()
    assert str(missing.value) == (
        "a data frame needs pandas, which is not installed. Run: pip install 'snapsure[pandas]'"
    )


def test_an_evaluation_as_a_frame(found):
    frame = found.to_frame()
    rows = {(board.name, row.method, row.kappa): row for board in found.every for row in board.rows}
    assert frame.index.names == ["board", "method", "kappa"]
    assert list(frame.index) == list(rows)
    for place, row in rows.items():
        seen = frame.loc[place]
        for field in ("eaurc", "nll", "brier", "passes", "verdict", "reference_eaurc"):
            assert seen[field] == getattr(row, field)
        for field in ("difference", "gain"):
            ends = (seen[field], seen[f"{field}_low"], seen[f"{field}_high"])
            assert ends == tuple(getattr(row, field))
        assert pd.isna(seen["behind"])  # of a comparison alone
    assert repr(found) == "<Comparison: softmax, mc_dropout; 5 methods>"


def test_a_comparison_of_several_sets_as_a_frame(table):
    found = compare({HOSTILE: table, "other": table}, methods=["final", "LES"], resamples=400)
    frame = found.to_frame()
    names = ["all data sets", HOSTILE, "other"]
    assert list(dict.fromkeys(frame.index.get_level_values("board"))) == names
    behind = found.pooled["LES"].behind
    seen = frame.loc["all data sets", "LES", "softmax"]
    assert (seen["behind"], seen["behind_low"], seen["behind_high"]) == tuple(behind)


def test_a_table_in_html(table):
    read = Read(table._repr_html_())
    share = table.errors.mean()
    assert read.words[0] == (
        f"ScoreTable: 400 examples × 12 snapshots (epochs 1 … 12, κ of the last), {share:.1%} wrong"
    )
    assert read.rows[0] == ["row", "y", "y_hat", "wrong", "softmax", "mc_dropout"]
    assert read.rows[2] == [
        "1",
        str(table.y[1]),
        str(table.y_hat[1]),
        "yes" if table.errors[1] else "no",
        *(f"{table.kappa(name)[-1, 1]:.4f}" for name in table.names),
    ]
    assert len(read.rows) == 1 + 5 + 1
    assert read.rows[-1] == ["…"] * 6
    few = Read(ScoreTable({"softmax": [[0.5, 1.0]]}, [[0, 1]])._repr_html_())
    assert few.words[0].endswith("1 snapshot (epochs 1 … 1, κ of the last), no labels")
    assert few.rows == [["row", "y_hat", "softmax"], ["0", "0", "0.5000"], ["1", "1", "1.0000"]]


def test_boards_in_html(found):
    read = Read(found._repr_html_())
    first = found.boards["softmax"]
    assert read.rows[0] == [*("method", "E-AURC", "gain, %", "passes", "NLL", "Brier", "verdict")]
    assert [row[0] for row in read.rows[1:6]] == [row.method for row in first.rows]
    assert read.rows[1][2] == ""  # the reference gains nothing over itself
    last = first.rows[-1]
    assert read.rows[5] == [
        last.method,
        f"{1e3 * last.eaurc:.2f}",
        interval(last.gain),
        f"{last.passes:.0f}",
        f"{last.nll:.3f}",
        f"{last.brier:.3f}",
        last.verdict,
    ]
    assert read.tags.count("table") == 2


def test_hostile_names_are_words(table):
    sets = compare({HOSTILE: table}, methods=["final", "LES"], resamples=400)
    read = Read(sets._repr_html_())
    assert {*read.tags} == {"caption", "table", "thead", "tbody", "tr", "th", "td"}
    assert any(HOSTILE in words for words in read.words)
    page = Read(Report(table, title=f'"></iframe>{HOSTILE}')._repr_html_())
    assert page.tags == ["p", "iframe"]


def test_curves_that_are_drawn_are_those_given(table):
    errors = table.errors
    aes, final = (
        rc_curve(kappa, errors) for kappa in (AES().confidence(table), table.kappa("softmax")[-1])
    )
    display = aes.plot("AES", {"final": final})
    (panel,) = display.spec["concat"]
    for name, curve in (("AES", aes), ("final", final)):
        drawn = [row for row in panel["data"]["values"] if row["score"] == name]
        np.testing.assert_allclose([row["coverage"] for row in drawn], curve.coverage, rtol=1e-4)
        np.testing.assert_allclose([row["risk"] for row in drawn], curve.risk, rtol=1e-4)
    assert {row["score"] for row in panel["data"]["values"]} == {"AES", "final"}
    assert len(panel["layer"]) == 1  # κ* was not given: there is no area of it
    assert repr(display) == "<Display: Selective risk against coverage>"
    (alone,) = final.plot().spec["concat"]
    assert {row["score"] for row in alone["data"]["values"]} == {"κ"}


def test_pictures_are_shown_and_saved(found, tmp_path):
    display = found.plot()
    assert [panel["title"] for panel in display.spec["vconcat"]] == ["softmax", "mc_dropout"]
    data, metadata = display._repr_mimebundle_()
    with Image.open(io.BytesIO(data["image/png"])) as picture:
        assert metadata == {"image/png": {"width": round(picture.width / 1.6)}}
    assert data["text/plain"] == repr(display)
    assert display.save(tmp_path / "boards.png").read_bytes() == data["image/png"]
    assert display.save(str(tmp_path / "boards.svg")).read_text().startswith("<svg")
    with pytest.raises(InvalidInput) as caught:
        display.save(tmp_path / "boards.gif")
    assert "must end in .png, .svg or .pdf" in str(caught.value)
    assert "boards.gif" in str(caught.value)


def test_what_cannot_be_drawn(monkeypatch):
    kappa = np.tile(np.linspace(0, 1, 40), (3, 1))
    perfect = ScoreTable.from_kappa(kappa, errors=kappa[0] < 0.3)
    found = evaluate(perfect, methods=["final", "AES"], resamples=50)
    with pytest.raises(InvalidInput) as caught:
        found.plot()
    assert "the final softmax has an E-AURC of 0" in str(caught.value)
    assert ".to_frame()" in str(caught.value)
    assert "–" in [row[2] for row in Read(found._repr_html_()).rows]
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    for ask in (rc_curve([0.5, 0.6], [0, 1]).plot, Display({})._repr_mimebundle_):
        with pytest.raises(ModuleNotFoundError) as missing:
            ask()
        assert "needs vl_convert" in str(missing.value)
        assert "pip install 'snapsure[report]'" in str(missing.value)


CELLS = {
    "table": ("from tests.support.runs import simulated\ntable = simulated()\ntable"),
    "frame": "table.to_frame()",
    "evaluation": (
        "from snapsure import evaluate\nfrom snapsure.evaluation import Splits\n"
        "found = evaluate(table, protocol=Splits(1), resamples=50)\nfound"
    ),
    "its frame": "found.to_frame()",
    "its picture": "found.plot()",
    "curve": (
        "from snapsure import rc_curve\n"
        "rc_curve(table.kappa('softmax')[-1], table.errors).plot('final')"
    ),
    "page": "from snapsure import Report\nReport(table)",
}
HTML = {"text/html", "text/plain"}
PICTURE = {"image/png", "text/plain"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:jupyter_client")
def test_a_notebook_shows_them_all():
    cells = [nbformat.v4.new_code_cell(code) for code in CELLS.values()]
    notebook = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(notebook, timeout=None, kernel_name="python3").execute()
    shown = {}
    for name, cell in zip(CELLS, notebook.cells, strict=True):
        (output,) = [one for one in cell.outputs if one.output_type == "execute_result"]
        shown[name] = output.data
    assert {name: {*data} for name, data in shown.items()} == {
        name: PICTURE if name in ("its picture", "curve") else HTML for name in CELLS
    }
    assert shown["table"]["text/html"] == simulated()._repr_html_()
    assert shown["evaluation"]["text/plain"] == "<Comparison: softmax, mc_dropout; 5 methods>"
    assert Read(shown["page"]["text/html"]).tags == ["p", "iframe"]
