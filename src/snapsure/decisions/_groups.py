"""A threshold for each group of points, under one promise that holds for all of them at once."""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from snapsure._types import Array, Bools, Ints, Scores
from snapsure.decisions._binomial import needed
from snapsure.decisions._promise import Sample, prove_all
from snapsure.errors import Infeasible

Group = int | str
Small = Literal["refuse", "join", "review"]
NEVER = math.inf
_NAMED = 5  # groups that a refusal names


def thetas(
    score: Scores, wrong: Bools, groups: Array, limit: float, delta: float, small: Small
) -> dict[Group, float]:
    """Each group's threshold; `NEVER` for one whose points all go to a person."""
    values, which = np.unique(groups, return_inverse=True)
    sets = _sets(values, np.bincount(which), limit, delta, small)
    owner = np.full(values.size, len(sets))  # of a group: its set, or none
    for i, members in enumerate(sets):
        owner[members] = i
    owners = owner[which]
    order = np.argsort(owners, kind="stable")
    ends = np.searchsorted(owners[order], np.arange(len(sets)), side="right")
    parts = np.split(order, ends)[: len(sets)]
    samples = [Sample(score[rows], wrong[rows], limit) for rows in parts]
    found: dict[Group, float] = dict.fromkeys(values.tolist(), NEVER)
    for members, sample, proof in zip(sets, samples, prove_all(samples, delta), strict=True):
        if proof.last >= 0:
            found |= dict.fromkeys(values[members].tolist(), float(sample.theta[proof.last]))
    if all(theta == NEVER for theta in found.values()):
        raise Infeasible(
            f"`risk` must be one that some group can promise at delta = {delta:g} for all "
            f"{len(sets)} together, got {limit:g}: raise it, or hold out more points"
        )
    return found


def _sets(values: Array, sizes: Ints, limit: float, delta: float, small: Small) -> list[Ints]:
    """Which groups share a threshold. Only their sizes say so, never an error."""
    everyone = np.arange(values.size)
    few = sizes <= needed(limit, delta / values.size)
    if not few.any():
        return [everyone[i : i + 1] for i in everyone]
    large = [everyone[i : i + 1] for i in np.flatnonzero(~few)]
    if small == "review" and large:
        return large
    joined = np.flatnonzero(few)
    least = needed(limit, delta / (len(large) + 1)) + 1
    if small == "join" and sizes[joined].sum() >= least:
        return [*large, joined]
    raise _too_small(values[joined].tolist(), sizes[joined], limit, delta, values.size, small)


def _too_small(
    names: Sequence[Group], sizes: Ints, limit: float, delta: float, count: int, small: Small
) -> Infeasible:
    told = [f"{size} in {name!r}" for name, size in zip(names, sizes, strict=True)][:_NAMED]
    if len(names) > _NAMED:
        told.append(f"too few in {len(names) - _NAMED} more")
    way_out = {
        "refuse": 'hold out more points, or pass small="join" (one threshold for all of them) or '
        'small="review" (all their points go to a person)',
        "join": 'together they are still too few: hold out more points, or pass small="review"',
        "review": "no group has enough: hold out more points",
    }[small]
    return Infeasible(
        f"`groups` must each have {needed(limit, delta / count) + 1} points or more to promise a "
        f"risk of {limit:g} at delta = {delta:g} for {count} groups, got {', '.join(told)}: "
        f"{way_out}"
    )
