"""κ functions: what a network's confidence in its final prediction is, one file each."""

from snapsure.scores._deep_knn import DeepKNN
from snapsure.scores._doctor import Doctor
from snapsure.scores._energy import Energy
from snapsure.scores._ensemble import Ensemble
from snapsure.scores._entropy import Entropy
from snapsure.scores._margin import Margin
from snapsure.scores._max_logit import MaxLogit
from snapsure.scores._mc_dropout import MCDropout
from snapsure.scores._nn_distance import NNDistance
from snapsure.scores._softmax import SoftmaxResponse

__all__ = [
    "DeepKNN",
    "Doctor",
    "Energy",
    "Ensemble",
    "Entropy",
    "MCDropout",
    "Margin",
    "MaxLogit",
    "NNDistance",
    "SoftmaxResponse",
]
