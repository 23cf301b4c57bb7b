"""MC-dropout against the plain loop, and how it finds what to sample."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from snapsure import MCDropout
from snapsure.errors import InvalidInput
from snapsure.scores._network import Network, private_copy
from tests.scores.contract import KappaContract, evaluate, small_network

PASSES = 25


class TestMCDropout(KappaContract):
    def make(self, inputs, labels):
        return MCDropout(passes=20)


def naive(model, inputs, y_hat, p=0.5, seed=0):
    """Row by row, pass by pass, the whole network each time."""
    model = model.eval()
    for module in model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.train()
            module.p = module.p if p is None else p
    values = []
    for row, answer in zip(inputs, y_hat, strict=True):
        torch.manual_seed(seed)
        with torch.no_grad():
            runs = [model(row[None]).double().softmax(dim=1)[0, answer] for _ in range(PASSES)]
        values.append(1 - 4 * float(torch.stack(runs).var(correction=0)))
    return np.array(values)


class Residual(nn.Module):
    """Branches, a module used twice, functions between modules, changes in place."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(5, 12)
        self.again = nn.Linear(12, 12)
        self.relu = nn.ReLU(inplace=True)
        self.drop = nn.Dropout(0.2)
        self.head = nn.Sequential(nn.Linear(12, 12), nn.ReLU(), nn.Dropout(0.3), nn.Linear(12, 4))

    def forward(self, x):
        x = self.first(x)
        x += 1.0  # in place, on the output of a module
        y = self.relu(self.again(self.again(x)))
        x = self.drop(x + y)
        return self.head(x + self.again(torch.tanh(x)))


class Images(nn.Module):
    """Channels dropped as a whole, then units."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU())
        self.drop = nn.Dropout2d(0.4)
        self.head = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(6 * 9, 4))

    def forward(self, x):
        return self.head(self.drop(self.body(x.view(-1, 1, 5, 5))))


class ZeroBranch(nn.Module):
    """A branch that is zero until it is trained, added in place."""

    def __init__(self):
        super().__init__()
        self.trunk, self.branch = nn.Linear(5, 8), nn.Linear(8, 8)
        self.drop, self.head = nn.Dropout(0.5), nn.Linear(8, 4)

    def forward(self, x):
        y = self.trunk(x)
        y += self.drop(self.branch(y))
        return self.head(y)


class SometimesLate(nn.Module):
    """Uses a layer again after the dropout, but not for a batch of zeros."""

    def __init__(self):
        super().__init__()
        self.layer, self.drop, self.head = nn.Linear(5, 5), nn.Dropout(0.5), nn.Linear(5, 4)

    def forward(self, x):
        z = self.drop(self.layer(x))
        if (x != 0).any():
            z = self.layer(z)
        return self.head(z)


class InPlace(nn.Module):
    """Drops in place and does not look at the result."""

    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(5, 9), nn.Linear(9, 4)
        self.drop = OwnDropout(0.5, inplace=True)

    def forward(self, x):
        z = self.layer(x)
        self.drop(z)
        return self.head(z)


class OwnDropout(nn.Dropout):
    """A subclass is a dropout too."""


class Attention(nn.Module):
    """A transformer layer, rows first."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.TransformerEncoderLayer(4, 2, 16, dropout=0.0, batch_first=True)
        self.drop, self.head = nn.Dropout(0.5), nn.Linear(20, 4)

    def forward(self, x):
        return self.head(self.drop(self.encoder(x.view(-1, 5, 4)).flatten(1)))


MODELS = {
    "a branch that is zero at first": (ZeroBranch, 5),
    "in place": (InPlace, 5),
    "attention": (Attention, 20),
    "dropout in the head": (lambda: small_network(), 5),
    "dropout before everything": (
        lambda: nn.Sequential(nn.Dropout(0.5), nn.Linear(5, 9), nn.ReLU(), nn.Linear(9, 4)),
        5,
    ),
    "branches and changes in place": (Residual, 5),
    "channels": (Images, 25),
}


@pytest.mark.parametrize("p", [0.5, 0.1, None])
@pytest.mark.parametrize("name", MODELS)
def test_equals_the_plain_loop_under_the_same_seed(name, p):
    make, width = MODELS[name]
    torch.manual_seed(3)
    model = make()
    inputs = torch.randn(12, width)
    y_hat = np.arange(12) % 4
    ours = evaluate(MCDropout(PASSES, p=p, seed=7), model, inputs, y_hat)
    np.testing.assert_allclose(ours, naive(model, inputs, y_hat, p, seed=7), atol=1e-6)
    assert ours.std() > 1e-4


