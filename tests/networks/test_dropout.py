"""Which dropouts are switched on, and what runs once: in networks of many forms."""

import numpy as np
import pytest
import torch
from torch import nn

from snapsure import MCDropout, NNDistance, SoftmaxResponse
from snapsure.networks._network import Network, copy_network
from snapsure.testing import kappa_of, small_network
from tests.support.dropout import (
    MODELS,
    PASSES,
    STATISTICS,
    Attention,
    Functional,
    Residual,
    SometimesLate,
    by_definition,
    naive,
    refusal,
    two_dropouts,
)

LAYERS = {  # of each network: the last dropout, and some others
    "inside and alone": ("drop", ["drop"]),
    "skips": ("2", ["2"]),
    "shared": ("body.2", ["body.2"]),
    "a branch that is zero at first": ("drop", ["drop"]),
    "in place": ("drop", ["drop"]),
    "attention": ("drop", ["drop"]),
    "dropout in the head": ("2", ["2"]),
    "dropout before everything": ("0", ["0"]),
    "branches and changes in place": ("head.2", ["drop"]),
    "channels": ("head.1", ["drop"]),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_last_and_named_dropouts_alone_are_switched_on(name):
    make, width = MODELS[name]
    last, others = LAYERS[name]
    for layers, names in (("last", [last]), (others, others), ([last, *others], [last, *others])):
        torch.manual_seed(3)
        model, inputs, y_hat = make(), torch.randn(12, width), np.arange(12) % 4
        ours = kappa_of(MCDropout(PASSES, layers=layers), model, inputs, y_hat)
        runs = naive(model, inputs, names=names)
        np.testing.assert_allclose(ours, by_definition("mean", runs, y_hat), atol=1e-6)
        assert ours.std() > 1e-5


def test_several_in_one_pass_are_as_each_alone():
    """Choices of layers, rates and statistics do not disturb each other's memory, in any order."""
    torch.manual_seed(3)
    model, inputs, y_hat = Residual(), torch.randn(12, 5), np.arange(12) % 4
    kappas = [
        MCDropout(PASSES, layers=layers, statistic=statistic, seed=seed)
        for layers in ("last", "all", ["drop"])
        for statistic in STATISTICS
        for seed in (0, 1)
    ]
    alone = [kappa_of(kappa, model, inputs, y_hat) for kappa in kappas]
    for order in (range(len(kappas)), range(len(kappas))[::-1]):
        network = Network(copy_network(model), kappas)
        network.probe(inputs[:2])
        with torch.inference_mode():
            for _ in range(2):
                forward = network.run(inputs)
                for i in order:
                    assert (kappas[i].score(forward, y_hat, None) == alone[i]).all()


def test_what_a_pass_without_dropout_is_asked_for_is_not_disturbed():
    model, inputs, y_hat = Residual(), torch.randn(12, 5), np.arange(12) % 4
    kappa = MCDropout(3, layers="last")
    distance = NNDistance((inputs, y_hat))
    network = Network(copy_network(model), [kappa, MCDropout(3), distance])
    network.probe(inputs[:2])
    with torch.inference_mode():
        forward = network.run(inputs)
        before = SoftmaxResponse().score(forward, y_hat, None)
        embedding = forward.embedding(None).clone()
        kappa.score(forward, y_hat, None)
        assert torch.equal(forward.embedding(None), embedding)
        again = SoftmaxResponse().score(network.run(inputs), y_hat, None)
    assert (before == again).all()


def test_a_layer_that_only_some_batches_use_late_is_not_replayed():
    torch.manual_seed(3)
    model, inputs, y_hat = SometimesLate(), torch.randn(12, 5), np.arange(12) % 4
    network = Network(copy_network(model), [MCDropout(PASSES)])
    network.probe(torch.zeros(2, 5))
    with torch.inference_mode():
        ours = MCDropout(PASSES, seed=7).score(network.run(inputs), y_hat, None)
    expected = by_definition("mean", naive(model, inputs, seed=7), y_hat)
    np.testing.assert_allclose(ours, expected, atol=1e-6)


def test_a_forward_of_the_users_own_is_left_in_place():
    model = small_network()
    model[0].forward = lambda x: nn.Linear.forward(model[0], x) * 2
    network = Network(model.eval(), [MCDropout(3)])
    network.probe(torch.zeros(2, 5))
    own = model[0].forward
    with torch.inference_mode():
        MCDropout(3).score(network.run(torch.randn(6, 5)), np.zeros(6, int), None)
    assert model[0].forward is own


def counted(network, names):
    """How often modules run, from now on."""
    calls = dict.fromkeys(names, 0)

    def count(name):
        def hook(*_):
            calls[name] += 1

        return hook

    for name in names:
        network.module.get_submodule(name).register_forward_hook(count(name))
    return calls


@pytest.mark.parametrize(
    ("layers", "middle"), [("all", 11), ("last", 1), (["3"], 1), (["1"], 11), (["1", "3"], 11)]
)
def test_what_dropout_cannot_change_runs_once_per_batch(layers, middle):
    kappa = MCDropout(10, layers=layers)
    network = Network(copy_network(two_dropouts()), [kappa])
    network.probe(torch.zeros(2, 5))
    calls = counted(network, ["0.0", "2.0", "4"])
    with torch.inference_mode():
        kappa.score(network.run(torch.randn(6, 5)), np.zeros(6, int), None)
    assert calls == {"0.0": 1, "2.0": middle, "4": 11}


def test_statistics_of_the_same_masks_share_their_passes():
    kappas = [MCDropout(10, statistic=statistic) for statistic in STATISTICS]
    network = Network(copy_network(two_dropouts()), kappas)
    network.probe(torch.zeros(2, 5))
    calls = counted(network, ["4"])
    with torch.inference_mode():
        forward = network.run(torch.randn(6, 5))
        for kappa in kappas:
            kappa.score(forward, np.zeros(6, int), None)
        assert calls == {"4": 11}
        kappas[0].score(forward, np.ones(6, int), None)  # of another answer
    assert calls == {"4": 21}


class Both(Functional):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return super().forward(self.drop(x))


@pytest.mark.parametrize("kind", [Functional, Both])
def test_dropout_as_a_function_is_refused(kind):
    said = refusal(kind())
    assert "must use nn.Dropout" in said
    assert f"got torch.nn.functional.dropout in {kind.__name__}" in said


def test_dropout_as_a_function_stays_off_where_modules_are_named():
    torch.manual_seed(0)
    model, inputs, y_hat = Both(), torch.randn(12, 5), np.arange(12) % 4
    ours = kappa_of(MCDropout(PASSES, layers=["drop"]), model, inputs, y_hat)
    expected = by_definition("mean", naive(model, inputs), y_hat)
    np.testing.assert_allclose(ours, expected, atol=1e-6)


def test_a_dropout_may_be_named_by_each_of_its_places():
    torch.manual_seed(3)
    drop = nn.Dropout(0.5)
    model = nn.Sequential(nn.Linear(5, 8), drop, nn.Linear(8, 8), drop, nn.Linear(8, 4))
    inputs, y_hat = torch.randn(12, 5), np.arange(12) % 4
    every = kappa_of(MCDropout(PASSES), model, inputs, y_hat)
    for name in ("1", "3"):
        named = kappa_of(MCDropout(PASSES, layers=[name]), model, inputs, y_hat)
        assert (named == every).all()


def test_no_hook_stays_once_a_network_is_known():
    network = Network(copy_network(small_network()))
    network.probe(torch.zeros(2, 5))
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in network.module.modules())


