"""MC-dropout's statistics against the plain loop."""

import numpy as np
import pytest
import torch
from torch import nn

from snapsure import MCDropout, SoftmaxResponse
from snapsure.errors import InvalidInput
from snapsure.networks._network import Network, private_copy
from snapsure.testing import KappaContract, kappa_of, small_network
from tests.support.dropout import MODELS, PASSES, STATISTICS, by_definition, drops, naive

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


def test_names_stand_side_by_side_in_a_table():
    assert [MCDropout(statistic=statistic).name for statistic in STATISTICS] == [
        "mc_dropout",
        "mc_dropout_variance",
        "mc_dropout_entropy",
        "mc_dropout_mutual_information",
    ]


def test_settings_are_all_that_values_depend_on():
    assert MCDropout().settings == {
        "passes": 100,
        "p": None,
        "layers": "all",
        "statistic": "mean",
        "seed": 0,
    }
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
    network = Network(private_copy(model), [kappa])
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
    ("arguments", "sentence"),
    [
        ({"passes": 1}, "`passes` must be a whole number ≥ 2, got 1. Use at least 2."),
        ({"p": 1.0}, "`p` must lie in (0, 1), got 1.0. Write 95 % as 0.95."),
        (
            {"statistic": "median"},
            "`statistic` must be one of mean, variance, entropy, mutual_information, got 'median': "
            "choose among these",
        ),
        (
            {"layers": "head.2"},
            '`layers` must be "all", "last" or a sequence of module names, got \'head.2\': write '
            "['head.2'] for one name",
        ),
        (
            {"layers": []},
            '`layers` must be "all", "last" or a sequence of module names, got []: name at least '
            "one dropout",
        ),
        (
            {"layers": [3]},
            '`layers` must be "all", "last" or a sequence of module names, got [3]: name at least '
            "one dropout",
        ),
    ],
)
def test_refusals(arguments, sentence):
    with pytest.raises(InvalidInput) as caught:
        MCDropout(**arguments)
    assert str(caught.value) == sentence
