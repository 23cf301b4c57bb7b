"""`snapsure decide` and `snapsure monitor`, on logs of any system."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from snapsure import Monitor, Threshold
from snapsure.cli import app
from tests.support.processes import forked


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def log(path, seed, n, wrong=0.5):
    """κ = U^¼, wrong with probability (1 − κ) · `wrong`."""
    rng = np.random.default_rng(seed)
    kappa = rng.random(n) ** 0.25
    ok = (rng.random(n) >= (1 - kappa) * wrong).astype(int)
    frame = pd.DataFrame(
        {"score": kappa, "ok": ok, "site": np.arange(n) % 2, "day": np.arange(n) // 5}
    )
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    elif path.suffix == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_json(path, orient="records", lines=True, double_precision=15)
    return frame


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_decide_writes_the_librarys_threshold(tmp_path, kind):
    frame = log(tmp_path / f"log.{kind}", 0, 2000)
    words = ["decide", tmp_path / f"log.{kind}", "--confidence", "score", "--correct", "ok"]
    done = run(*words, "--risk", 0.07, "--out", tmp_path / "t.json")
    assert done.exit_code == 0, done.output
    expected = Threshold.at_risk(frame.score, 1 - frame.ok, 0.07)
    assert Threshold.load(tmp_path / "t.json").theta == pytest.approx(expected.theta, abs=1e-12)
    assert f"{expected.coverage:.1%} of 2,000 answers" in done.output


def test_decide_by_group_the_smallest_risk_and_what_is_refused(tmp_path):
    frame = log(tmp_path / "log.csv", 0, 2000)
    out = tmp_path / "t.json"
    words = ["decide", tmp_path / "log.csv", "--confidence", "score", "--correct", "ok"]
    words += ["--out", out]
    done = run(*words, "--risk", 0.1, "--group", "site", "--json")
    groups = frame.site.astype(str).to_numpy()
    expected = Threshold.at_risk(frame.score, 1 - frame.ok, 0.1, groups=groups)
    assert Threshold.load(out).groups == pytest.approx(expected.groups)
    assert json.loads(done.stdout)["risk"] == 0.1
    run(*words, "--risk", "smallest")
    smallest = Threshold.at_risk(frame.score, 1 - frame.ok, "smallest")
    assert Threshold.load(out).risk == smallest.risk
    for risk, fact in ((0.001, str(smallest.risk)), ("five", "'five'"), (5, "got 5")):
        refused = run(*words, "--risk", risk)
        assert refused.exit_code == 2
        assert fact in refused.output


def test_decide_says_which_file_is_no_log(tmp_path):
    (tmp_path / "empty.csv").touch()
    columns = ["--confidence", "score", "--correct", "ok", "--risk", 0.1]
    for name, fact in (("none.csv", "No such file"), ("empty.csv", "no columns"), (".", "dir")):
        refused = run("decide", tmp_path / name, *columns)
        assert refused.exit_code == 2
        assert fact in refused.output


def test_monitor_is_quiet_and_then_alarms(tmp_path):
    held_out = log(tmp_path / "log.csv", 0, 3000)
    threshold = Threshold.at_risk(held_out.score, 1 - held_out.ok, 0.07)
    threshold.save(tmp_path / "t.json")
    options = ["--confidence", "score", "--correct", "ok", "--state", tmp_path / "m.json"]
    options += ["--held-out", tmp_path / "log.csv"]
    first, second = (
        log(tmp_path / f"{i}.csv", i, 2000, wrong) for i, wrong in ((1, 0.5), (2, 2.0))
    )
    quiet = run("monitor", tmp_path / "t.json", tmp_path / "1.csv", *options)
    assert quiet.exit_code == 0, quiet.output
    again = run("monitor", tmp_path / "t.json", tmp_path / "1.csv", *options)
    assert again.exit_code == 2
    assert "1.csv" in again.output
    loud = run("monitor", tmp_path / "t.json", tmp_path / "2.csv", *options)
    assert loud.exit_code == 1
    assert "ALARM: risk above the promise" in loud.output

    expected = Monitor(threshold, held_out.score)
    for frame in (first, second):
        expected.update(frame.score, 1 - frame.ok)
    found = Monitor.load(tmp_path / "m.json")
    assert (found.seen, found.evidence) == (4000, pytest.approx(expected.evidence))
    other = run("monitor", tmp_path / "t.json", tmp_path / "log.csv", *options, "--batch", "day")
    assert other.exit_code == 2
    assert "by batch" in other.output


def test_monitor_in_batches_and_without_labels(tmp_path):
    frame = log(tmp_path / "new.csv", 3, 500)
    Threshold(0.8, 0.6, risk=0.1, delta=0.05).save(tmp_path / "t.json")
    words = [
        "monitor",
        tmp_path / "t.json",
        tmp_path / "new.csv",
        "--confidence",
        "score",
        "--json",
    ]
    done = run(*words, "--correct", "ok", "--batch", "day")
    accepted = frame.score >= 0.8
    batches = (1 - frame.ok)[accepted].groupby(frame.day[accepted]).mean()
    content = json.loads(done.stdout)
    assert (content["labelled"], content["seen"]) == (len(batches), 500)
    assert content["risk"][0] == pytest.approx(batches.mean())
    content = json.loads(run(*words).stdout)
    assert content["risk"] is None
    assert content["expected_risk"] == pytest.approx(1 - frame.score[accepted].mean())


MONITOR = """
import sys
from snapsure.cli import app
from tests.support.processes import forked
threshold, state, *logs = sys.argv[1:]
for log in logs:
    words = ["monitor", threshold, log, "--confidence", "score", "--state", state]
    app(words, standalone_mode=False)
