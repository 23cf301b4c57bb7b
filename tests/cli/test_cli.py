"""The commands as a person runs them: real processes."""

import json
import signal
import textwrap
import time

import numpy as np
import pytest
import torch

from snapsure import ScoreTable, SnapshotStore, evaluate
from snapsure.evaluation import Splits, confidences
from tests.support import processes
from tests.support.commands import CODE, LOADED, refused, run
from tests.support.runs import simulated

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def workplace(tmp_path_factory, digits):
    """A folder with a module, data and snapshots, as a user would have them."""
    folder = tmp_path_factory.mktemp("user")
    code = """
        import numpy as np
        from tests.support.network import digits_network as network

        def test():
            with np.load("test.npz") as file:
                return file["x"], file["y"]
    """
    (folder / "mine.py").write_text(textwrap.dedent(code))
    for name, (x, y) in (("train", digits.train), ("test", digits.test)):
        np.savez(folder / f"{name}.npz", x=x.numpy(), y=y.numpy())
    store = SnapshotStore(folder / "run")
    for epoch in digits.store.epochs:
        store.save(digits.store.load(epoch), epoch)
    return folder


def score(workplace, *more, out="scores"):
    options = ("--model", "mine:network", "--snapshots", "run", "--data", "test.npz", "--out", out)
    return run("score", *options, *more, cwd=workplace)


@pytest.mark.parametrize("command", [[], ["demo"], ["score"], ["evaluate"]])
def test_help(command):
    result = run(*command, "--help")
    assert result.returncode == 0
    assert "Usage" in result.stdout


def test_confidences_of_every_point_in_a_file(tmp_path):
    table = simulated()
    table.save(tmp_path / "scores")
    told = run(
        *("evaluate", "scores", "--splits", 1, "--seed", 2, "--points", "points.csv", "--json"),
        cwd=tmp_path,
    )
    assert told.stderr.splitlines()[-1] == "written: points.csv"
    assert json.loads(told.stdout)["points"] == 400
    header, *lines = (tmp_path / "points.csv").read_text().splitlines()
    expected = confidences(table, seed=2)
    assert header.split(",") == ["row", "y", "y_hat", "wrong", *expected]
    rows = np.array([line.split(",") for line in lines], float)
    assert np.array_equal(rows[:, 0], np.arange(400))
    assert np.array_equal(rows[:, 1], table.y)
    assert np.array_equal(rows[:, 2], table.y_hat)
    assert np.array_equal(rows[:, 3], table.errors)
    assert np.array_equal(rows[:, 4:], np.transpose(list(expected.values())))


