"""Snapshots of a network during training: when to take them, and where they are kept."""

from snapsure.snapshots._base import Snapshots as Snapshots
from snapsure.snapshots._ensemble import Ensemble as Ensemble
from snapsure.snapshots._recorder import Recorder as Recorder
from snapsure.snapshots._schedule import Budget as Budget
from snapsure.snapshots._schedule import Evenly as Evenly
from snapsure.snapshots._schedule import EveryEpoch as EveryEpoch
from snapsure.snapshots._schedule import Schedule as Schedule
from snapsure.snapshots._store import SnapshotStore as SnapshotStore
