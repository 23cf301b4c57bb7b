"""The definitions of the metrics, written as slowly and plainly as they read."""

import math
from fractions import Fraction
from functools import cache
from itertools import pairwise, permutations

import numpy as np


def orders(kappa):
    """Every order from the most confident example on: ties in all their orders."""
    return [
        order
        for order in permutations(range(len(kappa)))
        if all(kappa[a] >= kappa[b] for a, b in pairwise(order))
    ]


def aurc_of_order(losses):
    """(1/n) Σᵢ mean loss of the first i examples."""
    exact = [Fraction(float(loss)) for loss in losses]
    return sum(sum(exact[:i]) / i for i in range(1, len(exact) + 1)) / len(exact)


def augrc_of_order(losses):
    """(1/n) Σᵢ summed loss of the first i examples, over n."""
    exact = [Fraction(float(loss)) for loss in losses]
    return sum(sum(exact[:i]) for i in range(1, len(exact) + 1)) / len(exact) ** 2


def over_all_orders(of_order, kappa, losses):
    """Mean of an area over all orders of the ties."""
    values = [of_order([losses[i] for i in order]) for order in orders(kappa)]
    return sum(values) / len(values)


def by_threshold(kappa, losses, *, generalised=False):
    """(1/n) Σᵢ risk of {κ ≥ κᵢ}: its mean loss, or generalised its summed loss over n."""
    risks = []
    for threshold in kappa:
        accepted = [Fraction(x) for k, x in zip(kappa, losses, strict=True) if k >= threshold]
        risks.append(sum(accepted) / (len(kappa) if generalised else len(accepted)))
    return sum(risks) / len(risks)


def best_over_orders(losses):
    """AURC of the best order in hindsight, found by trying all."""
    return _best(tuple(losses))


@cache
def _best(losses):
    return min(aurc_of_order(order) for order in permutations(losses))


def expected_losses(kappa, losses):
    """Losses, most confident first; each tied example takes the mean of its group."""
    ranked = []
    for value in sorted(set(kappa), reverse=True):
        group = [Fraction(x) for k, x in zip(kappa, losses, strict=True) if k == value]
        ranked += [sum(group) / len(group)] * len(group)
    return ranked


def aurc_by_groups(kappa, losses, *, generalised=False):
    """Expected AURC, or AUGRC, for larger sets: place by place."""
    ranked, total, area = expected_losses(kappa, losses), Fraction(0), Fraction(0)
    for i, loss in enumerate(ranked, 1):
        total += loss
        area += total / (len(ranked) if generalised else i)
    return area / len(ranked)


def slow_eaurc(kappa, errors):
    """E-AURC in exact fractions: equals are equal."""
    return aurc_by_groups(kappa, errors) - aurc_of_order(sorted(errors))


def slow_leave_one_out(metric, kappa, errors):
    """The metric without each example in turn."""
    rows = np.arange(errors.size)
    return np.array([metric(kappa[rows != i], errors[rows != i]) for i in rows])


def slow_pes(kappa, errors, q):
    """Algorithm 1, `Train`: points as a set V, one layer S per round; and the points of each S."""
    snapshots = len(kappa)
    V, layers, sets, j = set(range(len(errors))), [], [], snapshots - 1
    while V:
        cut = j
        r = sorted(kappa[cut][x] for x in V)
        edge = r[min(q, len(r)) - 1]
        S = sorted(x for x in V if kappa[cut][x] <= edge)
        excess = [slow_eaurc([row[x] for x in S], [errors[x] for x in S]) for row in kappa]
        j = max(i for i in range(snapshots) if excess[i] == min(excess))
        layers.append((j, max(kappa[j][x] for x in S), cut, edge))
        sets.append(S)
        V -= set(S)
    return layers, sets


def slow_pes_layer(column, layers, assign):
    """`Estimate Confidence`: the first layer that a point, given by all its κ, fits into."""
    for i, (chosen, theta, cut, edge) in enumerate(layers):
        if assign == "paper" and column[chosen] <= theta:
            return i
        if assign == "layer" and column[cut] <= edge:
            return i
    return len(layers) - 1


def slow_pes_confidence(column, layers, assign):
    """i + κ; where that is the next layer's number, the float64 below it."""
    i = slow_pes_layer(column, layers, assign)
    value = i + column[layers[i][0]]
    return math.nextafter(i + 1, 0) if value == i + 1 < len(layers) else value


def slow_pnorm(row, p):
    """max (z − mean) / ‖z − mean‖ₚ of one row, by NumPy's norm."""
    centred = np.asarray(row) - np.mean(row)
    return centred.max() / np.linalg.norm(centred, ord=p)
