"""Snapshots × data × κ functions -> a score table, restartable."""

from snapsure.scoring._average import average_weights as average_weights
from snapsure.scoring._executor import Executor as Executor
from snapsure.scoring._executor import LocalExecutor as LocalExecutor
from snapsure.scoring._ray import RayExecutor as RayExecutor
from snapsure.scoring._score import score as score
