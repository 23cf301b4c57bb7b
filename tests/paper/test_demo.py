"""The demo's steps, made small; `make demo` runs it whole."""

import io
import math
import re
import shlex
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import wordfreq
from rich.console import Console
from typer.main import get_command

from snapsure import Predictor, ScoreTable, SnapshotStore, compare
from snapsure.cli import app
from snapsure.errors import InvalidInput
from snapsure.evaluation import choose
from snapsure.paper import demo, words
from snapsure.report.tables import percent
from tests.support import processes

pytestmark = pytest.mark.slow


def test_the_words_are_real_and_cut_once():
    train, test = words.load()
    assert (len(train.y), len(test.y)) == (words.TRAIN, words.TEST) == (10_000, 20_000)
    assert {*train.y.tolist()} == {*range(len(words.LANGUAGES))}
    assert not {*train.text.tolist()} & {*test.text.tolist()}
    again, _ = words.load()
    assert (again.text == train.text).all()
    assert (again.x == train.x).all()
    told = dict(zip(train.text.tolist() + test.text.tolist(), [*train.y, *test.y], strict=True))
    names = list(words.LANGUAGES.values())
    assert names[told.get("schmetterling", 1)] == "German"
    # One sees what is written: letters in their order, and which are not there.
    row = words.spell(["añb", "дa"])
    assert row[0, :4].tolist() == [ord("a"), ord("ñ"), ord("b"), 0]
    assert row[1, :2].tolist() == [1, ord("a")]


def test_words_are_of_the_most_frequent_and_of_the_language_where_they_are_so():
    """Brute force over the lists of all languages."""
    lists = [wordfreq.get_frequency_dict(code, wordlist="small") for code in words.LANGUAGES]
    most = {}
    for each in lists:
        for word in filter(str.isalpha, each):
            if len(word) >= 3:
                most[word] = max(most.get(word, 0), each[word])
    drawn = [*zip(*(np.concatenate(pair) for pair in zip(*words.load(), strict=True)), strict=True)]
    for word, _, label in drawn:
        assert lists[label][word] == most[word]
    rarest = min(most[word] for word, *_ in drawn)
    assert sum(frequency > rarest for frequency in most.values()) < 70_000


def test_a_word_is_its_first_twelve_letters_and_other_scripts_are_one_letter():
    assert words.spell(["abcdefghijklm"]).tolist() == [[ord(letter) for letter in "abcdefghijkl"]]
    assert words.spell(["\u017f\u0180"])[0, :3].tolist() == [0x17F, 1, 0]  # the last Latin letter
    train, test = words.load()
    assert min(len(word) for word in (*train.text, *test.text)) == 3


def test_the_network_of_words_is_small():
    """Weights and offsets: of letters, two convolutions with their norms, and ten answers."""
    convolutions = (32 * 3 + 1) * 64 + (64 * 3 + 1) * 64
    expected = 384 * 32 + convolutions + 2 * 2 * 64 + (64 + 1) * 10
    assert sum(weights.numel() for weights in words.network().parameters()) == expected
    x = torch.zeros(2, 12, dtype=torch.long)
    assert words.network()(x).shape == (2, 10)


def test_words_are_learned_in_batches_of_a_hundred_at_a_rate_that_falls_to_0(monkeypatch):
    rates, recorded, weights = [], [], []

    class Watched(torch.optim.AdamW):
        def step(self, closure=None):
            (group,) = self.param_groups
            rates.append(group["lr"])
            assert group["weight_decay"] == 0.01
            # An offset's gradient is a mean of p − 1 or p, over one batch: never beyond 1.
            assert 0 < group["params"][-1].grad.abs().max() <= 1
            return super().step(closure)

    monkeypatch.setattr(torch.optim, "AdamW", Watched)
    monkeypatch.setattr(words, "EPOCHS", 4)
    some = words.Words(np.array(["abc"] * 250), np.ones((250, 12), np.int64), np.zeros(250, int))

    def record(model, epoch):
        recorded.append((epoch, model.training))
        weights.append(model[-1].weight.detach().clone())
        model.eval()  # as one does who looks at it

    words.train(some, 0, record)
    cosine = [0.005 * (1 + math.cos(math.pi * epoch / 4)) / 2 for epoch in range(4)]
    assert rates == pytest.approx(np.repeat(cosine, 3).tolist())  # 250 are three batches
    assert recorded == [(epoch, True) for epoch in (1, 2, 3, 4)]
    for seed in (0, 1):
        words.train(some, seed, record)
    first, again, other = weights[3::4]
    assert torch.equal(again, first)
    assert not torch.equal(other, first)


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """Everything with two seeds of few words and epochs, in this process."""
    folder = tmp_path_factory.mktemp("demo")
    output, said = io.StringIO(), []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(words, "TRAIN", 1500)
        patched.setattr(words, "TEST", 4000)
        patched.setattr(words, "EPOCHS", 5)
        patched.setattr(demo, "EPOCHS", 5)
        patched.setattr(demo, "SEEDS", (0, 1))
        patched.setattr(demo, "RISK", 0.3)
        patched.setattr(demo, "run_side_by_side", in_this_process)
        demo.run(folder, Console(file=output, width=100), said.append)
    return folder, output.getvalue(), said


