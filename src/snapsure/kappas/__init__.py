"""κ functions: how confident a network is in the final prediction."""

from snapsure.kappas._base import Kappa as Kappa
from snapsure.kappas._logits import GEN as GEN
from snapsure.kappas._logits import Doctor as Doctor
from snapsure.kappas._logits import Energy as Energy
from snapsure.kappas._logits import Entropy as Entropy
from snapsure.kappas._logits import Margin as Margin
from snapsure.kappas._logits import MaxLogit as MaxLogit
from snapsure.kappas._mc_dropout import MCDropout as MCDropout
from snapsure.kappas._neighbours import DeepKNN as DeepKNN
from snapsure.kappas._neighbours import NNDistance as NNDistance
from snapsure.kappas._softmax import SoftmaxResponse as SoftmaxResponse
from snapsure.kappas.registry import register as register
