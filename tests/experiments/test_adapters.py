"""The study of adapters, made small: a tiny transformer with random weights, three intents."""

import json

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from experiments import adapters as study

pytestmark = pytest.mark.slow


@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true")
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
def test_both_ways_are_measured(tmp_path, monkeypatch):
    for name, value in (("EPOCHS", 2), ("INTENTS", 3), ("PER_INTENT", 8), ("RISK", 0.9)):
        monkeypatch.setattr(study, name, value)
    words = [f"word{i}" for i in range(12)]
    own = Tokenizer(models.WordLevel({w: i for i, w in enumerate(["[PAD]", *words])}, "[PAD]"))
    own.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=own, pad_token="[PAD]").save_pretrained(tmp_path / "m")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    BertModel(BertConfig(vocab_size=13, intermediate_size=16, **sizes)).save_pretrained(
        tmp_path / "m"
    )
    rows = [[f"word{i} word{j}", f"intent{i % 4}"] for i in range(12) for j in range(12)]
    (tmp_path / "data.json").write_text(json.dumps(dict.fromkeys(("train", "val", "test"), rows)))
    study.main(tmp_path / "m", tmp_path / "data.json", tmp_path / "found.json")
    found = json.loads((tmp_path / "found.json").read_text())
    part, whole = found["adapters"], found["whole networks"]
    for name in ("snapshot_bytes", "memory_bytes", "folder_bytes"):
        assert part[name] < whole[name]
    assert found["error"] <= 1
