"""Logs of any system: columns of strings or numbers, in a dict or a table."""

import numpy as np
import pandas as pd
import pytest

from snapsure import Threshold
from snapsure.decisions._log import read_log
from snapsure.errors import InvalidInput
from tests.support.promises import draw
from tests.support.refusals import refuses


@pytest.fixture
def columns():
    kappa, errors = draw(0, 600)
    return {"score": kappa, "ok": ~errors, "country": np.repeat(["FI", "PT"], 300)}


@pytest.mark.parametrize("kind", ["dict", "pandas", "strings"])
def test_the_threshold_of_a_log_is_at_risks(columns, kind):
    frame = columns
    if kind == "pandas":
        frame = pd.DataFrame(columns)
    elif kind == "strings":
        frame = {name: [str(cell) for cell in column] for name, column in columns.items()}
    kappa, errors = columns["score"], ~columns["ok"]
    found = Threshold.from_frame(frame, confidence="score", correct="ok", risk=0.3)
    assert found.as_dict() == Threshold.at_risk(kappa, errors, 0.3).as_dict()
    grouped = Threshold.from_frame(
        frame, confidence="score", correct="ok", risk=0.3, delta=0.1, group="country"
    )
    expected = Threshold.at_risk(kappa, errors, 0.3, 0.1, groups=columns["country"])
    assert grouped.as_dict() == expected.as_dict()


def test_rows_whose_outcome_is_unknown_are_left_out(columns):
    kappa, errors = columns["score"], ~columns["ok"]
    ok = [None if i % 3 == 0 else bool(right) for i, right in enumerate(columns["ok"])]
    found = Threshold.from_frame(
        {"score": kappa, "ok": ok}, confidence="score", correct="ok", risk=0.3
    )
    known = np.arange(600) % 3 > 0
    assert found.as_dict() == Threshold.at_risk(kappa[known], errors[known], 0.3).as_dict()


def test_words_for_right_and_wrong():
    words = ["1", "True", "yes", 1, 1.0, "0", "false", "wrong", 0, False, "", None, float("nan")]
    log = read_log({"p": range(len(words)), "ok": words}, "p", "ok")
    np.testing.assert_array_equal(log.errors, [0] * 5 + [1] * 5 + [np.nan] * 3)


def test_what_is_no_log():
    with refuses(InvalidInput, "The log", "'ok'", "score, right"):
        read_log({"score": [1], "right": [1]}, "score", "ok")
    with refuses(InvalidInput, "'score'", "a number", "'high' in row 1"):
        read_log({"score": ["0.1", "high"]}, "score")
    with refuses(InvalidInput, "'ok'", "1 (right), 0 (wrong)", "'2' in row 0"):
        read_log({"score": [1], "ok": ["2"]}, "score", "ok")
    with refuses(InvalidInput, "The log", "'ok'", "got none"):
        read_log({}, "ok")
    frame = {"score": [1, 2], "ok": ["", None]}
    with refuses(InvalidInput, "'ok'", "1 (right) or 0 (wrong)", "2 rows"):
        Threshold.from_frame(frame, confidence="score", correct="ok", risk=0.1)


@pytest.mark.parametrize("more", [-1, 1])
def test_columns_must_be_of_one_length(more):
    frame = {"p": [0.5] * 5, "ok": [1] * (5 + more), "site": ["a"] * (5 + more)}
    for columns in (("p", "ok"), ("p", None, "site")):
        with refuses(InvalidInput, f"'{columns[-1]}'", "5", str(5 + more)):
            read_log(frame, *columns)
