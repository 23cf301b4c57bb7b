"""Decide which answers to accept: thresholds with a promise, calibration, and alarms in service."""

from snapsure.decisions._calibration import Platt as Platt
from snapsure.decisions._calibration import PlattState as PlattState
from snapsure.decisions._monitor import Alarm as Alarm
from snapsure.decisions._monitor import Monitor as Monitor
from snapsure.decisions._promise import upper_bound as upper_bound
from snapsure.decisions._threshold import Threshold as Threshold
from snapsure.decisions._threshold import ThresholdState as ThresholdState
