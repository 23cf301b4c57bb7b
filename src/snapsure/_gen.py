"""GEN of logits: what its κ function and its rival on tables with logits share."""

import numpy as np

from snapsure._types import Floats


def gen(logits: Floats, gamma: float = 0.1, top: int = 100) -> Floats:
    """1 − G / G_most of each row; `scores.GEN` says what that is.

    1 − p of the largest class is taken from the others alone. Nearly certain rows stay apart.
    """
    gap = logits - logits.max(axis=1, keepdims=True)
    largest = gap.argmax(axis=1)[:, None]
    weight = np.exp(gap)
    np.put_along_axis(weight, largest, 0, axis=1)
    missing = weight.sum(axis=1, keepdims=True)
    rest = 1 + missing - weight  # (1 − p) (1 + missing)
    np.put_along_axis(rest, largest, missing, axis=1)
    with np.errstate(divide="ignore"):  # where nothing is missing, its term is 0
        terms = np.exp(gamma * (gap + np.log(rest) - 2 * np.log1p(missing)))
    top = min(top, gap.shape[1])
    if top < gap.shape[1]:
        terms = -np.partition(-terms, top - 1, axis=1)[:, :top]
    kappa: Floats = np.clip(1 - terms.sum(axis=1) / (top * 0.25**gamma), 0, 1)
    return kappa
