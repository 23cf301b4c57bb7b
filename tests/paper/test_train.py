"""Training for real: a step of each recipe, going on after a kill, several processes."""

import json
import signal
import time
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from lightning.fabric import Fabric

from snapsure import SnapshotStore
from snapsure.errors import InvalidInput
from snapsure.kappas import SoftmaxResponse
from snapsure.paper import data, recipes
from snapsure.paper.augment import Augmentation
from snapsure.paper.data import Images
from snapsure.paper.train import Parts, build, draw_batches, is_finished, open_logits, train
from snapsure.scoring import score
from snapsure.scoring._recorded import score_recorded
from snapsure.training._epochs import read_history
from tests.support import processes
from tests.support.tiny import TINY, TRAIN
from tests.support.trainings import CODE, hash_snapshots, load_parts, train_alone

pytestmark = pytest.mark.slow

STILL = Augmentation(flip=False)
PUBLISHED = sorted((Path(__file__).parents[2] / "results").glob("cifar*/experiment.json"))


def quiet(line):
    """Nobody listens."""


@pytest.fixture(scope="module")
def fabric():
    return Fabric(accelerator="cpu", devices=1)


RECIPES = {
    (dataset, scale): recipe
    for dataset, scales in recipes.RECIPES.items()
    for scale, recipe in scales.items()
}


@pytest.mark.parametrize("which", RECIPES)
def test_a_step_of_each_recipe(which, tmp_path, fabric):
    """The whole network, one batch of four images, one epoch."""
    dataset = data.find(which[0])
    torch.manual_seed(0)
    pixels = torch.randint(0, 256, (4, dataset.side, dataset.side, 3), dtype=torch.uint8)
    images = Images(pixels, torch.arange(4))
    recipe = replace(RECIPES[which], epochs=1, batch=4, parts=1, warm_up=0)
    store = train(recipe, Parts(dataset, images, images), tmp_path, 0, fabric, quiet)
    torch.manual_seed(0)
    network = build(recipe, Parts(dataset, images, images))
    before, after = network.state_dict(), store.load(1)
    assert before.keys() == after.keys()
    assert all(torch.isfinite(value).all() for value in after.values())
    weights = {name: value for name, value in network.named_parameters() if value.ndim > 1}
    trained = {name: not torch.equal(before[name], after[name]) for name in weights}
    assert trained == {name: value.requires_grad for name, value in weights.items()}
    (entry,) = read_history(tmp_path)
    assert entry["learning_rate"] == recipe.learning_rate
    logits = np.load(tmp_path / "validation" / "epoch-000001.npy")
    assert logits.shape == (4, dataset.classes)


