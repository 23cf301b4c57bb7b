"""κ functions: what a network's confidence in its final prediction is, one file each."""

from snapsure.scores._ensemble import Ensemble
from snapsure.scores._mc_dropout import MCDropout
from snapsure.scores._nn_distance import NNDistance
from snapsure.scores._softmax import SoftmaxResponse

__all__ = ["Ensemble", "MCDropout", "NNDistance", "SoftmaxResponse"]
