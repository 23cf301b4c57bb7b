"""What models return beside logits, and tasks that are no classification."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from snapsure import AES, Predictor, SnapshotStore, score
from snapsure.errors import InvalidInput
from snapsure.networks._network import (
    Network,
    call,
    choose_device,
    copy_network,
    find_device,
    refuse_no_network,
)
from tests.support.refusals import refuses

X, Y = torch.rand(40, 3, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 2


class Wrapped(nn.Module):
    """Gives its logits inside something else."""

    def __init__(self, wrap=lambda logits, x: logits):
        super().__init__()
        self.head, self.wrap = nn.Linear(3, 2), wrap

    def forward(self, x):
        return self.wrap(self.head(x), x)


WRAPS = {
    "tuple": (lambda logits, x: (x[0], logits), 1, "output[1]"),
    "dict": (lambda logits, x: {"features": x[0], "out": logits}, "out", "output['out']"),
    "object": (lambda logits, x: SimpleNamespace(scores=logits), "scores", "output.scores"),
}


@pytest.fixture
def store(tmp_path):
    made = SnapshotStore(tmp_path / "run")
    for epoch in (1, 2, 3):
        torch.manual_seed(epoch)
        made.save(Wrapped(), epoch)
    return made


@pytest.mark.parametrize("kind", WRAPS)
def test_logits_are_taken_out_of_other_outputs(store, kind):
    wrap, name, line = WRAPS[kind]
    plain = score(Wrapped(), store, (X, Y), progress=False)
    functions = {"output": lambda o: wrap_inverse(kind, o)}
    for output in (name, functions["output"]):
        model = Wrapped(wrap)
        table = score(model, store, (X, Y), output=output, average=True, progress=False)
        assert np.array_equal(table.kappa("softmax"), plain.kappa("softmax"))
        answer = Predictor(model, store, AES(), output=output)(X)
        assert answer.label.tolist() == plain.y_hat.tolist()
        assert not model._forward_hooks  # the user's own stays as it was
    with refuses(InvalidInput, "`model` must map a batch to logits", f"output={name!r}", line):
        score(Wrapped(wrap), store, (X, Y), progress=False)
    hooked = Wrapped(wrap)
    hooked.register_forward_hook(lambda module, args, output: eval(line))  # as the error says
    table = score(hooked, store, (X, Y), progress=False)
    assert np.array_equal(table.kappa("softmax"), plain.kappa("softmax"))


def wrap_inverse(kind, output):
    return {"tuple": lambda o: o[1], "dict": lambda o: o["out"], "object": lambda o: o.scores}[
        kind
    ](output)


@pytest.mark.parametrize("output", ["logits", 7])
def test_a_part_that_is_not_there_is_refused(store, output):
    for kind, got in (("tuple", "tuple of 2"), ("dict", "dict with 'features', 'out'")):
        with refuses(InvalidInput, "`output`", repr(output), got):
            score(Wrapped(WRAPS[kind][0]), store, X, output=output, progress=False)
    with refuses(InvalidInput, "`output`", str(10**30), "Name another"):
        score(Wrapped(), store, X, output=10**30, progress=False)
    for wrong in ([0], True):  # a saved predictor has True for a function
        with refuses(InvalidInput, "`output`", f"got {wrong}", "output=0"):
            score(Wrapped(), store, X, output=wrong, progress=False)


@pytest.mark.parametrize(
    ("wrap", "y", "facts"),
    [
        (lambda z, x: z[:, :, None, None].expand(-1, 2, 4, 4), Y, ("segmentation", "mean(dim=(2")),
        (lambda z, x: z[:, None].expand(-1, 7, 2), Y, ("(2, 7, 2)", "tagging", "o[:, 0]")),
        (
            lambda z, x: z.sum(dim=-1),
            None,
            ("(rows,)", "Regression", "return two"),
        ),
        (lambda z, x: z[:, :1].softmax(dim=1), None, ("(rows, 1)", "Regression")),
        (lambda z, x: z.softmax(dim=1).round(), None, ("got probabilities", "last softmax")),
        (lambda z, x: (z[:, None],), None, ("tuple of 1", "output=0")),
        (lambda z, x: {"z": z[:, None]}, None, ("dict with 'z'", "output='logits'")),
        (None, torch.zeros(40, 4, 4).long(), ("(40, 4, 4)", "segmentation")),
        (None, torch.ones(40, 2).long(), ("(40, 2)", "multi-label", "one class at a time")),
        (None, torch.eye(2)[Y], ("(40, 2)", "y.argmax(1)")),
        (None, Y[:, None], ("(40, 1)", "y[:, 0]")),
        (None, torch.linspace(0, 1.5, 40)[1:], ("whole numbers, got 0.038", "regression")),
        (None, torch.tensor(1), ("shape ()", "(x[None], [y])")),
    ],
)
def test_other_tasks_are_recognised_and_refused(store, wrap, y, facts):
    model = Wrapped() if wrap is None else Wrapped(wrap)
    with refuses(InvalidInput, *facts):
        score(model, store, X if y is None else (X, y), progress=False)


class Two(nn.Module):
    """Takes two inputs."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 2)

    def forward(self, x, mask):
        return self.head(x * mask)


