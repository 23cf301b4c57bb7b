"""The demo, end to end on real words: train, score, compare, set an error limit, deploy, report.

Seeds 0, 1 and 2 are fixed, whatever comes out. `results/demo.json` has ten seeds at 2 %.
"""

import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console

from snapsure import _files
from snapsure._types import Ints
from snapsure.errors import InvalidInput
from snapsure.evaluation import Board, Choice, choose, compare
from snapsure.paper._side_by_side import run_side_by_side
from snapsure.paper.words import EPOCHS, LANGUAGES, load, network, spell, train
from snapsure.predictor import Predictor
from snapsure.report.page import Report, describe_origin
from snapsure.report.tables import (
    Column,
    Table,
    interval,
    percent,
    signed,
    thousandths,
    to_terminal,
)
from snapsure.scoring import score
from snapsure.snapshots import Recorder, SnapshotStore
from snapsure.table import ScoreTable
from snapsure.table._table import random_cut

SEEDS = (0, 1, 2)
RISK = 0.1  # the error limit; the networks are wrong on a quarter of the words
SHOWN = ("final", "AES", "PES", "LES", "LES (3 passes)")
# The last two are words of several languages.
ASKED = ("schmetterling", "weather", "mañana", "quelque", "dziękuję", "příklad", "hand", "radio")
_MARK = ".snapsure-demo"
_FACTORY = "snapsure.paper.words:network"


class Check(NamedTuple):
    """What was deployed, and how it did on words that nothing was fitted on."""

    choice: Choice
    accepted: float  # share of the words
    wrong: float  # share of the accepted
    error: float  # share of all that are wrong


def run(folder: Path, console: Console, show: Callable[[str], None]) -> None:
    """Run the demo; what an earlier run has trained and scored is kept."""
    _files.claim(folder, _MARK, "--out", "an earlier demo")
    (folder / _MARK).touch()
    train_words, test_words = load()
    show(
        f"The task: which of ten languages is this word from? {len(train_words.y):,} words to "
        f"train on, {len(test_words.y):,} others to judge by."
    )

    stores = [folder / "snapshots"]
    paths = run_side_by_side(score_seed, folder, SEEDS, stores, EPOCHS * len(SEEDS), console)
    tables = [ScoreTable.open(path) for path in paths]
    held_out, new = halve(len(test_words.y))
    some = [table.rows(held_out) for table in tables]
    show(
        f"{len(SEEDS)} networks trained, {EPOCHS} snapshots of each recorded and scored. "
        f"{held_out.size:,} words compare the methods:"
    )
    board = compare(some, methods=SHOWN, resamples=1000).boards["data"]
    console.print(to_terminal(_tabulate(board, some)))

    show("The same words choose a method and a threshold for the first network.")
    _print_check(deploy(folder, tables[0], SEEDS[0]), new.size, console)
    show(f"Saved as {folder / 'predictor'}. It answers:")
    answer(folder, ASKED, console)
    show(f"The page to look at: {_write_page(folder, some, test_words.text[held_out].tolist())}")
    _print_next(folder, console)


def halve(n: int) -> tuple[Ints, Ints]:
    """Return the words that compare, choose and promise, and those that check the promise."""
    return random_cut(n, round(0.5 * n), 1)


def score_seed(folder: Path, seed: int) -> Path:
    """Train and record one network, and score the words by all of its snapshots."""
    train_words, test_words = load()
    store = SnapshotStore(folder / "snapshots" / f"seed-{seed}")
    if store.epochs != list(range(1, EPOCHS + 1)):
        store.rewind(0)
        train(train_words, seed, Recorder(store).record)
    out = folder / f"scores-{seed}"
    score(network(), store, (test_words.x, test_words.y), out=out, progress=False)
    return out


def deploy(folder: Path, table: ScoreTable, seed: int) -> Check:
    """Save a predictor with a promise from half of the words; check it on the other half."""
    held_out, new = (table.rows(rows) for rows in halve(table.y_hat.size))
    choice = choose(held_out, risk=RISK)
    snapshots, classes = folder / "snapshots" / f"seed-{seed}", list(LANGUAGES.values())
    predictor = Predictor.fit(_FACTORY, snapshots, held_out, risk=RISK, classes=classes)
    predictor.save(folder / "predictor")

    assert choice.threshold is not None
    accepted = choice.threshold.accepts(choice.confidence(new))
    wrong = float(new.errors[accepted].mean()) if accepted.any() else 0.0
    return Check(choice, float(accepted.mean()), wrong, float(new.errors.mean()))


