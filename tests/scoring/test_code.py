"""What tells one network from another, besides its weights."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from torch import nn

from snapsure.scoring._code import model_digest

SOURCE = '''
    import torch
    from torch import nn

    SCALE = 2.0
    KINDS = ("a", "b")
    warned = False

    def helper(x):
        """Text."""
        return inner(x) * SCALE

    def inner(x):
        return x + 1

    def shifted(by):
        class Shifted(nn.Module):
            def forward(self, x):
                return x + by
        return Shifted()

    def wrapped(function):
        def call(*args):
            return function(*args) - 3
        return call

    class Base(nn.Module):
        def forward(self, x):
            return self.body(x) / 5

    class Net(Base):
        def __init__(self, power=3, unused=0):
            super().__init__()
            self.body, self.power, self.unused = nn.Linear(2, 2), power, unused

        @property
        def factor(self):
            return 0.5

        @staticmethod
        def clipped(x):
            return x.clamp(-9, 9)

        @wrapped
        def step(self, x, by=4):
            return [y ** self.power for y in (x, by)][0] if "b" in {"a", "b"} else x

        def untouched(self):
            return 77

        def forward(self, x):
            """What it does."""
            # Remarks.
            return helper(self.clipped(self.step(super().forward(x)))) * self.factor
'''


def built(source, call="nn.Sequential(Net(), shifted(6))"):
    """The network that some source makes, and its digest."""
    names = {"__name__": "theirs"}
    exec(textwrap.dedent(source), names)
    model = eval(call, names)
    if "shifted" in call:
        model(torch.zeros(1, 2))  # it is a network
    return model_digest(model)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("SCALE = 2.0", "SCALE = 2.5"),
        ("return inner(x) * SCALE", "return inner(x) / SCALE"),
        ("x + 1", "x + 2"),
        ("x + by", "x - by"),
        ("function(*args) - 3", "function(*args) - 4"),
        ("self.body(x) / 5", "self.body(x) / 6"),
        ("return 0.5", "return 0.6"),
        ("x.clamp(-9, 9)", "x.clamp(-9, 8)"),
        ("by=4", "by=5"),
        ("y ** self.power", "y * self.power"),
        ("self.clipped(self.step(super().forward(x)))", "self.step(super().forward(x))"),
    ],
)
def test_other_code_gives_another_digest(old, new):
    assert SOURCE.count(old) == 1
    assert built(SOURCE.replace(old, new)) != built(SOURCE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# Remarks.", "# Other remarks."),
        ("What it does.", "What it does not."),
        ("Text.", "Texts."),
        ("return 77", "return 78"),
        ("warned = False", "warned = True"),
        ("    def helper", "\n\n    def helper"),
    ],
)
def test_what_does_not_run_changes_nothing(old, new):
    assert SOURCE.count(old) == 1
    assert built(SOURCE.replace(old, new)) == built(SOURCE)


def test_settings_that_forward_uses_count():
    plain = built(SOURCE, "Net()")
    assert built(SOURCE, "Net(power=2)") != plain
    assert built(SOURCE, "Net(unused=1)") == plain
    assert built(SOURCE, "shifted(6)") != built(SOURCE, "shifted(7)")
    assert built(SOURCE, "Net().train()") == built(SOURCE, "Net().eval()")


def test_a_forward_of_an_object_of_its_own_counts():
    model = nn.Linear(2, 2)
    plain = model_digest(model)
    model.forward = lambda x: x * 2
    assert model_digest(model) != plain


@pytest.mark.slow
def test_the_digest_is_the_same_in_every_process():
    code = f"""
        import sys
        sys.path.insert(0, {str(Path.cwd())!r})
        from tests.scoring.test_code import SOURCE, built
        print(built(SOURCE))
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert run.stdout.strip() == built(SOURCE)
