"""Faster ways to run a network: the same logits, one way for a table, eager where a way fails."""

import shutil

import numpy as np
import pytest
import torch
from torch import nn

from snapsure import AES, MCDropout, Predictor, SnapshotStore, score
from snapsure.errors import InvalidInput
from snapsure.networks import _runner, _ways
from snapsure.networks._data import Rows
from snapsure.networks._runner import Runner
from snapsure.networks._ways import WAYS, choose_way, make_form
from snapsure.training._targets import Targets
from tests.support.refusals import refuses
from tests.support.ways import Slow, X, network, record, slow_network, wait

EPOCHS = (1, 2, 3)


def block(*, inplace=False, **options):
    return nn.Conv2d(3, 3, 3, padding=1, **options), nn.BatchNorm2d(3), nn.ReLU(inplace)


class Residual(nn.Module):
    """Reads what a block gives twice, and calls ReLU as a function."""

    def __init__(self):
        super().__init__()
        self.block, self.last = nn.Sequential(*block(inplace=True)), nn.Sequential(*block()[:2])

    def forward(self, x):
        x = self.block(x)
        return nn.functional.relu(x + self.last(x))


class ReadTwice(nn.Module):
    """Reads the output of a convolution beside its normalisation."""

    def __init__(self):
        super().__init__()
        self.convolution, self.norm, self.relu = block()

    def forward(self, x):
        x = self.convolution(x)
        return self.relu(self.norm(x)) + x


class CalledTwice(nn.Module):
    """Calls one convolution twice, and normalises once."""

    def __init__(self):
        super().__init__()
        self.convolution, self.norm, self.relu = block()

    def forward(self, x):
        return self.relu(self.norm(self.convolution(self.convolution(x))))


class Branches(ReadTwice):
    """Leaves out the normalisation where the values say so."""

    def forward(self, x):
        x = self.convolution(x)
        return x if self.asks(x) else self.relu(self.norm(x))


class Writes(ReadTwice):
    """Overwrites rare values between convolution and normalisation."""

    def forward(self, x):
        rare = x.amax(dim=1, keepdim=True) > 3
        x = self.convolution(x)
        x[rare.expand(-1, 3, -1, -1)] = 0
        return self.relu(self.norm(x))


def hooked():
    convolution, norm, relu = block()
    norm.register_forward_hook(lambda module, args, output: output + 1)
    return nn.Sequential(convolution, norm, relu)


class Shares(nn.Module):
    """Calls one linear layer twice, and a ReLU after the second call."""

    def __init__(self):
        super().__init__()
        self.linear, self.relu = nn.Linear(8, 8), nn.ReLU()

    def forward(self, x):
        return self.relu(self.linear(self.linear(x)))


class Reads(nn.Module):
    """Reads what a linear layer gives beside its ReLU."""

    def __init__(self):
        super().__init__()
        self.linear, self.relu = nn.Linear(8, 8, bias=False), nn.ReLU()

    def forward(self, x):
        x = self.linear(x)
        return self.relu(x) + x


class Named(ReadTwice):
    """Has a convolution under two names, and calls it by the second."""

    def __init__(self):
        super().__init__()
        self.same = self.convolution

    def forward(self, x):
        return self.relu(self.norm(self.same(x)))


NETWORKS = {
    "two names": (Named, 0),
    "plain": (lambda: nn.Sequential(*block()), 0),
    "in place": (lambda: nn.Sequential(*block(inplace=True), *block(inplace=True)), 0),
    "strides, groups": (lambda: nn.Sequential(*block(stride=2, groups=3, bias=False)), 0),
    "circular": (lambda: nn.Sequential(*block(padding_mode="circular")), 0),
    "residual": (Residual, 0),
    "read twice": (ReadTwice, 1),
    "called twice": (CalledTwice, 1),
    "hooked": (hooked, 1),
    "linear": (
        lambda: nn.Sequential(nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 8), nn.ReLU(True)),
        0,
    ),
    "linear, called twice": (Shares, 0),
    "linear, read twice": (Reads, 0),
    "no statistics": (
        lambda: nn.Sequential(nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3, track_running_stats=False)),
        1,
    ),
}


