"""`score`: from snapshots to a score table."""

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

from filelock import FileLock, Timeout
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import nn

from snapsure import _files, _validate
from snapsure.errors import InvalidInput
from snapsure.kappas._base import Kappa
from snapsure.networks._network import Output, adapt_output, refuse_no_network
from snapsure.networks._ways import Speed
from snapsure.scoring._average import add_average, check_reference
from snapsure.scoring._executor import Executor, LocalExecutor
from snapsure.scoring._plan import LOCK, Plan, make_plan
from snapsure.snapshots._base import Snapshots
from snapsure.snapshots._lock import NO_LOCKS
from snapsure.snapshots._store import open_snapshots
from snapsure.table import ScoreTable


def score(
    model: nn.Module,
    snapshots: Snapshots | str | Path,
    data: Any,
    kappas: Kappa | Sequence[Kappa] | None = None,
    *,
    output: Output | None = None,
    average: bool = False,
    reference: Any = None,
    out: str | Path | None = None,
    executor: Executor | None = None,
    batch_size: int | None = None,
    overwrite: bool = False,
    speed: Speed = "auto",
    progress: bool = True,
) -> ScoreTable:
    """Score every example with every snapshot; one forward pass serves all κ.

    The final snapshot comes first, because it gives y_hat, the prediction that every κ is about.
    The model is copied; yours keeps its weights, mode, device and hooks.

    Parameters
    ----------
    model : nn.Module
        A network of the snapshots' architecture that maps a batch to logits. It runs where it is,
        or on an accelerator if there is one.
    snapshots : SnapshotStore or path
        The training's snapshots, or a folder of checkpoints of another tool (see
        `SnapshotStore.adopt`). Pass several trainings together as an `Ensemble`, or some of the
        snapshots by `.select`.
    data : DataLoader, Dataset, (inputs, labels) or inputs
        The examples, in a fixed order. Labels may be missing. A label of −1 means that an example
        belongs to none of the classes, so that every answer is wrong.
    kappas : Kappa or sequence of them, optional
        κ functions: `SoftmaxResponse()` (the default), `NNDistance(train)`, `MCDropout()`, ...
    output : str, int or function, optional
        Where the logits are in what the model returns, if it returns more: a name ("logits"), an
        index (0), or a function such as `lambda o: o[0]`.
    average : bool
        Score the averaged weights of the snapshots too, in one more pass, as `.averaged` of the
        table (see `average_weights`). It can be added to scores that `out` holds already.
    reference : optional
        Training examples, in a form of `data` and an order that mixes the classes. Averaged weights
        need them where the model has batch normalisation.
    out : path, optional
        A folder for the table. After an interruption, the same call resumes where it stopped, and
        loses about a minute of work at most. Scores that are there are compared with the data,
        which is read for that (no network runs), and refused if they are of other inputs,
        snapshots, κ functions or code of the model. While one process scores into a folder, others
        wait. A run that fails before anything is scored leaves the folder as it was.
    executor : LocalExecutor or RayExecutor, optional
        Where the work is done; by default in this process. It changes no byte of the table (on the
        same number of threads, and in the same way: see `speed`).
    batch_size : int, optional
        Rows per forward pass, for data without a batch size; 256 by default. It may change the last
        bit of a score.
    overwrite : bool
        Replace scores of something else that `out` may hold. Files that scoring did not write stay.
        Scores of the same are resumed, as always.
    speed : "auto" or "exact"
        "auto": where the work takes more than a second, measure on the first rows whether another
        way to run the same network is faster: "channels_last", or "fused" (batch normalisation and
        ReLU are part of the layer before them, and linear layers are packed). Its logits must be
        within 1e-5 of PyTorch's own; `table.provenance["way"]` names it, and a run that resumes
        keeps it. The same inputs in the same way give the same bytes. "exact": always "eager", as
        PyTorch runs the network.
    progress : bool
        Show a progress bar with the way and the time left.

    Returns
    -------
    ScoreTable

    Raises
    ------
    InvalidInput
        If the data shuffles or changes its length, the model does not fit a κ, or the folder holds
        scores of other inputs.
    WrongArchitecture, CorruptFile
        If a snapshot does not fit or is damaged.
    ScoringFailed
        Instead of these with Ray: for pieces that failed at every try, when all others are done.

    Examples
    --------
    >>> import torch
    >>> from snapsure import Recorder
    >>> model = nn.Linear(3, 2)
    >>> recorder = Recorder(tempfile.mkdtemp())
    >>> for epoch in range(1, 4):  # after each epoch of training
    ...     taken = recorder.record(model, epoch)
    >>> x, y = torch.rand(5, 3), torch.tensor([0, 1, 0, 1, 1])
    >>> table = score(model, recorder.store, (x, y), progress=False)
    >>> table.kappa("softmax").shape  # (snapshots, examples)
    (3, 5)
    """
    executor = LocalExecutor() if executor is None else executor
    if not isinstance(executor, Executor):
        raise InvalidInput(
            f"`executor` must be an Executor, got {executor!r}. Pass LocalExecutor() or "
            "RayExecutor()."
        )
    _validate.choice(speed, get_args(Speed), "speed")
    refuse_no_network(model)
    model = adapt_output(model, output)
    if average:
        check_reference(model, reference)
    with ExitStack() as stack:
        is_temporary = out is None
        if out is None:
            out = stack.enter_context(tempfile.TemporaryDirectory(prefix="snapsure-"))
        folder = _files.check_path(out, "out")
        if not folder.exists():
            stack.push(lambda kind, *_: _remove_if_empty(folder) if kind else None)
        _files.make_writable(folder)
        stack.enter_context(_lock(folder, shows=progress))
        plan = make_plan(
            model,
            snapshots,
            data,
            kappas,
            folder,
            executor.group,
            batch_size=batch_size,
            overwrite=overwrite,
            speed=speed,
            is_temporary=is_temporary,
        )
        stack.push(lambda kind, *_: plan.leave() if kind else None)
        _run(plan, model, executor, overwrite=overwrite, progress=progress)
        if average:
            with bar("averaged weights", plan.data.n, 0, progress=progress) as advance:
                add_average(plan, model, open_snapshots(snapshots, model), reference, advance)
        plan.finish()
        return ScoreTable.open(folder)


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):  # where there is something in it, it stays
        folder.rmdir()


