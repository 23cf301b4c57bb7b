"""Compare methods on the same examples, choose one, and read the results."""

from snapsure.evaluation._choose import Choice as Choice
from snapsure.evaluation._choose import choose as choose
from snapsure.evaluation._compare import compare as compare
from snapsure.evaluation._evaluate import confidences as confidences
from snapsure.evaluation._evaluate import evaluate as evaluate
from snapsure.evaluation._protocol import Folds as Folds
from snapsure.evaluation._protocol import Halves as Halves
from snapsure.evaluation._protocol import Protocol as Protocol
from snapsure.evaluation._protocol import Splits as Splits
from snapsure.evaluation._results import Board as Board
from snapsure.evaluation._results import Comparison as Comparison
from snapsure.evaluation._results import Result as Result
from snapsure.evaluation._run import Rival as Rival
from snapsure.evaluation._run import Run as Run
from snapsure.evaluation._trajectories import Trajectories as Trajectories
from snapsure.evaluation._trajectories import trajectories as trajectories
