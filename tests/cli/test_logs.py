"""`snapsure decide` and `snapsure monitor`, on logs of any system."""

import json

import numpy as np
import pandas as pd
import pytest

from snapsure import Monitor, Threshold
from tests.support.commands import invoke
from tests.support.processes import forked


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


def decide(folder, name="log.csv", *flags, status=0, **options):
    """Run `decide`; return what it printed and the threshold that it wrote."""
    usual = {"confidence": "score", "correct": "ok", "risk": 0.07, "out": folder / "t.json"}
    done = invoke("decide", folder / name, *flags, status=status, **usual | options)
    return done.output, None if status else Threshold.load(folder / "t.json")


def watch(folder, name, *flags, status=0, **options):
    """Run `monitor`; return what it printed."""
    words = ("monitor", folder / "t.json", folder / name, *flags)
    return invoke(*words, status=status, **{"confidence": "score"} | options).output


@pytest.fixture
def promised(tmp_path):
    """A folder with a threshold."""
    Threshold(0.8, 0.6, risk=0.1, delta=0.05).save(tmp_path / "t.json")
    return tmp_path


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "marked", "texts"])
def test_decide_writes_the_librarys_threshold(tmp_path, kind):
    """Also of a spreadsheet's file with its mark, and of texts with rare line ends."""
    name = {"marked": "log.csv", "texts": "log.jsonl"}.get(kind, f"log.{kind}")
    frame = log(tmp_path / name, 0, 2000)
    if kind == "marked":
        frame.to_csv(tmp_path / name, index=False, encoding="utf-8-sig")
    elif kind == "texts":
        rows = frame[["score", "ok"]].assign(text="a\u2028b\x85c").to_dict("records")
        lines = "\r\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
        (tmp_path / name).write_text(lines + "\n\n", encoding="utf-8", newline="")
    said, threshold = decide(tmp_path, name)
    expected = Threshold.at_risk(frame.score, 1 - frame.ok, 0.07)
    assert threshold.theta == pytest.approx(expected.theta, abs=1e-12)
    assert f"{expected.coverage:.1%} of 2,000 answers. At most 7% " in said
    assert "probability 95%" in said
    assert f"written: {tmp_path / 't.json'}\n" in said


def test_decide_by_group_the_smallest_risk_and_what_is_refused(tmp_path):
    frame = log(tmp_path / "log.csv", 0, 2000)
    said, threshold = decide(tmp_path, "log.csv", "--json", risk=0.1, group="site")
    groups = frame.site.astype(str).to_numpy()
    expected = Threshold.at_risk(frame.score, 1 - frame.ok, 0.1, groups=groups)
    assert threshold.groups == pytest.approx(expected.groups)
    assert json.loads(said)["risk"] == 0.1
    smallest = Threshold.at_risk(frame.score, 1 - frame.ok, "smallest")
    assert decide(tmp_path, risk="smallest")[1].risk == smallest.risk
    for risk, fact in ((0.001, str(smallest.risk)), ("five", "'five'"), (5, "got 5")):
        assert fact in decide(tmp_path, status=2, risk=risk)[0]


@pytest.mark.parametrize(("name", "fact"), [("none.csv", "No such file"), (".", "directory")])
def test_decide_says_which_file_is_no_log(tmp_path, name, fact):
    assert fact in decide(tmp_path, name, status=2)[0]


def test_monitor_is_quiet_and_then_alarms(tmp_path):
    held_out = log(tmp_path / "log.csv", 0, 3000)
    threshold = Threshold.at_risk(held_out.score, 1 - held_out.ok, 0.07)
    threshold.save(tmp_path / "t.json")
    options = {"correct": "ok", "state": tmp_path / "m.json", "held_out": tmp_path / "log.csv"}
    frames = [log(tmp_path / f"{i}.csv", i, 2000, wrong) for i, wrong in ((1, 0.5), (2, 2.0))]
    said = watch(tmp_path, "1.csv", **options)
    assert repr(Monitor.load(tmp_path / "m.json"))[1:-1] in said
    assert "1.csv" in watch(tmp_path, "1.csv", status=2, **options)
    assert "ALARM: risk above the promise" in watch(tmp_path, "2.csv", status=1, **options)

    expected = Monitor(threshold, held_out.score)
    for frame in frames:
        expected.update(frame.score, 1 - frame.ok)
    found = Monitor.load(tmp_path / "m.json")
    assert (found.seen, found.evidence) == (4000, pytest.approx(expected.evidence))
    assert "by batch" in watch(tmp_path, "log.csv", status=2, batch="day", **options)


def test_monitor_in_batches_and_without_labels(promised):
    """A batch is whole where answers of others come between its own."""
    frame = log(promised / "new.csv", 3, 500)
    frame.sample(frac=1, random_state=0).to_csv(promised / "mixed.csv", index=False)
    accepted = frame.score >= 0.8
    batches = (1 - frame.ok)[accepted].groupby(frame.day[accepted]).mean()
    for name in ("new.csv", "mixed.csv"):
        content = json.loads(watch(promised, name, "--json", correct="ok", batch="day"))
        assert (content["labelled"], content["seen"]) == (len(batches), 500)
        assert content["risk"][0] == pytest.approx(batches.mean())
    content = json.loads(watch(promised, "new.csv", "--json"))
    assert content["risk"] is None
    assert content["expected_risk"] == pytest.approx(1 - frame.score[accepted].mean())


