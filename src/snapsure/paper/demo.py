"""The whole way on real words: train and record, score, compare, promise, deploy, answer, report.

Seeds are 0, 1, 2, and what comes out is reported. The network was chosen for its speed among a few,
on seed 0 and these words. `results/demo.json` has what comes out for ten seeds on other processors
and numbers of threads.
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
from snapsure.decisions import Threshold
from snapsure.errors import Infeasible, InvalidInput
from snapsure.evaluation import Board, compare
from snapsure.paper._side_by_side import side_by_side
from snapsure.paper.words import EPOCHS, LANGUAGES, load, network, spelt, train
from snapsure.predictor import Predictor
from snapsure.report.page import Report, origin_of
from snapsure.report.tables import Column, Table, interval, thousandths, to_terminal
from snapsure.scoring import score
from snapsure.snapshots import Recorder, SnapshotStore
from snapsure.table import ScoreTable
from snapsure.table._table import random_cut

SEEDS = (0, 1, 2)
RISK = 0.02
SHOWN = ("final", "AES", "PES", "LES", "LES (3 passes)")
ASKED = ("schmetterling", "mañana", "weather", "hand", "radio", "quelque", "villa")
_MARK = ".snapsure-demo"
_FACTORY = "snapsure.paper.words:network"

Tell = Callable[[str], None]


class Promise(NamedTuple):
    """What became of a promised risk, on new words that nothing was fitted on."""

    reason: str  # why this method
    method: str
    accepted: float  # share of the words
    wrong: float  # share of the accepted
    plain: float | None  # share accepted by the final softmax, if it can promise that risk
    plain_wrong: float | None
    held_out: float  # share accepted of the words that made the promise, as on the page


def run(folder: Path, console: Console, tell: Tell) -> None:
    """All of it; what an earlier run has trained and scored is kept."""
    _files.claim(folder, _MARK, "--out", "an earlier demo")
    (folder / _MARK).touch()
    train_words, test_words = load()
    tell(
        f"The task: which of ten languages is this word from? {len(train_words.y):,} words to "
        f"train on, {len(test_words.y):,} others to judge by."
    )
    paths = side_by_side(
        one_seed, folder, SEEDS, [folder / "snapshots"], EPOCHS * len(SEEDS), console
    )
    tables = [ScoreTable.open(path) for path in paths]
    tell(
        f"{len(SEEDS)} networks trained, {EPOCHS} snapshots of each recorded; each snapshot has "
        "scored all words to judge by."
    )
    board = compare(tables, methods=SHOWN, resamples=1000).boards["data"]
    console.print(to_terminal(_board(board, tables)))
    half = len(test_words.y) // 2
    tell(
        f"To deploy the first network: method and threshold are chosen on {half:,} words, and "
        "checked on the others."
    )
    _say(deploy(folder, tables[0], SEEDS[0]), half, console)
    tell(f"Saved as {folder / 'predictor'}. It answers:")
    answer(folder, ASKED, console)
    tell(f"The page to look at: {_page(folder, tables, test_words.text.tolist())}")
    _say_what_next(folder, console)


def one_seed(folder: Path, seed: int) -> Path:
    """Train and record one network, and score the words by all of its snapshots."""
    train_words, test_words = load()
    store = SnapshotStore(folder / "snapshots" / f"seed-{seed}")
    if store.epochs != list(range(1, EPOCHS + 1)):
        store.rewind(0)
        train(train_words, seed, Recorder(store).record)
    out = folder / f"scores-{seed}"
    score(network(), store, (test_words.x, test_words.y), out=out, progress=False)
    return out


def deploy(folder: Path, table: ScoreTable, seed: int) -> Promise:
    """Save a predictor with a promise from half of the words; check it on the other half."""
    held_out, new = (table.rows(rows) for rows in _halve(table))
    classes = list(LANGUAGES.values())
    predictor = Predictor.fit(
        _FACTORY, folder / "snapshots" / f"seed-{seed}", held_out, risk=RISK, classes=classes
    )
    predictor.save(folder / "predictor")
    assert predictor.threshold is not None
    assert predictor.reason is not None
    accepted = predictor.threshold.accepts(predictor.confidence(new))
    return Promise(
        predictor.reason,
        type(predictor.estimator).__name__,
        float(accepted.mean()),
        _wrong(new, accepted),
        *_plain(held_out, new),
        predictor.threshold.coverage,
    )


def _halve(table: ScoreTable) -> tuple[Ints, Ints]:
    """Return the words to fit on, and new words to check by."""
    n = table.y_hat.size
    return random_cut(n, n // 2, 1)


def answer(folder: Path, words: Sequence[str], console: Console) -> None:
    """What the deployed predictor says of words."""
    if not (folder / "predictor").exists():
        raise InvalidInput(
            f"--out must hold a finished demo to answer words, got none in {folder}: run "
            "`snapsure demo` first"
        )
    predictor = Predictor.load(folder / "predictor")
    names = list(LANGUAGES.values())
    said = predictor(spelt(words))
    for word, label, confidence, accepted in zip(words, *said, strict=True):
        decision = "accept" if accepted else "send to review"
        console.print(
            f"         {word:16} {names[label]:8} right with probability {confidence:4.0%}: "
            f"{decision}",
            highlight=False,
        )


def _board(board: Board, tables: Sequence[ScoreTable]) -> Table:
    """Every method beside the final snapshot's softmax."""
    wrong = np.mean([table.errors.mean() for table in tables])
    columns = [
        Column("method", text=True),
        Column("passes", "{:.0f}".format),
        Column("E-AURC ×10³", thousandths),
        Column("gain, % (95 % interval)", interval),
        Column("of each network", lambda gains: " ".join(f"{gain:+.0f}" for gain in gains)),
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
        f"{len(tables)} networks, wrong on {wrong:.1%} of the words. Which confidence ranks right "
        "answers above wrong ones? E-AURC: what an imperfect ranking costs, lower is better. Gain: "
        "how much less than the final softmax.",
    )


