"""Adapters of `peft` in real trainings by Hugging Face's Trainer, with random weights."""

import json

import numpy as np
import onnx
import pytest
import torch
from datasets import Dataset
from peft import IA3Config, LoraConfig, PeftModel, PromptTuningConfig, get_peft_model
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import (
    AutoModelForSequenceClassification,
    BertConfig,
    Trainer,
    TrainingArguments,
    ViTConfig,
    ViTForImageClassification,
)

from snapsure import AES, Predictor, SnapshotStore, score
from snapsure.errors import CorruptFile, InvalidInput, WrongArchitecture
from snapsure.integrations.transformers import SnapshotCallback
from snapsure.scoring import average_weights
from snapsure.training import Student
from tests.support.refusals import refuses

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true"),
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
]

X = torch.randint(1, 50, (60, 9), generator=torch.Generator().manual_seed(0))
Y = X[:, 0] % 3
DATA = {"input_ids": X}, Y


def make_base(seed=0, **more):
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
        num_labels=3,
        **more,
    )
    return AutoModelForSequenceClassification.from_config(config)


def make_model(seed=1, config=None, base=0, **more):
    """The same base whatever the seed is, which draws a new head and new adapters."""
    model = make_base(base)
    torch.manual_seed(seed)
    nn.init.normal_(model.classifier.weight)
    return get_peft_model(model, config or LoraConfig(**{"task_type": "SEQ_CLS", "r": 2} | more))


KINDS = {
    "LoRA": {},
    "DoRA": {"use_dora": True, "bias": "all"},
    "more layers": {"bias": "lora_only", "modules_to_save": ["classifier", "pooler"]},
}


