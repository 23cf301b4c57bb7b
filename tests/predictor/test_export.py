"""One graph in ONNX Runtime, and one in PyTorch, give Python's answers."""

import logging

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

from snapsure import AES, LES, PES, Ensemble, Platt, Predictor, SnapshotStore, Threshold, score
from snapsure.errors import InvalidInput
from snapsure.estimators import SPTD, Final
from snapsure.kappas import Margin
from snapsure.predictor._predictor import read_inputs
from tests.support.deployed import fitted

pytestmark = pytest.mark.slow


def inputs_of(deployed):
    """A thousand inputs, most of them no digits."""
    chance = torch.Generator().manual_seed(1)
    noise = torch.randn(1000 - len(deployed.x), *deployed.x.shape[1:], generator=chance)
    return torch.cat([deployed.x, noise])


def agree(found, predictor, x):
    answer = predictor(x)
    label, confidence, accepted = (np.asarray(part) for part in found)
    assert label.tolist() == answer.label.tolist()
    theta = -1 if predictor.threshold is None else predictor.threshold.theta
    clear = inside_layers(predictor, x)
    # LES's log-odds of κ near 1 amplify the last bit of 1 − κ, and the network's own float32.
    near = 1e-5 if isinstance(predictor.estimator, LES) else 1e-6
    assert np.abs(confidence - answer.confidence)[clear].max() < near
    assert np.median(np.abs(confidence - answer.confidence)) < 1e-6
    clear &= np.abs(answer.confidence - theta) > near
    assert clear.mean() > 0.99
    assert accepted[clear].tolist() == answer.accepted[clear].tolist()


def inside_layers(predictor, x):
    """Points that rounding sends to no other layer of PES: its confidence jumps at their edges."""
    if not isinstance(predictor.estimator, PES):
        return np.ones(len(predictor(x).label), bool)
    tables = list(predictor.networks.tables(read_inputs(x)))
    clear = [
        [
            np.abs(table.kappa("softmax")[predictor.epochs.index(layer.cut)] - layer.edge) > 1e-6
            for layer in predictor.estimator.layers_[:-1]
        ]
        for table in tables
    ]
    return np.concatenate([np.all(each, axis=0) for each in clear])


@pytest.mark.parametrize("estimator", [Final(), LES(k=4), LES(passes=1), PES()], ids=repr)
def test_onnx_runtime_gives_the_same(deployed, estimator, tmp_path):
    made, platt, threshold = fitted(estimator, deployed)
    digits = deployed.digits
    predictor = Predictor(digits.model(), digits.store, made, threshold, calibration=platt)
    predictor.export(tmp_path / "model.onnx", deployed.x[:4])
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    assert [output.name for output in session.get_outputs()] == ["label", "confidence", "accepted"]
    (given,) = session.get_inputs()
    x = inputs_of(deployed)
    for rows in (slice(0, 1), slice(0, 7), slice(None)):  # the number of rows is free
        found = session.run(None, {given.name: x[rows].numpy()})
        agree(found, predictor, x[rows])


def test_pt2_gives_the_same(deployed, tmp_path):
    made, _, threshold = fitted(LES(k=4), deployed)
    predictor = Predictor(deployed.digits.model(), deployed.digits.store, made, threshold)
    predictor.export(tmp_path / "model.pt2", deployed.x[:4])
    graph = torch.export.load(tmp_path / "model.pt2").module()
    x = inputs_of(deployed)
    agree([part.detach() for part in graph(x)], predictor, x)


def test_a_threshold_per_class_is_in_the_graph(deployed, tmp_path):
    table, made = deployed.table, LES(k=2).fit(deployed.learn)
    args = (made.confidence(table), table.errors, 0.6)
    threshold = Threshold.at_risk(*args, groups=table.y_hat, groups_are="classes", small="join")
    predictor = Predictor(deployed.digits.model(), deployed.digits.store, made, threshold)
    predictor.export(tmp_path / "model.onnx", deployed.x[:4])
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    accepted = session.run(["accepted"], {session.get_inputs()[0].name: deployed.x.numpy()})[0]
    answer = predictor(deployed.x)
    thetas = np.array([threshold.groups[label] for label in answer.label])
    clear = np.abs(answer.confidence - thetas) > 1e-6
    assert accepted[clear].tolist() == answer.accepted[clear].tolist()
    assert 0 < accepted.mean() < 1


