"""Executors do the pieces of a plan. To add one, write a subclass of `Executor`."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import nn

from snapsure import _validate
from snapsure.networks._network import device_named
from snapsure.scoring._plan import Piece, Plan
from snapsure.scoring._queue import Queue
from snapsure.scoring._worker import Worker


class Executor(ABC):
    """Do all pieces of a plan, each once.

    Examples
    --------
    >>> isinstance(LocalExecutor(), Executor)
    True
    """

    @property
    @abstractmethod
    def group(self) -> int | None:
        """Snapshots per pass over the data; None leaves it to the plan."""

    @abstractmethod
    def run(
        self, plan: Plan, model: nn.Module, todo: Sequence[Piece], advance: Callable[[int], None]
    ) -> None:
        """Do all of `todo`, in an order that a `Queue` allows.

        Give the queue what `Worker.do` returns. Call `advance` with the number of rows as they are
        scored.
        """

    @staticmethod
    def queue(plan: Plan, todo: Sequence[Piece], width: int = 1) -> Queue:
        """Return a queue that allows `width` groups of snapshots to be prepared at once."""
        return Queue(plan, todo, width)

    @staticmethod
    def worker(plan: Plan, model: nn.Module, device: torch.device | None = None) -> Worker:
        """Return a worker for this process, on a device or the best there is."""
        return Worker(plan, model, device)


class LocalExecutor(Executor):
    """Do one piece after the other in this process. Errors are raised at once.

    Parameters
    ----------
    group : int, optional
        Snapshots per pass over the data, which is then read and decoded once for all of them. Each
        is a copy of the network in memory, and members of an ensemble count one by one. By default
        8, or fewer where their weights would take more than 1 GiB.
    device : str or torch.device, optional
        Where networks run: "cpu", "cuda:1", "mps". By default, where the model is, or on an
        accelerator if there is one.

    Examples
    --------
    >>> LocalExecutor(group=4, device="cpu").group
    4
    """

    def __init__(
        self, group: int | None = None, *, device: str | torch.device | None = None
    ) -> None:
        self._group = None if group is None else _validate.count(group, "group")
        self._device = device_named(device)

    @property
    def group(self) -> int | None:
        """Snapshots per pass over the data."""
        return self._group

    def run(
        self, plan: Plan, model: nn.Module, todo: Sequence[Piece], advance: Callable[[int], None]
    ) -> None:
        """Do the pieces in the order given."""
        worker, queue = self.worker(plan, model, self._device), self.queue(plan, todo)
        while piece := queue.next():
            queue.done(piece, worker.do(piece, advance))