def in_this_process(one_seed, folder, seeds, stores, total, console):
    """What is patched here is not patched in another process."""
    paths = [one_seed(folder, seed) for seed in seeds]
    assert sum(len([*store.rglob("epoch-*.safetensors")]) for store in stores) == total
    return paths


def test_it_runs_end_to_end(short):
    folder, text, said = short
    for seed in (0, 1):
        assert SnapshotStore(folder / "snapshots" / f"seed-{seed}").epochs == [1, 2, 3, 4, 5]
        assert ScoreTable.open(folder / f"scores-{seed}").y_hat.size == 4000
    facts = [
        "1,500 words to train on, 4,000 others",
        "2 networks trained, 5 snapshots",
        "the first network",
        str(folder / "predictor"),
        str(folder / "report.html"),
    ]
    assert [fact in line for fact, line in zip(facts, said, strict=True)] == [True] * 5
    for word in ("final softmax", "AES", "LES (3 passes)", "at most 30%", "2,000 other words"):
        assert word in text
    assert text.count(" right with probability ") == len(demo.ASKED)
    assert "│ AES " in text  # names are aligned left
    tables = [ScoreTable.open(folder / f"scores-{seed}") for seed in (0, 1)]
    some = [table.rows(demo.halve(table.y_hat.size)[0]) for table in tables]
    gains = compare(some, methods=("final", "AES"), resamples=100).boards["data"]["AES"].gains
    (row,) = (line for line in text.splitlines() if "│ AES " in line)
    assert row.replace("−", "-").split("│")[-2].split() == [f"{gain:+.0f}" for gain in gains]


def test_what_an_earlier_run_has_trained_is_kept(short, tmp_path, monkeypatch, capsys):
    folder, *_ = short
    for name in ("TRAIN", "TEST", "EPOCHS"):
        monkeypatch.setattr(words, name, {"TRAIN": 1500, "TEST": 4000, "EPOCHS": 5}[name])
    monkeypatch.setattr(demo, "EPOCHS", 5)
    whole = SnapshotStore(folder / "snapshots" / "seed-0")
    shutil.copytree(whole.path, tmp_path / "snapshots" / "seed-0")
    broken = SnapshotStore(tmp_path / "snapshots" / "seed-0")
    broken.rewind(3)  # as if it had been killed
    demo.score_seed(tmp_path, 0)
    assert [broken.sha256(epoch) for epoch in range(1, 6)] == [
        whole.sha256(epoch) for epoch in range(1, 6)
    ]

    def fail(*args):
        raise AssertionError("nothing is left to train")

    monkeypatch.setattr(demo, "train", fail)
    assert demo.score_seed(tmp_path, 0) == tmp_path / "scores-0"
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(demo, "run_side_by_side", fail)
    with pytest.raises(AssertionError, match="nothing is left"):  # the folder is taken again
        demo.run(folder, Console(file=io.StringIO()), str)


def test_it_ends_with_commands_that_exist(short):
    """The three for one's own checkpoints: each option is one of that command."""
    _, text, _ = short
    commands = get_command(app)
    shown = re.findall(r"^  snapsure (\w+) (.*)$", text, re.M)
    assert [name for name, _ in shown] == ["demo", "score", "fit", "predict"]
    for name, rest in shown:
        known = {option for each in commands.commands[name].params for option in each.opts}
        assert {*re.findall(r"--[\w-]+", rest)} <= known, name
        assert "--out " in rest  # which ends each line: it is not broken
    output = io.StringIO()
    demo._print_next(Path("my [b]demo"), Console(file=output, width=40))
    (line,) = (
        line for line in output.getvalue().splitlines() if "--out" in line and "demo " in line
    )
    assert shlex.split(line)[-1] == "my [b]demo"


