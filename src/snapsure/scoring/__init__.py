"""Snapshots × data × κ functions -> a score table, restartable."""

from snapsure.scoring._score import score

__all__ = ["score"]