MONITOR = """
import sys
from snapsure.cli import app
threshold, state, *logs = sys.argv[1:]
for log in logs:
    words = ["monitor", threshold, log, "--confidence", "score", "--state", state]
    app(words, standalone_mode=False)
"""


@pytest.mark.slow
def test_two_monitors_at_once_lose_no_answer_and_a_rerun_counts_none_twice(promised):
    logs = [promised / f"{i}.csv" for i in range(30)]
    for i, path in enumerate(logs):
        log(path, i, 10 + i)
    state = promised / "new" / "m.json"
    with (
        forked(MONITOR, promised / "t.json", state, *logs[::2], loaded=("snapsure.cli",)) as one,
        forked(MONITOR, promised / "t.json", state, *logs[1::2], loaded=("snapsure.cli",)) as two,
    ):
        assert (one.wait(), two.wait()) == (0, 0), one.stderr + two.stderr
    assert Monitor.load(state).seen == sum(range(10, 40))
    watch(promised, "7.csv", status=2, state=state)
    assert Monitor.load(state).seen == sum(range(10, 40))


@pytest.mark.parametrize(
    ("name", "content", "fact"),
    [
        ("deep.jsonl", b"[" * 100_000, "line 1"),
        ("huge.jsonl", b'{"p": 1' + b"0" * 400 + b', "ok": true}', "row 0"),
        ("bad.parquet", b"PAR1", "bad.parquet"),
        ("twice.csv", b"p,ok,p\n0.5,1,0.6\n", "'p' twice"),
        ("empty.csv", b"", "no columns"),
        ("quoted.csv", b'p,ok\n"0.5"5,1\n', "expected after"),
    ],
)
def test_damaged_logs_are_refused_and_raise_no_alarm(promised, name, content, fact):
    (promised / name).write_bytes(content)
    assert fact in watch(promised, name, status=2, confidence="p", correct="ok")


def test_decide_prints_what_can_be_used_as_it_is(tmp_path):
    confidence = 1 - 1e-9 * np.arange(1, 401)
    frame = pd.DataFrame({"my score": confidence, "is ok": [1] * 200 + [0] * 200})
    frame.to_csv(tmp_path / "log.csv", index=False)
    said, threshold = decide(tmp_path, confidence="my score", correct="is ok", risk=0.1)
    assert f"at least {threshold.theta!r}." in said
    assert "--confidence 'my score' --correct 'is ok'" in said


def test_decide_writes_a_page(tmp_path):
    frame = log(tmp_path / "log.csv", 0, 2000)
    said, threshold = decide(tmp_path, report=tmp_path / "new" / "page.html")
    page = (tmp_path / "new" / "page.html").read_text()
    assert f"written: {tmp_path / 't.json'}, {tmp_path / 'new' / 'page.html'}\n" in said
    share = round(threshold.coverage, 3)
    assert f"accepts {100 * share:.1f} % of 2,000 answers" in page
    assert "probability 95 %" in page
    assert f"width: {100 - 100 * threshold.coverage:.2f}%" in page
    assert f">{100 * (1 - share):.1f} %<" in page
    assert 'class="advice beaten"' in page
    assert 'data-role="promise"' in page
    assert 'data-role="strange"' not in page
    assert f"<dt>log</dt><dd>{tmp_path / 'log.csv'}</dd>" in page
    assert repr(threshold.theta) in page  # the slider copies all digits
    said, threshold = decide(tmp_path, report=tmp_path / "page.html", group="site")
    page = (tmp_path / "page.html").read_text()
    thetas = "".join(f"\n  {site}: {theta!r}" for site, theta in threshold.groups.items())
    assert f"score is at least:{thetas}\n" in said
    assert '<th scope="row" style="text-align: left' in page
    for site, theta in threshold.groups.items():
        inside = frame[frame.site.astype(str) == str(site)]
        accepted = inside[inside.score >= theta]
        assert f">{100 * len(accepted) / len(inside):.1f} %<" in page
        assert f"{theta:.6g}" in page
        assert f"{100 * (1 - accepted.ok.mean()):.1f} % (" in page


@pytest.mark.parametrize("joins", [False, True])
def test_the_page_promises_joined_groups_as_one(tmp_path, joins):
    frame = log(tmp_path / "log.csv", 0, 3000)
    frame["site"] = np.where(frame.index % 75 < 2, "small" + (frame.index % 75).astype(str), "all")
    if not joins:
        frame["site"] = frame.index % 2
    frame.to_csv(tmp_path / "log.csv", index=False)
    decide(tmp_path, risk=0.09, group="site", small="join", report=tmp_path / "page.html")
    assert ("joined groups count as one" in (tmp_path / "page.html").read_text()) == joins
