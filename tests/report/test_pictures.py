"""Pictures hold the numbers they were given, in the colours of the page, with names apart."""

import io
import itertools
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from snapsure import ScoreTable, compare, evaluate
from snapsure.errors import InvalidInput
from snapsure.evaluation import trajectories
from snapsure.evaluation._trajectories import best_curve
from snapsure.metrics import RCCurve, rc_curve
from snapsure.report import charts, pictures
from snapsure.report.accept import accept
from snapsure.report.chapter import Row
from snapsure.report.charts import COLOURS, find_kind
from snapsure.report.pictures import Box, place_labels
from snapsure.report.sections import count_bins, state_probabilities
from tests.support.looks import board_of
from tests.support.report import chapter_of, scored

GROUPS = ("the surest", "the least sure")


@pytest.fixture(scope="module")
def table() -> ScoreTable:
    return scored()


@pytest.fixture(scope="module")
def comparison():
    return compare({"first_set": scored(), "second": scored(seed=1)})


def curves_of(table):
    """One panel, and κ* of it."""
    kappa, errors = table.kappa("softmax"), table.errors
    curves = {
        "AES k=30": rc_curve(kappa.mean(axis=0), errors),
        "final softmax": rc_curve(kappa[-1], errors),
    }
    return {"seed 0": curves}, {"seed 0": best_curve(errors)}


def along_of(table):
    return trajectories(table.kappa("softmax"), table.errors)


def parts(spec):
    """Every object of a specification."""
    if isinstance(spec, dict):
        yield spec
    for part in spec.values() if isinstance(spec, dict) else spec:
        if isinstance(part, dict | list | tuple):
            yield from parts(part)


def styles(spec, channel):
    """Each name that a specification gives a colour or a dash, with it."""
    scales = [part[channel]["scale"] for part in parts(spec) if "scale" in part.get(channel, {})]
    return {
        (name, str(value))
        for scale in scales
        for name, value in zip(scale["domain"], scale["range"], strict=True)
    }


def test_a_method_has_one_colour_and_one_dash_everywhere(table, comparison):
    chapter = chapter_of(table, 0.3)
    curves = next(block for block in accept(chapter) if isinstance(block, Row)).blocks[0].spec
    stated = state_probabilities(chapter)
    bins = {name: count_bins(p, chapter.rest.errors) for name, p in stated.items()}
    specs = {
        "page, curves": curves,
        "page, board": charts.draw_board(comparison.pooled),
        "page, evaluation": charts.draw_board(evaluate(table).boards["softmax"]),
        "figure": pictures.draw_panels(*curves_of(table)),
        "leaderboard": pictures.draw_boards(comparison.every, comparison.level),
    }
    for where, spec in specs.items():
        pairs = styles(spec, "color")
        assert pairs == {(name, COLOURS[find_kind(name)]) for name, _ in pairs}, where
        assert COLOURS["AES"] in dict(pairs).values(), where
    reliability = charts.draw_reliability(bins)
    assert dict(styles(reliability, "color"))[chapter.method] == COLOURS[chapter.method]
    dashes = [
        dict(styles(spec, "strokeDash"))[chapter.method]
        for spec in (specs["page, curves"], reliability)
    ]
    assert dashes[0] == dashes[1]


def test_methods_that_meet_differ_in_colour():
    assert len({*COLOURS.values()}) == len(COLOURS)
    names = ("PES (paper)", "final softmax", "AES, calibrated", "AESthetics")
    assert [find_kind(name) for name in names] == ["PES", "final", "AES", "other"]


def test_risk_coverage_curves_are_those_given(table):
    panels, best = curves_of(table)
    (panel,) = pictures.draw_panels(panels, best)["concat"]
    rows = panel["data"]["values"]
    for name, curve in {**panels["seed 0"], "κ*": best["seed 0"]}.items():
        given = dict(zip(curve.coverage.round(5), curve.risk, strict=True))
        drawn = [row for row in rows if row["score"] == name]
        assert 100 < len(drawn) <= 400
        assert drawn[0]["coverage"] == pytest.approx(curve.coverage[0], rel=1e-5)
        assert drawn[-1]["coverage"] == 1
        for row in drawn:
            assert row["risk"] == pytest.approx(given[round(row["coverage"], 5)], rel=1e-5)
    tops = [
        part["y"]["scale"]["domain"][1] for part in parts(panel) if "scale" in part.get("y", {})
    ]
    assert min(tops) > max(row["risk"] for row in rows if row["coverage"] >= 0.1)


