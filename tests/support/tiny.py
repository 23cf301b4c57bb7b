"""A recipe of seconds, in a module that loads nothing of the tests."""

from snapsure.paper import recipes
from snapsure.paper.augment import Augmentation

TRAIN, TEST = 160, 120
TINY = recipes.Recipe(
    network="vgg16",
    epochs=4,
    batch=32,
    drop_every=2,
    drop=0.5,
    augmentation=Augmentation(degrees=5, shift=0.05),
    width=4,
    dropout=(0.1, 0.1, 0.2),
    images=TRAIN - 10,
    learning_rate=0.05,
    networks=2,
    neighbours=20,
    passes=3,
    mc_statistics=("variance", "mean"),
)