def _plain(held_out: ScoreTable, new: ScoreTable) -> tuple[float | None, float | None]:
    """The same promise by the final snapshot's softmax alone: accepted, and wrong of these."""
    _, rest = held_out.split(0.5, seed=0)
    try:
        threshold = Threshold.at_risk(rest.kappa("softmax")[-1], rest.errors, RISK)
    except Infeasible:
        return None, None
    accepted = threshold.accepts(new.kappa("softmax")[-1])
    return float(accepted.mean()), _wrong(new, accepted)


def _wrong(table: ScoreTable, accepted: np.ndarray) -> float:
    """Share of errors among the accepted."""
    return float(table.errors[accepted].mean()) if accepted.any() else 0.0


def _say(promise: Promise, new: int, console: Console) -> None:
    plain = "The final softmax cannot promise that."
    if promise.plain is not None:
        plain = (
            f"The final softmax would accept {promise.plain:.1%} under the same promise "
            f"({promise.plain_wrong:.1%} of these are wrong)."
        )
    for line in (
        f"Chosen:    {promise.reason}.",
        f"Promised:  at most {RISK:.0%} of the accepted answers are wrong. It accepts "
        f"{promise.held_out:.1%} of the words that the promise is made on.",
        f"Checked:   of {new:,} words that nothing was fitted on, it accepts "
        f"{promise.accepted:.1%} ({promise.wrong:.1%} of these are wrong) and sends the rest to "
        "review.",
        f"Without:   {plain}",
    ):
        console.print(f"         {line}", highlight=False, soft_wrap=True)


def _page(folder: Path, tables: Sequence[ScoreTable], texts: Sequence[str]) -> Path:
    """Write the page about the words that predictors are fitted on: it says what `fit` says."""
    named = {f"seed {seed}": table for seed, table in zip(SEEDS, tables, strict=True)}
    origin = {"command": f"snapsure demo --out {folder}"}
    for name, table in named.items():
        origin |= origin_of(table, name)
    rows, _ = _halve(tables[0])
    return Report(
        {name: table.rows(rows) for name, table in named.items()},
        risk=RISK,
        texts=[texts[row] for row in rows],
        classes=list(LANGUAGES.values()),
        origin=origin,
        title="Which words can be trusted?",
    ).save(folder / "report.html")


def _say_what_next(folder: Path, console: Console) -> None:
    command = _command()
    console.print(
        f"\nAsk it about other words:\n"
        f"  {command} demo butterfly papillon --out {shlex.quote(str(folder))}\n"
        f"The same for your own checkpoints (`{command} COMMAND --help` says what each takes):\n"
        f"  {command} score --model mypackage.nets:make --snapshots checkpoints/ --data test.npz "
        "--out scores\n"
        f"  {command} fit scores --risk {RISK} --out predictor\n"
        f"  {command} predict predictor --data new.npz --out answers.csv",
        highlight=False,
        soft_wrap=True,
        markup=False,
    )


def _command() -> str:
    """What to type to run this again: a virtual environment need not be on the path."""
    started = Path(sys.argv[0])
    if started.name != "snapsure" or shutil.which("snapsure") == str(started.absolute()):
        return "snapsure"
    return shlex.quote(sys.argv[0])
