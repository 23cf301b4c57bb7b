"""A trained network, its score table in two halves, and estimators fitted on one of them."""

from types import SimpleNamespace

import pytest
import torch

from snapsure import AES, LES, PES, Platt, SoftmaxResponse, Threshold, score
from snapsure.estimators import BestSnapshot, Final

ESTIMATORS = [Final(), AES(k=3), BestSnapshot(), PES(), LES(k=4), LES(passes=1)]


@pytest.fixture(scope="session")
def deployed(digits):
    """What is needed to deploy the network of digits."""
    x, y = digits.test
    chance = torch.Generator().manual_seed(0)
    wrong = torch.rand(len(y), generator=chance) < 0.3  # errors enough to learn from
    y = torch.where(wrong, (y + 1) % 10, y)
    table = score(digits.model(), digits.store, (x, y), SoftmaxResponse(), progress=False)
    learn, rest = table.split(0.5)
    return SimpleNamespace(digits=digits, table=table, learn=learn, rest=rest, x=x, y=y)


def fitted(estimator, deployed, risk=0.1):
    """The estimator, Platt's curve where it gives no probability, and a threshold."""
    made = type(estimator)(**estimator.settings).fit(deployed.learn)
    platt = None
    confidence = made.confidence(deployed.rest)
    if not made.calibrated:
        platt = Platt().fit(made.confidence(deployed.learn), deployed.learn.errors)
        confidence = platt.predict_proba(confidence)
    threshold = Threshold.at_coverage(confidence, 0.7)
    return made, platt, threshold
