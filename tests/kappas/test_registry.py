"""One list of κ functions that files and commands may name."""

import pytest
import torch
from typer.testing import CliRunner

from snapsure import AES, MCDropout, NNDistance, kappas
from snapsure.cli import app
from snapsure.errors import InvalidInput
from snapsure.kappas import Kappa, registry


@pytest.fixture(autouse=True)
def apart(monkeypatch):
    """Start from our own κ: pages that run in the same process register theirs."""
    ours = {
        name: entry
        for name, entry in registry._entries.items()
        if entry.kind.__module__.startswith("snapsure.")
    }
    monkeypatch.setattr(registry, "_entries", ours)


def test_every_kappa_is_registered_and_is_made_again_from_its_settings():
    public = {kind for kind in vars(kappas).values() if isinstance(kind, type)} - {Kappa}
    assert {registry.get(name).kind for name in registry.names()} == public
    data = torch.eye(3), [0, 1, 2]
    for name in registry.names():
        kappa = registry.make(name, reference=data)
        settings = {k: v for k, v in kappa.settings.items() if k != "reference"}
        again = registry.make(name, settings, reference=data)
        assert kappa.name == again.name == name
        assert again.settings == kappa.settings


def test_the_command_line_lists_them():
    shown = CliRunner().invoke(app, ["score", "--help"], env={"COLUMNS": "1000"}).stdout
    assert all(name in shown for name in registry.names())


def test_a_class_of_several_names():
    assert isinstance(registry.make("mc_dropout_entropy"), MCDropout)
    assert registry.make("mc_dropout_entropy", {"passes": 7}).settings["passes"] == 7
    assert isinstance(registry.make("nn_distance", reference=(torch.eye(3), [0] * 3)), NNDistance)


def test_what_is_registered():
    @registry.register
    class Own(kappas.SoftmaxResponse):
        name = "own"

    assert registry.names()[-1] == "own"
    assert isinstance(registry.make("own"), Own)
    again = type("Own", (Own,), {"__module__": __name__, "__qualname__": Own.__qualname__})
    registry.register(again)  # as a cell of a notebook that is run again
    assert registry.get("own").kind is again


def test_classes_that_are_given_come_before_those_registered():
    class Own(kappas.SoftmaxResponse):
        name = "own"

    class Margin(kappas.SoftmaxResponse):
        name = "margin"

    custom = [AES, Own, Margin]
    assert isinstance(registry.make("own", custom=custom), Own)
    assert isinstance(registry.make("margin", custom=custom), Margin)
    assert type(registry.make("softmax", custom=custom)) is kappas.SoftmaxResponse


def test_refusals():
    class Unnamed(kappas.SoftmaxResponse):
        name = property(lambda self: "unnamed")

    with pytest.raises(InvalidInput, match=r"on the class itself.*`name = \"unnamed\"`"):
        registry.register(Unnamed)
    with pytest.raises(InvalidInput, match="must be free, got 'margin'"):
        registry.register(type("Lead", (kappas.SoftmaxResponse,), {"name": "margin"}))
    for wrong in (kappas.SoftmaxResponse(), int, "softmax"):
        with pytest.raises(InvalidInput, match="`kind` must be a subclass of Kappa, got"):
            registry.register(wrong)
    with pytest.raises(InvalidInput, match=r"one of softmax, .*got 'luck'.*register\(YourKappa\)"):
        registry.get("luck")
