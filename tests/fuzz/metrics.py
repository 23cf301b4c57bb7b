"""Metrics: each function draws an input, calls one of them, and judges what comes out."""

import math
from fractions import Fraction

import numpy as np

from snapsure import (
    RiskCoverageSketch,
    augrc,
    aurc,
    bootstrap,
    brier,
    coverage_at_risk,
    eaurc,
    ece,
    naurc,
    nll,
    rc_curve,
    risk_at_coverage,
)
from tests.fuzz.judge import Wrong, column, near, outcome, shape_of
from tests.fuzz.zoo import pick
from tests.support.reference import aurc_by_groups, by_threshold, expected_losses

SCORES = ("unit", "levels", "normal", "huge", "tiny", "special", "above 2**53", "bits")
LOSSES = ("unit", "levels", "bits", "bits", "huge", "tiny", "special")
UNIT = ("unit", "unit", "levels", "bits", "special")
LARGEST = float(np.finfo(np.float64).max)


def a_pair(rng, losses=LOSSES):
    """κ and losses, their exact values where they are in order, and whether they must be taken."""
    n = int(rng.integers(1, 9))
    kappa, k, plain_k = pick(rng, (n,), SCORES)
    loss, x, plain_x = pick(rng, (n,), losses)
    fine = column(k, n) and column(x, n) and min(x) >= 0 and max(x) <= LARGEST / n
    return kappa, loss, (k, x) if fine else None, plain_k and plain_x and fine


def areas(rng):
    kappa, loss, known, must = a_pair(rng)
    metric = (aurc, eaurc, augrc, naurc)[rng.integers(4)]
    ties = ("expected", "threshold")[rng.integers(2)]
    ours = outcome(lambda: metric(kappa, loss, ties=ties), must=must)
    if ours is None or np.ndim(ours) == 1:  # of one row, as κ of one snapshot
        return
    if known is None:
        raise Wrong(f"{metric.__name__} got {ours} of {kappa!r}, {loss!r}")
    k, x = known
    area = aurc_by_groups if ties == "expected" else by_threshold
    exact = area(k, x, generalised=metric is augrc)
    if metric in (eaurc, naurc):
        exact -= aurc_by_groups([-each for each in x], x)
    if metric is naurc:
        gap = sum(x) / len(x) - aurc_by_groups([-each for each in x], x)
        if 0 < gap <= max(x) / 10**9 or 0 < gap < Fraction(1e-300):
            return  # what is left of so small a gap is rounding
        exact = exact / gap if gap else Fraction(0)
    near(ours, exact, size=1 if metric is naurc else max(x))


def rows_of_areas(rng):
    snapshots, n = int(rng.integers(1, 4)), int(rng.integers(1, 7))
    kappa, k, plain_k = pick(rng, (snapshots, n), SCORES)
    loss, x, plain_x = pick(rng, (n,), ("bits", "unit"))
    fine = shape_of(k) == (snapshots, n) and column(x, n) and min(x) >= 0
    ours = outcome(lambda: aurc(kappa, loss), must=plain_k and plain_x and fine)
    if ours is None:
        return
    rows = [k] if np.ndim(ours) == 0 and k is not None else k
    if k is None or not column(x, n):
        raise Wrong(f"aurc got {ours} of {kappa!r}, {loss!r}")
    for one, row in zip(np.atleast_1d(ours), rows, strict=True):
        near(float(one), aurc_by_groups(row, x), size=max(x))


def curves(rng):
    kappa, loss, known, must = a_pair(rng)
    held = known and all(abs(each) <= LARGEST for each in known[0])
    ours = outcome(lambda: rc_curve(kappa, loss), must=must and held)
    if ours is None:
        return
    if not held:
        raise Wrong(f"rc_curve got {ours} of {kappa!r}, {loss!r}")
    k, x = [float(each) for each in known[0]], known[1]
    thetas = sorted(set(k), reverse=True)
    if ours.theta.tolist() != thetas:
        raise Wrong(f"thresholds {ours.theta} of {kappa!r}")
    for theta, coverage, risk in zip(thetas, ours.coverage, ours.risk, strict=True):
        accepted = [loss for one, loss in zip(k, x, strict=True) if one >= theta]
        near(float(coverage), Fraction(len(accepted), len(k)))
        near(float(risk), sum(accepted) / len(accepted), size=max(x))


