"""(κ, losses) -> numbers: curves, areas, probabilities and their intervals, with NumPy alone.

Throughout, κ is higher for more confident answers, and losses are lower for better ones.
"""

from snapsure.metrics._areas import augrc as augrc
from snapsure.metrics._areas import aurc as aurc
from snapsure.metrics._areas import aurc_optimal as aurc_optimal
from snapsure.metrics._areas import eaurc as eaurc
from snapsure.metrics._areas import naurc as naurc
from snapsure.metrics._curve import RCCurve as RCCurve
from snapsure.metrics._curve import coverage_at_risk as coverage_at_risk
from snapsure.metrics._curve import rc_curve as rc_curve
from snapsure.metrics._curve import risk_at_coverage as risk_at_coverage
from snapsure.metrics._intervals import Interval as Interval
from snapsure.metrics._intervals import bootstrap as bootstrap
from snapsure.metrics._intervals import bootstrap_difference as bootstrap_difference
from snapsure.metrics._probability import brier as brier
from snapsure.metrics._probability import ece as ece
from snapsure.metrics._probability import nll as nll
from snapsure.metrics._sketch import RiskCoverageSketch as RiskCoverageSketch
