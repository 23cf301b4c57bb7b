"""What MC-dropout tells of: another rate, and a variance that ranks against the mean."""

import warnings

import numpy as np
import pytest
import torch

from snapsure import MCDropout
from snapsure.testing import kappa_of
from tests.support.dropout import PASSES, two_dropouts


def told(*kappas, model, rows=120, batch=256, y_hat=None):
    """Every warning of scoring, and nothing else."""
    inputs = torch.randn(rows, 5, generator=torch.Generator().manual_seed(0))
    y_hat = np.zeros(rows, int) if y_hat is None else y_hat(inputs)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for kappa in kappas:
            kappa_of(kappa, model, inputs, y_hat, batch_size=batch)
    return [str(one.message) for one in caught]


def test_another_rate_than_the_models_own_is_told_once():
    kappa = MCDropout(3, 0.5)
    assert told(kappa, kappa, model=two_dropouts(), batch=10) == [
        "`p` should be the rate that the model was trained with, got 0.5 where dropout '1' has "
        "0.1: leave it out to keep each dropout's own"
    ]
    (sentence,) = told(MCDropout(3, 0.2), model=two_dropouts())
    assert "got 0.2 where dropout '1' has 0.1 and 1 more: leave" in sentence
    for kappa in (MCDropout(3), MCDropout(3, 0.5, "last"), MCDropout(3, 0.1, ["1"])):
        assert told(kappa, model=two_dropouts()) == []


def scaled(factor, rate):
    """A network as sure as its factor is large, with its answers."""
    torch.manual_seed(0)
    model = two_dropouts()
    model[1].p = model[3].p = rate
    with torch.no_grad():
        model[4].weight *= factor
    return model, lambda inputs: model.eval()(inputs).argmax(dim=1).numpy()


def reference_correlation(model, y_hat, rows):
    """Spearman's, of mean and κ by variance; and how many means are below ½."""
    inputs = torch.randn(rows, 5, generator=torch.Generator().manual_seed(0))
    answers = y_hat(inputs)
    mean, variance = (
        kappa_of(MCDropout(PASSES, statistic=statistic), model, inputs, answers)
        for statistic in ("mean", "variance")
    )
    ranks = mean.argsort().argsort(), variance.argsort().argsort()
    return np.corrcoef(*ranks)[0, 1], (mean < 0.5).mean()


@pytest.mark.filterwarnings("ignore:MCDropout's variance")
def test_variance_against_the_mean_is_told_once():
    model, y_hat = scaled(8, rate=0.3)
    correlation, below = reference_correlation(model, y_hat, 120)
    kappa = MCDropout(PASSES, statistic="variance")
    assert correlation < -0.5
    expected = (
        "MCDropout's variance ranks points against their mean probability (rank correlation "
        f"{correlation:.2f} over 120 points, {below:.0%} of them with a mean below 0.5), so its κ "
        'is highest where the answer is least probable: use statistic="mean"'
    )
    assert told(kappa, kappa, model=model, y_hat=y_hat) == [expected]
    small_batches = told(MCDropout(PASSES, statistic="variance"), model=model, y_hat=y_hat, batch=9)
    assert len(small_batches) == 1
    assert "over 108 points" in small_batches[0]  # as soon as there are 100
    few = MCDropout(PASSES, statistic="variance")
    assert told(few, model=model, y_hat=y_hat, rows=99) == []
    for other in ("mean", "entropy", "mutual_information"):
        assert told(MCDropout(PASSES, statistic=other), model=model, y_hat=y_hat) == []


def test_variance_that_ranks_as_the_mean_is_not_told():
    model, y_hat = scaled(300, rate=0.05)
    correlation, _ = reference_correlation(model, y_hat, 120)
    assert correlation > 0.5
    assert told(MCDropout(PASSES, statistic="variance"), model=model, y_hat=y_hat) == []
