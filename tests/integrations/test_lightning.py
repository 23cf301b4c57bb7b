"""Lightning's Trainer, as it is."""

import logging

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from peft import LoraConfig, get_peft_model
from torch import nn
from torch.utils.data import DataLoader, SubsetRandomSampler, TensorDataset

from snapsure import Evenly, SnapshotStore, score
from snapsure.errors import InvalidInput
from snapsure.integrations.lightning import SnapshotCallback
from snapsure.training import Numbered, SelfAdaptive
from tests.support import processes
from tests.support.refusals import refuses

pytestmark = [
    pytest.mark.slow,
    # Lightning's advice: more workers than there are cores, a validation loop, no shuffling.
    pytest.mark.filterwarnings("ignore::lightning.fabric.utilities.warnings.PossibleUserWarning"),
    # Going on, it finds its own checkpoints.
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty"),
    # Lightning reads PyTorch's trees in a way that PyTorch is giving up.
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
]


class Module(pl.LightningModule):
    """A network in an attribute, beside a loss that has a buffer."""

    def __init__(self, network):
        super().__init__()
        self.save_hyperparameters(ignore="network")
        self.network = network
        self.loss = nn.CrossEntropyLoss(weight=torch.ones(10))

    def training_step(self, batch, _):
        images, labels = batch
        return self.loss(self.network(images), labels)

    def validation_step(self, batch, _, dataloader_idx=0):
        images, labels = batch
        self.log("val_loss", self.loss(self.network(images), labels))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


def trainer(folder, *callbacks, epochs=3, **more):
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    return pl.Trainer(
        **{
            "max_epochs": epochs,
            "callbacks": list(callbacks),
            "default_root_dir": folder,
            "accelerator": "cpu",
            "logger": False,
            "enable_checkpointing": any(isinstance(c, ModelCheckpoint) for c in callbacks),
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "log_every_n_steps": 1,
            **more,
        }
    )


def loaders(digits, shuffled=False):
    """Training and validation data; the latter in batches that do not fit evenly."""
    torch.manual_seed(0)
    return (
        DataLoader(TensorDataset(*digits.train), batch_size=64, shuffle=True),
        DataLoader(TensorDataset(*digits.test), batch_size=100, shuffle=shuffled),
    )


def module(digits):
    torch.manual_seed(0)
    return Module(digits.model())


def recording(folder, name="store", **options):
    """A callback that records logits, too."""
    return SnapshotCallback(folder / name, validation=folder / "logits", **options)


def same_scores(a, b):
    for one, other in ((a.y, b.y), (a.y_hat, b.y_hat), (a.labels, b.labels)):
        assert np.array_equal(one, other)
    assert np.array_equal(a.kappa("softmax"), b.kappa("softmax"))


def test_every_epoch_the_networks_own_weights(digits, tmp_path):
    """Lightning's own checkpoints of the same training are the judge."""
    callback = SnapshotCallback(tmp_path / "store")
    theirs = ModelCheckpoint(tmp_path / "theirs", save_top_k=-1, save_last=True)
    trainer(tmp_path, callback, theirs).fit(module(digits), *loaders(digits))
    adopted = SnapshotStore.adopt(tmp_path / "theirs")
    assert callback.store.epochs == [1, 2, 3]
    assert adopted.epochs == [0, 1, 2]  # as Lightning writes them
    for epoch in callback.store:
        ours = callback.store.load(epoch)
        assert ours.keys() == digits.model().state_dict().keys()
        model = digits.model()
        adopted.load_into(model, epoch - 1)
        assert all(torch.equal(model.state_dict()[name], ours[name]) for name in ours)
    assert not torch.equal(callback.store.load(1)["8.bias"], callback.store.load(3)["8.bias"])


def test_the_validation_table_is_what_scoring_would_give(digits, tmp_path):
    callback = recording(tmp_path)
    trainer(tmp_path, callback).fit(module(digits), *loaders(digits))
    same_scores(
        callback.table(), score(digits.model(), callback.store, loaders(digits)[1], progress=False)
    )
    assert callback.table().epochs.tolist() == [1, 2, 3]


