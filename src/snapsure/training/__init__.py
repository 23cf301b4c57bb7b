"""Train networks with better confidence: losses, and a student of all snapshots."""

from snapsure.training._losses import CorrectnessRanking as CorrectnessRanking
from snapsure.training._losses import Numbered as Numbered
from snapsure.training._losses import PointLoss as PointLoss
from snapsure.training._losses import SelfAdaptive as SelfAdaptive
from snapsure.training._student import Difference as Difference
from snapsure.training._student import Student as Student
