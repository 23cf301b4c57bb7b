"""The commands as a person runs them: real processes."""

import io
import json
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import typer
from rich.console import Console

from snapsure import ScoreTable, SnapshotStore, evaluate
from snapsure.cli._app import report_errors, step_printer
from snapsure.evaluation import Splits, confidences
from snapsure.kappas import registry
from tests.support import processes
from tests.support.commands import CODE, LOADED, refuse, run
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


def options(**changes):
    given = {"model": "mine:network", "snapshots": "run", "data": "test.npz", "out": "scores"}
    return [word for name, value in (given | changes).items() for word in (f"--{name}", value)]


def score(workplace, **changes):
    return run("score", *options(**changes), cwd=workplace)


@pytest.mark.parametrize("command", [[], ["demo"], ["score"], ["distill"], ["reproduce"]])
def test_help_ends_with_an_example(command):
    text = run(*command, "--help").stdout
    assert "<bool>" not in text
    example = " ".join(text.partition("Example: ")[2].split())
    assert re.match(r"snapsure \w+", example)
    known = run(example.split()[1], "--help").stdout
    assert all(option in known for option in re.findall(r"--[\w-]+", example))


def test_help_names_the_type_of_all_but_flags():
    text = run("evaluate", "--help").stdout
    assert re.search(r"table +<path>", text)
    assert re.search(r"--splits +<int>", text)
    assert re.search(r"--json +Print", text)


def test_alone_it_says_what_to_try_first():
    assert "snapsure demo" in run().stdout
    assert "completion" not in run("--help").stdout


@pytest.mark.parametrize(
    "command", [(), ("--version",), ("--help",), ("fit", "--help"), ("evaluate", "table", "--json")]
)
def test_an_output_that_is_full(tmp_path, command):
    simulated(n=300).save(tmp_path / "table")
    words = [sys.executable, "-m", "snapsure", *command]
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(words, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (
        result.stderr == "snapsure: Cannot write the output (no space left). Send it elsewhere.\n"
    )
    assert result.returncode == 2


def test_a_step_is_one_line_after_the_seconds(monkeypatch):
    moments = SimpleNamespace(monotonic=iter((100.0, 107.6)).__next__)
    monkeypatch.setattr("snapsure.cli._app.time", moments)
    console = Console(file=io.StringIO(), width=20, force_terminal=True, no_color=False)
    step_printer(console)("saved 5 files in /a/folder/with/a/long/name")
    seconds, step = console.file.getvalue().splitlines()[0].split("  saved")
    assert "8 s" in seconds
    assert step == " 5 files in /a/folder/with/a/long/name"  # in one colour, and not wrapped


def test_names_that_look_like_markup_are_shown_as_they_are(tmp_path):
    console = Console(file=io.StringIO(), width=80)
    step_printer(console)("Saved as a[/b]")
    assert "Saved as a[/b]" in console.file.getvalue()
    simulated(n=300).save(tmp_path / "a[" / "b]")
    assert "Traceback" not in run("compare", "a[/b]", "--resamples", "2000", cwd=tmp_path).stderr


def test_a_broken_package_gives_a_sentence(tmp_path):
    for error in ("ImportError('libtorch.so: cannot open')", "OSError('libtorch.so: cannot open')"):
        (tmp_path / "torch.py").write_text(f"raise {error}")
        command = [sys.executable, "-c", CODE, "score", *options(model="torch:nn")]
        result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert result.returncode == 2, result.stderr
        assert result.stderr.startswith("snapsure: libtorch.so: cannot open")
        assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (ImportError("libc.so"), "libc.so. Reinstall the package"),
        (ImportError("libc.so", name="torch"), "libc.so. Reinstall torch"),
        (ModuleNotFoundError("no odd", name="odd"), "no odd. Reinstall odd"),
        (ModuleNotFoundError("no h5py", name="h5py.h5"), "pip install 'snapsure[keras]'"),
    ],
)
def test_what_cannot_be_imported_says_what_to_install(capsys, error, remedy):
    with pytest.raises(typer.Exit), report_errors():
        raise error
    assert remedy in capsys.readouterr().err


def test_an_error_of_our_own_code_is_pythons_traceback(tmp_path):
    before = "import snapsure.snapshots; snapsure.snapshots.SnapshotStore = None; "
    said = run("rebuild", tmp_path, before=before, status=1).stderr
    assert said.startswith("Traceback")


def test_confidences_of_every_example_in_a_file(tmp_path):
    table = simulated()
    table.save(tmp_path / "scores")
    arguments = ("--splits", 1, "--seed", 2, "--examples", "examples.csv", "--json")
    done = run("evaluate", "scores", *arguments, cwd=tmp_path)
    assert done.stderr.splitlines()[-1] == "written: examples.csv"
    assert json.loads(done.stdout)["examples"] == 400
    header, *lines = (tmp_path / "examples.csv").read_text().splitlines()
    expected = confidences(table, kappa="softmax", seed=2)
    other = confidences(table, kappa="mc_dropout", seed=2)
    expected |= {f"{method} of mc_dropout": p for method, p in other.items()}
    assert header.split(",") == ["row", "y", "y_hat", "wrong", *expected]
    rows = np.array([line.split(",") for line in lines], float)
    columns = [np.arange(400), table.y, table.y_hat, table.errors, *expected.values()]
    assert np.array_equal(rows, np.transpose(columns))


