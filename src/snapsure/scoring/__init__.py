"""Snapshots × data × κ functions -> a score table, restartable."""

from snapsure.scoring._average import average_weights
from snapsure.scoring._executor import LocalExecutor
from snapsure.scoring._ray import RayExecutor
from snapsure.scoring._score import score

__all__ = ["LocalExecutor", "RayExecutor", "average_weights", "score"]
