"""Every way to a confidence, on the same points: one list of methods, one way to judge them."""

from snapsure.evaluation._choose import Choice as Choice
from snapsure.evaluation._choose import choose as choose
from snapsure.evaluation._compare import compare as compare
from snapsure.evaluation._confidences import confidences as confidences
from snapsure.evaluation._evaluate import evaluate as evaluate
from snapsure.evaluation._protocol import Halves as Halves
from snapsure.evaluation._protocol import Protocol as Protocol
from snapsure.evaluation._protocol import Splits as Splits
from snapsure.evaluation._result import Board as Board
from snapsure.evaluation._result import Comparison as Comparison
from snapsure.evaluation._result import Result as Result
from snapsure.evaluation._run import Run as Run
from snapsure.evaluation._trajectories import trajectories as trajectories
