"""Fine-tuning by Trainer, made small: a tiny transformer with random weights."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertModel

from experiments.contest import intents as study
from experiments.contest.packing import DONE
from experiments.contest.runs import HEAD, MEAN, WEIGHTS
from snapsure import SnapshotStore, compare
from snapsure.evaluation._archive import open_contest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
INTENTS, PER_INTENT = 3, 16
SMALL = study.Size("intents-few", 12, 4, 1e-2, snapshots=6)

# The same training in a process of its own, which a step given kills (0: none).
TRAINING = """
import os, signal, sys
from pathlib import Path
import torch
from experiments.contest import intents as study

model, data, folder, step = *map(Path, sys.argv[1:4]), int(sys.argv[4])

class Killing(study.SnapshotCallback):
    def on_step_end(self, args, state, control, **kwargs):
        super().on_step_end(args, state, control, **kwargs)
        if state.global_step == step:
            os.kill(os.getpid(), signal.SIGKILL)

study.SnapshotCallback, study.BATCH = Killing, 4
torch.set_num_threads(1)
small = study.Size("intents-few", 12, 4, 1e-2, snapshots=6)
study.train(model, study.read(data, model), small, 0, folder)
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder as the package has it: weights, and a tokenizer of whole words."""
    folder = tmp_path_factory.mktemp("model")
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=40,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=8,
    )
    BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    words = {"[PAD]": 0, "[UNK]": 1} | {f"w{i}": i + 2 for i in range(38)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Queries of two to five words, of which most are their intent's own."""
    rng = np.random.default_rng(0)

    def query(intent):
        own = rng.random(rng.integers(2, 6)) < 0.6
        return " ".join(f"w{rng.integers(38) if not mine else 10 * intent}" for mine in own)

    def rows(count):
        return [[query(i), f"intent {i}"] for i in range(INTENTS) for _ in range(count)]

    parts = {
        "train": rows(PER_INTENT),
        "test": rows(30),
        "oos_test": [[query(3), "oos"] for _ in range(20)],
    }
    path = tmp_path_factory.mktemp("data") / "data_full.json"
    path.write_text(json.dumps(parts))
    return path


def alone(model, data, folder, step=0):
    command = [sys.executable, "-c", TRAINING, model, data, folder, str(step)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode


def recorded(folder):
    store = SnapshotStore(folder / "snapshots")
    store.verify()
    return {epoch: store.sha256(epoch) for epoch in store.epochs}


def test_queries_are_read_as_they_are_divided(model, data):
    queries = study.read(data, model)
    assert queries.intents == INTENTS
    assert queries.train[1].bincount().tolist() == [PER_INTENT] * INTENTS
    assert queries.test[1].tolist() == [0] * 30 + [1] * 30 + [2] * 30 + [study.NOWHERE] * 20
    tokens, labels = study.select(queries.train, SMALL)
    assert labels.bincount().tolist() == [12] * INTENTS
    again, _ = study.select(queries.train, SMALL)
    assert torch.equal(tokens, again)
    everything = study.select(queries.train, study.Size("intents", None, 1, 1.0))
    assert torch.equal(everything[0], queries.train[0])


def test_lengths_change_no_answer(model, data):
    queries = study.read(data, model)
    torch.manual_seed(0)
    network = study.Classifier(model, INTENTS).eval()
    tokens = queries.test[0]
    with torch.inference_mode():
        single = torch.cat([network(row[None]) for row in tokens])
    assert torch.allclose(study.predict(network, tokens), single, atol=1e-5)


def test_killed_in_an_epoch_it_ends_with_the_same_bits(model, data, tmp_path):
    """Nine steps an epoch, a snapshot every six: 25 is after a snapshot that no checkpoint has."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert alone(model, data, whole) == 0
    assert list(recorded(whole)) == [6, 12, 18, 24, 30, 36]
    assert alone(model, data, killed, 25) == -9
    assert list(recorded(killed)) == [6, 12, 18, 24]
    assert not (killed / DONE).exists()
    partial = killed / "checkpoints" / "checkpoint-27"  # as if it had been killed in writing one
    partial.mkdir()
    (partial / "model.safetensors").write_bytes(b"half")
    assert alone(model, data, killed) == 0
    assert recorded(killed) == recorded(whole)
    for epoch in recorded(whole):
        logits = [study.RecordedLogits(one / "validation").read(epoch) for one in (whole, killed)]
        assert torch.equal(*logits)
    one, two = (json.loads((folder / DONE).read_text()) for folder in (whole, killed))
    losses = [[row["loss"] for row in found["log"] if "loss" in row] for found in (one, two)]
    assert losses[0] == losses[1]
    assert losses[0][-1] < losses[0][0]


def test_trained_packed_and_compared(model, data, tmp_path, monkeypatch):
    monkeypatch.setattr(study, "SIZES", (SMALL,))
    monkeypatch.setattr(study, "SEEDS", range(2))
    monkeypatch.setattr(study, "BATCH", 4)
    out, packed = tmp_path / "runs", tmp_path / "packed"
    study.main(model, data, out, seed=[0])
    study.main(model, data, out, packed=packed)  # seed 1 is not trained: it is left out
    assert json.loads((packed / "contest.json").read_text())["runs"] == {
        "intents-few": 1,
        "intents-few-oos": 1,
    }
    study.main(model, data, out)
    first = (packed / "intents-few-oos" / "seed-0.npz").stat().st_mtime_ns
    study.main(model, data, out, packed=packed)
    assert (packed / "intents-few-oos" / "seed-0.npz").stat().st_mtime_ns == first
    runs = open_contest(packed)
    assert {name: len(some) for name, some in runs.items()} == {
        "intents-few": 2,
        "intents-few-oos": 2,
    }
    inside, everything = runs["intents-few"][1], runs["intents-few-oos"][1]
    assert inside.table.labels.shape == (6, 90)
    assert everything.table.labels.shape == (6, 110)
    assert everything.table.errors[90:].all()
    assert (inside.table.kappa("softmax") == everything.table.kappa("softmax")[:, :90]).all()
    assert [inside.others[name].passes for name in (MEAN, HEAD, WEIGHTS)] == [5, 1, 1]
    wanted = {"gen", "deep_knn", "nn_distance", HEAD, MEAN, WEIGHTS, "SPTD", "MaxLogit-pNorm"}
    for board in compare(runs).boards.values():
        assert wanted < {row.method for row in board.rows}