def answer(folder: Path, words: Sequence[str], console: Console) -> None:
    """Print what the deployed predictor answers."""
    if not (folder / "predictor").exists():
        raise InvalidInput(
            f"--out must hold a finished demo to answer words, got none in {folder}. Run "
            "`snapsure demo` first."
        )
    predictor = Predictor.load(folder / "predictor", _FACTORY)
    names = list(LANGUAGES.values())
    for word, label, confidence, accepted in zip(words, *predictor(spell(words)), strict=True):
        decision = "accept" if accepted else "send to review"
        console.print(
            f"         {word:16} {names[label]:8} right with probability {confidence:4.0%}: "
            f"{decision}",
            highlight=False,
            markup=False,
        )


def _tabulate(board: Board, tables: Sequence[ScoreTable]) -> Table:
    """Tabulate every method beside the final softmax."""
    wrong = np.mean([table.errors.mean() for table in tables])
    columns = [
        Column("method", text=True),
        Column("passes", "{:.0f}".format),
        Column("E-AURC ×10³", thousandths),
        Column("gain, % (95 % interval)", interval),
        Column("of each network", lambda gains: " ".join(signed(gain, 0) for gain in gains)),
    ]
    rows = []
    for row in board.rows:
        final = row.outcome == "reference"
        name = "final softmax" if final else row.method
        gains = (None, None) if final else (row.gain, row.gains)
        rows.append((name, row.passes, row.eaurc, *gains))
    return Table(
        columns,
        rows,
        f"{len(tables)} networks, wrong on {percent(float(wrong))} of the words. Which confidence "
        "ranks right answers above wrong ones? AES, LES and PES: averaged, learned and pointwise "
        "early stopping. E-AURC: what an imperfect ranking costs, lower is better. Gain: how much "
        "less than the final softmax.",
    )


def _print_check(check: Check, new: int, console: Console) -> None:
    choice, final = check.choice, "The final softmax cannot keep that limit."
    if choice.final_accepted is not None:
        final = (
            f"The final softmax accepts {percent(choice.final_accepted)} under the same promise."
        )
    assert choice.accepted is not None
    for line in (
        f"Chosen:    {choice.reason}.",
        f"Promised:  at most {RISK:.0%} of the accepted answers are wrong. The predictor accepts "
        f"{percent(choice.accepted)} of the words. {final}",
        f"Checked:   of {new:,} other words, it accepts {percent(check.accepted)}, and "
        f"{percent(check.wrong)} of these answers are wrong. It sends the rest to review. Without "
        f"a limit, {percent(check.error)} of its answers are wrong.",
    ):
        console.print(f"         {line}", highlight=False, soft_wrap=True)


def _write_page(folder: Path, tables: Sequence[ScoreTable], texts: Sequence[str]) -> Path:
    named = {f"seed {seed}": table for seed, table in zip(SEEDS, tables, strict=True)}
    origin = {"command": f"snapsure demo --out {folder}"}
    for name, table in named.items():
        origin |= describe_origin(table, name)
    return Report(
        named,
        risk=RISK,
        texts=texts,
        classes=list(LANGUAGES.values()),
        origin=origin,
        title="Which words can be trusted?",
    ).save(folder / "report.html")


def _print_next(folder: Path, console: Console) -> None:
    command = _find_command()
    console.print(
        f"\nAsk it about other words:\n"
        f"  {command} demo butterfly papillon --out {shlex.quote(str(folder))}\n"
        f"The same for your own checkpoints (`{command} COMMAND --help` says what each takes):\n"
        f"  {command} score --model mypackage.nets:make --snapshots checkpoints/ --data test.npz "
        "--out scores\n"
        f"  {command} fit scores --model mypackage.nets:make --risk {RISK} --out predictor\n"
        f"  {command} predict predictor --model mypackage.nets:make --data new.npz "
        "--out answers.csv",
        highlight=False,
        soft_wrap=True,
        markup=False,
    )


def _find_command() -> str:
    """Return what to type to run this again: a virtual environment may not be on the path."""
    started = Path(sys.argv[0])
    if started.name != "snapsure" or shutil.which("snapsure") == str(started.absolute()):
        return "snapsure"
    return shlex.quote(sys.argv[0])