def test_score_and_evaluate(workplace):
    result = score(workplace, kappa="softmax,nn_distance,mc_dropout", reference="train.npz")
    assert result.stdout.splitlines()[1] == "Now: snapsure evaluate scores"
    np.savez(workplace / "unlabelled.npz", x=np.load(workplace / "test.npz")["x"])
    result = score(workplace, data="unlabelled.npz", out="unlabelled")
    assert "evaluate" not in result.stdout
    assert result.stdout.startswith(str(ScoreTable.open(workplace / "unlabelled")))
    table = ScoreTable.open(workplace / "scores")
    assert table.names == ["softmax", "nn_distance", "mc_dropout"]

    shown = run("evaluate", "scores", "--splits", 2, cwd=workplace).stdout
    assert f"{table.errors.mean():.1%} wrong, 6 snapshots" in shown
    for word in ("softmax", "nn_distance", "mc_dropout", "AES", "PES", "LES", "Brier"):
        assert word in shown

    done = run("evaluate", "scores", "--splits", 2, "--json", cwd=workplace)
    content = json.loads(done.stdout)
    expected = evaluate(table, protocol=Splits(2)).as_dict()["boards"]
    assert content["boards"] == json.loads(json.dumps(expected))
    assert content["examples"] == 797
    assert content["error"] == table.errors.mean()


def test_data_by_function_every_kappa_and_json(workplace):
    names = [name for name in registry.names() if not name.startswith("mc_dropout")]
    changes = {"data": "mine:test", "kappa": ",".join(names), "reference": "train.npz"}
    result = run("score", *options(**changes, out="rivals"), "--json", cwd=workplace)
    expected = {"table": "rivals", "names": names, "shape": [6, 797]}
    assert json.loads(result.stdout) == expected
    assert ScoreTable.open(workplace / "rivals").names == names


def test_a_kappa_that_the_module_of_the_model_registers(workplace):
    (workplace / "own.py").write_text(
        "from mine import network\n"
        "from snapsure.kappas import SoftmaxResponse, registry\n"
        "@registry.register\n"
        "class Own(SoftmaxResponse):\n"
        "    name = 'own'\n"
    )
    score(workplace, model="own:network", kappa="own,softmax", out="owned")
    run(
        "fit", "owned", "--trust", "--kappa", "own,softmax", "--out", "own-predictor", cwd=workplace
    )
    given = ("--data", "test.npz", "--out", "answers.csv")
    run("predict", "own-predictor", "--trust", *given, cwd=workplace)
    run("predict", "own-predictor", "--model", "own:network", *given, cwd=workplace)
    said = refuse("predict", "own-predictor", "--model", "mine:network", *given, cwd=workplace)
    assert "got 'own'" in said
    assert "register(" in said


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
    given = options(model="held:network", data="held:Held", kappa="mc_dropout", out="stopped")
    command = ("score", *given)
    with processes.forked(CODE, *command, cwd=workplace, loaded=LOADED) as process:
        while not list((workplace / "stopped").glob("labels/*.npy")):
            assert process.poll() is None, process.stderr
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
        error = process.stderr
    assert error.splitlines()[-1].startswith("snapsure: interrupted. To resume, run the same ")
    assert "Traceback" not in error
    (workplace / "free").touch()
    run(*command, cwd=workplace)
    assert ScoreTable.open(workplace / "stopped").names == ["mc_dropout"]


def test_report_of_two_folders_of_one_name(workplace):
    """Both have their chapter and the hashes of their snapshots; the command can be run again."""
    for place in ("a", "b"):
        score(workplace, out=f"{place}/scores")
    names = workplace / "class names.txt"
    arguments = ("a/scores", "b/scores", "--classes", names.name, "--out", "p.html")
    for count in (9, 11):
        names.write_text("<zero>\n" * count)
        assert f"`classes` must name all classes of the table, 10, got {count}" in refuse(
            "report", *arguments, cwd=workplace
        )
    names.write_text("<zero>\n" * 10)
    assert run("report", *arguments, cwd=workplace).stdout == "written: p.html\n"
    page = (workplace / "p.html").read_text()
    first = SnapshotStore(workplace / "run").sha256(1)[:12]
    assert page.count(first) == 2
    assert 'href="#chapter-1"' in page
    assert ">a/scores: SHA-256 of the snapshots<" in page
    assert "b/scores: SHA-256 of the snapshots" in page
    assert "--classes &#39;class names.txt&#39;" in page
    assert "&lt;zero&gt;" in page
    points = ScoreTable.open(workplace / "a" / "scores").y_hat.size
    (workplace / "points.csv").write_text("city,size\n" + "Bonn,1\n" * points)
    arguments = ("report", "a/scores", "--fields", "points.csv", "--risk", "0.4")
    run(*arguments, cwd=workplace)
    page = (workplace / "report.html").read_text()
    assert "<dt>city</dt><dd>Bonn</dd>" in page
    assert "snapsure fit a/scores --model mine:network --risk 0.4 --out predictor" in page
    (workplace / "points.csv").write_text("city,size\nBonn\n")
    said = refuse(*arguments, cwd=workplace)
    assert "--fields must" in said
    assert "got 1 in row 2 of points.csv" in said
    said = refuse("report", "a/scores", "a/scores", cwd=workplace)
    assert "TABLES must be different folders, got a/scores a/scores" in said
    said = refuse("report", "a/scores", "--classes", "none.txt", cwd=workplace)
    assert "--classes must be a text file" in said
    assert "got none.txt" in said