def test_an_ensemble_is_one_graph_too(deployed, other_digits, tmp_path):
    ensemble, model = Ensemble([deployed.digits.store, other_digits.store]), deployed.digits.model()
    table = score(model, ensemble, (deployed.x, deployed.y), progress=False)
    predictor = Predictor(model, ensemble, LES(k=2).fit(table))
    predictor.export(tmp_path / "model.onnx", deployed.x[:4])
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    x = inputs_of(deployed)
    found = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    agree(found, predictor, x)
    assert found[2].all()


@pytest.mark.parametrize("estimator", [Final(), LES(k=4), PES()], ids=repr)
def test_numbers_are_not_rounded_on_the_way(estimator, tmp_path):
    """Confidences that differ in float64 alone, and a threshold that is one of them."""
    store, chance = SnapshotStore(tmp_path / "run"), np.random.default_rng(0)
    for epoch in range(1, 7):
        torch.manual_seed(epoch)
        network = nn.Linear(4, 3)
        network.weight.data *= 15
        store.save(network, epoch)
    x = torch.tensor(chance.normal(size=(1000, 4)), dtype=torch.float32)
    y = torch.tensor(chance.integers(0, 3, 1000))
    table = score(nn.Linear(4, 3), store, (x, y), progress=False)
    made = type(estimator)(**estimator.settings).fit(table)
    platt = None
    if not made.calibrated:
        platt = Platt().fit(made.confidence(table), table.errors)
    predictor = Predictor(nn.Linear(4, 3), store, made, calibration=platt)
    predictor.threshold = Threshold.at_coverage(predictor(x).confidence, 0.5)
    predictor.export(tmp_path / "model.onnx", x[:4])
    assert [path.name for path in tmp_path.glob("model*")] == ["model.onnx"]
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    agree(session.run(None, {"input": x.numpy()}), predictor, x)


class Spoiling(nn.Module):
    """It changes its input."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(x.mul_(2))


def test_networks_that_change_their_input_get_their_own(tmp_path):
    store = SnapshotStore(tmp_path / "run")
    for epoch in (1, 2, 3):
        store.save(Spoiling(), epoch)
    predictor = Predictor(Spoiling(), store, AES())
    predictor.export(tmp_path / "model.onnx", torch.rand(4, 4))
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    x = torch.rand(50, 4)
    agree(session.run(None, {"input": x.numpy()}), predictor, x)


class Words(nn.Module):
    """Takes its inputs by name and gives a mapping, as transformers do."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(20, 8), nn.Linear(8, 3)

    def forward(self, input_ids, attention_mask):
        mean = (self.embedding(input_ids) * attention_mask[:, :, None]).mean(dim=1)
        return {"logits": self.head(mean)}


def test_large_logits_of_either_sign_give_the_same(tmp_path):
    store = SnapshotStore(tmp_path / "run")
    for epoch, sign in ((1, -1.0), (2, 1.0)):  # each prefers another class
        store.save({"weight": sign * torch.eye(3), "bias": torch.zeros(3)}, epoch)
    predictor = Predictor(nn.Linear(3, 3), store, AES(k=2, start=0), Threshold(0.6, 0.5))
    predictor.export(tmp_path / "model.onnx", torch.randn(2, 3))
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    x = torch.cartesian_prod(*[torch.tensor([-3e6, -2000, -700, 0, 700, 2000, 3e6])] * 3)
    agree(session.run(None, {session.get_inputs()[0].name: x.numpy()}), predictor, x)


class Scaled(nn.Module):
    """Its logits overflow for large inputs."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(torch.nan_to_num(x) ** 9)


@pytest.mark.parametrize("suffix", [".onnx", ".pt2"])
def test_what_python_refuses_no_file_accepts(tmp_path, suffix):
    store = SnapshotStore(tmp_path / "run")
    for epoch in (1, 2):
        store.save(Scaled(), epoch)
    predictor = Predictor(Scaled(), store, AES(), Threshold(0.0, 1.0))
    path = tmp_path / f"model{suffix}"
    predictor.export(path, torch.rand(3, 4))
    edges = [0.0, 1.0, 1e4, 2e4, 1e30, -1e30, torch.inf, -torch.inf, torch.nan]
    x = torch.cartesian_prod(*[torch.tensor(edges)] * 4)
    if suffix == ".onnx":
        accepted = onnxruntime.InferenceSession(path).run(["accepted"], {"input": x.numpy()})[0]
    else:
        accepted = torch.export.load(path).module()(x)[2].numpy()
    expected = []
    for row in x[::37]:
        try:
            expected.append(bool(predictor(row[None]).accepted[0]))
        except InvalidInput:
            expected.append(False)
    assert accepted[::37].tolist() == expected
    assert 0 < sum(expected) < len(expected)


class Inconsistent(nn.Module):
    """It computes something else where it is exported."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(-x if torch.compiler.is_exporting() else x)


