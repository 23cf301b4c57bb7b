"""What tells one network from another, besides its weights."""

import pytest
import torch
from torch import nn

from snapsure.networks._code import model_digest
from snapsure.networks._network import adapt_output
from tests.support import processes

SOURCE = '''
    import helpers
    from torch import nn

    FACTOR = 7

    def inner(x):
        return x - 8

    def helper(x):
        return [inner(row) for row in x]

    def unused(x):
        return x * 9

    class Base(nn.Module):
        def forward(self, x):
            return helper(self.body(x)) / 5 * FACTOR + helpers.shape(x)

    class Net(Base):
        RATE = 0.25

        def __init__(self, power=3):
            super().__init__()
            self.fc, self.power = nn.Linear(4, 3), power

        @property
        def scale(self):
            return 2.0

        @staticmethod
        def shift(x):
            return x + 1

        def body(self, x):
            """Text."""
            # A comment.
            return self.shift(self.fc(x)) ** self.power * self.scale
'''


HELPERS = "def shape(x):\n    return x + 10\n\ndef unused(x):\n    return x + 11\n"


def digest_of(tmp_path, source, power=3, helpers=None):
    """The digest of a network, in a process of its own."""
    code = """
        import sys
        import torch
        sys.path.insert(0, sys.argv[1])
        from snapsure.networks._code import model_digest
        import network
        print(model_digest(network.Net(int(sys.argv[2]))))
    """
    tmp_path.mkdir(exist_ok=True)
    lines = [line[4:] for line in source.splitlines()]
    (tmp_path / "network.py").write_text("\n".join(lines))
    (tmp_path / "helpers.py").write_text(HELPERS if helpers is None else helpers)
    run = processes.run(code, tmp_path, power, loaded=("torch", "snapsure.networks._code"))
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_code_that_a_notebook_loads_again_is_other_code():
    """Its autoreload puts the new code into the old functions."""

    class Net(nn.Module):
        def forward(self, x):
            return x

    class Edited(nn.Module):
        def forward(self, x):
            return x + 1

    before = model_digest(Net())
    Net.forward.__code__ = Edited.forward.__code__
    assert model_digest(Net()) != before


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("/ 5", "/ 6"),  # what a base class does
        ("** self.power", "+ self.power"),
        ("return 2.0", "return 3.0"),  # a property
        ("x + 1", "x + 2"),  # a static method
        ("x - 8", "x - 9"),  # a function that a function uses
        ("FACTOR = 7", "FACTOR = 8"),
        ("RATE = 0.25", "RATE = 0.5"),
    ],
)
def test_other_code_is_another_network(tmp_path, old, new):
    assert digest_of(tmp_path / "a", SOURCE) != digest_of(tmp_path / "b", SOURCE.replace(old, new))


def test_settings_count_and_comments_do_not(tmp_path):
    first = digest_of(tmp_path / "a", SOURCE)
    assert first == digest_of(tmp_path / "b", SOURCE.replace("# A comment.", "# Another."))
    assert first != digest_of(tmp_path / "c", SOURCE, power=4)


def test_functions_of_other_modules_count_if_they_are_used(tmp_path):
    first = digest_of(tmp_path / "a", SOURCE)
    assert first == digest_of(tmp_path / "b", SOURCE.replace("x * 9", "x * 10"))
    assert first == digest_of(tmp_path / "c", SOURCE, helpers=HELPERS.replace("11", "12"))
    assert first != digest_of(tmp_path / "d", SOURCE, helpers=HELPERS.replace("10", "12"))


def test_weights_and_mode_do_not_count():
    torch.manual_seed(0)
    one, other = nn.Linear(4, 3), nn.Linear(4, 3).eval()
    assert model_digest(one) == model_digest(other)
    assert model_digest(one) != model_digest(nn.Linear(4, 4))


def test_settings_in_tuples_count():
    one, same, other = nn.Linear(4, 3), nn.Linear(4, 3), nn.Linear(4, 3)
    one.sizes, same.sizes, other.sizes = (1, [2, 3]), (1, [2, 3]), (1, [2, 4])
    assert model_digest(one) == model_digest(same) != model_digest(other)


def test_code_of_pytorch_does_not_count(monkeypatch):
    before = model_digest(nn.Linear(4, 3))
    monkeypatch.setattr(nn.Linear, "forward", lambda self, x: x)
    assert model_digest(nn.Linear(4, 3)) == before


def test_where_the_logits_are_counts():
    model = nn.Linear(4, 3)
    digests = {model_digest(adapt_output(model, output)) for output in (None, 0, 1, "logits")}
    assert len(digests) == 4


def test_hooks_count_wherever_they_are_written():
    def hooked(hook):
        model = nn.Linear(3, 2)
        model.register_forward_hook(hook)
        return model_digest(model)

    first = hooked(lambda module, args, z: z * 2)
    again = hooked(
        lambda module, args, z: z * 2,  # in other lines
    )
    assert first == again != hooked(lambda module, args, z: z * 3)
    assert first != model_digest(nn.Linear(3, 2))

    def elsewhere():
        return hooked(lambda module, args, z: z * 2)

    assert first == elsewhere()


def test_a_forward_of_one_module_counts():
    one, other = nn.Linear(4, 3), nn.Linear(4, 3)
    other.forward = lambda x: nn.Linear.forward(other, x) * 2
    assert model_digest(one) != model_digest(other)


def test_code_that_cannot_be_read_is_no_error():
    names = {}
    exec("def forward(self, x):\n    return x", names)
    kind = type("Unread", (nn.Module,), names)
    assert model_digest(kind()) == model_digest(kind())


def test_what_a_network_counts_while_it_runs_does_not_count():
    class Counting(nn.Linear):
        calls = 0

        def forward(self, x):
            Counting.calls += 1
            return super().forward(x)

    model = Counting(4, 3)
    before = model_digest(model)
    model(torch.ones(1, 4))
    assert model_digest(model) == before


def test_objects_that_answer_any_name_are_no_error():
    class Config(dict):
        __getattr__ = dict.__getitem__

    class Anything:
        def __getattr__(self, name):
            return self

        def __call__(self):
            return self

    names = {"config": Config(width=3), "anything": Anything()}
    exec("def forward(self, x):\n    return x * config.width if anything else x", names)
    kind = type("Configured", (nn.Module,), {"forward": names["forward"]})
    assert model_digest(kind()) == model_digest(kind())