def test_score_and_evaluate(workplace):
    result = score(
        workplace, "--kappa", "softmax,nn_distance,mc_dropout", "--reference", "train.npz"
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [
        "<ScoreTable: softmax, nn_distance, mc_dropout; 6 snapshots × 797 examples>",
        "Now: snapsure evaluate scores",
    ]
    table = ScoreTable.open(workplace / "scores")

    shown = run("evaluate", "scores", "--splits", 2, cwd=workplace)
    assert shown.returncode == 0, shown.stderr
    assert f"797 examples, {table.errors.mean():.1%} wrong, 6 snapshots" in shown.stdout
    for word in ("softmax", "nn_distance", "mc_dropout", "AES", "PES", "LES", "Brier"):
        assert word in shown.stdout

    told = run("evaluate", "scores", "--splits", 2, "--json", cwd=workplace)
    content = json.loads(told.stdout)
    expected = evaluate(table, protocol=Splits(2)).as_dict()["boards"]
    assert content["boards"] == json.loads(json.dumps(expected))
    assert content["points"] == 797
    assert content["error"] == table.errors.mean()


def test_data_by_function_and_json(workplace):
    options = ("--model", "mine:network", "--snapshots", "run", "--data", "mine:test")
    result = run("score", *options, "--out", "by-function", "--json", cwd=workplace)
    assert json.loads(result.stdout) == {
        "table": "by-function",
        "names": ["softmax"],
        "shape": [6, 797],
    }


HELD = """
    import time
    from pathlib import Path
    import torch
    from snapsure.scoring import _plan
    from mine import network, test

    _plan._SHARD = 300

    class Held(torch.utils.data.Dataset):
        def __init__(self):
            self.x, self.y = test()

        def __len__(self):
            return len(self.x)

        def __getitem__(self, i):
            while list(Path("stopped").glob("labels/*.npy")) and not Path("free").exists():
                time.sleep(0.005)
            return self.x[i], int(self.y[i])
"""


def test_interrupted_it_says_how_to_go_on_and_does(workplace):
    """Its data keep it waiting once something is scored, so that Ctrl-C comes in time."""
    (workplace / "held.py").write_text(textwrap.dedent(HELD))
    options = ("--model", "held:network", "--snapshots", "run", "--data", "held:Held")
    command = ("score", *options, "--kappa", "mc_dropout", "--out", "stopped")
    with processes.forked(CODE, *command, cwd=workplace, loaded=LOADED) as process:
        while not list((workplace / "stopped").glob("labels/*.npy")):
            assert process.poll() is None, process.stderr
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
        error = process.stderr
    assert error.splitlines()[-1] == (
        "snapsure: interrupted. To resume, run the same command again: what is scored is kept."
    )
    assert "Traceback" not in error
    (workplace / "free").touch()
    assert run(*command, cwd=workplace).returncode == 0
    assert ScoreTable.open(workplace / "stopped").names == ["mc_dropout"]


def test_report_of_two_folders_of_one_name(workplace):
    """Both have their chapter and the hashes of their snapshots; the command can be run again."""
    for place in ("a", "b"):
        assert score(workplace, out=f"{place}/scores").returncode == 0
    (workplace / "class names.txt").write_text("\n".join(["zero", "<one>"]))
    arguments = (
        "report",
        "a/scores",
        "b/scores",
        "--classes",
        "class names.txt",
        "--out",
        "p.html",
    )
    result = run(*arguments, cwd=workplace)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "written: p.html\n"
    page = (workplace / "p.html").read_text()
    first = SnapshotStore(workplace / "run").sha256(1)[:12]
    assert page.count(first) == 2
    assert "a/scores: SHA-256 of the snapshots" in page
    assert "b/scores: SHA-256 of the snapshots" in page
    assert "--classes &#39;class names.txt&#39;" in page
    assert "&lt;one&gt;" in page
    points = ScoreTable.open(workplace / "a" / "scores").y_hat.size
    (workplace / "points.csv").write_text("city,size\n" + "Bonn,1\n" * points)
    arguments = ("report", "a/scores", "--fields", "points.csv", "--risk", "0.4")
    result = run(*arguments, cwd=workplace)
    assert result.returncode == 0, result.stderr
    page = (workplace / "report.html").read_text()
    assert "<dt>city</dt><dd>Bonn</dd>" in page
    assert "--risk 0.4 --out predictor" in page
    (workplace / "points.csv").write_text("city,size\nBonn\n")
    assert refused(run(*arguments, cwd=workplace)) == (
        "--fields must have as many cells in every row as names in its first, 2, got 1 in row 2 "
        "of points.csv: check it"
    )
    assert refused(run("report", "a/scores", "a/scores", cwd=workplace)) == (
        "TABLES must be different folders, got a/scores a/scores: name each once"
    )
    assert refused(run("report", "a/scores", "--classes", "none.txt", cwd=workplace)).startswith(
        "--classes must be a text file with one per line, got none.txt ("
    )


def test_refusals_are_one_sentence(workplace, tmp_path):
    assert refused(run("evaluate", "nowhere", cwd=tmp_path)).startswith(
        "nowhere must hold a finished score table, got no table.json"
    )
    said = refused(score(workplace, "--kappa", "luck"))
    assert "must be one of softmax, " in said
    assert "got 'luck'" in said
    assert refused(score(workplace, "--kappa", "nn_distance")) == (
        "--reference must name the training data for nn_distance, got none. Add --reference SPEC"
    )
    assert refused(score(workplace, "--executor", "dask")) == (
        "--executor must be one of local, ray, got 'dask': choose among these"
    )
    assert refused(score(workplace, "--address", "auto")) == (
        "--address must come with --executor ray, got 'auto' alone: add that"
    )
    assert refused(score(workplace, "--model", "mine")) == (
        "--model must be package.module:name or file.py:name, got 'mine': write both"
    )
    assert refused(score(workplace, "--model", "other:network")) == (
        "--model must name a function to call, got 'other:network', which raised "
        "ModuleNotFoundError (No module named 'other'): try it in Python first"
    )
    assert refused(score(workplace, "--model", "mine:net")) == (
        "--model must name a function to call, got 'mine:net', which raised AttributeError "
        "(module 'mine' has no attribute 'net'): try it in Python first"
    )
    assert refused(score(workplace, "--snapshots", "none", out="o")) == (
        "`snapshots` must hold at least one snapshot, got none in none: "
        "check the path, or record some"
    )
    np.savez(workplace / "wrong.npz", images=np.zeros(3))
    assert refused(score(workplace, "--data", "wrong.npz", out="p")) == (
        "--data must hold an array x (and y), got images in wrong.npz: write it by "
        "np.savez(path, x=…, y=…)"
    )
    (workplace / "torn.npz").write_bytes((workplace / "test.npz").read_bytes()[:500])
    for name, why in (
        ("gone.npz", "there is no such file"),
        ("torn.npz", "it was cut short, or is something else"),
    ):
        assert refused(score(workplace, "--data", name, out="q")) == (
            f"--data must be a whole .npz file, got {name} ({why}): write it by "
            "np.savez(path, x=…, y=…)"
        )
    assert "/proc/nowhere (No such file or directory)" in refused(
        score(workplace, out="/proc/nowhere")
    )


def test_the_demo_touches_no_folder_of_others(tmp_path):
    kept = tmp_path / "snapshots" / "epoch-000001.safetensors"
    kept.parent.mkdir()
    kept.write_text("dear")
    message = refused(run("demo", "--out", tmp_path))
    assert message.startswith("--out must be a new folder")
    assert f"got {tmp_path}" in message
    assert kept.read_text() == "dear"


def test_the_demo_without_its_words_says_what_to_install(tmp_path):
    code = f"import sys; sys.modules['wordfreq'] = None; {CODE}"
    result = processes.run(code, "demo", "--out", tmp_path / "demo", loaded=LOADED)
    assert refused(result) == (
        "import of wordfreq halted; None in sys.modules: pip install 'snapsure[demo]'"
    )


def test_a_table_without_labels_is_refused(tmp_path):
    ScoreTable({"softmax": np.ones((2, 3))}, np.zeros((2, 3), int)).save(tmp_path)
    assert refused(run("evaluate", tmp_path)).startswith("`y` must be known")


def test_the_same_seed_prints_the_same(tmp_path):
    simulated(n=200).save(tmp_path)
    a, b = (run("evaluate", tmp_path, "--splits", 2, "--seed", 3).stdout for _ in range(2))
    assert a == b
    assert a


def test_score_takes_a_folder_that_another_tool_left(workplace):
    """As it is: Lightning's layout, the network in an attribute, and its last checkpoint again."""
    ours = SnapshotStore(workplace / "run")
    folder = workplace / "lightning_logs" / "version_0" / "checkpoints"
    folder.mkdir(parents=True)
    for epoch in ours:
        state = {f"model.{name}": tensor for name, tensor in ours.load(epoch).items()}
        content = {"state_dict": state, "epoch": epoch, "global_step": 10 * epoch}
        torch.save(content, folder / f"epoch={epoch}-step={10 * epoch}.ckpt")
    torch.save(content, folder / "last.ckpt")
    for source, out in (("run", "ours"), ("lightning_logs", "theirs")):
        result = score(workplace, "--snapshots", source, out=out)
        assert result.returncode == 0, result.stderr
    tables = [ScoreTable.open(workplace / out) for out in ("ours", "theirs")]
    assert np.array_equal(tables[0].kappa("softmax"), tables[1].kappa("softmax"))
    assert np.array_equal(tables[0].epochs, tables[1].epochs)


def test_score_by_a_rivals_kappa(workplace):
    rivals = "entropy,margin,energy,max_logit,doctor,gen,deep_knn"
    assert refused(score(workplace, "--kappa", rivals, out="rivals")) == (
        "--reference must name the training data for deep_knn, got none. Add --reference SPEC"
    )
    result = score(workplace, "--kappa", rivals, "--reference", "train.npz", out="rivals")
    assert result.returncode == 0, result.stderr
    assert ScoreTable.open(workplace / "rivals").names == [
        "entropy",
        "margin",
        "energy",
        "max_logit",
        "doctor",
        "gen",
        "deep_knn",
    ]


def test_compare(workplace):
    """Two tables of the same points are seeds; every form has the same rows."""
    for out in ("one", "two"):
        assert score(workplace, out=out).returncode == 0
    given = ("one", "two", "--resamples", "500")
    result = run("compare", *given, "--json", "--plot", "board.png", cwd=workplace)
    assert result.returncode == 0, result.stderr
    (board,) = json.loads(result.stdout)["boards"]
    assert (board["runs"], board["reference"]) == (2, "final")
    assert (workplace / "board.png").stat().st_size > 10_000
    methods = [row["method"] for row in board["rows"]]
    ours = {"AES", "PES", "PES (paper)", "LES", *(f"LES ({n} passes)" for n in (4, 3, 2))}
    assert {"final", "best snapshot", "SPTD"} | ours == {*methods}
    result = run("compare", *given, "--format", "latex", cwd=workplace)
    assert result.returncode == 0, result.stderr
    assert all(method in result.stdout for method in methods)
    result = run("compare", *given, cwd=workplace)
    assert all(method in result.stdout for method in methods)
    assert refused(run("compare", *given, "--format", "html", cwd=workplace)) == (
        "--format must be one of terminal, markdown, latex, json, got 'html': choose one"
    )
    by_aurc = run("compare", *given, "--metric", "aurc", "--json", cwd=workplace)
    (ranked,) = json.loads(by_aurc.stdout)["boards"]
    assert ranked["metric"] == "aurc"
    assert ranked["rows"] == sorted(ranked["rows"], key=lambda row: row["aurc"])
    apart = run("compare", *given, "--apart", "--json", cwd=workplace)
    assert [board["runs"] for board in json.loads(apart.stdout)["boards"]] == [1, 1, 2]
    assert refused(run("compare", "one", "one", cwd=workplace)) == (
        "TABLES must be different folders, got one one: name each once"
    )
    assert refused(run("compare", *given, "--plot", "board.txt", cwd=workplace)) == (
        "--plot must end in .png, .svg or .pdf, got board.txt: name it so"
    )
    assert (
        score(workplace, "--kappa", "mc_dropout,mc_dropout_entropy", out="dropped").returncode == 0
    )
    result = run("compare", "dropped", "--json", cwd=workplace)
    rows = json.loads(result.stdout)["boards"][0]["rows"]
    assert {row["passes"] for row in rows if row["method"] == "mc_dropout"} == {100}
    assert refused(run("compare", cwd=workplace)) == (
        "compare must be given tables or --from, got neither: name one of them"
    )
    result = run("report", "one", "--contest", "--out", "page.html", cwd=workplace)
    assert result.returncode == 0, result.stderr
    assert "Every way to a confidence" in (workplace / "page.html").read_text()


def test_rebuild(tmp_path):
    store = SnapshotStore(tmp_path / "run")
    for epoch in (2, 5):
        store.save({"w": torch.ones(3)}, epoch)
    held = (store.path / "manifest.json").read_bytes()
    del store  # it holds the folder
    (tmp_path / "run" / "manifest.json").unlink()
    done = run("rebuild", "run", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "2 snapshots, epochs 2…5: run is a store\n")
    assert (tmp_path / "run" / "manifest.json").read_bytes() == held
    assert refused(run("rebuild", "run", cwd=tmp_path)) == (
        "run must have lost its manifest to be rebuilt, got a whole one with 2 snapshots: "
        "`.verify()` checks them"
    )
