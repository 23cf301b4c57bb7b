"""Hugging Face's Trainer and models, as they are, with random weights: nothing is downloaded."""

import numpy as np
import pytest
import torch
from datasets import Dataset
from sklearn.datasets import load_digits
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import (
    AutoModelForImageClassification,
    AutoModelForSequenceClassification,
    BertConfig,
    DataCollatorWithPadding,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
    ViTConfig,
)

from snapsure import Evenly, MCDropout, NNDistance, Report, SnapshotStore, SoftmaxResponse, score
from snapsure.errors import CorruptFile, InvalidInput, WrongArchitecture
from snapsure.integrations.transformers import PointLossTrainer, SnapshotCallback
from snapsure.training import CorrectnessRanking, Numbered, SelfAdaptive
from tests.support.refusals import refuses
from tests.support.texts import LIBRARIES, docstrings

# PyTorch pins memory for an accelerator that is not there, at the Trainer's wish.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true"),
]

EPOCHS, TRAIN, BATCH = 4, 400, 16


class Texts:
    """Docstrings of three libraries, a tokenizer made from them, and a BERT of two small layers."""

    def __init__(self):
        texts, labels = docstrings(800)
        own = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        own.normalizer = normalizers.Lowercase()
        own.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        special = ["[PAD]", "[UNK]"]
        own.train_from_iterator(
            texts[:TRAIN],
            trainers.WordPieceTrainer(vocab_size=1000, special_tokens=special, show_progress=False),
        )
        self.tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=own, pad_token="[PAD]", unk_token="[UNK]"
        )
        encoded = self.tokenizer(texts, truncation=True, max_length=32)
        data = Dataset.from_dict({**encoded, "label": labels})
        self.train = data.select(range(TRAIN))
        self.test = data.select(range(TRAIN, len(data)))
        self.collator = DataCollatorWithPadding(self.tokenizer)

    def model(self):
        torch.manual_seed(0)
        return AutoModelForSequenceClassification.from_config(
            BertConfig(
                vocab_size=len(self.tokenizer),
                hidden_size=32,
                num_hidden_layers=2,
                num_attention_heads=2,
                intermediate_size=64,
                max_position_embeddings=32,
                num_labels=len(LIBRARIES),
            )
        )


class Images:
    """Digits for a small vision transformer."""

    collator = None

    def __init__(self):
        digits = load_digits()
        pixels = (digits.images[:, None] / 16).astype(np.float32)
        data = Dataset.from_dict({"pixel_values": pixels, "labels": digits.target})
        data = data.with_format("torch")
        self.train = data.select(range(2 * TRAIN))
        self.test = data.select(range(2 * TRAIN, 3 * TRAIN))

    def model(self):
        torch.manual_seed(0)
        return AutoModelForImageClassification.from_config(
            ViTConfig(
                image_size=8,
                patch_size=2,
                num_channels=1,
                hidden_dropout_prob=0.01,
                hidden_size=32,
                num_hidden_layers=2,
                num_attention_heads=2,
                intermediate_size=64,
                num_labels=10,
            )
        )


def arguments(folder, **more):
    usual = {
        "num_train_epochs": EPOCHS,
        "per_device_train_batch_size": BATCH,
        "per_device_eval_batch_size": 100,
        "learning_rate": 2e-3,
        "save_strategy": "epoch",
        "logging_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        "seed": 0,
    }
    return TrainingArguments(str(folder), **usual | more)


def trainer(task, folder, *callbacks, **more):
    return Trainer(
        model=task.model(),
        args=arguments(folder, **more),
        train_dataset=task.train,
        eval_dataset=task.test,
        data_collator=task.collator,
        callbacks=list(callbacks),
    )


def remembering(task, folder, loss, model=None, **more):
    """A Trainer whose loss remembers every example."""
    return PointLossTrainer(
        model or task.model(),
        arguments(folder, remove_unused_columns=False, **more),
        train_dataset=Numbered(task.train),
        eval_dataset=task.test,
        data_collator=task.collator,
        point_loss=loss,
    )


@pytest.fixture(scope="module", params=[Texts, Images])
def trained(request, tmp_path_factory):
    """A finished training: the task, its Trainer, our snapshots; its checkpoints beside them."""
    task, folder = request.param(), tmp_path_factory.mktemp("trained")
    callback = SnapshotCallback(folder / "store")
    run = trainer(task, folder / "theirs", callback)
    run.train()
    return task, run, callback.store


