"""How the networks are trained: the paper's recipes, and those that two cores can carry."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from torch import nn

from snapsure.errors import InvalidInput
from snapsure.kappas._mc_dropout import Layers, Statistic
from snapsure.paper.augment import Augmentation
from snapsure.paper.data import DataSet, find
from snapsure.paper.networks import Pixels, quick, resnet18, vgg16


@dataclass(frozen=True)
class Recipe:
    """Everything about a training but its data and its seed."""

    network: str  # "vgg16", "resnet18" or "quick"
    epochs: int
    batch: int
    drop_every: float  # epochs between two drops of the learning rate …
    drop: float  # … and what it is multiplied with
    augmentation: Augmentation
    width: int = 64  # channels of the first block
    dropout: tuple[float, float, float] = (0.3, 0.4, 0.5)  # of vgg16, see there
    images: int | None = None  # how many of the training set, the first ones; all if not given
    learning_rate: float = 0.1
    momentum: float = 0.9
    nesterov: bool = False
    warm_up: int = 0  # epochs in which the learning rate grows to its full size, before all drops
    weight_decay: float = 5e-4
    parts: int = 1  # of a pass over the images that are an epoch each, with a snapshot of its own
    networks: int = 5  # seeds 0 … 4: the ensemble, and the standard errors
    neighbours: int | None = 500  # k of NN-distance; not measured if not given
    passes: int | None = 100  # of MC-dropout; not measured if not given
    costly_every: int = 1  # these two at every so many snapshots, the last among them
    mc_rate: float | None = None  # of its dropouts, each one's own if not given …
    mc_layers: Layers = "all"  # … which of them are on …
    mc_statistics: tuple[Statistic, ...] = ("mean",)  # … and what κ are made of it

    def build(self, data: DataSet, mean: Sequence[float], std: Sequence[float]) -> nn.Sequential:
        """Build the network, which takes images as they are stored."""
        make: dict[str, Callable[..., nn.Module]] = {
            "vgg16": partial(vgg16, dropout=self.dropout),
            "resnet18": resnet18,
            "quick": partial(quick, dropout=self.dropout[2]),
        }
        body = make[self.network](data.classes, width=self.width)
        return nn.Sequential(Pixels(mean, std, self.augmentation.size or data.side), body)

    def rate(self, at: float) -> float:
        """Return the learning rate after `at` epochs."""
        if at < self.warm_up:
            return self.learning_rate * at / self.warm_up
        drops = (at - self.warm_up) // self.drop_every
        return float(self.learning_rate * self.drop**drops)


# Section 6 and appendix A: SGD with momentum 0.9, 250 epochs, 0.1 halved every 20, batches of 128,
# "horizontal flips, rotations, and shifts". It does not say how far, nor the weight decay: we take
# 15°, a tenth of the side, and 5e-4. MC-dropout is theirs: the variance, with the one dropout after
# the hidden layer switched on, at the rate it was trained with; and the mean of the same passes.
VGG = Recipe(
    network="vgg16",
    epochs=250,
    batch=128,
    drop_every=20,
    drop=0.5,
    augmentation=Augmentation(degrees=15, shift=0.1),
    mc_rate=0.5,
    mc_layers="last",
    mc_statistics=("variance", "mean"),
)

# The same without flips: a mirrored digit is another one.
VGG_DIGITS = replace(VGG, augmentation=Augmentation(flip=False, degrees=15, shift=0.1))

# 90 epochs, 0.1 divided by ten every 30, batches of 256; crops and decay as He et al. (2016). There
# is no dropout in it, and the paper measures NN-distance on the small images only.
RESNET = Recipe(
    network="resnet18",
    epochs=90,
    batch=256,
    drop_every=30,
    drop=0.1,
    augmentation=Augmentation(area=(0.08, 1.0), stretch=4 / 3, size=224),
    weight_decay=1e-4,
    neighbours=None,
    passes=None,
)

# For two cores: a quarter of the width, a fifth of the images, a quarter of the epochs. The paper's
# effect belongs to networks that fit their training set, and one this narrow does so only with
# little in its way: no rotations and shifts, and of dropout just enough for MC-dropout to have a
# layer. A rate of 0.1 was slower to start than 0.05.
CPU = Recipe(
    network="vgg16",
    epochs=60,
    batch=128,
    drop_every=10,
    drop=0.5,
    augmentation=Augmentation(),
    width=16,
    dropout=(0.0, 0.0, 0.1),
    images=10_000,
    learning_rate=0.05,
)

# For two cores and an hour: all images, a network made for speed, 18 passes over the images with
# three snapshots each. The paper's effect belongs to networks that fit their training set: flips
# alone, less dropout than the paper's, and a rate that is halved six times, not the paper's twelve,
# leave it room to do so in so few passes.
CPU_FULL = Recipe(
    network="quick",
    epochs=54,
    parts=3,
    batch=128,
    drop_every=7.5,
    drop=0.5,
    warm_up=2,
    nesterov=True,
    augmentation=Augmentation(),
    width=32,
    dropout=(0.0, 0.0, 0.3),
    costly_every=3,  # once per pass: NN-distance runs 50,000 references through each snapshot
    mc_layers="last",
    mc_statistics=("variance", "mean"),
)

# The contrast: small shifts, the paper's dropout and a rate that is halved eight times in 16
# passes, and the same network does not fit its training set.
CPU_FULL_UNDERFITTED = replace(
    CPU_FULL,
    epochs=48,
    drop_every=5.2,
    augmentation=Augmentation(shift=1 / 32, whole=True),
    dropout=(0.3, 0.4, 0.5),
    mc_rate=0.5,
)

# ImageNet for two cores and an hour: the paper's network and its three rates over 18 passes with
# five snapshots each, on 64 pixels of 50 classes. Flips alone, so that it fits its training set.
RESNET_TINY = replace(
    RESNET, parts=5, batch=128, augmentation=Augmentation(), weight_decay=5e-4, networks=3
)

_SMALL = {"cpu": CPU, "cpu-full": CPU_FULL, "cpu-full-underfitted": CPU_FULL_UNDERFITTED}
RECIPES = {
    "cifar10": {"paper": VGG, **_SMALL},
    "cifar100": {"paper": VGG, **_SMALL},
    "svhn": {"paper": VGG_DIGITS, **_SMALL},
    "imagenet-1k": {"paper": RESNET},
    "imagenet-tiny": {"cpu-full": RESNET_TINY},
}


def find_recipe(dataset: str, scale: str) -> Recipe:
    """Return the recipe of a data set at a scale."""
    find(dataset)
    known = RECIPES[dataset]
    if scale not in known:
        raise InvalidInput(
            f"`scale` must be {' or '.join(known)} for {dataset}, got {scale!r}. There is no other "
            "recipe for its images."
        )
    return known[scale]