"""


def test_two_monitors_at_once_lose_no_answer_and_a_rerun_counts_none_twice(tmp_path):
    Threshold(0.8, 0.6, risk=0.1, delta=0.05).save(tmp_path / "t.json")
    logs = [tmp_path / f"{i}.csv" for i in range(30)]
    for i, path in enumerate(logs):
        log(path, i, 10 + i)
    state = tmp_path / "new" / "m.json"
    with (
        forked(MONITOR, tmp_path / "t.json", state, *logs[::2], loaded=("snapsure.cli",)) as one,
        forked(MONITOR, tmp_path / "t.json", state, *logs[1::2], loaded=("snapsure.cli",)) as two,
    ):
        assert (one.wait(), two.wait()) == (0, 0), one.stderr + two.stderr
    assert Monitor.load(state).seen == sum(range(10, 40))
    again = ["monitor", tmp_path / "t.json", logs[7], "--confidence", "score", "--state", state]
    assert run(*again).exit_code == 2
    assert Monitor.load(state).seen == sum(range(10, 40))


def test_batches_whose_answers_come_interleaved_are_whole(tmp_path):
    frame = log(tmp_path / "sorted.csv", 3, 500)
    frame.sample(frac=1, random_state=0).to_csv(tmp_path / "mixed.csv", index=False)
    Threshold(0.8, 0.6, risk=0.1, delta=0.05).save(tmp_path / "t.json")
    options = ["--confidence", "score", "--correct", "ok", "--batch", "day", "--json"]
    by_day, mixed = (
        json.loads(run("monitor", tmp_path / "t.json", tmp_path / name, *options).stdout)
        for name in ("sorted.csv", "mixed.csv")
    )
    assert (mixed["seen"], mixed["labelled"]) == (by_day["seen"], by_day["labelled"])
    assert mixed["risk"] == pytest.approx(by_day["risk"])


def test_files_of_spreadsheets_and_of_texts_with_rare_line_ends(tmp_path):
    frame = log(tmp_path / "log.csv", 0, 2000)
    frame.to_csv(tmp_path / "marked.csv", index=False, encoding="utf-8-sig")
    rows = frame[["score", "ok"]].assign(text="a\u2028b\x85c").to_dict("records")
    lines = "\r\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    (tmp_path / "texts.jsonl").write_text(lines + "\n\n", encoding="utf-8", newline="")
    expected = Threshold.at_risk(frame.score, 1 - frame.ok, 0.07)
    for name in ("marked.csv", "texts.jsonl"):
        words = ["decide", tmp_path / name, "--confidence", "score", "--correct", "ok"]
        done = run(*words, "--risk", 0.07, "--out", tmp_path / "t.json")
        assert done.exit_code == 0, done.output
        assert Threshold.load(tmp_path / "t.json").theta == pytest.approx(expected.theta, abs=1e-12)


@pytest.mark.parametrize(
    ("name", "content", "fact"),
    [
        ("deep.jsonl", b"[" * 100_000, "line 1"),
        ("huge.jsonl", b'{"p": 1' + b"0" * 400 + b', "ok": true}', "row 0"),
        ("bad.parquet", b"PAR1", "bad.parquet"),
        ("twice.csv", b"p,ok,p\n0.5,1,0.6\n", "'p' twice"),
        ("empty.csv", b"", "no columns"),
    ],
)
def test_damaged_logs_are_refused_and_raise_no_alarm(tmp_path, name, content, fact):
    (tmp_path / name).write_bytes(content)
    Threshold(0.8, 0.6, risk=0.1, delta=0.05).save(tmp_path / "t.json")
    options = ["--confidence", "p", "--correct", "ok"]
    refused = run("monitor", tmp_path / "t.json", tmp_path / name, *options)
    assert refused.exit_code == 2
    assert fact in refused.output


def test_decide_prints_what_can_be_used_as_it_is(tmp_path):
    confidence = 1 - 1e-9 * np.arange(1, 401)
    frame = pd.DataFrame({"my score": confidence, "is ok": [1] * 200 + [0] * 200})
    frame.to_csv(tmp_path / "log.csv", index=False)
    words = ["decide", tmp_path / "log.csv", "--confidence", "my score", "--correct", "is ok"]
    done = run(*words, "--risk", 0.1, "--out", tmp_path / "t.json")
    assert f"at least {Threshold.load(tmp_path / 't.json').theta!r}." in done.output
    assert "--confidence 'my score' --correct 'is ok'" in done.output


def test_decide_writes_a_page(tmp_path):
    log(tmp_path / "log.csv", 0, 2000)
    words = ["decide", tmp_path / "log.csv", "--confidence", "score", "--correct", "ok"]
    words += ["--risk", 0.07, "--out", tmp_path / "t.json", "--report", tmp_path / "page.html"]
    done = run(*words)
    assert done.exit_code == 0, done.output
    threshold = Threshold.load(tmp_path / "t.json")
    page = (tmp_path / "page.html").read_text()
    assert f"accepts {100 * threshold.coverage:.1f} % of 2,000 answers" in page
    assert repr(threshold.theta) in page  # the slider copies all digits
    assert run(*words, "--group", "site").exit_code == 0
    groups = Threshold.load(tmp_path / "t.json").groups
    page = (tmp_path / "page.html").read_text()
    assert all(f"{theta:.6g}" in page for theta in groups.values())


@pytest.mark.parametrize("joins", [False, True])
def test_the_page_promises_joined_groups_as_one(tmp_path, joins):
    frame = log(tmp_path / "log.csv", 0, 3000)
    frame["site"] = np.where(frame.index % 75 < 2, "small" + (frame.index % 75).astype(str), "all")
    if not joins:
        frame["site"] = frame.index % 2
    frame.to_csv(tmp_path / "log.csv", index=False)
    words = ["decide", tmp_path / "log.csv", "--confidence", "score", "--correct", "ok"]
    words += ["--risk", 0.09, "--group", "site", "--small", "join", "--out", tmp_path / "t.json"]
    done = run(*words, "--report", tmp_path / "page.html")
    assert done.exit_code == 0, done.output
    assert ("joined groups count as one" in (tmp_path / "page.html").read_text()) == joins