def test_no_errors_can_be_drawn():
    never = np.zeros(50, dtype=bool)
    kappa = np.linspace(0, 1, 50)
    spec = pictures.draw_panels({"": {"final": rc_curve(kappa, never)}}, {"": best_curve(never)})
    domains = [part["y"]["scale"]["domain"] for part in parts(spec) if "scale" in part.get("y", {})]
    assert domains == [[0, 1]] * 2


def test_trajectories_are_those_given(table):
    result = along_of(table)
    spec = pictures.draw_trajectories(table.epochs, result, GROUPS, "a title")
    confidence, surest, least = spec["concat"]
    best = table.epochs[result.best]
    assert surest["title"] == f"the surest: best at epoch {best}"
    for panel, lines in (
        (confidence, [result.green_kappa, result.red_kappa]),
        (surest, [1e3 * result.green_eaurc]),
        (least, [1e3 * result.red_eaurc]),
    ):
        rows = panel["data"]["values"]
        np.testing.assert_allclose([row["value"] for row in rows], np.concatenate(lines), rtol=1e-5)
        assert [row["epoch"] for row in rows] == table.epochs.tolist() * len(lines)


def test_the_first_tenth_of_a_curve_does_not_stretch_the_axis():
    curve = RCCurve(np.array([0.05, 0.1, 1.0]), np.array([1.0, 0.5, 0.2]), np.zeros(3))
    spec = pictures.draw_curves({"final": curve})
    tops = [part["y"]["scale"]["domain"][1] for part in parts(spec) if "scale" in part.get("y", {})]
    assert tops == [1.15 * 0.5]


@pytest.mark.parametrize(("gain", "name"), [(-90, "rival (−90 %)"), (-5, "rival")])
def test_a_gain_below_the_picture_is_written_beside_its_name(gain, name):
    """The chart goes as far down as it goes up: 5 %."""
    (panel,) = pictures.draw_boards([board_of(("final", 1, 0), ("rival", 30, gain))], 0.95)[
        "vconcat"
    ]
    texts = [mark["text"] for layer in panel["layer"] if "text" in (mark := layer["mark"])]
    assert [text.removesuffix(" softmax") for text in texts] == ["final", name]
    is_below = ["shape" in layer["mark"] for layer in panel["layer"]]
    assert any(is_below) == (gain < -5)


def test_named_are_the_best_of_each_price_and_the_reference(comparison):
    board = comparison.pooled
    named = pictures.choose_rows_to_name(board)
    assert board["final"] in named
    for row in named:
        rivals = [each for each in board.rows if round(each.passes) == round(row.passes)]
        assert row in (rivals[0], board["final"])
    assert len({board.label(row) for row in named}) == len(named)


def test_every_point_of_a_board_is_drawn_once(comparison):
    for board, panel in zip(
        comparison.every,
        pictures.draw_boards(comparison.every, 0.95)["vconcat"],
        strict=True,
    ):
        points = [part for part in panel["layer"] if part["mark"]["type"] == "point"]
        drawn = [row["method"] for part in points for row in part["data"]["values"]]
        assert sorted(drawn) == sorted(board.label(row) for row in board.rows)
        below = {row["method"] for part in points[1:] for row in part["data"]["values"]}
        top = max(5.0, *(row.saved.high for row in board.rows))
        assert below == {board.label(row) for row in board.rows if row.saved.estimate < -top}


def test_a_board_where_a_method_has_nothing_to_gain_is_refused(comparison):
    board = comparison.pooled
    rows = (replace(board.rows[0], gain=None), *board.rows[1:])
    with pytest.raises(InvalidInput, match=rf"{board.name}.*final softmax.* of 0.*to_frame\(\)"):
        pictures.draw_boards([replace(board, rows=rows)], 0.95)


FRAME = Box(0, 0, 600, 200)
spots = st.lists(st.tuples(st.integers(0, 600), st.integers(0, 200)), min_size=1, max_size=25)