def test_one_input_without_its_axis(store):
    with refuses(InvalidInput, "`data`", "one input of shape (3,)", "x[None]"):
        score(Wrapped(), store, X[0], progress=False)
    predictor = Predictor(Two(), store, AES())
    for one in ((X[0], X[0]), {"x": X[0], "mask": X[0]}):
        with refuses(InvalidInput, "`batch`", "one input of shape (3,) and (3,)", "x[None]"):
            predictor(one)


class Either(nn.Module):
    """Takes one of two inputs, or any others by name."""

    def forward(self, ids=None, x=None):
        return x if ids is None else -ids


class Any(nn.Module):
    def forward(self, **inputs):
        return inputs["x"]


class Minus(nn.Module):
    def forward(self, x, mask):
        return x - mask.float()


def test_inputs_by_name_go_to_the_parameters_of_these_names():
    assert torch.equal(call(Either(), {"x": X}), X)
    assert torch.equal(call(Either(), {"image": X}), -X)
    assert torch.equal(call(Any(), {"x": X}), X)
    two = {"mask": X > 0.5, "x": X.log()}
    assert torch.equal(call(Minus(), two), X.log() - (X > 0.5).float())


def test_finite_logits_may_have_an_infinite_sum():
    logits = torch.full((2, 3), 3e38)
    assert not logits.sum().isfinite()
    assert Network(Wrapped()).check(logits) is logits


META = torch.device("meta")  # has no numbers, and is on every machine


@pytest.mark.parametrize("accelerator", [None, torch.device("cuda")])
def test_a_network_runs_where_it_is_said_or_is_or_on_an_accelerator(monkeypatch, accelerator):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: accelerator is not None)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: accelerator)
    best = accelerator or torch.device("cpu")
    assert choose_device(Wrapped()) == choose_device(nn.ReLU()) == best
    assert choose_device(Wrapped().to(META)) == META
    assert copy_network(Wrapped(), META).head.weight.device == META
    for device in (META, None):
        assert Network(Wrapped(), device=device).device == (device or best)


def test_a_device_is_found_by_its_name():
    assert find_device("meta") == META
    assert find_device(None) is None
    with pytest.raises(InvalidInput, match=r"`device` must .* got 'abacus'") as caught:
        find_device("abacus")
    assert "Expected one of" not in str(caught.value)  # a list of twenty


@pytest.mark.parametrize(
    ("model", "facts"),
    [(nn.Linear, ("the class Linear", "Linear(…)")), (dict, ("got <class 'dict'>",)), (5, ("5",))],
)
def test_what_is_no_network_is_refused(model, facts):
    with refuses(InvalidInput, "`model` must be a torch.nn.Module", *facts):
        refuse_no_network(model)
