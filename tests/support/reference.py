"""The definitions of the metrics, written as slowly and plainly as they read."""

from fractions import Fraction
from functools import cache
from itertools import pairwise, permutations


def orders(kappa):
    """Every order of the points from the surest on: ties in all their orders."""
    return [
        order
        for order in permutations(range(len(kappa)))
        if all(kappa[a] >= kappa[b] for a, b in pairwise(order))
    ]


def aurc_of_order(losses):
    """(1/n) Σᵢ mean loss of the first i points."""
    exact = [Fraction(float(loss)) for loss in losses]
    return sum(sum(exact[:i]) / i for i in range(1, len(exact) + 1)) / len(exact)


def augrc_of_order(losses):
    """(1/n) Σᵢ summed loss of the first i points, over n."""
    exact = [Fraction(float(loss)) for loss in losses]
    return sum(sum(exact[:i]) for i in range(1, len(exact) + 1)) / len(exact) ** 2


def over_all_orders(of_order, kappa, losses):
    """Mean of an area over all orders of the ties."""
    values = [of_order([losses[i] for i in order]) for order in orders(kappa)]
    return sum(values) / len(values)


def by_threshold(kappa, losses, divisor):
    """(1/n) Σᵢ summed loss of {κ ≥ κᵢ}, over divisor(how many these are)."""
    risks = []
    for threshold in kappa:
        accepted = [
            Fraction(float(x)) for k, x in zip(kappa, losses, strict=True) if k >= threshold
        ]
        risks.append(sum(accepted) / divisor(len(accepted)))
    return sum(risks) / len(risks)


def best_over_orders(losses):
    """AURC of the best order in hindsight, found by trying all."""
    return _best(tuple(losses))


@cache
def _best(losses):
    return min(aurc_of_order(order) for order in permutations(losses))


def aurc_by_groups(kappa, losses):
    """Expected AURC for larger sets: place by place, each tied point taking its group's mean."""
    ranked = []
    for value in sorted(set(kappa), reverse=True):
        group = [Fraction(float(x)) for k, x in zip(kappa, losses, strict=True) if k == value]
        ranked += [sum(group) / len(group)] * len(group)
    total, area = Fraction(0), Fraction(0)
    for i, loss in enumerate(ranked, 1):
        total += loss
        area += total / i
    return area / len(ranked)