@pytest.fixture(scope="module", params=KINDS)
def training(request, tmp_path_factory):
    """The settings of a training; its snapshots, recorded both ways; its own checkpoints."""
    folder, settings = tmp_path_factory.mktemp("adapters"), KINDS[request.param]
    model = make_model(**settings)
    part = SnapshotCallback(folder / "part")
    whole = SnapshotCallback(folder / "whole", trainable_only=False)
    arguments = TrainingArguments(
        str(folder / "theirs"),
        num_train_epochs=3,
        learning_rate=1e-2,
        save_strategy="epoch",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    data = Dataset.from_dict({"input_ids": X, "labels": Y})
    Trainer(model, arguments, train_dataset=data, callbacks=[part, whole]).train()
    return settings, part.store, whole.store, folder / "theirs"


def test_recorded_and_adopted_adapters_score_as_whole_networks(training):
    settings, part, whole, theirs = training
    assert part.epochs == [1, 2, 3]
    names = part.load(3).keys()
    trained = {n for n, w in make_model(**settings).named_parameters() if w.requires_grad}
    assert trained <= names
    assert not any("embeddings" in name for name in names if "bias" not in name)
    tables = [
        score(make_model(seed, **settings), source, DATA, progress=False)
        for seed, source in enumerate((part, whole, theirs))
    ]
    for table in tables:
        assert np.array_equal(table.kappa("softmax"), tables[1].kappa("softmax"))
        assert np.array_equal(table.labels, tables[1].labels)
    assert len(np.unique(tables[0].kappa("softmax"), axis=0)) == 3


def test_everything_else_works_on_them(training, tmp_path):
    settings, part, whole, theirs = training

    def make(seed=5):
        return make_model(seed, **settings)

    means = [average_weights(make(), source).state_dict() for source in (part, theirs)]
    assert all(torch.equal(mean, means[1][name]) for name, mean in means[0].items())
    expected = Predictor(make(), whole, AES(k=3, start=0))(DATA[0])
    for source in (part, theirs):
        made = Predictor(make(), source, AES(k=3, start=0))
        words = [one.get_input_embeddings().weight for one in made.networks.modules()]
        assert words[0] is words[1] is words[2]
        made.save(tmp_path / "saved")
        loaded = Predictor.load(tmp_path / "saved", make_model(8, base=8, **settings))
        for found in (made, loaded):
            assert np.array_equal(found(DATA[0]).confidence, expected.confidence)
    sizes = [path.stat().st_size for path in (tmp_path / "saved").glob("*.safetensors")]
    assert len(sizes) == 1 + 3


def test_a_student_learns_from_adapters_and_is_one(training, tmp_path):
    settings, part, _, theirs = training
    students = [
        Student(
            lambda: make_model(**settings),
            source,
            DATA,
            tmp_path / f"{i}",
            epochs=1,
            progress=False,
        ).fit()
        for i, source in enumerate((part, theirs))
    ]
    one, other = (student.network.state_dict() for student in students)
    assert all(torch.equal(value, other[name]) for name, value in one.items())
    assert students[0].snapshots("final").base(1) == part.base(1)


def test_a_graph_holds_the_base_once(tmp_path):
    store, model = SnapshotStore(tmp_path / "part"), make_model()
    for epoch in (1, 2, 3):
        with torch.no_grad():
            for weights in model.parameters():
                weights += weights.requires_grad * torch.randn_like(weights) / 10
        store.save(model, epoch)
    Predictor(model, store, AES(k=3, start=0)).export(tmp_path / "graph.onnx", DATA[0])
    shapes = [tuple(each.dims) for each in onnx.load(tmp_path / "graph.onnx").graph.initializer]
    assert shapes.count((50, 16)) == 1  # embeddings of words
    # Adapters of two layers, each two with two matrices; and embeddings of two types of tokens.
    assert sum(shape in ((16, 2), (2, 16)) for shape in shapes) == 3 * 2 * 2 * 2 + 1


def test_a_part_of_a_model_may_have_adapters(tmp_path):
    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = get_peft_model(make_base(), LoraConfig(r=2))
            self.head = nn.Linear(3, 3)

    store, model = SnapshotStore(tmp_path), Classifier()
    store.save(model, 1)
    assert {"head.weight", "head.bias"} < store.load(1).keys()
    assert all("lora" in name for name in store.load(1).keys() - {"head.weight", "head.bias"})
    store.load_into(model, 1)
    for layer in model.modules():
        if hasattr(layer, "scale_layer"):
            layer.scale_layer(2)  # as another lora_alpha would
    with refuses(InvalidInput, "got others", "settings"):
        store.load_into(model, 1)
    model.requires_grad_(False)
    whole = SnapshotStore(tmp_path / "frozen")
    whole.save(model, 1)
    assert whole.base(1) is None


@pytest.mark.parametrize("kind", ["IA3", "vision"])
def test_other_kinds_are_read(kind, tmp_path):
    """IA³; and a model that Transformers saves under other names than its own."""
    if kind == "IA3":
        model = make_model(config=IA3Config(task_type="SEQ_CLS"))
    else:
        sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
        vit = ViTConfig(image_size=8, patch_size=4, intermediate_size=32, **sizes)
        settings = LoraConfig(r=2, target_modules="all-linear", modules_to_save=["classifier"])
        model = get_peft_model(ViTForImageClassification(vit), settings)
    with torch.no_grad():
        for weights in model.parameters():
            weights += weights.requires_grad * torch.randn_like(weights)
    model.save_pretrained(tmp_path / "checkpoint-7")
    expected = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        for weights in model.parameters():
            weights *= not weights.requires_grad
    SnapshotStore.adopt(tmp_path, model=model).load_into(model, 7)
    assert all(torch.equal(value, expected[name]) for name, value in model.state_dict().items())


@pytest.fixture
def saved(tmp_path):
    """One checkpoint of an adapter, and a model for it."""
    model = make_model()
    model.save_pretrained(tmp_path / "checkpoint-7")
    return tmp_path / "checkpoint-7", model


def change(path, **settings):
    config = path / "adapter_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | settings))


def test_another_model_is_refused(saved):
    path, _ = saved
    loads = f"PeftModel.from_pretrained(base, {str(path)!r})"
    with refuses(InvalidInput, "`model`", "got none", loads, "model=model"):
        SnapshotStore.adopt(path.parent)
    with refuses(InvalidInput, "`model`", "got BertForSequenceClassification", loads):
        score(make_base(), path.parent, DATA, progress=False)
    inside = make_base()
    inside.add_adapter(LoraConfig(r=2))  # by Transformers, without a PeftModel around
    with refuses(InvalidInput, "`model`", "got BertForSequenceClassification", loads):
        SnapshotStore.adopt(path.parent, model=inside)
    for name, value, got in (("r", 4, 2), ("use_dora", True, False), ("lora_alpha", 16, 8)):
        with refuses(InvalidInput, f"{name}=", str(got), str(value), loads):
            SnapshotStore.adopt(path.parent, model=make_model(**{name: value}))
    wrapped = PeftModel.from_pretrained(make_base(), path)
    SnapshotStore.adopt(path.parent, model=lambda: wrapped).load_into(wrapped, 7)
    wrapped.merge_adapter()
    with refuses(InvalidInput, "`model`", "merged", "unmerge_adapter()"):
        SnapshotStore.adopt(path.parent, model=wrapped)


def test_another_base_is_refused(saved):
    path, model = saved
    store = SnapshotStore.adopt(path.parent, model=model)
    other = make_model(base=1)
    with refuses(InvalidInput, f"epoch 7 in {path.parent}", store.base(7), "got others"):
        store.load_into(other, 7)
    assert SnapshotStore.adopt(path.parent, model=other).sha256(7) != store.sha256(7)
    change(path, base_model_name_or_path="one")
    model.get_base_model().name_or_path = "another"
    with refuses(InvalidInput, "'one'", "got 'another'", "name_or_path"):
        SnapshotStore.adopt(path.parent, model=model)
    model.get_base_model().name_or_path = "one"
    change(path, of_a_later_version=1, target_modules=["value", "query", "value"])
    for named in ("one", None):
        change(path, base_model_name_or_path=named)
        assert SnapshotStore.adopt(path.parent, model=model).epochs == [7]


def test_a_damaged_adapter_is_refused(saved):
    path, model = saved
    state = load_file(path / "adapter_model.safetensors")
    first = min(state)
    save_file({n: t for n, t in state.items() if n != first}, path / "adapter_model.safetensors")
    with refuses(InvalidInput, "epoch 7", f"got no {first}"):
        SnapshotStore.adopt(path.parent, model=model).load(7)
    save_file(state | {first: torch.zeros(5)}, path / "adapter_model.safetensors")
    with refuses(WrongArchitecture, "(5,)"):
        SnapshotStore.adopt(path.parent, model=model).load_into(model, 7)
    (path / "adapter_config.json").write_text("[]")
    with refuses(CorruptFile, path / "adapter_config.json", "settings"):
        SnapshotStore.adopt(path.parent, model=model)


def test_prompts_are_recorded_and_not_adopted(tmp_path):
    model = make_model(config=PromptTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=2))
    model.save_pretrained(tmp_path / "theirs" / "checkpoint-7")
    with refuses(InvalidInput, "PROMPT_TUNING", "SnapshotCallback"):
        SnapshotStore.adopt(tmp_path / "theirs", model=model)
    store = SnapshotStore(tmp_path / "ours")
    store.save(model, 1)
    assert any("prompt" in name for name in store.load(1))
    store.load_into(make_model(config=model.peft_config["default"]), 1)
    with refuses(WrongArchitecture, "adapters of peft", "get_peft_model"):
        store.load_into(make_base(), 1)
