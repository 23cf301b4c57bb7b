"""Accept or hand to a person: for a share of the points, for a promised risk, or for costs."""

from snapsure.threshold._binomial import upper_bound as upper_bound
from snapsure.threshold._threshold import Threshold as Threshold