def _run(
    plan: Plan, model: nn.Module, executor: Executor, *, overwrite: bool, progress: bool
) -> None:
    """Do what is missing of a plan, after comparing the data with what is done."""
    todo = plan.todo()
    unfinished = set() if overwrite else {piece.shard for piece in todo}
    inputs = plan.table.layout["inputs"]
    known = [i for i in range(len(plan.bounds)) if str(i) in inputs and i not in unfinished]
    if known:
        rows = sum(plan.table.shards[shard] for shard in known)
        try:
            with bar("checking", rows, 0, progress=progress) as advance:
                plan.check_inputs(known, advance)
        except InvalidInput:
            if not overwrite:
                raise
            plan.clear()
            todo = plan.todo()
    if todo:
        done = plan.rows - sum(map(plan.count_rows, todo))
        with bar(
            lambda: f"scoring ({plan.way})" if plan.way else "scoring",
            plan.rows,
            done,
            progress=progress,
        ) as advance:
            executor.run(plan, model, todo, advance)


@contextmanager
def _lock(folder: Path, *, shows: bool) -> Iterator[None]:
    """Let one process at a time score into a folder; others wait, and find what it has done."""
    lock = FileLock(folder / LOCK, thread_local=False, fallback_to_soft=False)
    try:
        try:
            lock.acquire(timeout=0)
        except Timeout:
            if shows:
                said = f"Another process is scoring into {folder}. Waiting for it to end."
                sys.stderr.write(f"{said}\n")
            lock.acquire()
    except OSError as error:
        if error.errno not in NO_LOCKS:  # without locks, two processes must not score there
            raise _files.cannot_write(f"to {folder}", error) from None
    try:
        yield
    finally:
        if lock.is_locked:
            with suppress(OSError):
                (folder / LOCK).unlink()  # whoever waits notices, and makes a new one
            lock.release()


@contextmanager
def bar(
    what: str | Callable[[], str], total: int, done: int, *, progress: bool
) -> Iterator[Callable[[int], None]]:
    """Show a progress bar with the time left; yield a function that counts rows."""
    if not progress:
        yield lambda rows: None
        return
    describe = what if callable(what) else lambda: what
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("·"),
        TimeRemainingColumn(),
    )
    # In a notebook without ipywidgets, Rich would warn; as text, the bar appears once at the end.
    console = Console(stderr=True, force_jupyter=None if find_spec("ipywidgets") else False)
    with Progress(*columns, console=console) as shown:
        task = shown.add_task(describe(), total=total, completed=done)
        yield lambda rows: shown.update(task, advance=rows, description=describe())