@pytest.mark.parametrize(
    ("started", "on_the_path", "said"),
    [
        (".venv/bin/snapsure", None, ".venv/bin/snapsure"),
        ("/usr/bin/snapsure", "/usr/bin/snapsure", "snapsure"),
        ("src/snapsure/__main__.py", None, "snapsure"),
    ],
)
def test_it_says_what_to_type_where_it_was_started(monkeypatch, started, on_the_path, said):
    monkeypatch.setattr("sys.argv", [started, "demo"])
    monkeypatch.setattr("shutil.which", lambda name: on_the_path)
    assert demo._find_command() == said


def test_console_and_check_are_of_what_fit_deploys(short):
    folder, text, _ = short
    table = ScoreTable.open(folder / "scores-0")
    held_out, new = (table.rows(rows) for rows in demo.halve(table.y_hat.size))
    choice, predictor = (
        choose(held_out, risk=0.3),
        Predictor.load(folder / "predictor", words.network()),
    )
    assert predictor.threshold.as_dict() == choice.threshold.as_dict()
    page, shown = (folder / "report.html").read_text(), " ".join(text.split())
    assert f"accepts {percent(choice.accepted)} of the words." in shown
    assert percent(choice.accepted) in page
    accepted = predictor.threshold.accepts(predictor.confidence(new))
    assert (
        f"accepts {percent(accepted.mean())}, and {percent(new.errors[accepted].mean())}" in shown
    )


def test_it_says_where_the_final_softmax_cannot_promise(short):
    folder, _, _ = short
    held_out = ScoreTable.open(folder / "scores-0")
    choice = replace(choose(held_out, risk=0.3), final_accepted=None)
    output = io.StringIO()
    demo._print_check(demo.Check(choice, 0.5, 0.25, 0.4), 1000, Console(file=output, width=200))
    assert "The final softmax cannot keep that limit." in output.getvalue()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_what_it_starts_ends_with_it(tmp_path, number):
    command = [sys.executable, "-m", "tests.support.waiting", tmp_path]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with processes.started(command, cwd=processes.ROOT, **pipes) as parent:
        processes.until(lambda: len(list(tmp_path.glob("*.pid"))) == 2, parent)
        children = [int(path.read_text()) for path in tmp_path.glob("*.pid")]
        assert all(map(running, children))
        parent.send_signal(number)
        # The children hold their end of the pipe: what they would say of Ctrl-C is in it.
        _, said = parent.communicate()
        processes.until(lambda: not any(map(running, children)))
    if number == signal.SIGINT:
        assert said.count("Traceback") == 1, said
        assert said.rstrip().endswith("KeyboardInterrupt")


def running(pid):
    """Whether there is such a process, and not only its number until somebody asks for its end."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_what_is_deployed_is_what_answers(short):
    folder, text, _ = short
    predictor = Predictor.load(folder / "predictor", words.network())
    said = predictor(words.spell(demo.ASKED))
    names = list(words.LANGUAGES.values())
    for word, label, confidence, accepted in zip(demo.ASKED, *said, strict=True):
        line = f"  {word:16} {names[label]:8} right with probability {confidence:4.0%}: "
        assert line + ("accept" if accepted else "send") in text
    output = io.StringIO()
    demo.answer(folder, ["weather", "[b]old"], Console(file=output, width=100))
    assert [line.split()[0] for line in output.getvalue().splitlines()] == ["weather", "[b]old"]
    with pytest.raises(InvalidInput, match="must hold a finished demo to answer words"):
        demo.answer(folder / "none", ["weather"], Console(file=output))


def test_the_network_of_the_first_seed_is_deployed(short):
    folder, _, _ = short
    deployed = Predictor.load(folder / "predictor", words.network())
    first = SnapshotStore(folder / "snapshots" / "seed-0")
    x = words.spell(words.load()[0].text[:300].tolist())
    same = Predictor(words.network(), first, deployed.estimator)
    assert deployed(x).label.tolist() == same(x).label.tolist()


def test_the_page_shows_the_words(short):
    folder, _, _ = short
    page = (folder / "report.html").read_text()
    assert "Which words can be trusted?" in page
    assert page.count("SHA-256 of the snapshots") == 2
    table = ScoreTable.open(folder / "scores-0")
    table = table.rows(demo.halve(table.y_hat.size)[0])
    mistakes = page[page.index("The surest mistakes") : page.index("Moved most by")]
    rows = [int(row) for row in re.findall(r">row (\d+)<", mistakes)]
    assert rows
    assert table.errors[rows].all()
    assert page.count("<q>") >= 10
