"""Decide what to accept: thresholds with a promise, calibration, and an alarm in service."""

from snapsure.decisions._alarm import Alarm as Alarm
from snapsure.decisions._binomial import upper_bound as upper_bound
from snapsure.decisions._calibration import Platt as Platt
from snapsure.decisions._calibration import PlattState as PlattState
from snapsure.decisions._monitor import Monitor as Monitor
from snapsure.decisions._threshold import Threshold as Threshold
from snapsure.decisions._threshold import ThresholdState as ThresholdState
