"""κ functions: what a network's confidence in its final prediction is, one file each."""

from snapsure.kappas._base import Kappa as Kappa
from snapsure.kappas._deep_knn import DeepKNN as DeepKNN
from snapsure.kappas._doctor import Doctor as Doctor
from snapsure.kappas._energy import Energy as Energy
from snapsure.kappas._entropy import Entropy as Entropy
from snapsure.kappas._gen import GEN as GEN
from snapsure.kappas._margin import Margin as Margin
from snapsure.kappas._max_logit import MaxLogit as MaxLogit
from snapsure.kappas._mc_dropout import MCDropout as MCDropout
from snapsure.kappas._nn_distance import NNDistance as NNDistance
from snapsure.kappas._softmax import SoftmaxResponse as SoftmaxResponse