@pytest.mark.parametrize("name", ["9", "4", ""])
def test_a_name_of_no_dropout_is_refused_by_listing_them(name):
    said = refusal(two_dropouts(), MCDropout(layers=["3", name]))
    assert "`layers` must name dropouts" in said
    assert f"got {name!r}" in said
    assert "runs 1, 3" in said


def test_a_named_dropout_that_is_off_needs_a_rate():
    model = two_dropouts()
    model[1].p = 0.0
    assert "rate above 0 where `p` is None, got '1' with 0" in refusal(
        model, MCDropout(layers=["1"])
    )
    inputs, y_hat = torch.randn(6, 5), np.zeros(6, int)
    with pytest.warns(UserWarning, match="where dropout '1' has 0"):
        on = kappa_of(MCDropout(PASSES, 0.3, ["1"]), model, inputs, y_hat)
    model[1].p = 0.3
    assert (on == kappa_of(MCDropout(PASSES, layers=["1"]), model, inputs, y_hat)).all()


@pytest.mark.parametrize("layers", ["all", "last"])
def test_a_dropout_that_is_off_stays_off_whatever_the_rate(layers):
    torch.manual_seed(0)
    model, inputs, y_hat = two_dropouts(), torch.randn(6, 5), np.zeros(6, int)
    model[3].p, model[1].p = 0.0, 0.3
    ours = kappa_of(MCDropout(PASSES, 0.3, layers), model, inputs, y_hat)
    expected = by_definition("mean", naive(model, inputs, 0.3, names=["1"]), y_hat)
    np.testing.assert_allclose(ours, expected, atol=1e-6)


def test_dropout_that_does_more_is_refused():
    model = nn.Sequential(nn.Linear(5, 8), nn.AlphaDropout(0.3), nn.Linear(8, 4))
    assert "must use nn.Dropout for MC-dropout, got AlphaDropout" in refusal(model)


def test_rows_that_are_not_on_the_first_axis_are_refused():
    class SequenceFirst(Attention):
        def forward(self, x):
            z = self.drop(x.view(-1, 5, 1).transpose(0, 1))
            return z.transpose(0, 1).flatten(1)[:, :4]

    said = refusal(SequenceFirst())
    assert "first axis, got shape (5, 3, 1) for 3" in said
    assert "batch_first=True" in said


@pytest.mark.parametrize("layer", [nn.Identity(), nn.Dropout(0.0)])
def test_a_model_without_dropout_is_refused(layer):
    said = refusal(nn.Sequential(nn.Linear(5, 8), layer, nn.Linear(8, 4)))
    assert "must have dropout for MC-dropout, got no nn.Dropout with p > 0" in said
