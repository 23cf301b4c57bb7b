"""Snapshots of a network during training: when to take them, and where they lie."""

from snapsure.snapshots._recorder import Recorder
from snapsure.snapshots._schedule import Budget, Evenly, EveryEpoch
from snapsure.snapshots._store import SnapshotStore

__all__ = ["Budget", "Evenly", "EveryEpoch", "Recorder", "SnapshotStore"]
