"""Texts by a tokenizer, and what a saved predictor keeps of it and of `output`."""

import copy
import json

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from snapsure import AES, Predictor, SnapshotStore, score
from snapsure.errors import InvalidInput
from tests.support.refusals import refuses

TEXTS = ["my card is lost", "what is my balance", "lost"]
WORDS = {"[PAD]": 0, "[UNK]": 1, "card": 2, "lost": 3, "my": 4, "balance": 5, "what": 6, "is": 7}


class Words(nn.Module):
    """The mean of word vectors; it returns a tuple."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(len(WORDS), 8), nn.Linear(8, 2)

    def forward(self, input_ids, attention_mask, token_type_ids=None):
        total = (self.embedding(input_ids) * attention_mask[:, :, None]).sum(dim=1)
        return self.head(total), total


def own_tokenizer(texts):
    """Number words, as a function of the user's own: arrays of NumPy."""
    ids = [[WORDS.get(word, 1) for word in text.split()] for text in texts]
    length = max(map(len, ids))
    padded = np.array([one + [0] * (length - len(one)) for one in ids])
    return {"input_ids": padded, "attention_mask": (padded > 0).astype(np.int64)}


@pytest.fixture(scope="module")
def theirs():
    """A tokenizer of Hugging Face, which need not be downloaded."""
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, models, pre_tokenizers

    made = Tokenizer(models.WordLevel(WORDS, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]"
    )


@pytest.fixture
def store(tmp_path):
    made = SnapshotStore(tmp_path / "run")
    for epoch in (1, 2, 3):
        torch.manual_seed(epoch)
        made.save(Words(), epoch)
    return made


def test_texts_are_answered_as_what_the_tokenizer_returns(store, theirs):
    classes = ["lost card", "balance"]
    expected = Predictor(Words(), store, AES(), output=0)(own_tokenizer(TEXTS))
    for tokenizer in (own_tokenizer, theirs):
        predictor = Predictor(Words(), store, AES(), output=0, tokenizer=tokenizer, classes=classes)
        for texts in (TEXTS, tuple(TEXTS), np.array(TEXTS), pd.Series(TEXTS, index=[5, 6, 7])):
            answer = predictor(texts)
            assert np.allclose(answer.confidence, expected.confidence)
            assert answer.name.tolist() == [classes[label] for label in expected.label]
        many = predictor(TEXTS * 100)  # in several batches
        assert np.allclose(many.confidence, np.tile(expected.confidence, 100))
        assert predictor(own_tokenizer(TEXTS)).label.tolist() == expected.label.tolist()
        with refuses(InvalidInput, "`tokenizer`", "'bert'", "from_pretrained"):
            Predictor(Words(), store, AES(), tokenizer="bert")
        with refuses(InvalidInput, "`batch`", "list of texts, got 'lost'", "[text]"):
            predictor("lost")


def test_texts_are_cut_to_what_the_tokenizer_allows(store, theirs):
    short = copy.deepcopy(theirs)
    short.model_max_length = 2
    predictor = Predictor(Words(), store, AES(), output=0, tokenizer=short)
    expected = predictor([" ".join(text.split()[:2]) for text in TEXTS])
    assert predictor(TEXTS).confidence.tolist() == expected.confidence.tolist()


def test_a_folder_knows_the_tokenizer_but_does_not_hold_it(store, theirs, tmp_path):
    folder = tmp_path / "predictor"
    saved = Predictor(Words(), store, AES(), output=0, tokenizer=theirs)
    saved.save(folder)
    assert {path.suffix for path in folder.iterdir()} == {".json", ".safetensors"}
    loaded = Predictor.load(folder, Words(), tokenizer=theirs)  # the index 0 is in the folder
    assert loaded(TEXTS).confidence.tolist() == saved(TEXTS).confidence.tolist()
    without = Predictor.load(folder, Words())
    with refuses(InvalidInput, "`batch`", "got strings", "tokenizer=tokenizer", ".load"):
        without(TEXTS)
    with refuses(InvalidInput, "`batch`", "got strings", "tokenizer=tokenizer", ".load"):
        without({"text": TEXTS})
    assert np.allclose(without(own_tokenizer(TEXTS)).confidence, saved(TEXTS).confidence)
    Predictor(Words(), store, AES(), output=0).save(folder)  # over it, without a tokenizer
    assert np.allclose(
        Predictor.load(folder, Words(), tokenizer=theirs)(TEXTS).confidence,
        saved(TEXTS).confidence,
    )
    saved.save(folder)
    with pytest.warns(UserWarning, match="tokenizer returns something else"):
        Predictor.load(folder, Words(), tokenizer=lambda texts: own_tokenizer(["my", *texts[1:]]))


def test_a_function_for_the_output_is_passed_again(store, tmp_path):
    folder = tmp_path / "predictor"
    predictor = Predictor(Words(), store, AES(), output=lambda o: o[0])
    predictor.save(folder)
    assert json.loads((folder / "predictor.json").read_text())["output"] is True
    with refuses(InvalidInput, "`output`", "passed again", folder):
        Predictor.load(folder, Words())
    batch = own_tokenizer(TEXTS)
    loaded = Predictor.load(
        folder,
        Words(),
        output=lambda o: o[0],  # written elsewhere, and the same
    )
    assert loaded(batch).confidence.tolist() == predictor(batch).confidence.tolist()
    with pytest.warns(UserWarning, match="code or settings differ"):
        Predictor.load(folder, Words(), output=lambda o: -o[0])


@pytest.mark.parametrize("change", [lambda texts: texts[1:], lambda texts: [*texts, "one more"]])
def test_a_tokenizer_gives_one_row_per_text(store, change):
    def tokenizer(texts):
        return own_tokenizer(change(texts))

    predictor = Predictor(Words(), store, AES(), output=0, tokenizer=tokenizer)
    with refuses(InvalidInput, "`tokenizer`", "one row per text", "for 3"):
        predictor(TEXTS)


def test_what_is_no_text_is_refused(store):
    predictor = Predictor(Words(), store, AES(), output=0, tokenizer=own_tokenizer)
    with refuses(InvalidInput, "`batch`", "None in row 300", "Drop"):
        predictor([*TEXTS * 100, None])


def test_fit_takes_texts_names_and_the_output(store):
    texts = [TEXTS[i % 3] + " card" * (i % 7) for i in range(300)]
    y = torch.arange(300) % 2
    table = score(Words(), store, (own_tokenizer(texts), y), output=0, progress=False)
    options = {"output": 0, "tokenizer": own_tokenizer, "classes": ["lost card", "balance"]}
    predictor = Predictor.fit(Words(), store, table, **options)
    answer = predictor(texts)
    assert answer.label.tolist() == table.y_hat.tolist()
    assert {*answer.name} <= {*options["classes"]}
