"""Which of ten languages is this word from? The demo's data, network and training.

The words are the most frequent ones of the package `wordfreq` (Speer 2022), in Latin letters. One
that several languages have counts for where it is most frequent. No classifier can get all of them
right: "hand" is German, Dutch, Swedish and English.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

LANGUAGES = {
    "cs": "Czech",
    "de": "German",
    "en": "English",
    "es": "Spanish",
    "fi": "Finnish",
    "fr": "French",
    "it": "Italian",
    "nl": "Dutch",
    "pl": "Polish",
    "sv": "Swedish",
}
TRAIN, TEST = 10_000, 20_000
EPOCHS = 20
_BATCH = 100
_COMMON = 70_000  # words that are drawn from
_LENGTH = 12  # a word's first letters
_CHANNELS = 64
_LETTERS = 0x180  # Latin, with the accents that these languages have; 0 is no letter …
_OTHER = 1  # … and this is one of another script


class Words(NamedTuple):
    """Words, what the network sees of them, and the number of their language."""

    text: NDArray[np.str_]
    x: NDArray[np.int64]
    y: NDArray[np.int64]

    def rows(self, part: slice) -> "Words":
        """Return some of them."""
        return Words(self.text[part], self.x[part], self.y[part])


def load() -> tuple[Words, Words]:
    """Return words to train on and words to judge by, the same for every seed and machine."""
    from wordfreq import get_frequency_dict

    best: dict[str, tuple[float, int]] = {}
    for label, language in enumerate(LANGUAGES):
        for word, frequency in get_frequency_dict(language, wordlist="small").items():
            if word.isalpha() and len(word) >= 3:
                best[word] = max(best.get(word, (0.0, 0)), (frequency, label))
    common = sorted(best, key=lambda word: (-best[word][0], word))[:_COMMON]
    order = np.random.default_rng(0).permutation(len(common))[: TRAIN + TEST]
    text = [common[i] for i in order]
    words = Words(np.array(text), spell(text), np.array([best[word][1] for word in text]))
    return words.rows(slice(TRAIN)), words.rows(slice(TRAIN, None))


def spell(words: Sequence[str]) -> NDArray[np.int64]:
    """Return the first letters of each word as numbers, (n, letters)."""
    x = np.zeros((len(words), _LENGTH), dtype=np.int64)
    for row, word in zip(x, words, strict=True):
        codes = [ord(letter) for letter in word.lower()[:_LENGTH]]
        row[: len(codes)] = [code if code < _LETTERS else _OTHER for code in codes]
    return x


def network() -> nn.Module:
    """Return two convolutions over letters, then the strongest answer of each channel: small."""
    return nn.Sequential(
        nn.Embedding(_LETTERS, 32),
        LettersLast(),
        nn.Conv1d(32, _CHANNELS, 3, padding=1),
        nn.BatchNorm1d(_CHANNELS),
        nn.ReLU(),
        nn.Conv1d(_CHANNELS, _CHANNELS, 3, padding=1),
        nn.BatchNorm1d(_CHANNELS),
        nn.ReLU(),
        Strongest(),
        nn.Linear(_CHANNELS, len(LANGUAGES)),
    )


class LettersLast(nn.Module):
    """(rows, letters, channels) -> (rows, channels, letters)."""

    def forward(self, x: Tensor) -> Tensor:
        """Swap the axes, as convolutions expect."""
        return x.movedim(1, 2)


class Strongest(nn.Module):
    """(rows, channels, letters) -> (rows, channels)."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the greatest value over the letters."""
        return x.amax(2)


def train(words: Words, seed: int, record: Callable[[nn.Module, int], object]) -> None:
    """Train one network, and call `record` after every epoch."""
    torch.manual_seed(seed)
    model = network()
    x, y = torch.from_numpy(words.x), torch.from_numpy(words.y)
    optimizer = torch.optim.AdamW(model.parameters(), 0.005, weight_decay=0.01, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    for epoch in range(1, EPOCHS + 1):
        model.train()
        for rows in torch.split(torch.randperm(len(y)), _BATCH):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x[rows]), y[rows])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        schedule.step()
        record(model, epoch)