class ByName(Module):
    """Batches as data sets of Hugging Face's give them, with names of one's own."""

    def __init__(self, network, image, label):
        super().__init__(network)
        self.image, self.label = image, label

    def training_step(self, batch, _):
        return self.loss(self.network(batch[self.image]), batch[self.label])

    def validation_step(self, batch, _, dataloader_idx=0):
        self.log("val_loss", self.training_step(batch, _))


def named_loaders(digits, image, label):
    parts = [
        [{image: x, label: y} for x, y in zip(*part, strict=True)]
        for part in (digits.train, digits.test)
    ]
    torch.manual_seed(0)
    return DataLoader(parts[0], batch_size=64, shuffle=True), DataLoader(parts[1], batch_size=100)


@pytest.mark.parametrize(("image", "label"), [("x", "y"), ("pixel_values", "labels")])
def test_batches_by_name(digits, tmp_path, image, label):
    torch.manual_seed(0)
    module = ByName(digits.model(), image, label)
    callback = recording(tmp_path)
    _, validation = named = named_loaders(digits, image, label)
    trainer(tmp_path, callback, epochs=2).fit(module, *named)
    assert np.array_equal(callback.table().y, digits.test[1])
    same_scores(callback.table(), score(digits.model(), callback.store, validation, progress=False))


def test_batches_whose_classes_have_another_name(digits, tmp_path):
    module, run = ByName(digits.model(), "image", "digit"), trainer(tmp_path, recording(tmp_path))
    words = "targets or target", "got a dict with image, digit"
    with refuses(InvalidInput, "validation batch", *words):
        run.fit(module, *named_loaders(digits, "image", "digit"))


def test_no_pass_is_added(digits, tmp_path):
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.calls = digits.model(), 0

        def forward(self, images):
            self.calls += 1
            return self.inner(images)

    calls = []
    for validation in (None, tmp_path / "logits"):
        torch.manual_seed(0)
        model = Module(Counting())
        callback = SnapshotCallback(tmp_path / f"store-{validation is None}", validation=validation)
        trainer(tmp_path, callback).fit(model, *loaders(digits))
        calls.append(model.network.calls)
    assert calls[0] == calls[1] > 0


def test_a_schedule_and_halved_weights(digits, tmp_path, capsys):
    callback = SnapshotCallback(tmp_path / "store", Evenly(total=6, k=3), dtype="bfloat16")
    trainer(tmp_path, callback, epochs=6).fit(module(digits), loaders(digits)[0])
    assert callback.store.epochs == [2, 4, 6]
    assert f"{callback.store.path}: 3 snapshots" in capsys.readouterr().err
    weight = callback.store.load(6)["0.weight"]
    assert torch.equal(weight, weight.bfloat16().float())


def test_a_module_that_is_the_network_itself(digits, tmp_path):
    class Itself(Module):
        def __init__(self):
            super().__init__(nn.Linear(8, 10))
            self.first = nn.Linear(64, 8)

        def training_step(self, batch, _):
            return self.loss(self.network(self.first(batch[0].flatten(1)).relu()), batch[1])

    whole = SnapshotCallback(tmp_path / "a")
    named = SnapshotCallback(tmp_path / "b", network="first")
    trainer(tmp_path, whole, named, epochs=1).fit(Itself(), loaders(digits)[0])
    assert {"network.weight", "first.weight"} <= whole.store.load(1).keys()
    assert named.store.load(1).keys() == {"weight", "bias"}
    run = trainer(tmp_path, SnapshotCallback(tmp_path / "c", network="net"))
    with refuses(InvalidInput, "`network`", "got 'net'", "network, first"):
        run.fit(Itself(), loaders(digits)[0])


