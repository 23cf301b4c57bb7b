"""The numbers that scoring leaves and everything else works on; how they lie and are packed."""

from snapsure.table._table import ScoreTable as ScoreTable