def test_snapshots_are_the_trainers_own_checkpoints(trained):
    task, run, store = trained
    theirs = SnapshotStore.adopt(run.args.output_dir)
    assert store.epochs == theirs.epochs == [1, 2, 3, 4]
    for epoch in store:
        ours, model = store.load(epoch), task.model()
        theirs.load_into(model, epoch)  # Transformers' files have names of earlier versions
        assert ours.keys() == model.state_dict().keys()
        assert all(torch.equal(ours[name], t) for name, t in model.state_dict().items())
    assert not all(torch.equal(store.load(1)[n], t) for n, t in store.load(4).items())


def test_the_whole_way_to_a_report(trained, tmp_path):
    """From the Trainer's own loader; κ and labels are those of its predictions."""
    task, run, _ = trained
    reference = run.get_eval_dataloader(task.train)
    table = score(
        task.model(),
        run.args.output_dir,
        run.get_eval_dataloader(),
        [SoftmaxResponse(), NNDistance(reference, k=20), MCDropout(passes=5)],
        progress=False,
    )
    said = run.predict(task.test)
    logits = torch.tensor(said.predictions).double()
    assert np.array_equal(table.y, said.label_ids)
    assert np.array_equal(table.y_hat, logits.argmax(dim=1))
    last = logits.softmax(dim=1).amax(dim=1).numpy()
    assert np.allclose(table.kappa("softmax")[-1], last, rtol=0, atol=1e-5)
    assert np.array_equal(table.errors, said.label_ids != logits.argmax(dim=1).numpy())
    assert table.names == ["softmax", "nn_distance", "mc_dropout"]
    page = Report(table, title="a real model").save(tmp_path / "report.html").read_text()
    assert "a real model" in page
    assert f"{len(table.y):,}" in page


def test_a_data_set_without_a_loader_is_told_how(tmp_path):
    task = Images()
    SnapshotStore(tmp_path).save(task.model(), 1)
    with refuses(InvalidInput, "`data`", "Hugging Face", "get_eval_dataloader()"):
        score(task.model(), tmp_path, task.test, SoftmaxResponse(), progress=False)


def test_steps_and_a_schedule(tmp_path):
    task = Images()
    every = SnapshotCallback(tmp_path / "every", steps=20)
    evenly = SnapshotCallback(tmp_path / "evenly", Evenly(total=50, k=3), steps=1)
    halved = SnapshotCallback(tmp_path / "halved", dtype="bfloat16")
    trainer(
        task, tmp_path / "theirs", every, evenly, halved, num_train_epochs=1, save_strategy="no"
    ).train()
    assert every.store.epochs == [20, 40, 50]  # the last, which makes the predictions
    assert evenly.store.epochs == [20, 35, 50]
    assert halved.store.epochs == [1]


def test_an_epoch_that_is_cut_short_is_one(tmp_path, capsys):
    """50 steps are an epoch; the Trainer would call the end of these 2.4."""
    callback = SnapshotCallback(tmp_path / "store")
    trainer(Images(), tmp_path / "theirs", callback, max_steps=120, save_strategy="no").train()
    assert callback.store.epochs == [1, 2, 3]
    assert f"{callback.store.path}: 3 snapshots" in capsys.readouterr().err


def test_resumed_it_goes_on_and_started_anew_it_refuses(tmp_path):
    task = Images()
    trainer(task, tmp_path / "theirs", SnapshotCallback(tmp_path / "store")).train()
    held = SnapshotStore(tmp_path / "store")
    first = {epoch: held.sha256(epoch) for epoch in held}
    callback = SnapshotCallback(tmp_path / "store")
    steps = 2 * TRAIN // BATCH
    checkpoint = str(tmp_path / "theirs" / f"checkpoint-{2 * steps}")
    trainer(task, tmp_path / "theirs", callback).train(resume_from_checkpoint=checkpoint)
    assert callback.store.epochs == [1, 2, 3, 4]
    assert [callback.store.sha256(epoch) for epoch in (1, 2)] == [first[1], first[2]]
    with refuses(InvalidInput, "`store`", f"got 4 snapshots in {tmp_path / 'store'}"):
        trainer(task, tmp_path / "theirs", SnapshotCallback(tmp_path / "store")).train()
    early = SnapshotCallback(tmp_path / "early", steps=10)
    stop = {"max_steps": 10, "save_strategy": "steps", "save_steps": 10}
    trainer(task, tmp_path / "first", early, **stop).train()
    again = SnapshotCallback(tmp_path / "early", steps=10)
    inside = str(tmp_path / "first" / "checkpoint-10")  # in the first epoch
    trainer(task, tmp_path / "first", again, **{**stop, "max_steps": 20}).train(
        resume_from_checkpoint=inside
    )
    assert again.store.epochs == [10, 20]
    with pytest.raises(InvalidInput, match=r"^`steps` must be a whole number ≥ 1, got 0"):
        SnapshotCallback(tmp_path / "store", steps=0)


