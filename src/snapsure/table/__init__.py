"""The score table: what scoring computes and everything else works on."""

from snapsure.table._table import Averaged as Averaged
from snapsure.table._table import ScoreTable as ScoreTable