def test_refusals_are_one_sentence(workplace, tmp_path):
    assert "got no table.json" in refuse("evaluate", "nowhere", cwd=tmp_path)
    (workplace / "torn.npz").write_bytes((workplace / "test.npz").read_bytes()[:500])
    said = refuse("score", *options(data="torn.npz", out="refused"), cwd=workplace)
    assert "--data must be a complete .npz file, got torn.npz (it is cut" in said
    ScoreTable({"softmax": np.ones((2, 3))}, np.zeros((2, 3), int)).save(tmp_path)
    assert "`y` must be known" in refuse("evaluate", tmp_path)


def test_the_demo_touches_no_folder_of_others(tmp_path):
    kept = tmp_path / "snapshots" / "epoch-000001.safetensors"
    kept.parent.mkdir()
    kept.write_text("dear")
    said = refuse("demo", "--out", tmp_path)
    assert "--out must be a new folder" in said
    assert f"got {tmp_path}" in said
    assert kept.read_text() == "dear"
    said = refuse("demo", "weather", "--out", tmp_path)
    assert "must hold a finished demo" in said


def test_the_demo_without_its_words_says_what_to_install(tmp_path):
    before = "import sys; sys.modules['wordfreq'] = None; "
    said = refuse("demo", "--out", tmp_path / "demo", before=before)
    assert "wordfreq" in said
    assert "pip install 'snapsure[demo]'" in said


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
        score(workplace, snapshots=source, out=out)
    tables = [ScoreTable.open(workplace / out) for out in ("ours", "theirs")]
    assert np.array_equal(tables[0].kappa("softmax"), tables[1].kappa("softmax"))
    assert np.array_equal(tables[0].epochs, tables[1].epochs)


def test_compare(workplace):
    """Two tables of the same points are seeds; every form has the same rows."""
    for out in ("one", "two"):
        score(workplace, out=out)
    given = ("one", "two", "--resamples", "500")
    result = run("compare", *given, "--json", "--plot", "board.png", cwd=workplace)
    (board,) = json.loads(result.stdout)["boards"]
    assert (board["runs"], board["reference"]) == (2, "final")
    assert (workplace / "board.png").stat().st_size > 10_000
    assert "written: board.png" in result.stderr
    methods = [row["method"] for row in board["rows"]]
    ours = {"AES", "PES", "PES (paper)", "LES", *(f"LES ({n} passes)" for n in (4, 3, 2))}
    assert {"final", "best snapshot", "SPTD"} | ours == {*methods}
    for form, begin, end in (
        ("latex", r"\begin{tabular}{lrr", "\\end{tabular}\n"),
        ("markdown", "\n| method | ", " |\n"),
        ("terminal", "┃ method", "┘\n"),
    ):
        shown = run("compare", *given, "--format", form, cwd=workplace).stdout
        assert all(method in shown for method in methods)
        assert begin in shown
        assert shown.endswith(end)
        assert not shown.endswith("\n\n")
        assert ("verdict" in shown) == (form == "markdown")  # a paper or 80 characters have no room

    by_aurc = run("compare", *given, "--metric", "aurc", "--json", cwd=workplace)
    (ranked,) = json.loads(by_aurc.stdout)["boards"]
    assert ranked["metric"] == "aurc"
    assert ranked["rows"] == sorted(ranked["rows"], key=lambda row: row["aurc"])
    apart = run("compare", *given, "--apart", "--json", cwd=workplace)
    assert [board["runs"] for board in json.loads(apart.stdout)["boards"]] == [1, 1, 2]
    assert "TABLES must be different" in refuse("compare", "one", "one", cwd=workplace)
    said = refuse("compare", *given, "--plot", "board.txt", cwd=workplace)
    assert "--plot must end in .png, .svg, .pdf, got board.txt" in said
    score(workplace, kappa="mc_dropout,mc_dropout_entropy", out="dropped")
    result = run("compare", "dropped", "--json", cwd=workplace)
    rows = json.loads(result.stdout)["boards"][0]["rows"]
    assert {row["passes"] for row in rows if row["method"] == "final"} == {100}
    assert "tables or --from, got neither" in refuse("compare", cwd=workplace)
    result = run("report", "one", "two", "--contest", "--out", "page.html", cwd=workplace)
    page = (workplace / "page.html").read_text()
    assert "board-0" in page
    assert "board-1" not in page  # they are seeds of one data set


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
    said = refuse("rebuild", "run", cwd=tmp_path)
    assert "run must have lost its manifest to be rebuilt, got a whole one with 2" in said
