"""Is the promise still kept? Two alarms on a stream of answers, in fixed memory."""

from snapsure.monitor._alarm import Alarm as Alarm
from snapsure.monitor._monitor import Monitor as Monitor