def points_of_curves(rng):
    kappa, loss, known, must = a_pair(rng)
    n = len(known[0]) if known else 5
    accepted = int(rng.integers(1, n + 1))
    ours = outcome(lambda: risk_at_coverage(kappa, loss, accepted / n), must=must)
    if ours is not None:
        if known is None:
            raise Wrong(f"risk_at_coverage got {ours} of {kappa!r}, {loss!r}")
        near(ours, sum(expected_losses(*known)[:accepted]) / accepted, size=max(known[1]))
    risk = float(rng.random())
    ours = outcome(lambda: coverage_at_risk(kappa, loss, risk), must=must)
    if ours is not None and known is not None:
        k, x = known
        fits = [Fraction(0)]
        for theta in k:
            inside = [loss for one, loss in zip(k, x, strict=True) if one >= theta]
            if sum(inside) <= Fraction(risk) * (1 + Fraction(1e-12)) * len(inside):
                fits.append(Fraction(len(inside), len(k)))
        near(ours, max(fits))


def probabilities(rng):
    n = int(rng.integers(1, 9))
    p, exact, plain_p = pick(rng, (n,), UNIT)
    errors, wrong, plain_e = pick(rng, (n,), ("bits",))
    fine = column(exact, n) and min(exact) >= 0 and max(exact) <= 1
    fine = fine and column(wrong, n) and set(wrong) <= {0, 1}
    metric = (nll, brier, ece)[rng.integers(3)]
    ours = outcome(lambda: metric(p, errors), must=plain_p and plain_e and fine)
    if ours is None:
        return
    if not fine:
        raise Wrong(f"{metric.__name__} got {ours} of {p!r}, {errors!r}")
    held = [float(each) for each in exact]
    if metric is brier:
        near(ours, sum((p - (1 - e)) ** 2 for p, e in zip(exact, wrong, strict=True)) / n)
    elif metric is nll:
        happened = [
            math.log1p(-p) if e and p < 1 else math.log(p) if not e and p else -math.inf
            for p, e in zip(held, wrong, strict=True)
        ]
        if math.isfinite(sum(happened)):
            near(ours, Fraction(-math.fsum(happened) / n))
        elif ours != math.inf:
            raise Wrong(f"nll got {ours} of {p!r}")
    else:
        bins = {}
        for p, e in zip(held, wrong, strict=True):
            at = sum(p > i / 15 for i in range(1, 15))
            bins[at] = bins.get(at, 0.0) + p - (1 - float(e))
        near(ours, Fraction(sum(map(abs, bins.values())) / n))


def intervals(rng):
    kappa, loss, known, must = a_pair(rng, ("bits", "bits", "unit"))
    ours = outcome(lambda: bootstrap(aurc, kappa, loss, resamples=5), must=must)
    if ours is not None:
        if known is None:
            raise Wrong(f"bootstrap got {ours} of {kappa!r}, {loss!r}")
        near(ours.estimate, aurc_by_groups(*known), size=max(known[1]))
        if not 0 <= ours.low <= ours.high <= max(known[1]) * (1 + Fraction(1e-9)):
            raise Wrong(f"bootstrap got {ours}")


def sketches(rng):
    n = int(rng.integers(1, 9))
    kappa, k, plain_k = pick(rng, (n,), UNIT)
    errors, wrong, plain_e = pick(rng, (n,), ("bits",))
    fine = (
        column(k, n) and min(k) >= 0 and max(k) <= 1 and column(wrong, n) and set(wrong) <= {0, 1}
    )
    sketch = RiskCoverageSketch(bins=256)
    ours = outcome(
        lambda: sketch.update(kappa, errors) or sketch, must=plain_k and plain_e and fine
    )
    if ours is None:
        if sketch.n:
            raise Wrong("a refused batch was counted")
        return
    if k is None or wrong is None:
        raise Wrong(f"a sketch took {kappa!r}, {errors!r}")
    if (ours.n, ours.errors) != (np.size(k), sum(np.ravel(wrong))):
        raise Wrong(f"a sketch counted {ours}")
    if fine:
        bounds, exact = (
            ours.aurc_bounds(),
            aurc_by_groups([float(e) for e in k], wrong),
        )
        if not bounds.low <= exact <= bounds.high:
            raise Wrong(f"bounds {bounds} without {float(exact)}")


METRICS = [areas, areas, areas, areas, rows_of_areas, curves, points_of_curves, probabilities]
METRICS += [intervals, sketches]