class OfSixWords(Words):
    """Where it is exported, its confidence is right for texts of six words alone.

    It has an input that is no text: one number for each.
    """

    def forward(self, input_ids, attention_mask, weight):
        total = (self.embedding(input_ids) * attention_mask[:, :, None]).sum(dim=1)
        words = 6 if torch.compiler.is_exporting() else input_ids.shape[1]
        return {"logits": (total * weight[:, None] / words) @ self.head.weight.T}


@pytest.mark.parametrize(
    ("network", "suffix"), [(Inconsistent, ".onnx"), (Inconsistent, ".pt2"), (OfSixWords, ".pt2")]
)
def test_a_file_with_other_answers_is_refused(tmp_path, network, suffix):
    store, example = SnapshotStore(tmp_path / "run"), torch.rand(8, 4)
    store.save(network(), 1)
    if network is OfSixWords:
        ids, weight = torch.randint(20, (8, 6)), 1 + torch.arange(8)
        example = {"input_ids": ids, "attention_mask": torch.ones(8, 6), "weight": weight}
    predictor = Predictor(network(), store, AES())
    with pytest.raises(InvalidInput, match=r"must give the answers of the predictor, got class \d"):
        predictor.export(tmp_path / f"model{suffix}", example)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


class Clamped(nn.Module):
    """ONNX Runtime cannot load its graph with several snapshots, in some versions."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(x.clamp(-1, 1))


def test_a_file_is_loaded_or_refused(tmp_path):
    store = SnapshotStore(tmp_path / "run")
    for epoch in (1, 2, 3):
        store.save(Clamped(), epoch)
    predictor, path, x = Predictor(Clamped(), store, AES()), tmp_path / "m.onnx", torch.randn(9, 4)
    try:
        predictor.export(path, x)
    except InvalidInput as error:
        assert "cannot be run" in str(error)  # noqa: PT017
        assert not path.exists()
    else:
        agree(onnxruntime.InferenceSession(path).run(None, {"input": x.numpy()}), predictor, x)


def test_inputs_by_name(tmp_path):
    store = SnapshotStore(tmp_path / "run")
    for epoch in (1, 2):
        store.save(Words(), epoch)
    predictor = Predictor(Words(), store, AES())
    ids = torch.randint(20, (50, 6))
    batch = {"input_ids": ids, "attention_mask": (ids > 3).float()}
    predictor.export(tmp_path / "model.onnx", {name: x[:3] for name, x in batch.items()})
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    assert [one.name for one in session.get_inputs()] == ["input_ids", "attention_mask"]
    for length in (6, 2):  # of the example, and a shorter one
        some = {name: x[:, :length] for name, x in batch.items()}
        found = session.run(None, {name: x.numpy() for name, x in some.items()})
        agree(found, predictor, some)


class OfOneLength(Words):
    """Its forward makes the length of its example a constant."""

    def forward(self, input_ids, attention_mask):
        scale = 2 if int(input_ids.shape[1]) == 6 else 1
        return super().forward(input_ids, attention_mask * scale)


class Level(nn.Module):
    """The mean of any number of measurements, which moves no logit."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(1, 2)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, x):
        return self.head(x.mean(dim=1, keepdim=True))


def test_a_confidence_at_the_threshold_and_a_fixed_number_of_measurements(tmp_path, caplog):
    store = SnapshotStore(tmp_path / "run")
    store.save(Level(), 1)
    predictor, x = Predictor(Level(), store, AES(), Threshold(0.5, 1.0)), torch.rand(3, 4)
    assert predictor(x).accepted.all()  # with a confidence of exactly 0.5
    predictor.export(tmp_path / "model.onnx", x)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    assert session.get_inputs()[0].shape == ["rows", 4]
    assert session.run(["accepted"], {"input": x.numpy()})[0].all()
    logging.getLogger("mine").warning("heard")  # as before the export
    loud = [record for record in caplog.records if record.levelno > logging.DEBUG]
    assert [record.message for record in loud] == ["heard"]


