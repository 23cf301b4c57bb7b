"""Snapshots × data × κ functions -> a score table, restartable."""

from snapsure.scoring._executor import LocalExecutor
from snapsure.scoring._score import score

__all__ = ["LocalExecutor", "score"]
