"""κ functions: what a network's confidence in its final prediction is, one file each."""

from snapsure.scores._base import Kappa as Kappa
from snapsure.scores._deep_knn import DeepKNN as DeepKNN
from snapsure.scores._doctor import Doctor as Doctor
from snapsure.scores._energy import Energy as Energy
from snapsure.scores._entropy import Entropy as Entropy
from snapsure.scores._gen import GEN as GEN
from snapsure.scores._margin import Margin as Margin
from snapsure.scores._max_logit import MaxLogit as MaxLogit
from snapsure.scores._mc_dropout import MCDropout as MCDropout
from snapsure.scores._nn_distance import NNDistance as NNDistance
from snapsure.scores._softmax import SoftmaxResponse as SoftmaxResponse
