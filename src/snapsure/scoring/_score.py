"""`score`: the way from snapshots to a score table."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import nn

from snapsure.errors import InvalidInput
from snapsure.kappas._base import Kappa
from snapsure.kappas._softmax import SoftmaxResponse
from snapsure.scoring._executor import Executor, LocalExecutor
from snapsure.scoring._plan import Plan, make_plan
from snapsure.snapshots._base import Snapshots
from snapsure.table import ScoreTable


def score(
    model: nn.Module,
    snapshots: Snapshots | str | Path,
    data: Any,
    kappas: Kappa | Sequence[Kappa] | None = None,
    *,
    out: str | Path | None = None,
    executor: Executor | None = None,
    batch_size: int | None = None,
    overwrite: bool = False,
    progress: bool = True,
) -> ScoreTable:
    """Score every point with every snapshot, one forward pass serving all κ.

    The final snapshot comes first: it gives y_hat, the prediction that every κ speaks of. The model
    is copied; the one handed in keeps its weights, mode, device and hooks.

    Parameters
    ----------
    model : nn.Module
        A network of the snapshots' architecture that maps a batch to logits. It runs where it is,
        or on an accelerator if there is one.
    snapshots : SnapshotStore or path
        The training's snapshots, or a folder of checkpoints that another tool left (see
        `SnapshotStore.adopt`); several trainings together as an `Ensemble`, or some of the
        snapshots by `.select`.
    data : DataLoader, Dataset, (inputs, labels) or inputs
        The points, in a fixed order. Labels may be missing.
        A label of −1 says that a point belongs to none of the classes: every answer is wrong.
    kappas : Kappa or sequence of them, optional
        `SoftmaxResponse()` if not given. Others:
        `SoftmaxResponse()`, `NNDistance(train)`, `MCDropout()`, ...
    out : path, optional
        A folder for the table. Interrupted, the same call resumes where it stopped. What is there
        already is compared with the data, which is read for that (no network runs), and refused
        if it is of other inputs, snapshots, κ functions, or code of the model. A run that fails
        before anything is scored leaves it as it was.
    executor : LocalExecutor or RayExecutor, optional
        Who does the work; this process if not given. It changes no byte of the table
        (on as many threads).
    batch_size : int, optional
        Rows per forward pass, for data that does not say it; 256 if not given. It may change the
        last bit of a score.
    overwrite : bool
        Replace the scores of something else that `out` may hold; files that scoring did not write
        stay. Scores of the same are resumed, as always.
    progress : bool
        Show a bar with the time left.

    Returns
    -------
    ScoreTable

    Raises
    ------
    InvalidInput
        For data that shuffles or changes its length, a κ that the model cannot serve, a folder with
        scores of other inputs.
    WrongArchitecture, CorruptFile
        For a snapshot that does not fit or is damaged.
    ScoringFailed
        By Ray, instead of these: for pieces that failed at every try, when all others are done.
    """
    if out is None:
        with tempfile.TemporaryDirectory(prefix="snapsure-") as passing:
            return score(
                model,
                snapshots,
                data,
                kappas,
                out=passing,
                executor=executor,
                batch_size=batch_size,
                progress=progress,
            )
    folder = Path(out)
    new = not folder.exists()
    executor = LocalExecutor() if executor is None else executor
    if not isinstance(executor, Executor):
        raise InvalidInput(
            f"`executor` must be an Executor, got {executor!r}: pass LocalExecutor() or "
            "RayExecutor()"
        )
    wanted = SoftmaxResponse() if kappas is None else kappas
    plan = None
    try:
        plan = make_plan(
            model,
            snapshots,
            data,
            wanted,
            folder,
            executor.group,
            batch_size=batch_size,
            overwrite=overwrite,
        )
        _run(plan, model, executor, overwrite=overwrite, shown=progress)
    except BaseException:  # a run that has scored nothing leaves nothing
        if plan is not None:
            plan.claim.release()
        if new:
            with suppress(OSError):
                folder.rmdir()
        raise
    return ScoreTable.open(folder)


def _run(plan: Plan, model: nn.Module, executor: Executor, *, overwrite: bool, shown: bool) -> None:
    """Do what is missing of a plan."""
    todo = plan.todo()
    known = plan.begun() if overwrite else plan.finished(todo)
    if known:
        rows = sum(plan.table.shards[shard] for shard in known)
        try:
            with bar("checking", rows, 0, shown=shown) as advance:
                plan.check_inputs(known, advance)
        except InvalidInput:
            if not overwrite:
                raise
            plan.claim.clear()
            todo = plan.todo()
    if todo:
        if plan.claim.replaces and not isinstance(executor, LocalExecutor):
            plan.claim.take()  # of several processes, one would remove what another has scored
        total = len(plan.epochs) * plan.data.n * len(plan.members)
        done = total - sum(map(plan.rows, todo))
        with bar("scoring", total, done, shown=shown) as advance:
            executor.run(plan, model, todo, advance)
    plan.finish()


@contextmanager
def bar(what: str, total: int, done: int, *, shown: bool) -> Iterator[Any]:
    """A bar with the time left; gives what is to be told of rows done."""
    columns = (
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("rows ·"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), disable=not shown) as shown_bar:
        task = shown_bar.add_task(what, total=total, completed=done)
        yield lambda rows: shown_bar.advance(task, rows)
