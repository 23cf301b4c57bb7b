"""Networks that know better how sure they may be: losses, and a student of all snapshots."""

from snapsure.training._correctness_ranking import CorrectnessRanking as CorrectnessRanking
from snapsure.training._difference import Difference as Difference
from snapsure.training._history import Numbered as Numbered
from snapsure.training._self_adaptive import SelfAdaptive as SelfAdaptive
from snapsure.training._student import Student as Student