@pytest.mark.parametrize("way", WAYS[1:])
@pytest.mark.parametrize("name", NETWORKS)
@torch.inference_mode()
def test_every_form_gives_the_same_logits(name, way):
    make, norms = NETWORKS[name]
    model = network(make())
    expected, before = model(X), [*model.modules()]
    form = make_form(model, way, lambda module: module(X[:4].clone()), model(X[:4]))
    scale = expected.abs().max().item()
    torch.testing.assert_close(form(X), expected, rtol=0, atol=1e-5 * scale)
    if way == "fused":  # nothing is folded that something else reads, or that a hook watches
        assert sum(isinstance(layer, nn.BatchNorm2d) for layer in form.modules()) == norms
    hooks = [sum(len(m._forward_hooks) for m in one.modules()) for one in (form, model)]
    assert hooks[0] == hooks[1]
    assert [*model.modules()] == before
    assert torch.equal(model(X), expected)


@pytest.mark.parametrize("asks", ["item", "tolist", "numpy", "__bool__", "__float__"])
@torch.inference_mode()
def test_a_network_that_runs_by_values_has_only_its_linear_layers_packed(asks):
    Branches.asks = lambda self, x: np.min(getattr((x - 5).max() > 0, asks)())
    model = network(Branches())
    form = make_form(model, "fused", lambda module: module(X[:2]), model(X[:2]))
    kinds = [type(layer) for layer in form.modules()]
    assert nn.BatchNorm2d in kinds
    assert nn.ReLU in kinds
    assert (nn.Linear in kinds) != torch.backends.mkldnn.is_available()
    far = X * 20  # the other branch
    torch.testing.assert_close(form(far), model(far), rtol=1e-5, atol=1e-4)
    assert (model[0].convolution(far) > 5).any()


@torch.inference_mode()
def test_what_a_network_writes_before_a_normalisation_stays_before_it():
    model = network(Writes())
    assert (X[:2] <= 3).all()
    assert (X > 3).any()
    form = make_form(model, "fused", lambda module: module(X[:2]), model(X[:2]))
    torch.testing.assert_close(form(X), model(X), rtol=1e-5, atol=1e-5)


@torch.inference_mode()
@pytest.mark.parametrize("layers", [block, lambda: (nn.Linear(8, 8), nn.ReLU())])
def test_a_fused_relu_hides_no_nan(layers):
    model = network(*layers())
    form = make_form(model, "fused", lambda module: module(X), model(X))
    apart = any(isinstance(layer, nn.ReLU) for layer in form.modules())
    assert apart != torch.backends.mkldnn.is_available()
    broken = X.clone()
    broken[3, 1, 4, 4] = float("nan")
    assert torch.equal(form(broken).isnan(), model(broken).isnan())


@torch.inference_mode()
def test_other_logits_and_failures_make_no_form():
    model = network(*block())
    for scale in (1e-3, 1, 1e3):

        def run(module, scale=scale):
            return module(X) * scale

        assert make_form(model, "fused", run, run(model) * 1.001) is None
        assert make_form(model, "fused", run, run(model)) is not None

    class Views(nn.Module):
        def forward(self, x):
            return x.view(len(x), -1)[:, :12]

    model = network(*block())
    model[3], model[4] = Views(), nn.Identity()
    assert make_form(model, "channels_last", lambda module: module(X), model(X)) is None


@pytest.fixture
def slow(monkeypatch):
    monkeypatch.setattr(Slow, "slow_eager", True)
    return slow_network()


@torch.inference_mode()
def test_the_fastest_way_is_chosen_where_there_is_work(slow):
    def run(module):
        return module(X[:16])

    assert choose_way(slow, run, passes=10_000) in WAYS[1:]
    assert choose_way(slow, run, passes=10) == "eager"
    assert choose_way(nn.Sequential(*slow[:-1]), run, passes=10_000) in WAYS[1:]  # no linear layer
    Slow.slow_eager = False
    assert choose_way(slow, run, passes=10_000) == "eager"


@pytest.mark.parametrize(("seconds", "is_worth_it"), [(0.94, True), (0.95, False)])
def test_a_form_is_chosen_where_it_saves_a_twentieth(slow, monkeypatch, seconds, is_worth_it):
    def measure(run, module, clock):
        return 0.02 * (1 if module is slow else seconds)

    monkeypatch.setattr(_ways, "_seconds", measure)
    way = choose_way(slow, lambda module: module(X[:2]).detach(), passes=10_000)
    assert (way != "eager") == is_worth_it


@torch.inference_mode()
def test_linear_layers_alone_can_be_fused_where_onednn_is():
    class Waits(nn.Module):
        """Takes a while unless its layer is packed."""

        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 4)

        def forward(self, x):
            wait(0.02 if type(self.linear) is nn.Linear else 0)
            return self.linear(x)

    way = choose_way(Waits(), lambda module: module(X[:, 0, 0]), passes=1_000)
    assert way == ("fused" if torch.backends.mkldnn.is_available() else "eager")


