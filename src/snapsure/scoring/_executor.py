"""Who does the pieces of a plan. To add one: a file with a subclass of `Executor`."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from torch import nn

from snapsure.scoring._plan import Piece, Plan
from snapsure.scoring._worker import Worker


class Executor(ABC):
    """Does pieces, each once, writing into the plan's folder."""

    @abstractmethod
    def run(
        self, plan: Plan, model: nn.Module, todo: Sequence[Piece], advance: Callable[[int], None]
    ) -> None:
        """Do all of `todo`; the final snapshot's pieces must be written before others start.

        `advance` is told of rows as they are scored.
        """


class LocalExecutor(Executor):
    """The process itself, one piece after the other."""

    def run(
        self, plan: Plan, model: nn.Module, todo: Sequence[Piece], advance: Callable[[int], None]
    ) -> None:
        """In the order given."""
        worker = Worker(plan, model)
        for piece in todo:
            worker.do(piece, advance)
