"""The rooms whose names are public. Each name is written once, in its room's `__init__.py`."""

from snapsure import errors as errors
from snapsure.calibration import Platt as Platt
from snapsure.estimators import *
from snapsure.evaluation import *
from snapsure.metrics import *
from snapsure.monitor import Monitor as Monitor
from snapsure.networks import *
from snapsure.predictor import *
from snapsure.report import *
from snapsure.scores import *
from snapsure.scoring import *
from snapsure.snapshots import *
from snapsure.table import ScoreTable as ScoreTable
from snapsure.threshold import Threshold as Threshold
from snapsure.training import *

__version__: str