def test_boxes_that_share_an_edge_do_not_meet_and_lie_inside():
    box = Box(0, 0, 2, 2)
    for x, y in itertools.product((-3, -2, -1, 0, 1, 2, 3), repeat=2):
        other = Box(x, y, x + 2, y + 2)
        assert box.meets(other) == (abs(x) < 2 and abs(y) < 2)
        assert other.inside(Box(-1, -1, 3, 3)) == (abs(x) <= 1 and abs(y) <= 1)


@given(spots, st.integers(1, 30))
def test_names_lie_on_nothing(where, letters):
    points = [Box(x - 5, y - 5, x + 5, y + 5) for x, y in where]
    names = [("n" * letters + str(i), x, y) for i, (x, y) in enumerate(where)]
    labels = place_labels(names, points, [], FRAME)
    for i, label in enumerate(labels):
        box = label.box
        assert box.left >= 0
        assert box.right <= 600
        assert box.top >= 0
        assert box.bottom <= 200
        assert not any(box.meets(point) for point in points)
        assert not any(box.meets(other.box) for other in labels[:i])
        _, x, y = next(name for name in names if name[0] == label.name)
        assert box.left - 10 <= x <= box.right + 10
        assert abs(label.y - y) <= 13


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(-9, 12)), min_size=3, max_size=20))
def test_names_in_a_board_lie_on_no_point(rows):
    board = board_of(("final", 1, 0), *((f"method {i}", *row) for i, row in enumerate(rows)))
    (panel,) = pictures.draw_boards([board], 0.95)["vconcat"]
    width, height = panel["width"], panel["height"]
    points = [layer for layer in panel["layer"] if layer["mark"]["type"] == "point"]
    (low, high), (bottom, top) = (points[0]["encoding"][axis]["scale"]["domain"] for axis in "xy")
    boxes = []
    for row in (row for layer in points for row in layer["data"]["values"]):
        x = width * math.log(row["passes"] / low) / math.log(high / low)
        y = height * (top - row["shown"]) / (top - bottom)
        boxes.append(Box(x - 4.99, y - 4.99, x + 4.99, y + 4.99))
    for layer in panel["layer"]:
        if layer["mark"]["type"] == "text":
            x, y = (layer["encoding"][axis]["value"] for axis in "xy")
            length = 0.53 * pictures.FONT_SIZE * len(layer["mark"]["text"])
            left = x - length * {"left": 0, "center": 0.5, "right": 1}[layer["mark"]["align"]]
            name = Box(left, y - 6.5, left + length, y + 6.5)
            assert not any(name.meets(box) for box in boxes)


def test_a_name_goes_where_there_is_room():
    point = Box(295, 95, 305, 105)
    (right,) = place_labels([("name", 300, 100)], [point], [], FRAME)
    assert (right.align, right.x, right.y) == ("left", 307, 100)
    bar = Box(320, 0, 322, 200)
    (left,) = place_labels([("name", 300, 100)], [point], [bar], FRAME)
    assert (left.align, left.x, left.y) == ("right", 293, 100)
    bars = [bar, Box(278, 0, 280, 200), Box(299, 0, 301, 200)]
    assert place_labels([("name", 300, 100)], [point], bars, FRAME) == [right]  # a bar is no wall
    walls = [bar, Box(278, 0, 280, 200), Box(299, 0, 301, 200)]
    assert place_labels([("name", 300, 100)], walls, [], FRAME) == []


def test_formats(table, tmp_path):
    spec = pictures.draw_trajectories(table.epochs, along_of(table), GROUPS, "a title")
    for ending in ("png", "svg", "pdf"):
        pictures.save(spec, tmp_path / f"picture.{ending}")
    with Image.open(io.BytesIO((tmp_path / "picture.png").read_bytes())) as picture:
        assert 1150 <= picture.width <= 1250
        assert picture.convert("RGBA").getpixel((0, 0)) == (255, 255, 255, 255)
    assert (tmp_path / "picture.svg").read_text(encoding="utf-8").startswith("<svg")
    assert (tmp_path / "picture.pdf").read_bytes().startswith(b"%PDF-")
    with pytest.raises(InvalidInput) as caught:
        pictures.save(spec, Path("picture.gif"))
    assert "picture.gif" in str(caught.value)
