"""Do pieces as tasks of Ray, on the cores of this machine or on those of a cluster."""

# mypy: allow-untyped-calls
# (Ray has types for half of what it exports.)

import copy
import importlib.util
import logging
import os
import platform
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import torch
from torch import nn

from snapsure import _validate
from snapsure.errors import InvalidInput
from snapsure.networks._network import copy_network
from snapsure.networks._ways import Way
from snapsure.scoring._executor import Executor, Queue, Worker
from snapsure.scoring._plan import Done, Piece, Plan

_CLUSTER = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"  # whether a Ray is for other machines too
# Pieces handed to Ray for each that can run: no worker waits, and a cluster that grows on demand
# sees that there is some.
_AHEAD = 2
_PATIENCE = 10  # seconds for a cluster to answer
# How gRPC, which Ray speaks, opens a connection: the preface of HTTP/2 and an empty SETTINGS frame.
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


class RayExecutor(Executor):
    """Do the work on a cluster, or on all cores of this machine, with Ray.

    The table is the same to the byte as with `LocalExecutor`, if that computes on as many threads
    (`torch.set_num_threads(num_cpus)`), on the same kind of processor and in the same way, which
    one worker chooses for all (`speed` of `score`). Workers need snapsure, the modules that define
    the model and the data, and the same file system: the snapshots, the files of the data, and
    `out`. The model and the data are sent to each worker once, so large data should be read from
    files.

    Work of a worker or node that dies is done again elsewhere. A piece that fails at every try is
    named in an error when all others are done. Each worker gets a GPU if the cluster has any. On a
    Ray that was running before, workers keep their networks until Ray ends or needs the memory.

    Parameters
    ----------
    address : str, optional
        Of a cluster, as `ray.init` takes it: "auto", "host:port", "ray://host:port". If not given,
        the Ray that this process is connected to, or that RAY_ADDRESS names, or one on this machine
        that ends with the scoring, and that no other machine can reach.
    group : int, optional
        Snapshots per pass over the data, as in `LocalExecutor`.
    retries : int
        How often a piece is tried again, also after its worker or node has died.
    num_cpus : int
        Cores, and threads, of each worker.

    Raises
    ------
    ModuleNotFoundError
        If Ray is not installed.

    Examples
    --------
    >>> executor = RayExecutor(group=4, num_cpus=2)  # for score(..., executor=executor)
    >>> executor.group
    4
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        group: int | None = None,
        retries: int = 3,
        num_cpus: int = 1,
    ) -> None:
        if importlib.util.find_spec("ray") is None:
            raise ModuleNotFoundError(
                "snapsure.scoring.RayExecutor needs Ray, which is not installed: "
                "pip install 'snapsure[ray]'",
                name="ray",
            )
        self._address = address
        self._group = None if group is None else _validate.count(group, "group")
        self._retries = _validate.count(retries, "retries", least=0)
        self._num_cpus = _validate.count(num_cpus, "num_cpus")

    @property
    def group(self) -> int | None:
        """Snapshots per pass over the data."""
        return self._group

    def run(
        self, plan: Plan, model: nn.Module, todo: Sequence[Piece], advance: Callable[[int], None]
    ) -> None:
        """Do the pieces on all workers; `advance` counts the rows of each when it is done."""
        import ray

        with _connect(self._address):
            needs = {"CPU": self._num_cpus, "GPU": int("GPU" in ray.cluster_resources())}
            task = ray.remote(_do).options(
                num_cpus=needs["CPU"],
                num_gpus=needs["GPU"],
                max_retries=0,  # retries of Ray itself never end where memory is too small
            )
            theirs = copy.copy(plan)
            theirs.is_driver = False
            job = _pack(_Job(theirs, copy_network(model).cpu(), Path.cwd(), self._num_cpus))
            place, queue = ray.put(job), self.queue(plan, todo)
            if plan.way is None:  # measured where the work is done, once for all workers
                chosen: Any = task.remote([place], None, None)
                plan.way = "eager"  # if the worker that measures is lost
                with suppress(ray.exceptions.RayError):
                    plan.way = ray.get(chosen)
            plan.begin()
            way = plan.way
            for piece in self._run_all(queue, lambda p: task.remote([place], p, way), needs):
                advance(plan.count_rows(piece))
            queue.close()

    def _run_all(
        self, queue: Queue, submit: Callable[[Piece], Any], needs: dict[str, int]
    ) -> Iterator[Piece]:
        """Keep the cluster busy with what may start, and yield the pieces that are done."""
        import ray

        running: dict[Any, Piece] = {}
        failures = Counter[Piece]()
        try:
            while True:
                there = ray.cluster_resources()
                room = [int(there.get(kind, 0) // n) for kind, n in needs.items() if n]
                queue.width = max(1, min(room))
                while len(running) < _AHEAD * queue.width and (piece := queue.next()):
                    running[submit(piece)] = piece
                if not running:
                    return
                (ref,), _ = ray.wait([*running], num_returns=1)
                piece = running.pop(ref)
                try:
                    done = ray.get(ref)
                except ray.exceptions.RayError as error:
                    failures[piece] += 1
                    if failures[piece] <= self._retries:
                        running[submit(piece)] = piece
                    else:
                        cause = getattr(error, "cause", None) or error
                        lines = str(cause).strip().splitlines() or [""]
                        queue.failed(piece, f"{type(cause).__name__}: {lines[0]}")
                else:
                    queue.done(piece, done)
                    yield piece
        finally:
            for ref in running:
                ray.cancel(ref, force=True)


@dataclass(frozen=True)
class _Job:
    """What a worker needs to know. It is sent once; a piece is then a few numbers."""

    plan: Plan
    model: nn.Module
    home: Path
    threads: int

    def worker(self) -> Worker:
        """Return a worker for this process."""
        if self.home.is_dir():  # paths mean here what they mean where scoring was started
            os.chdir(self.home)
        if not (self.home / self.plan.folder).is_dir():
            raise InvalidInput(
                "`out` must be a folder that every worker sees, got "
                f"{self.home / self.plan.folder}, which {platform.node()} does not. "
                "Choose one on a file system that the nodes share."
            )
        torch.set_num_threads(self.threads)
        return Worker(self.plan, self.model)


# One per process: networks stay loaded from piece to piece.
_workers: dict[str, Worker] = {}


def _do(job: list[Any], piece: Piece | None, way: Way | None) -> Done | Way:
    """Do a piece, or choose a way without one, in a worker's process.

    The list keeps Ray from sending the job every time.
    """
    import ray
    from ray import cloudpickle

    key = job[0].hex()
    if key not in _workers:
        _workers.clear()
        _workers[key] = cloudpickle.loads(ray.get(job[0])).worker()
    worker = _workers[key]
    return worker.choose() if piece is None else worker.do(piece, lambda rows: None, way)


def _pack(job: _Job) -> bytes:
    from ray import cloudpickle

    try:
        packed: bytes = cloudpickle.dumps(job)
    except Exception as error:  # whatever objects of others raise when they are pickled
        raise InvalidInput(
            "`model`, `data` and `kappas` must be such that pickle can send them to workers, got "
            f"an error ({error}). Open files and connections when they are first used."
        ) from None
    return packed


@contextmanager
def _connect(address: str | None) -> Iterator[None]:
    """Connect to Ray, and disconnect afterwards if there was no connection before."""
    import ray

    if ray.is_initialized():
        own = ray.get_runtime_context().gcs_address
        if address not in (None, "auto", own):
            raise InvalidInput(
                f"`address` must be that of the Ray that this process is connected to, {own}, got "
                f"{address!r}. Leave it out, or call ray.shutdown() first."
            )
        yield
        return
    place = address or os.environ.get("RAY_ADDRESS") or "local"
    quiet: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False}
    try:
        where = urlsplit(place if "://" in place else f"//{place}")
        if where.scheme == "ray":
            import grpc  # noqa: F401
        if where.port:  # Ray itself waits for minutes where nobody answers
            with socket.create_connection((where.hostname, where.port), _PATIENCE) as line:
                line.sendall(_HELLO)
                line.recv(1)
        with _listen_locally() if place == "local" else nullcontext():
            ray.init(place, logging_level=logging.ERROR, **({} if "://" in place else quiet))
    except ImportError as error:
        raise InvalidInput(
            f"`address` must be one that Ray can reach with what is installed, got {place!r} "
            f"({str(error).splitlines()[0]}). Install its client: pip install 'ray[client]'."
        ) from None
    except (OSError, RuntimeError, ValueError) as error:
        raise InvalidInput(
            f"`address` must be that of a Ray cluster, got {place!r} "
            f"({str(error).splitlines()[0]}). Start one by `ray start --head`, or leave it out."
        ) from None
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _listen_locally() -> Iterator[None]:
    """Let a Ray that is started listen to this machine alone, as on macOS and Windows.

    On Linux it listens to all networks unless its switch for these two is set. A switch that the
    user has set is not changed.
    """
    from ray._private import ray_constants

    if _CLUSTER in os.environ:
        yield
        return
    before = ray_constants.ENABLE_RAY_CLUSTER  # read when Ray was imported
    os.environ[_CLUSTER], ray_constants.ENABLE_RAY_CLUSTER = "0", False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before
        del os.environ[_CLUSTER]