@torch.inference_mode()
def test_weights_are_packed_for_one_row_and_for_several():
    """oneDNN orders them otherwise."""
    model = nn.Sequential(*block()).eval()
    form = make_form(model, "fused", lambda module: module(X[:2]), model(X[:2]))
    rectified = next(layer for layer in form.modules() if hasattr(layer, "_weights"))
    for rows, packed in ((5, {False}), (1, {False, True}), (40, {False, True})):
        torch.testing.assert_close(form(X[:rows]), model(X[:rows]), rtol=1e-5, atol=1e-6)
        assert {*rectified._weights} == packed


@torch.inference_mode()
def test_nothing_is_measured_where_no_form_differs():
    """oneDNN packs single precision alone; subclasses of a linear layer stay as they are."""

    class Other(nn.Linear):
        pass

    passes = []
    for model in (nn.Sequential(nn.Linear(8, 4).double()), nn.Sequential(Other(8, 4))):
        assert choose_way(model, passes.append, passes=1_000) == "eager"
    assert passes == []


@pytest.fixture
def store(slow, tmp_path):
    return record(slow, tmp_path / "run", EPOCHS)


def eager_logits(model, store, epoch, x=X):
    store.load_into(model, epoch)
    with torch.inference_mode():
        return model.eval()(x)


@pytest.mark.parametrize("way", WAYS[1:])
def test_a_runner_loads_other_snapshots_into_forms(slow, store, way):
    runner = Runner(slow, [store], EPOCHS, way=way)
    for epochs in ((3, 2), (2, 1), (3,)):
        runner.load(epochs)
        for logits, epoch in zip(runner.logits(epochs, X), epochs, strict=True):
            torch.testing.assert_close(
                logits, eager_logits(slow, store, epoch), rtol=1e-5, atol=1e-6
            )
        assert all(network.is_form for network in runner.networks(epochs))


def test_a_batch_that_a_form_does_not_take_runs_eagerly(slow, store):
    class Picky(nn.Sequential):
        def forward(self, x):
            if len(x) > 2:
                self[0].weight.view(-1)  # fails where weights lie as channels_last
            return super().forward(x)

    picky = Picky(*slow)
    runner = Runner(picky, [store], EPOCHS, way="channels_last")
    runner.load([2])
    assert torch.equal(runner.logits([2], X)[0], eager_logits(slow, store, 2))
    assert runner.networks([2])[0].is_form
    for _ in range(2):
        with refuses(InvalidInput, "`data`", "shape (40, 2, 8, 8)"):
            runner.logits([2], X[:, :2])
        shutil.rmtree(store.path, ignore_errors=True)  # the first refusal has read it


def test_a_network_that_changes_its_input_gets_a_copy_where_its_form_fails(slow, store):
    class Shifting(nn.Sequential):
        def forward(self, x):
            x.sub_(0.5)
            if len(x) > 2:
                self[0].weight.view(-1)  # fails where weights lie as channels_last
            return super().forward(x)

    runner = Runner(Shifting(*slow), [store], EPOCHS, way="channels_last")
    runner.load([2])
    x = X.clone()
    assert torch.equal(runner.logits([2], x)[0], eager_logits(slow, store, 2, X - 0.5))
    assert runner.networks([2])[0].is_form
    assert torch.equal(x, X)


def test_one_pass_of_two_rows_shows_how_layers_follow(slow, store, monkeypatch):
    """It keeps in memory all that is computed."""
    seen = []
    monkeypatch.setattr(_ways, "_fuse", lambda form, run: seen.append(len(run(form))))
    monkeypatch.setattr(_ways, "_WORTH", 0.0)
    runner = Runner(slow, [store], EPOCHS, way=None, rows=100_000)
    runner.load([3])
    runner.logits([3], X)
    assert {*seen} == {2}


@pytest.mark.parametrize(
    ("rows", "measured"), [(499, []), (768, [1]), (5_000, [5]), (100_000, [16])]
)
def test_ways_are_measured_on_a_thousandth_of_the_work(slow, store, monkeypatch, rows, measured):
    found = []

    def choose(module, run, passes, few):
        assert len(few(module)) == min(2, len(run(module)))
        found.append((len(run(module)), passes))
        return "eager"

    monkeypatch.setattr(_runner, "choose_way", choose)
    monkeypatch.setattr(_runner, "SAMPLED", 16)
    runner = Runner(slow, [store], EPOCHS, way=None, rows=rows)
    runner.load([3])
    runner.logits([3], X)
    assert found == [(count, rows / count) for count in measured]
    assert runner.way == "eager"