def test_the_papers_recipes():
    vgg, resnet = (
        recipes.find_recipe("cifar100", "paper"),
        recipes.find_recipe("imagenet-1k", "paper"),
    )
    assert (vgg.network, vgg.epochs, vgg.batch, vgg.learning_rate) == ("vgg16", 250, 128, 0.1)
    assert (vgg.drop_every, vgg.drop, vgg.momentum, vgg.weight_decay) == (20, 0.5, 0.9, 5e-4)
    assert (vgg.networks, vgg.neighbours, vgg.passes) == (5, 500, 100)
    assert (resnet.network, resnet.epochs, resnet.batch) == ("resnet18", 90, 256)
    assert (resnet.learning_rate, resnet.drop_every, resnet.drop) == (0.1, 30, 0.1)
    assert (vgg.width, vgg.dropout, vgg.warm_up, vgg.parts) == (64, (0.3, 0.4, 0.5), 0, 1)
    assert [vgg.nesterov, resnet.nesterov] == [False, False]
    assert vgg.augmentation == Augmentation(flip=True, degrees=15, shift=0.1)
    digits = recipes.find_recipe("svhn", "paper")
    assert digits == replace(vgg, augmentation=replace(vgg.augmentation, flip=False))
    # He et al. (2016): 8 to 100 % of the image, at a ratio of up to 4 : 3, enlarged to 224 pixels.
    crops = Augmentation(flip=True, degrees=0, shift=0, area=(0.08, 1), stretch=4 / 3, size=224)
    assert (resnet.augmentation, resnet.weight_decay, resnet.momentum) == (crops, 1e-4, 0.9)
    assert (resnet.neighbours, resnet.passes, resnet.costly_every) == (None, None, 1)
    tiny = recipes.find_recipe("imagenet-tiny", "cpu-full")
    assert (tiny.epochs, tiny.drop_every, tiny.drop) == (90, 30, 0.1)  # the paper's three rates
    assert tiny.epochs / tiny.parts == 18
    assert (tiny.batch, tiny.weight_decay, tiny.networks) == (128, 5e-4, 3)
    for name in ("cifar10", "cifar100", "svhn"):
        paper = recipes.find_recipe(name, "paper")
        assert (paper.mc_rate, paper.mc_layers) == (paper.dropout[-1], "last")  # as it was trained
        assert paper.mc_statistics == ("variance", "mean")
    small = recipes.find_recipe("cifar100", "cpu")
    assert (small.mc_rate, small.mc_layers, small.mc_statistics) == (None, "all", ("mean",))
    assert (small.width, small.images) == (vgg.width // 4, 50_000 // 5)
    assert (small.epochs, small.batch, small.drop_every, small.drop) == (60, 128, 10, 0.5)
    assert (small.dropout, small.learning_rate) == ((0.0, 0.0, 0.1), 0.05)
    with pytest.raises(InvalidInput, match=r"`dataset` must be .*cifar10.*, got 'mnist'"):
        recipes.find_recipe("mnist", "paper")
    with pytest.raises(InvalidInput, match=r"`scale` must be .*paper.*cpu-full.*, got 'huge'"):
        recipes.find_recipe("cifar10", "huge")
    with pytest.raises(InvalidInput, match=r"`scale` must be paper for imagenet-1k, got 'cpu'"):
        recipes.find_recipe("imagenet-1k", "cpu")


@pytest.mark.parametrize("archive", PUBLISHED, ids=[path.parent.name for path in PUBLISHED])
def test_recipes_are_those_of_the_published_networks(archive):
    about = json.loads(archive.read_text())
    recipe = recipes.find_recipe(about["dataset"], about["scale"])
    assert json.loads(json.dumps(asdict(recipe))) == about["recipe"]


def test_the_rate_grows_in_the_warm_up_and_then_falls_in_steps():
    recipe = replace(TINY, learning_rate=0.8, warm_up=2, drop_every=2.5, drop=0.5)
    at = [0, 0.5, 1, 1.75, 2, 4.25, 4.5, 6.75, 7, 9.4, 9.5]
    assert [recipe.rate(a) for a in at] == pytest.approx(
        [0, 0.2, 0.4, 0.7, 0.8, 0.8, 0.4, 0.4, 0.2, 0.2, 0.1]
    )
    for scale, times in (("cpu-full", 6), ("cpu-full-underfitted", 8)):
        full = recipes.find_recipe("cifar100", scale)
        rates = [full.rate(step / 100) for step in range(100 * full.epochs)]
        drops = sum(later < before for before, later in pairwise(rates))
        assert (drops, rates[-1]) == (times, 0.1 / 2**times)


@pytest.mark.parametrize("parts", [2, 3, 4])
def test_the_parts_of_a_pass_are_an_epoch_each(parts):
    """All parts see each image of a pass once; the next pass is in another order."""
    n, recipe = 150, replace(TINY, parts=parts, epochs=2 * parts)
    seen = [torch.cat(draw_batches(recipe, n, 0, epoch)) for epoch in range(1, 2 * parts + 1)]
    used = n // recipe.batch * recipe.batch
    for one in (seen[:parts], seen[parts:]):
        assert len(torch.cat(one)) == used == len(torch.cat(one).unique())
        assert max(map(len, one)) - min(map(len, one)) <= recipe.batch
    assert not torch.equal(torch.cat(seen[:parts]), torch.cat(seen[parts:]))
    whole = draw_batches(replace(recipe, parts=1), n, 0, parts + 1)
    assert torch.equal(torch.cat(whole), torch.cat(seen[parts:]))
    with pytest.raises(InvalidInput, match="must fill 9 batches of 32 images, got 150 images"):
        draw_batches(replace(recipe, parts=9), n, 0, 1)


def test_processes_take_equal_shares_of_each_batch():
    n = 151  # an odd number, and no multiple of a batch
    both = [draw_batches(TINY, n, 0, 1, rank, 2) for rank in (0, 1)]
    assert [[len(batch) for batch in own] for own in both] == [[TINY.batch // 2] * 4] * 2
    seen = torch.cat([*both[0], *both[1]])
    assert len(seen.unique()) == len(seen)


def test_the_history_has_means_of_the_images_and_seconds(cifar, tmp_path, fabric):
    """One batch of all images, and nothing learned: loss and accuracy of the first weights."""
    n = TRAIN - 10
    recipe = replace(
        TINY, epochs=1, batch=n, learning_rate=0.0, dropout=(0, 0, 0), augmentation=STILL
    )
    begin = time.monotonic()
    train(recipe, load_parts(cifar), tmp_path, 3, fabric, quiet)
    elapsed = time.monotonic() - begin
    (entry,) = read_history(tmp_path)
    torch.manual_seed(3)
    images, network = load_parts(cifar).train.first(n), build(recipe, load_parts(cifar))
    with torch.no_grad():
        logits = network.train()(images.pixels)
    loss = torch.nn.functional.cross_entropy(logits, images.labels)
    assert entry["loss"] == pytest.approx(float(loss), rel=1e-3)
    right = float((logits.argmax(dim=1) == images.labels).float().mean())
    assert entry["running_accuracy"] == pytest.approx(right, abs=0.02)  # some are nearly tied
    assert 0 < entry["seconds"] < elapsed


def test_interrupted_and_resumed_it_is_the_same_training(cifar, tmp_path, fabric):
    """It follows from its seed, whatever was drawn before."""

    def stop(line):
        if line.startswith("epoch 3 "):
            raise KeyboardInterrupt

    def run(name, ambient, seed=0, show=quiet, epochs=TINY.epochs):
        torch.manual_seed(ambient)
        train(replace(TINY, epochs=epochs), load_parts(cifar), tmp_path / name, seed, fabric, show)
        return hash_snapshots(tmp_path / name)

    whole = run("whole", 1)
    with pytest.raises(KeyboardInterrupt):
        run("broken", 2, show=stop)
    assert len(read_history(tmp_path / "broken")) == 3
    assert run("broken", 3) == whole
    assert not {*run("other", 1, seed=1, epochs=1).values()} & {*whole.values()}


def test_it_learns_and_its_rate_falls(cifar, tmp_path, fabric):
    told = []
    recipe = replace(TINY, epochs=12, drop_every=4)
    train(recipe, load_parts(cifar), tmp_path, 0, fabric, told.append)
    history = read_history(tmp_path)
    assert [entry["epoch"] for entry in history] == list(range(1, 13))
    rates = [entry["learning_rate"] for entry in history]
    assert rates == [0.05] * 4 + [0.025] * 4 + [0.0125] * 4
    assert history[-1]["loss"] < history[0]["loss"]
    assert 0 <= history[-1]["training_accuracy"] <= 1
    assert len(told) == 12
    assert told[-1].startswith("epoch 12 of 12: loss ")
    assert told[-1].endswith(", 0 s left")
    assert is_finished(recipe, tmp_path)
    assert not is_finished(TINY, tmp_path / "nowhere")


def test_recorded_logits_give_what_scoring_would(cifar, tmp_path, fabric):
    """The validation pass of each epoch is all that softmax response needs."""
    train(TINY, load_parts(cifar), tmp_path, 0, fabric, quiet)
    table = score_recorded(open_logits(tmp_path))
    test = load_parts(cifar).test
    scored = score(
        build(TINY, load_parts(cifar)),
        tmp_path / "snapshots",
        (test.pixels, test.labels),
        SoftmaxResponse(),
        progress=False,
    )
    assert np.allclose(table.kappa("softmax"), scored.kappa("softmax"), rtol=0, atol=1e-9)
    assert np.array_equal(table.labels, scored.labels)
    assert np.array_equal(table.y, scored.y)
    errors = [entry["test_error"] for entry in read_history(tmp_path)]
    assert errors == [float((own != table.y).mean()) for own in table.labels]


def test_another_recipe_is_refused_where_one_is(cifar, tmp_path, fabric):
    recipe = replace(TINY, epochs=1)
    train(recipe, load_parts(cifar), tmp_path, 0, fabric, quiet)
    for other, seed in ((replace(recipe, learning_rate=0.2), 0), (recipe, 1)):
        with pytest.raises(InvalidInput) as refusal:
            train(other, load_parts(cifar), tmp_path, seed, fabric, quiet)
        assert str(refusal.value).startswith(
            f"{tmp_path} must hold a training of the same recipe, seed, data, devices and "
            "precision, got another one"
        )
    with pytest.raises(InvalidInput):
        train(recipe, load_parts(cifar), tmp_path, 0, Fabric(precision="bf16-mixed"), quiet)


def test_mixed_precision_records_logits_in_full(cifar, tmp_path):
    mixed = Fabric(accelerator="cpu", devices=1, precision="bf16-mixed")
    train(replace(TINY, epochs=1), load_parts(cifar), tmp_path, 0, mixed, quiet)
    logits = np.load(tmp_path / "validation" / "epoch-000001.npy")
    assert (logits.view(np.uint32) & 0xFFFF).any()  # a bfloat16 number would have zeros there


def test_mean_and_deviation_of_the_pixels(cifar):
    layer = build(TINY, load_parts(cifar))[0]
    pixels = load_parts(cifar).train.pixels.double()
    assert torch.allclose(layer.mean.view(3).double(), pixels.mean(dim=(0, 1, 2)))
    assert torch.allclose(layer.std.view(3).double(), pixels.std(dim=(0, 1, 2), correction=0))


def test_whitening_is_fitted_to_the_training_set(cifar):
    parts = load_parts(cifar)
    normalise, body = build(replace(TINY, network="quick"), parts)
    found = body[0](normalise(parts.train.pixels)).permute(0, 2, 3, 1).reshape(-1, 24)[:, :12]
    moments = (found.T @ found / len(found)).diagonal()
    assert moments.max() < 1.01
    assert moments[-1] > 0.99  # along the strongest direction; what is mere rounding is damped


def test_killed_and_resumed_it_equals_an_uninterrupted_one_bit_for_bit(cifar, tmp_path):
    """Killed where a snapshot is there but not yet what says so, amid an epoch, amid a file."""
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    ended = train_alone(cifar, whole, TINY.epochs)
    assert ended.returncode == 0, ended.stderr
    steps = (TRAIN - 10) // TINY.batch  # of an epoch; the first is begun again after the first kill
    for kill in (("save", 1), ("step", 2 * steps + 2), ("replace", 4)):
        ended = train_alone(cifar, broken, TINY.epochs, *kill)
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        assert len(read_history(broken)) < TINY.epochs
    assert len(read_history(broken)) > 0
    ended = train_alone(cifar, broken, TINY.epochs)
    assert ended.returncode == 0, ended.stderr
    assert hash_snapshots(broken) == hash_snapshots(whole)
    assert len(hash_snapshots(whole)) == TINY.epochs
    for epoch in range(1, TINY.epochs + 1):
        name = f"validation/epoch-{epoch:06d}.npy"
        assert (whole / name).read_bytes() == (broken / name).read_bytes()
    told = [[{**e, "seconds": 0} for e in read_history(folder)] for folder in (whole, broken)]
    assert told[0] == told[1]


def test_two_processes_train_one_network(cifar, tmp_path):
    """DDP from the same code: half a batch each, one set of snapshots."""
    processes.run_script(tmp_path / "training.py", CODE, cifar, tmp_path, 2, 2)
    assert SnapshotStore(tmp_path / "snapshots").epochs == [1, 2]
    assert json.loads((tmp_path / "training.json").read_text())["batch"] == TINY.batch
    assert [entry["epoch"] for entry in read_history(tmp_path)] == [1, 2]
    single = tmp_path / "single"
    assert train_alone(cifar, single, 1).returncode == 0
    one, two = (SnapshotStore(path / "snapshots").load(1) for path in (tmp_path, single))
    assert any(not torch.equal(one[name], two[name]) for name in one)  # it saw other batches
