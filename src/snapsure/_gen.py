"""GEN of logits, for the κ function `GEN` and the method of tables with logits."""

import numpy as np

from snapsure._types import Floats


def gen(logits: Floats, gamma: float = 0.1, top: int = 100) -> Floats:
    """Return 1 − G / G_max of each row, as `kappas.GEN` defines it.

    1 − p of the largest class is summed from the other classes, so that nearly certain examples
    keep their order.
    """
    gap = logits - logits.max(axis=1, keepdims=True)
    largest = gap.argmax(axis=1)[:, None]
    weight = np.exp(gap)
    np.put_along_axis(weight, largest, 0, axis=1)
    missing = weight.sum(axis=1, keepdims=True)
    rest = 1 + missing - weight  # (1 − p) (1 + missing)
    np.put_along_axis(rest, largest, missing, axis=1)
    with np.errstate(divide="ignore"):  # where nothing is missing, the term is 0
        terms = np.exp(gamma * (gap + np.log(rest) - 2 * np.log1p(missing)))
    top = min(top, gap.shape[1])
    if top < gap.shape[1]:
        terms = -np.partition(-terms, top - 1, axis=1)[:, :top]
    kappa: Floats = np.clip(1 - terms.sum(axis=1) / (top * 0.25**gamma), 0, 1)
    return kappa