class Slope(nn.Module):
    """Two classes by one number."""

    def __init__(self):
        super().__init__()
        self.slope = nn.Parameter(torch.tensor([1.0, -1.0]))

    def forward(self, x):
        return x[:, None] * self.slope


def test_inputs_of_one_number_each(tmp_path):
    store, x = SnapshotStore(tmp_path / "run"), torch.linspace(-1, 1, 9)
    store.save(Slope(), 1)
    predictor = Predictor(Slope(), store, AES())
    predictor.export(tmp_path / "model.onnx", x[:3])
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    agree(session.run(None, {"input": x.numpy()}), predictor, x)


def test_a_length_that_cannot_be_free_is_reported(tmp_path):
    store = SnapshotStore(tmp_path / "run")
    store.save(OfOneLength(), 1)
    ids = torch.randint(20, (4, 6))
    with pytest.warns(UserWarning, match="texts as long as those of `example` alone"):
        Predictor(OfOneLength(), store, AES()).export(
            tmp_path / "model.onnx", {"input_ids": ids, "attention_mask": (ids > 3).float()}
        )
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    assert session.get_inputs()[0].shape == ["rows", 6]


def test_a_transformer_takes_texts_of_any_length(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=60,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=40,
        num_labels=3,
    )
    store = SnapshotStore(tmp_path / "run")
    for epoch in (1, 2):
        torch.manual_seed(epoch)
        store.save(transformers.BertForSequenceClassification(config), epoch)

    def tokenize(texts):
        ids = nn.utils.rnn.pad_sequence([torch.tensor([*t.encode()]) % 60 for t in texts], True)
        return {"input_ids": ids, "attention_mask": (ids > 0).long()}

    model = transformers.BertForSequenceClassification(config)
    predictor = Predictor(model, store, AES(), tokenizer=tokenize)
    predictor.export(tmp_path / "model.onnx", ["eighteen characters", "and some"])
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    assert [given.shape for given in session.get_inputs()] == [["rows", "length"]] * 2
    assert [made.shape for made in session.get_outputs()] == [["rows"]] * 3
    for texts in (["a"], ["longer than the example was", "b", "c"], ["!!", "!"]):
        found = session.run(None, {name: x.numpy() for name, x in tokenize(texts).items()})
        agree(found, predictor, texts)


class Odd(nn.Module):
    """Its forward depends on numbers of the batch."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(x if x.sum() > 0 else -x)


class NoOperator(nn.Module):
    """It uses an operator that ONNX has no word for."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(torch.special.bessel_j0(x))


def test_refusals(deployed, tmp_path):
    model, store = deployed.digits.model(), deployed.digits.store
    predictor, x = Predictor(model, store, AES(k=2)), deployed.x[:4]
    cases = [
        (predictor, "model.tf", x, r"`path` must end with \.onnx or \.pt2, got model\.tf"),
        (predictor, "nowhere/m.onnx", x, "`path` must be in an existing folder"),
        (predictor, "m.onnx", torch.rand(4, 3), "`batch` must be what the network takes"),
        (predictor, "m.onnx", x[:1], "at least two inputs, got 1"),
        (Predictor(model, store, SPTD()), "m.onnx", x, "`estimator` must .*got SPTD"),
        (Predictor(model, store, AES(k=2), kappa=Margin()), "m.onnx", x, "got margin"),
        (Predictor(model, store, AES(k=2), memory=1), "m.onnx", x, "`memory` must hold all"),
    ]
    for network, word in ((Odd(), r"x\.sum\(\) > 0"), (NoOperator(), "bessel_j0")):
        own = SnapshotStore(tmp_path / type(network).__name__)
        own.save(network, 1)
        words = f"`model` must be one that PyTorch can export, got .*{word}"
        cases.append((Predictor(network, own, AES()), "m.onnx", torch.rand(4, 4), words))
    for ours, path, example, words in cases:
        with pytest.raises(InvalidInput, match=words):
            ours.export(tmp_path / path, example)
        assert not (tmp_path / path).exists()