def test_resumed_it_goes_on_and_started_anew_it_refuses(digits, tmp_path):
    def checkpoints():
        return ModelCheckpoint(tmp_path / "theirs", save_top_k=-1, filename="{epoch}")

    trainer(tmp_path, recording(tmp_path), checkpoints()).fit(module(digits), *loaders(digits))
    held = SnapshotStore(tmp_path / "store")
    first = {epoch: held.sha256(epoch) for epoch in held}
    callback = recording(tmp_path)
    resumed = trainer(tmp_path, callback, checkpoints(), epochs=4)
    resumed.fit(module(digits), *loaders(digits), ckpt_path=tmp_path / "theirs" / "epoch=1.ckpt")
    assert callback.store.epochs == callback.table().epochs.tolist() == [1, 2, 3, 4]
    assert callback.store.sha256(2) == first[2]

    with refuses(InvalidInput, "`store`", f"got 4 snapshots in {tmp_path / 'store'}"):
        trainer(tmp_path, recording(tmp_path)).fit(module(digits), *loaders(digits))


def test_validation_that_tells_no_kappa_is_refused(digits, tmp_path):
    train, _ = loaders(digits)

    def fit(model, validation):
        run = trainer(tmp_path, recording(tmp_path), num_sanity_val_steps=0)
        run.fit(model, train, validation)

    chosen = DataLoader(TensorDataset(*digits.test), sampler=SubsetRandomSampler(range(100)))
    for loader in (loaders(digits, shuffled=True)[1], chosen):
        with refuses(InvalidInput, "validation loader", "shuffles", "shuffle=False"):
            fit(module(digits), loader)
    with refuses(InvalidInput, "`model`", "got probabilities"):
        fit(Module(nn.Sequential(digits.model(), nn.Softmax(dim=1))), loaders(digits)[1])

    class Twice(Module):
        def validation_step(self, batch, index):
            self.network(batch[0])
            super().validation_step(batch, index)

    with refuses(InvalidInput, "got [(100, 10), (100, 10)] for 100 labels", "network=..."):
        fit(Twice(digits.model()), loaders(digits)[1])
    with refuses(InvalidInput, f"got none in {tmp_path / 'logits'}"):
        recording(tmp_path, "silent").table()
    with refuses(InvalidInput, "`validation`", "got None"):
        SnapshotCallback(tmp_path / "store").table()


def test_other_validations_are_not_recorded(digits, tmp_path):
    """Neither the check before training, nor a second loader, nor a call on its own."""
    callback = recording(tmp_path)
    train, validation = loaders(digits)
    run = trainer(tmp_path, callback, epochs=1, num_sanity_val_steps=2)
    run.fit(module(digits), train, [validation, train])
    run.validate(module(digits), validation, verbose=False)
    assert callback.table().labels.shape == (1, len(validation.dataset))


def test_validation_that_is_no_epochs_end_is_left_out(digits, tmp_path):
    """The table is what scoring would give, or has no such epoch."""
    callback = recording(tmp_path)
    run = trainer(tmp_path, callback, epochs=2, val_check_interval=7)  # of 16 batches
    run.fit(module(digits), *loaders(digits))
    assert callback.store.epochs == [1, 2]
    with refuses(InvalidInput, "got none"):
        callback.table()


def test_a_try_leaves_nothing(digits, tmp_path):
    run = trainer(tmp_path, recording(tmp_path), fast_dev_run=True)
    run.fit(module(digits), *loaders(digits))
    assert not list(tmp_path.iterdir())


def test_after_an_exception_nothing_listens(digits, tmp_path):
    class Fails(Module):
        def validation_step(self, batch, index):
            super().validation_step(batch, index)
            raise RuntimeError("in mid-validation")

    model, run = (
        Fails(digits.model()),
        trainer(tmp_path, recording(tmp_path), num_sanity_val_steps=0),
    )
    with pytest.raises(RuntimeError, match="in mid-validation"):
        run.fit(model, *loaders(digits))
    assert not model.network._forward_hooks


def test_weights_beside_the_only_child_are_not_lost(digits, tmp_path):
    class Scaled(Module):
        def __init__(self):
            super().__init__(digits.model())
            self.scale = nn.Parameter(torch.ones(()))

        def training_step(self, batch, _):
            return self.loss(self.scale * self.network(batch[0]), batch[1])

    callback = SnapshotCallback(tmp_path / "store")
    trainer(tmp_path, callback, epochs=1).fit(Scaled(), loaders(digits)[0])
    assert {"scale", "network.0.weight"} <= callback.store.load(1).keys()


