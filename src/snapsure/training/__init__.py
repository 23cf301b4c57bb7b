"""Losses that keep a network's confidence honest while it trains."""

from snapsure.training._correctness_ranking import CorrectnessRanking as CorrectnessRanking
from snapsure.training._self_adaptive import SelfAdaptive as SelfAdaptive