def test_a_layer_that_only_some_batches_use_late_is_not_replayed():
    torch.manual_seed(3)
    model, inputs, y_hat = SometimesLate(), torch.randn(12, 5), np.arange(12) % 4
    network = Network(private_copy(model), [MCDropout(PASSES)], torch.zeros(2, 5))
    with torch.inference_mode():
        ours = MCDropout(PASSES, seed=7).score(network.run(inputs), y_hat, None)
    np.testing.assert_allclose(ours, naive(model, inputs, y_hat, seed=7), atol=1e-6)


def test_a_forward_of_the_users_own_is_left_in_place():
    model = small_network()
    model[0].forward = lambda x: nn.Linear.forward(model[0], x) * 2
    network = Network(model.eval(), [MCDropout(3)], torch.zeros(2, 5))
    own = model[0].forward
    with torch.inference_mode():
        MCDropout(3).score(network.run(torch.randn(6, 5)), np.zeros(6, int), None)
    assert model[0].forward is own


def test_the_deterministic_part_runs_once_per_batch():
    model = nn.Sequential(
        nn.Sequential(nn.Linear(5, 8), nn.ReLU()), nn.Dropout(0.5), nn.Linear(8, 4)
    )
    network = Network(private_copy(model), [MCDropout(10)], torch.zeros(2, 5))
    calls = {"trunk": 0, "head": 0}

    def count(name):
        def hook(*_):
            calls[name] += 1

        return hook

    network.module[0][0].register_forward_hook(count("trunk"))
    network.module[2].register_forward_hook(count("head"))
    with torch.inference_mode():
        forward = network.run(torch.randn(6, 5))
        MCDropout(10).score(forward, np.zeros(6, int), None)
    assert calls == {"trunk": 1, "head": 11}


def test_the_seed_matters_and_the_callers_generator_does_not():
    inputs, y_hat = torch.randn(20, 5), np.zeros(20, int)
    model = small_network()
    torch.manual_seed(1)
    first = evaluate(MCDropout(10), model, inputs, y_hat)
    state = torch.get_rng_state()
    torch.manual_seed(2)
    assert (evaluate(MCDropout(10), model, inputs, y_hat) == first).all()
    assert (evaluate(MCDropout(10, seed=1), model, inputs, y_hat) != first).any()
    torch.set_rng_state(state)
    evaluate(MCDropout(10), model, inputs, y_hat)
    assert (torch.get_rng_state() == state).all()


class Functional(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(5, 4)

    def forward(self, x):
        return self.linear(functional.dropout(x, 0.5, self.training))


def refusal(model, kappa=None):
    with pytest.raises(InvalidInput) as caught:
        evaluate(kappa or MCDropout(), model, torch.zeros(3, 5), np.zeros(3, int))
    return str(caught.value)


def test_dropout_as_a_function_is_refused():
    assert refusal(Functional()) == (
        "`model` must use nn.Dropout for MC-dropout, got torch.nn.functional.dropout in "
        "Functional: make it a module, which can be found and switched on"
    )


def test_dropout_that_does_more_is_refused():
    assert refusal(nn.Sequential(nn.Linear(5, 8), nn.AlphaDropout(0.3), nn.Linear(8, 4))) == (
        "`model` must use nn.Dropout for MC-dropout, got AlphaDropout, which does more than drop: "
        "use another κ"
    )


def test_rows_that_are_not_on_the_first_axis_are_refused():
    class SequenceFirst(Attention):
        def forward(self, x):
            z = self.drop(x.view(-1, 5, 1).transpose(0, 1))
            return z.transpose(0, 1).flatten(1)[:, :4]

    assert refusal(SequenceFirst()) == (
        "dropout must see the rows on its first axis, got shape (5, 3, 1) for 3 rows: "
        "use batch_first=True"
    )


@pytest.mark.parametrize("layer", [nn.Identity(), nn.Dropout(0.0)])
def test_a_model_without_dropout_is_refused(layer):
    assert refusal(nn.Sequential(nn.Linear(5, 8), layer, nn.Linear(8, 4))) == (
        "`model` must have dropout for MC-dropout, got no nn.Dropout with p > 0 that ran: its κ "
        "would be constant; use another κ, or a network trained with dropout"
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"passes": 1}, "`passes` must be a whole number ≥ 2, got 1: raise it"),
        ({"p": 1.0}, "`p` must lie in (0, 1), got 1.0: write 95 % as 0.95"),
    ],
)
def test_refusals(arguments, sentence):
    with pytest.raises(InvalidInput) as caught:
        MCDropout(**arguments)
    assert str(caught.value) == sentence