def test_inputs_by_name_run_in_the_fastest_way_too(slow, store):
    class Named(nn.Sequential):
        def forward(self, image):
            return super().forward(image)

    runner = Runner(Named(*slow), [store], EPOCHS, way=None)
    runner.load([3])
    logits = runner.logits([3], {"image": X})[0]
    assert runner.way in WAYS[1:]
    torch.testing.assert_close(logits, eager_logits(slow, store, 3), rtol=1e-5, atol=1e-6)


def files_of(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.npy")}


@pytest.mark.slow
def test_a_table_keeps_its_way_and_its_predictor_too(slow, store, tmp_path):
    x = X.repeat(20, 1, 1, 1)
    y = torch.arange(len(x)) % 4
    table = score(slow, store, (x, y), out=tmp_path / "scores", progress=False)
    way, first = table.provenance["way"], files_of(tmp_path / "scores")
    assert way in WAYS[1:]

    Slow.slow_eager = False  # a new choice would be another
    for piece in sorted((tmp_path / "scores" / "softmax").rglob("*.npy"))[1:]:
        piece.unlink()
    table = score(slow, store, (x, y), out=tmp_path / "scores", progress=False)
    assert (table.provenance["way"], files_of(tmp_path / "scores")) == (way, first)

    predictor = Predictor.fit(slow, store, table)
    predictor.save(tmp_path / "predictor")
    for one in (predictor, Predictor.load(tmp_path / "predictor", slow)):
        assert one(x).confidence.tolist() == one.confidence(table).tolist()
        assert one.networks.way == way
    assert Predictor.load(tmp_path / "predictor", slow, speed="exact").networks.way == "eager"
    with refuses(InvalidInput, "`out`", "other way"):
        score(slow, store, (x, y), out=tmp_path / "scores", speed="exact", progress=False)


def test_exact_is_what_pytorch_gives(slow, store, capsys):
    Slow.slow_eager = False
    table = score(slow, store, X, speed="exact")
    assert "scoring (eager)" in capsys.readouterr().err
    p = [eager_logits(slow, store, epoch).double().softmax(dim=1) for epoch in EPOCHS]
    kappas = [one[torch.arange(len(X)), torch.from_numpy(table.y_hat)].tolist() for one in p]
    np.testing.assert_allclose(table.kappa("softmax"), kappas, rtol=1e-12)
    assert table.provenance["way"] == "eager"
    with refuses(InvalidInput, "`speed`", "auto", "exact", "fast"):
        score(slow, store, X, speed="fast", progress=False)


def test_kappas_that_watch_a_network_keep_it_as_it_is(slow, store):
    model = nn.Sequential(*slow[:5], nn.Dropout(0.5), slow[5])
    renamed = SnapshotStore(store.path.parent / "renamed")
    for epoch in EPOCHS:
        state = store.load(epoch)
        renamed.save({k.replace("5.", "6."): v for k, v in state.items()}, epoch)
    Slow.slow_eager = False
    table = score(model, renamed, X, MCDropout(2), progress=False)
    assert table.provenance["way"] == "eager"


@pytest.mark.slow
def test_a_predictor_by_hand_measures_once(slow, store, tmp_path):
    predictor = Predictor(slow, store, AES(k=2))
    assert predictor.networks.way is None
    first = predictor(X)
    way = predictor.networks.way
    assert way in WAYS[1:]
    Slow.slow_eager = False
    assert predictor(X).confidence.tolist() == first.confidence.tolist()
    predictor.save(tmp_path / "predictor")
    again = Predictor.load(tmp_path / "predictor", slow)
    assert again(X).confidence.tolist() == first.confidence.tolist()
    predictor.export(tmp_path / "model.pt2", X[:2])


def test_a_student_follows_from_its_seed_and_not_from_measured_times(slow, store, tmp_path):
    is_eager = []
    slow[0].register_forward_hook(lambda module, *_: is_eager.append(module.weight.is_contiguous()))
    targets = Targets(tmp_path / "targets", Rows.of((X.repeat(20, 1, 1, 1), None), "data"))
    targets.compute(slow, store, EPOCHS, 1 << 30, lambda rows: None)
    assert is_eager
    assert all(is_eager)
