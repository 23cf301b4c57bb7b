"""Fine-tuned images, made small: the network, its weights from a file, features once."""

import json
import math
from collections import OrderedDict

import pytest
import torch

from experiments.contest import images as study
from experiments.contest.runs import EMBEDDED, HEAD, MEAN, WEIGHTS
from snapsure.evaluation._archive import open_contest
from tests.support.datasets import write_parquet

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("side", [3, 5])
@pytest.mark.parametrize("stride", [1, 2])
def test_padding_is_tensorflows(side, stride):
    """Its rule: ⌈n / stride⌉ values, what they lack in pixels half before, the rest after."""
    n = 12
    conv = study.convolution(1, 1, side, stride)
    lack = max((math.ceil(n / stride) - 1) * stride + side - n, 0)
    first = torch.zeros(1, 1, n, n)
    first[..., 0, 0] = 1
    weights = conv[-2].weight.detach()
    made = conv[:-1](first)
    assert made.shape[-1] == math.ceil(n / stride)
    assert made[0, 0, 0, 0] == weights[0, 0, lack // 2, lack // 2]


def test_the_network_has_as_many_weights_as_its_authors_say():
    """4.7 million, 1,280 features; the package's file has 296 tensors."""
    network = study.efficientnet_lite0(1000)
    assert len(network.state_dict()) == 296
    assert 4.6e6 < sum(weights.numel() for weights in network.parameters()) < 4.7e6
    part = study.copy_trainable(network)
    frozen = network[: 1 + study.FROZEN]
    seen = frozen.eval()(torch.zeros(2, 3, study.SIDE, study.SIDE))
    assert seen.shape == (2, 112, 6, 6)
    assert part.eval()(seen).shape == (2, study.CLASSES)


@pytest.fixture
def weights(tmp_path):
    """The file of a network under other names."""
    torch.manual_seed(0)
    network = study.efficientnet_lite0(1000)
    renamed = OrderedDict((f"_{i}", x) for i, x in enumerate(network.state_dict().values()))
    torch.save(renamed, tmp_path / "weights.pth", _use_new_zipfile_serialization=False)
    return network, tmp_path / "weights.pth"


def test_weights_are_loaded_in_their_order(weights):
    network, path = weights
    again = study.load_pretrained(path)
    x = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    assert torch.equal(again(x), network.eval()(x))


def test_each_training_begins_with_the_pretrained_weights(weights):
    """Seeds that shared modules would go on where the one before ended."""
    _, path = weights
    whole = study.load_pretrained(path)
    before = {
        name: tensor.clone() for name, tensor in study.copy_trainable(whole).state_dict().items()
    }
    with torch.no_grad():
        for tensor in study.copy_trainable(whole).parameters():
            tensor.zero_()
    after = study.copy_trainable(whole).state_dict()
    last = [name for name in before if name.startswith(f"{len(study.copy_trainable(whole)) - 1}.")]
    assert len(last) == 2  # the new layer, which each training draws
    for name in before.keys() - last:
        assert torch.equal(before[name], after[name]), name


def test_features_once_trained_and_packed(weights, tmp_path, monkeypatch):
    for name, value in {"TRAIN": 40, "TEST": 20, "SIDE": 32, "BATCH": 8, "EPOCHS": 2}.items():
        monkeypatch.setattr(study, name, value)
    monkeypatch.setattr(study, "SEEDS", range(1))
    folder = tmp_path / "cifar100"
    for part, start, stop in (("train", 0, 40), ("test", 40, 60)):
        write_parquet(folder / f"{part}.parquet", start, stop, label="fine_label")
    _, path = weights
    out, packed = tmp_path / "runs", tmp_path / "packed"
    study.main(path, folder, out)
    points = study.read(path, folder, out)
    assert points.train[0].shape == (40, 2, 112, 2, 2)
    assert points.test[0].shape == (20, 112, 2, 2)
    kept = sorted(out.rglob("*.*"))
    before = [one.stat().st_mtime_ns for one in kept]
    study.main(path, folder, out)
    assert [one.stat().st_mtime_ns for one in kept] == before
    study.main(path, folder, out, packed=packed)
    (run,) = open_contest(packed)["images"]
    assert run.table.epochs.tolist() == [1, 2, 3, 4]
    assert {"gen", "nn_distance", HEAD, MEAN, WEIGHTS, EMBEDDED} < {*run.others}
    (found,) = json.loads((packed / "contest.json").read_text())["trainings"]["images"]
    assert [row["epoch"] for row in found["log"]] == [0.5, 1.0, 1.5, 2.0]
