"""The rooms whose names are public. Each name is written once, in its room's `__init__.py`."""

from snapsure import errors as errors
from snapsure.decisions import *
from snapsure.estimators import *
from snapsure.evaluation import *
from snapsure.kappas import *
from snapsure.metrics import *
from snapsure.networks import *
from snapsure.predictor import *
from snapsure.report import *
from snapsure.scoring import *
from snapsure.snapshots import *
from snapsure.table import ScoreTable as ScoreTable
from snapsure.training import *

__version__: str
