"""The whole way on real words: train and record, score, compare, promise, deploy, answer, report.

Nothing is tuned: seeds are 0, 1, 2, and what comes out is reported.
"""

import multiprocessing
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from snapsure import _files
from snapsure.errors import Infeasible, InvalidInput
from snapsure.evaluation import compare
from snapsure.evaluation._result import Board
from snapsure.paper.words import EPOCHS, LANGUAGES, load, network, spelt, train
from snapsure.predictor import Predictor
from snapsure.report.page import Report, origin_of
from snapsure.scoring import score
from snapsure.snapshots import Recorder, SnapshotStore
from snapsure.table import ScoreTable
from snapsure.threshold import Threshold

SEEDS = (0, 1, 2)
RISK = 0.02
SHOWN = ("final", "AES k=30", "PES", "LES", "LES in 3 passes")
ASKED = ("schmetterling", "mañana", "weather", "hand", "radio", "quelque", "villa")
_MARK = ".snapsure-demo"
_FACTORY = "snapsure.paper.words:network"

Tell = Callable[[str], None]


def run(folder: Path, console: Console, tell: Tell) -> None:
    """All of it; what an earlier run has trained and scored is kept."""
    _files.claim(folder, _MARK, "--out", "an earlier demo")
    (folder / _MARK).touch()
    train_words, test_words = load()
    counts = len(train_words.y), len(test_words.y)
    tell(f"{counts[0]:,} words of ten languages to train on, {counts[1]:,} to judge by")
    tables = _scored(folder, console)
    tell(f"{len(SEEDS)} networks trained, every word scored by each of {EPOCHS} snapshots")
    console.print(_board(compare(tables, methods=SHOWN, resamples=1000).boards["data"], tables))
    tell("choosing a method by half of the words, to be judged by the other half")
    _deploy(folder, tables[0], console)
    answer(folder, ASKED, console)
    named = {f"seed {seed}": table for seed, table in zip(SEEDS, tables, strict=True)}
    origin = {"command": f"snapsure demo --out {folder}"}
    for name, table in named.items():
        origin |= origin_of(table, name)
    page = Report(
        named,
        texts=test_words.text.tolist(),
        classes=list(LANGUAGES.values()),
        origin=origin,
        title="Which words can be trusted?",
    ).save(folder / "report.html")
    tell(f"the page to look at: {page}")
    console.print(
        "\nYour own words:        snapsure demo WORD WORD …\n"
        "Your own checkpoints:  snapsure score --model mypackage.nets:make --snapshots runs/first "
        "--data test.npz --out scores\n"
        "                       snapsure fit scores --risk 0.02 --out predictor\n"
        "                       snapsure predict predictor --data new.npz --out answers.csv",
        highlight=False,
        soft_wrap=True,
    )


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
        decision = "accept" if accepted else "hand to a person"
        console.print(
            f"  {word:16} {names[label]:8} {confidence:4.0%} sure to be right: {decision}",
            highlight=False,
        )


def _board(board: Board, tables: Sequence[ScoreTable]) -> Table:
    """Every method beside the final snapshot's softmax."""
    wrong = [table.errors.mean() for table in tables]
    table = Table(
        title=f"Which language is a word from? {np.mean(wrong):.1%} wrong, {len(tables)} networks",
        caption="E-AURC: what the order costs, lower is better; gain: how much less than softmax.",
    )
    for head in ("method", "passes", "E-AURC ×10³", "gain [95 %]", "of each network"):
        table.add_column(head, justify="left" if head == "method" else "right")
    for row in board.rows:
        final = row.method == board.reference
        table.add_row(
            row.method.removesuffix(f" of {board.reference}") if not final else "final softmax",
            f"{row.passes:.0f}",
            f"{1e3 * row.eaurc:.2f}",
            "" if final else "{:+.1f} % ({:+.1f} … {:+.1f})".format(*row.saved),
            "" if final else " ".join(f"{gain:+.0f}" for gain in row.gains if gain is not None),
        )
    return table


def _scored(folder: Path, console: Console) -> list[ScoreTable]:
    """Tables of all seeds, each by a process of its own."""
    stores = [folder / "snapshots" / f"seed-{seed}" for seed in SEEDS]
    # Not forked: after work on several threads, a forked PyTorch hangs.
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(len(SEEDS), mp_context=spawned) as pool, _watched(stores, console):
        paths = list(pool.map(_one_seed, [folder] * len(SEEDS), SEEDS))
    return [ScoreTable.open(path) for path in paths]


def _one_seed(folder: Path, seed: int) -> Path:
    import torch

    torch.set_num_threads(1)  # the seeds share the cores
    train_words, test_words = load()
    store = SnapshotStore(folder / "snapshots" / f"seed-{seed}")
    if store.epochs != list(range(1, EPOCHS + 1)):
        store.rewind(0)
        train(train_words, seed, Recorder(store).record)
    out = folder / f"scores-{seed}"
    score(network(), store, (test_words.x, test_words.y), out=out, progress=False)
    return out


@contextmanager
def _watched(stores: Sequence[Path], console: Console) -> Iterator[None]:
    """A bar of the snapshots that are there, while other processes make them."""
    ended = threading.Event()
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("training", total=EPOCHS * len(stores))

        def watch() -> None:
            while not ended.wait(0.5):
                there = sum(len(list(path.glob("epoch-*.safetensors"))) for path in stores)
                bar.update(task, completed=there)

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def _deploy(folder: Path, table: ScoreTable, console: Console) -> None:
    """A predictor with a promise from half of the words, and whether it is kept on the others."""
    held_out, new = table.split(0.5, seed=1)
    classes = list(LANGUAGES.values())
    predictor = Predictor.fit(
        _FACTORY, folder / "snapshots" / f"seed-{SEEDS[0]}", held_out, risk=RISK, classes=classes
    )
    predictor.save(folder / "predictor")
    assert predictor.threshold is not None
    accepted = predictor.threshold.accepts(predictor.confidence(new))
    wrong = new.errors[accepted].mean() if accepted.any() else 0.0
    console.print(f"  Chosen: {predictor.reason}.", highlight=False, soft_wrap=True)
    console.print(
        f"  Promised: at most {RISK:.0%} of the accepted answers are wrong. Of {new.errors.size:,} "
        f"words that nothing was fitted on it accepts {accepted.mean():.1%}, and {wrong:.1%} of "
        f"these are wrong.\n  {_plain(held_out, new)}",
        highlight=False,
        soft_wrap=True,
    )


def _plain(held_out: ScoreTable, new: ScoreTable) -> str:
    """The same promise by the final snapshot's softmax alone."""
    _, rest = held_out.split(0.5, seed=0)
    try:
        threshold = Threshold.at_risk(rest.kappa("softmax")[-1], rest.errors, RISK)
    except Infeasible:
        return "Plain softmax could promise nothing."
    accepted = threshold.accepts(new.kappa("softmax")[-1])
    return f"Plain softmax would accept {accepted.mean():.1%} for the same promise."
