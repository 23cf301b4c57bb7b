"""(κ, losses) -> numbers: curves, areas, probabilities and their intervals, with NumPy alone."""

from snapsure.metrics._areas import augrc, aurc, aurc_optimal, eaurc, naurc
from snapsure.metrics._bootstrap import Interval, bootstrap, bootstrap_difference
from snapsure.metrics._curve import RCCurve, coverage_at_risk, rc_curve, risk_at_coverage
from snapsure.metrics._probability import brier, ece, nll
from snapsure.metrics._sketch import RiskCoverageSketch

__all__ = [
    "Interval",
    "RCCurve",
    "RiskCoverageSketch",
    "augrc",
    "aurc",
    "aurc_optimal",
    "bootstrap",
    "bootstrap_difference",
    "brier",
    "coverage_at_risk",
    "eaurc",
    "ece",
    "naurc",
    "nll",
    "rc_curve",
    "risk_at_coverage",
]