def test_another_trainings_logits_are_kept(digits, tmp_path):
    callback = recording(tmp_path)
    trainer(tmp_path, callback, epochs=1).fit(module(digits), *loaders(digits))
    with refuses(InvalidInput, "`validation`", f"got logits of 1 epochs in {tmp_path / 'logits'}"):
        trainer(tmp_path, recording(tmp_path, "other")).fit(module(digits), *loaders(digits))
    assert callback.table().epochs.tolist() == [1]


SCRIPT = """
import sys, warnings
from pathlib import Path
import torch
warnings.simplefilter("ignore")
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset
from tests.support.network import digits_network
from tests.integrations.test_lightning import Module, recording, trainer

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    images, labels = load_digits(return_X_y=True)
    data = TensorDataset(
        torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16, torch.tensor(labels)
    )
    torch.manual_seed(0)
    callback = recording(folder)
    trainer(folder, callback, epochs=2, devices=2, strategy="ddp").fit(
        Module(digits_network()),
        DataLoader(torch.utils.data.Subset(data, range(1000)), batch_size=50, shuffle=True),
        DataLoader(torch.utils.data.Subset(data, range(1000, 1797)), batch_size=50),
    )
    print("wrote", callback.store._lock is not None)
"""


def test_two_processes_one_writer(digits, tmp_path):
    """DDP over gloo: 797 points for two processes, one of which gets a point twice."""
    told = processes.run_script(tmp_path / "script.py", SCRIPT, tmp_path)
    assert sorted(told.split()) == ["False", "True", "wrote", "wrote"]
    store = SnapshotStore(tmp_path / "store")
    store.verify()
    assert store.epochs == [1, 2]
    scored = score(digits.model(), store, digits.test, progress=False)
    table = recording(tmp_path, "other").table()
    assert np.array_equal(table.y, scored.y)
    assert np.allclose(table.kappa("softmax"), scored.kappa("softmax"), rtol=0, atol=1e-6)


def test_a_loss_that_remembers_every_point_resumes_with_the_training(digits, tmp_path):
    """As an attribute of the module it is in every checkpoint, and in no snapshot."""
    points = len(digits.train[1])

    class Remembering(Module):
        def __init__(self, network):
            super().__init__(network)
            self.loss = SelfAdaptive(points, 10, start=1)

        def training_step(self, batch, _):
            images, labels, index = batch
            return self.loss(self.network(images), labels, index)

    def fit(name, epochs, resumed=None):
        torch.manual_seed(0)
        module = Remembering(digits.model())
        data = DataLoader(Numbered(TensorDataset(*digits.train)), batch_size=64)
        folder = tmp_path / name
        kept = ModelCheckpoint(folder, filename="last")
        recorded = SnapshotCallback(folder / "store")
        trainer(folder, kept, recorded, epochs=epochs).fit(module, data, ckpt_path=resumed)
        return module

    first = fit("run", 2)
    kept = torch.load(tmp_path / "run" / "last.ckpt", weights_only=True)["state_dict"]
    assert torch.equal(kept["loss.targets"], first.loss.targets)
    resumed = fit("run", 3, tmp_path / "run" / "last.ckpt")
    assert (resumed.loss.visits == 3).all()
    # Of each label 0.9 is left after the second visit, and 0.81 now.
    labels = torch.nn.functional.one_hot(digits.train[1], 10)
    assert (resumed.loss.targets >= 0.81 * labels - 1e-6).all()
    assert not (resumed.loss.targets >= 0.9 * labels - 1e-6).all()
    names = SnapshotStore(tmp_path / "run" / "store").load(3)
    assert not [name for name in names if "targets" in name]


def test_adapters_are_recorded_without_their_base(digits, tmp_path):
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    model = get_peft_model(network, LoraConfig(r=2, target_modules=["1"], modules_to_save=["3"]))
    callback = SnapshotCallback(tmp_path / "store")
    trainer(tmp_path, callback, epochs=2).fit(Module(model), *loaders(digits))
    trained = {name for name, weights in model.named_parameters() if weights.requires_grad}
    assert callback.store.load(2).keys() == trained
    assert len(trained) == 4
    assert score(model, callback.store, digits.test, progress=False).epochs.tolist() == [1, 2]
