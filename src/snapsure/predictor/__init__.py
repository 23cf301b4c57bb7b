"""What is deployed: for a new input a label, a confidence, and whether to accept it."""

from snapsure.predictor._predictor import Answer as Answer
from snapsure.predictor._predictor import Predictor as Predictor