def test_checkpoints_of_another_model_are_told(tmp_path, capfd):
    """Without the report that Transformers prints."""
    task = Images()
    task.model().save_pretrained(tmp_path / "checkpoint-7")
    config = task.model().config
    config.num_labels = 4
    capfd.readouterr()
    with pytest.raises(WrongArchitecture, match=r"classifier\.bias \(10,\) for \(4,\)"):
        SnapshotStore.adopt(tmp_path).load_into(
            AutoModelForImageClassification.from_config(config), 7
        )
    assert capfd.readouterr() == ("", "")


def test_sharded_checkpoints(tmp_path):
    task = Images()
    model = task.model()
    model.save_pretrained(tmp_path / "checkpoint-7", max_shard_size="20KB")
    assert (tmp_path / "checkpoint-7" / "model.safetensors.index.json").exists()
    store = SnapshotStore.adopt(tmp_path)
    assert store.epochs == [7]
    other = task.model()
    torch.nn.init.zeros_(other.classifier.weight)
    store.load_into(other, 7)
    for name, tensor in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor)


@pytest.fixture(scope="module")
def texts():
    return Texts()


@pytest.mark.parametrize("kind", ["self-adaptive", "ranking"])
def test_a_loss_that_remembers_every_point_resumes_with_the_trainer(texts, tmp_path, kind):
    def trainer(folder, epochs):
        adaptive = SelfAdaptive(TRAIN, len(LIBRARIES), start=1)
        loss = adaptive if kind == "self-adaptive" else CorrectnessRanking(TRAIN)
        constant = {"lr_scheduler_type": "constant", "num_train_epochs": epochs}
        return remembering(texts, folder, loss, **constant)

    whole = trainer(tmp_path / "whole", 3)
    whole.train()
    assert (whole.point_loss.visits == 3).all()
    trainer(tmp_path / "broken", 2).train()
    resumed = trainer(tmp_path / "broken", 3)
    resumed.train(resume_from_checkpoint=True)
    state = resumed.point_loss.state_dict()
    for name, value in whole.point_loss.state_dict().items():
        assert torch.equal(state[name], value), name
    assert resumed.evaluate()["eval_loss"] > 0
    moved = trainer(tmp_path / "moved", 3)
    moved.train(resume_from_checkpoint=str(tmp_path / "broken" / "checkpoint-50"))
    assert (moved.point_loss.visits == 3).all()
    checkpoint = tmp_path / "broken" / "checkpoint-50"
    path = checkpoint / "point_loss.pt"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with refuses(CorruptFile, path, "SHA-256"):
        moved.train(resume_from_checkpoint=str(checkpoint))
    path.unlink()
    with refuses(InvalidInput, "point_loss.pt", f"got none in {checkpoint}"):
        moved.train(resume_from_checkpoint=str(checkpoint))


def test_accumulated_steps_are_averaged(texts, tmp_path):
    """As large a step from sixteen rows at once as from four times four."""

    def loss_of(rows, steps):
        model = texts.model()
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        run = remembering(
            texts,
            tmp_path / str(rows),
            CorrectnessRanking(TRAIN),
            model,
            max_steps=1,
            per_device_train_batch_size=rows,
            gradient_accumulation_steps=steps,
            logging_strategy="steps",
            logging_steps=1,
            save_strategy="no",
        )
        run.train()
        return next(entry for entry in run.state.log_history if "grad_norm" in entry)

    whole, parts = loss_of(16, 1), loss_of(4, 4)
    assert parts["loss"] == pytest.approx(whole["loss"], rel=1e-3)
    assert parts["grad_norm"] == pytest.approx(whole["grad_norm"], rel=1e-2)


def test_a_loss_that_remembers_says_what_it_lacks(texts, tmp_path):
    loss = CorrectnessRanking(TRAIN)
    with pytest.raises(InvalidInput, match="got remove_unused_columns=True"):
        PointLossTrainer(texts.model(), arguments(tmp_path), point_loss=loss)
    plain = remembering(texts, tmp_path, loss)
    plain.train_dataset = texts.train
    with pytest.raises(InvalidInput, match=r"`index`, got none\. Wrap it in .*Numbered"):
        plain.train()
