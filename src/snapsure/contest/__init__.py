"""Every way to a confidence, on the same checkpoints: who ranks best, at which price."""

from snapsure.contest._compare import compare
from snapsure.contest._comparison import Comparison
from snapsure.contest._run import Run

__all__ = ["Comparison", "Run", "compare"]
