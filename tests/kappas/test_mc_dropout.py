"""MC-dropout's statistics against the plain loop, and what it warns of."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn

from snapsure import MCDropout, SoftmaxResponse
from snapsure.errors import InvalidInput
from snapsure.networks._forward import Logits
from snapsure.networks._network import Network, copy_network
from snapsure.testing import KappaContract, kappa_of, small_network
from tests.support.dropout import (
    MODELS,
    PASSES,
    STATISTICS,
    by_definition,
    drops,
    naive,
    two_dropouts,
)

# Each statistic, and each way to choose layers.
CHOICES = [
    *({"statistic": statistic} for statistic in STATISTICS),
    {"layers": "last"},
    {"layers": ["2"]},
]


class TestMCDropout(KappaContract):
    @pytest.fixture(autouse=True, params=CHOICES, ids=str)
    def _choice(self, request):
        self.choice = request.param

    def make(self, inputs, labels):
        return MCDropout(passes=20, **self.choice)


@pytest.mark.filterwarnings("ignore:`p` should be the rate")
@pytest.mark.parametrize("p", [0.5, 0.1, None])
@pytest.mark.parametrize("name", MODELS)
def test_equals_the_plain_loop_under_the_same_seed(name, p):
    make, width = MODELS[name]
    torch.manual_seed(3)
    model = make()
    inputs = torch.randn(12, width)
    y_hat = np.arange(12) % 4
    ours = {
        statistic: kappa_of(MCDropout(PASSES, p, "all", statistic, seed=7), model, inputs, y_hat)
        for statistic in STATISTICS
    }
    runs = naive(model, inputs, p, seed=7)
    for statistic, values in ours.items():
        np.testing.assert_allclose(values, by_definition(statistic, runs, y_hat), atol=1e-6)
        assert values.std() > 1e-5


def test_names_and_settings():
    assert MCDropout().name == "mc_dropout"
    assert MCDropout(statistic="variance").name == "mc_dropout_variance"
    usual = {"passes": 100, "p": None, "layers": "all", "statistic": "mean", "seed": 0}
    assert MCDropout().settings == usual
    one, other = MCDropout(layers=["b", "a"]), MCDropout(layers=("a", "b", "b"))
    assert one.settings == other.settings
    assert one.settings["layers"] == ["a", "b"]


def test_at_a_rate_of_nearly_0_the_mean_is_the_softmax_response():
    torch.manual_seed(3)
    model, inputs = small_network(), torch.randn(300, 5)
    drops(model)["2"].p = 1e-12  # so that no unit is ever dropped, and none is scaled in float32
    y_hat = np.arange(300) % 4
    softmax = kappa_of(SoftmaxResponse(), model, inputs, y_hat)
    ours = kappa_of(MCDropout(10), model, inputs, y_hat)
    np.testing.assert_allclose(ours, softmax, rtol=1e-12)


def test_at_a_small_rate_the_mean_ranks_like_the_softmax_response():
    torch.manual_seed(3)
    model, inputs, y_hat = small_network(), torch.randn(300, 5), np.zeros(300, int)
    drops(model)["2"].p = 1e-3
    softmax = kappa_of(SoftmaxResponse(), model, inputs, y_hat)
    ours = kappa_of(MCDropout(50), model, inputs, y_hat)
    assert np.corrcoef(softmax.argsort().argsort(), ours.argsort().argsort())[0, 1] > 0.99


def test_confident_points_stay_apart():
    """Logits a and 0 in each pass: κ is 1 − mean of e^−a / (1 + e^−a), a about 20."""
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(64, 2, bias=False))
    with torch.no_grad():
        model[1].weight.copy_(torch.tensor([[1.0], [0.0]]).expand(2, 64))
    inputs = torch.linspace(0.3, 0.35, 40)[:, None].expand(40, 64)
    kappa = MCDropout(PASSES)
    network = Network(copy_network(model), [kappa])
    network.probe(inputs[:2])
    with torch.inference_mode():
        forward = network.run(inputs)
        logits = torch.stack([*forward.samples(kappa.sampling)]).double()
        ours = kappa.score(forward, np.zeros(40, int), None)
    gap = logits[:, :, 0] - logits[:, :, 1]
    rest = (torch.exp(-gap) / (1 + torch.exp(-gap))).mean(dim=0).numpy()
    assert rest.max() < 1e-3
    assert len(np.unique(ours)) == 40
    np.testing.assert_allclose(1 - ours, rest, rtol=0, atol=2e-16)


def test_the_seed_matters_and_the_callers_generator_does_not():
    inputs, y_hat = torch.randn(20, 5), np.zeros(20, int)
    model = small_network()
    torch.manual_seed(1)
    first = kappa_of(MCDropout(10), model, inputs, y_hat)
    state = torch.get_rng_state()
    torch.manual_seed(2)
    assert (kappa_of(MCDropout(10), model, inputs, y_hat) == first).all()
    assert (kappa_of(MCDropout(10, seed=1), model, inputs, y_hat) != first).any()
    torch.set_rng_state(state)
    kappa_of(MCDropout(10), model, inputs, y_hat)
    assert (torch.get_rng_state() == state).all()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"passes": 1}, "`passes` must be a whole number ≥ 2, got 1"),
        ({"p": 1.0}, r"`p` must lie in \(0, 1\), got 1.0"),
        ({"statistic": "median"}, '`statistic` must be "mean" or "variance" or .* got \'median\''),
        ({"layers": "head.2"}, r"`layers` must be .* got 'head.2'. Write \['head.2'\]"),
        ({"layers": []}, r"`layers` must be .* got \[\]"),
        ({"layers": [3]}, r"`layers` must be .* got \[3\]"),
    ],
)
def test_refusals(arguments, words):
    with pytest.raises(InvalidInput, match=words):
        MCDropout(**arguments)


def warnings_of(*kappas, model, rows=120, batch=256, y_hat=None):
    """Return every warning of scoring."""
    inputs = torch.randn(rows, 5, generator=torch.Generator().manual_seed(0))
    y_hat = np.zeros(rows, int) if y_hat is None else y_hat(inputs)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for kappa in kappas:
            kappa_of(kappa, model, inputs, y_hat, batch_size=batch)
    return [str(one.message) for one in caught]


def test_another_rate_than_the_models_own_is_warned_of_once():
    kappa = MCDropout(3, 0.5)
    (sentence,) = warnings_of(kappa, kappa, model=two_dropouts(), batch=10)
    assert "got 0.5 where dropout '1' has 0.1. Leave `p` out" in sentence
    (sentence,) = warnings_of(MCDropout(3, 0.2), model=two_dropouts())
    assert "got 0.2 where dropout '1' has 0.1 and 1 more. Leave" in sentence
    for kappa in (MCDropout(3), MCDropout(3, 0.5, "last"), MCDropout(3, 0.1, ["1"])):
        assert warnings_of(kappa, model=two_dropouts()) == []


def scaled(factor, rate):
    """Return a network as confident as its factor is large, and its predictions."""
    torch.manual_seed(0)
    model = two_dropouts()
    model[1].p = model[3].p = rate
    with torch.no_grad():
        model[4].weight *= factor
    return model, lambda inputs: model.eval()(inputs).argmax(dim=1).numpy()


def reference_correlation(model, y_hat, rows):
    """Return Spearman's correlation of mean and κ by variance, and how many means are below ½."""
    inputs = torch.randn(rows, 5, generator=torch.Generator().manual_seed(0))
    answers = y_hat(inputs)
    mean, variance = (
        kappa_of(MCDropout(PASSES, statistic=statistic), model, inputs, answers)
        for statistic in ("mean", "variance")
    )
    ranks = mean.argsort().argsort(), variance.argsort().argsort()
    return np.corrcoef(*ranks)[0, 1], (mean < 0.5).mean()


@pytest.mark.filterwarnings("ignore:MCDropout's variance")
def test_variance_against_the_mean_is_warned_of_once():
    model, y_hat = scaled(8, rate=0.3)
    correlation, below = reference_correlation(model, y_hat, 120)
    kappa = MCDropout(PASSES, statistic="variance")
    assert correlation < -0.5
    (sentence,) = warnings_of(kappa, kappa, model=model, y_hat=y_hat)
    assert f"correlation {correlation:.2f} over 120 examples, {below:.0%} of them" in sentence
    assert 'Use statistic="mean"' in sentence
    small_batches = warnings_of(
        MCDropout(PASSES, statistic="variance"), model=model, y_hat=y_hat, batch=9
    )
    assert len(small_batches) == 1
    assert "over 108 examples" in small_batches[0]  # as soon as there are 100
    few = MCDropout(PASSES, statistic="variance")
    assert warnings_of(few, model=model, y_hat=y_hat, rows=99) == []
    enough = MCDropout(PASSES, statistic="variance")
    assert len(warnings_of(enough, model=model, y_hat=y_hat, rows=100)) == 1
    for other in ("mean", "entropy", "mutual_information"):
        assert warnings_of(MCDropout(PASSES, statistic=other), model=model, y_hat=y_hat) == []


def test_variance_that_ranks_as_the_mean_causes_no_warning():
    model, y_hat = scaled(300, rate=0.05)
    correlation, _ = reference_correlation(model, y_hat, 120)
    assert correlation > 0.5
    assert warnings_of(MCDropout(PASSES, statistic="variance"), model=model, y_hat=y_hat) == []


class TwoPasses(Logits):
    """Two passes with dropout, of these logits."""

    def samples(self, sampling):
        yield from self.logits


def test_variance_that_ranks_unlike_the_mean_causes_no_warning():
    """Variances that rise and fall along the means have a rank correlation of about 0."""
    mean = torch.linspace(0.6, 0.9, 201, dtype=torch.float64)
    gap = 0.05 * torch.linspace(-1, 1, 201, dtype=torch.float64).abs()
    logits = torch.stack([(p / (1 - p)).log() for p in (mean - gap, mean + gap)])
    forward = TwoPasses(torch.stack([logits, torch.zeros_like(logits)], dim=2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours = MCDropout(2, statistic="variance").score(forward, np.zeros(201, int), None)
    np.testing.assert_allclose(ours, 1 - 4 * gap**2, rtol=1e-12)


def test_huge_logits_are_certain():
    forward = TwoPasses(torch.tensor([[1e30, -1e30], [3e4, 0.0]]).expand(2, 2, 2))
    for statistic in STATISTICS:
        ours = MCDropout(2, statistic=statistic).score(forward, np.zeros(2, int), None)
        assert ours.tolist() == [1, 1]
