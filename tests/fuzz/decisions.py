"""Tables, estimators, calibration, thresholds, monitors: what is drawn, called and judged."""

import math
from fractions import Fraction

import numpy as np
from scipy.special import log_softmax

from snapsure import AES, LES, PES, Monitor, Platt, ScoreTable, Threshold, eaurc
from snapsure.estimators import SPTD, BestSnapshot, MaxLogitPNorm, Temperature
from tests.fuzz.judge import Wrong, column, near, outcome, shape_of, taken
from tests.fuzz.metrics import LARGEST, SCORES, UNIT
from tests.fuzz.zoo import exact, pick
from tests.support.reference import slow_pes, slow_pes_confidence, slow_pnorm


def rounded(exact):
    """As float64, nested as it was."""
    return [rounded(x) if isinstance(x, list) else float(x) for x in exact]


def in_unit(exact, shape):
    return shape_of(exact) == shape and 0 <= np.min(exact) <= np.max(exact) <= 1


def _fits(exact):
    """Whether it is a whole number that int64 holds."""
    return exact.denominator == 1 and -(2**63) <= exact < 2**63


def tables(rng):
    shape = int(rng.integers(1, 4)), int(rng.integers(1, 6))
    kappa, k, plain_k = pick(rng, shape, UNIT)
    y, classes, plain_y = pick(
        rng, shape[1:], ("classes", "bits", "special", "above 2**53", "huge")
    )
    whole = column(classes, shape[1]) and all(map(_fits, classes))
    fine = in_unit(k, shape) and whole
    table = taken(
        lambda: ScoreTable({"own": kappa}, np.zeros(shape, int), y),
        fine=fine,
        plain=plain_k and plain_y,
    )
    if table is None:
        return
    if table.kappa("own").tolist() != rounded(k) or table.y.tolist() != [int(c) for c in classes]:
        raise Wrong(f"a table changed {kappa!r}, {y!r}")


def probability_tables(rng):
    snapshots, n, classes = (int(rng.integers(1, 4)) for _ in range(3))
    probs, p, plain = pick(rng, (snapshots, n, classes), ("unit", "levels", "bits", "special"))
    fine = shape_of(p) == (snapshots, n, classes) and np.min(p) >= 0
    sums = [sum(row) for part in p for row in part] if fine else []
    fine = fine and all(abs(total - 1) <= Fraction(999, 10**6) for total in sums)
    table = outcome(lambda: ScoreTable.from_probabilities(probs), must=plain and fine)
    if table is None:
        return
    if p is None or any(abs(float(total) - 1) > 1.001e-3 for total in sums):
        raise Wrong(f"a table took {probs!r}")
    final = [max(range(classes), key=lambda c: float(row[c])) for row in p[-1]]
    expected = [[min(1.0, float(row[c])) for row, c in zip(part, final, strict=True)] for part in p]
    if table.kappa("softmax").tolist() != expected or table.y_hat.tolist() != final:
        raise Wrong(f"a table changed {probs!r}")


def of_kappa(rng, n=None):
    """A table of κ and errors, and what it was made of; None where it was refused."""
    shape = int(rng.integers(1, 4)), n or int(rng.integers(1, 8))
    kappa, k, plain_k = pick(rng, shape, UNIT)
    errors, e, plain_e = pick(rng, shape[1:], ("bits",))
    fine = in_unit(k, shape) and column(e, shape[1]) and set(e) <= {0, 1}
    make = lambda: ScoreTable.from_kappa(kappa, errors)  # noqa: E731
    return taken(make, fine=fine, plain=plain_k and plain_e), k, e


def estimators(rng):
    table, k, e = of_kappa(rng)
    if table is None:
        return
    kappa, wrong = rounded(k), [int(each) for each in e]
    which = rng.integers(3)
    if which == 0:
        ours = AES(k=99, start=0.0).confidence(table)
        for one, column_of in zip(ours, zip(*kappa, strict=True), strict=True):
            near(float(one), sum(map(Fraction, column_of)) / len(kappa), rel=1e-12)
    elif which == 1:
        ours = PES(1 / 3).fit(table).confidence(table)
        layers, _ = slow_pes(kappa, wrong, max(1, len(wrong) // 3))
        expected = [slow_pes_confidence(each, layers, "layer") for each in zip(*kappa, strict=True)]
        if ours.tolist() != expected:
            raise Wrong(f"PES gave {ours}, the algorithm {expected} of {kappa}, {wrong}")
    else:
        best = BestSnapshot().fit(table)
        excess = [eaurc(row, wrong) for row in kappa]
        chosen = best.fitted["epochs"][0] - 1
        if excess[chosen] > min(excess) + 1e-12:
            raise Wrong(f"the best of {excess} is not {chosen}")


def learned(rng):
    """LES gives a probability, and follows the rows."""
    n = int(rng.integers(1, 90))
    table, _, _ = of_kappa(rng, n)
    if table is None:
        return
    les = LES().fit(table)
    p = les.confidence(table)
    again = LES().fit(table.rows(np.arange(n)[::-1])).confidence(table)
    if not ((p >= 0) & (p <= 1)).all() or not np.allclose(p, again, rtol=1e-5, atol=1e-9):
        raise Wrong(f"LES gave {p} and {again}")


def disagreements(rng):
    shape = int(rng.integers(1, 5)), int(rng.integers(1, 6))
    labels, exact, plain = pick(rng, shape, ("classes", "bits", "classes", "special"))
    whole = shape_of(exact) == shape and all(_fits(each) for row in exact for each in row)
    table = taken(
        lambda: ScoreTable({"softmax": np.full(shape, 0.5)}, labels), fine=whole, plain=plain
    )
    if table is None:
        return
    weights = [Fraction(t, shape[0]) ** 2 for t in range(1, shape[0] + 1)]
    ours = SPTD().confidence(table)
    for i, one in enumerate(ours):
        doubt = sum(w for w, row in zip(weights, exact, strict=True) if row[i] != exact[-1][i])
        near(float(one), 1 - doubt / sum(weights), rel=1e-12)
    if ours.max() > 1 or ours.min() < 0:
        raise Wrong(f"SPTD gave {ours}")


def of_logits(rng):
    n, classes = int(rng.integers(1, 9)), int(rng.integers(1, 5))
    logits, z, plain = pick(
        rng, (n, classes), ("normal", "normal", "huge", "tiny", "special", "bits")
    )
    fine = shape_of(z) == (n, classes) and np.max(np.abs(z)) <= LARGEST
    held = np.array(rounded(z)) if fine else np.zeros((n, classes))
    y = rng.integers(-1, classes, n)
    y_hat = held.argmax(axis=1)
    table = taken(
        lambda: ScoreTable({"softmax": np.full((1, n), 0.5)}, y_hat[None], y, logits=logits),
        fine=fine,
        plain=plain,
    )
    return table, held, y


def logit_estimators(rng):
    table, z, y = of_logits(rng)
    if table is None:
        return
    usable = z.shape[1] > 1 and np.abs(z).max() <= 1e150
    if rng.random() < 0.5:
        model = MaxLogitPNorm()
        ours = outcome(lambda: model.fit(table).confidence(table), must=usable)
        if ours is not None and model.p_ is not None:
            for one, row in zip(ours, z, strict=True):
                size = np.abs(row - row.mean()).max()
                if model.p_ and size > 1e-300 and size > 1e-6 * np.abs(row).max():
                    near(float(one), Fraction(slow_pnorm(row / size, model.p_)), rel=1e-6)
    else:
        model = Temperature()
        known = (y >= 0).any()
        ours = outcome(lambda: model.fit(table).confidence(table), must=usable and known)
        if ours is not None:
            _no_better_temperature(z[y >= 0], y[y >= 0], model.temperature_)
    if ours is not None and not (np.isfinite(ours).all() and (ours >= 0).all()):
        raise Wrong(f"{model} gave {ours} of {z}")


def _no_better_temperature(z, y, temperature):
    if np.abs(z).max() > 1e100:
        return

    lower = z - z.max(axis=1, keepdims=True)  # or a division rounds what large ones differ by

    def loss(t):
        return -log_softmax(lower / t, axis=1)[np.arange(len(y)), y].mean()

    for other in (temperature * 1.01, temperature / 1.01):
        if 1e-6 <= other <= 1e6 and loss(other) < loss(temperature) - 1e-9 * (
            1 + loss(temperature)
        ):
            raise Wrong(f"temperature {other} beats {temperature} of {z}, {y}")


def of_scores(rng, most=30):
    """Scores and errors, as float64 where they are in order."""
    n = int(rng.integers(1, most))
    score, exact, plain_s = pick(rng, (n,), SCORES)
    errors, e, plain_e = pick(rng, (n,), ("bits",))
    fine = column(exact, n) and all(abs(x) <= LARGEST for x in exact)
    fine = fine and column(e, n) and set(e) <= {0, 1}
    if not fine:
        return score, errors, None, None, False
    wrong = np.array([bool(each) for each in e])
    return score, errors, np.array(rounded(exact)), wrong, plain_s and plain_e


def thresholds(rng):
    score, errors, x, wrong, must = of_scores(rng)
    which = rng.integers(3)
    share = float(rng.random()) or 0.5
    costs = {"error": float(rng.integers(0, 9)), "review": float(rng.integers(0, 3))}
    calls = (
        lambda: Threshold.at_coverage(score, share),
        lambda: Threshold.at_risk(score, errors, 0.3, 0.2),
        lambda: Threshold.at_cost(score, errors, **costs),
    )
    chosen = outcome(calls[which], must=must and which != 1)
    if chosen is None:
        return
    if x is None:
        if which == 0 and column_of(score) is not None:
            return  # the errors alone were broken, and coverage does not ask for them
        raise Wrong(f"{chosen} of {score!r}, {errors!r}")
    accepted = chosen.accepts(score)
    if accepted.tolist() != (x >= chosen.theta).tolist() or accepted.mean() != chosen.coverage:
        raise Wrong(f"{chosen} accepts {accepted} of {score!r}")
    if which == 0:
        higher = [t for t in set(x.tolist()) if t > chosen.theta and (x >= t).mean() >= share]
        if accepted.mean() < share * (1 - 1e-9) or higher:
            raise Wrong(f"{chosen} for a coverage of {share} of {x}")
    elif which == 1:
        if accepted.any() and wrong[accepted].mean() > 0.3:
            raise Wrong(f"{chosen} with a risk of {wrong[accepted].mean()}")
    else:
        options = [math.inf, *x.tolist()]
        price = [
            costs["error"] * wrong[x >= t].sum() + costs["review"] * (x < t).sum() for t in options
        ]
        ours = costs["error"] * wrong[accepted].sum() + costs["review"] * (~accepted).sum()
        if ours > min(price) + 1e-9:
            raise Wrong(f"{chosen} costs {ours}, another {min(price)}")


def column_of(score):
    found = exact(score)
    return found if isinstance(found, list) and column(found, len(found)) else None


def curves_of_platt(rng):
    score, errors, x, wrong, must = of_scores(rng)
    platt = Platt()
    # So small that no slope fits, or so narrow that it is beyond the digits of an intercept.
    p = outcome(lambda: platt.fit(score, errors).predict_proba(score), must=False)
    if p is None:
        if must and np.abs(x).max() > 1e-290:
            raise Wrong(f"Platt refused {score!r}, {errors!r}")
        return
    if x is None:
        raise Wrong(f"Platt took {score!r}, {errors!r}")
    if not ((p >= 0) & (p <= 1)).all():
        raise Wrong(f"Platt gave {p} of {x}")
    if x.min() >= 0 and x.max() <= 1:
        x = np.clip(x, 1e-12, 1 - 1e-12)  # where log-odds end
    order = np.argsort(x, kind="stable")
    steps = np.diff(p[order])
    if not ((steps >= -1e-9).all() or (steps <= 1e-9).all()):
        raise Wrong(f"Platt is no curve: {p[order]} of {x[order]}")
    target = ~wrong
    some = wrong.any() and target.any()
    high, low = (x[wrong], x[target]) if some else (x, x)
    parted = not some or high.max() <= low.min() or low.max() <= high.min()
    mean = target.mean() if not parted or (x.min() == x.max() and some) else None
    narrow = np.ptp(x / np.abs(x).max()) < 1e-6 if np.abs(x).max() > 0 else False
    if mean is not None and not narrow and abs(p.mean() - mean) > 1e-5:
        raise Wrong(f"Platt's mean is {p.mean()}, {mean} were right, of {x}")


def monitors(rng):
    score, errors, x, wrong, must = of_scores(rng)
    theta = float(rng.choice(x)) if x is not None else 0.5
    watch = Monitor(Threshold(theta, 0.5), risk=0.2)
    ours = outcome(lambda: watch.update(score, errors) or watch, must=must)
    if ours is None:
        if watch.seen or watch.labelled:
            raise Wrong("a refused batch was counted")
        return
    if x is None:
        return  # labels that are not known are NaN
    accepted = x >= theta
    counted = (len(x), accepted.mean(), accepted.sum(), int(wrong[accepted].sum()))
    told = (ours.seen, ours.coverage, ours.labelled, round(ours.risk.estimate * ours.labelled))
    if counted != told:
        raise Wrong(f"a monitor counted {told} for {counted}")


DECISIONS = [tables, probability_tables, estimators, disagreements, logit_estimators, thresholds]
DECISIONS += [curves_of_platt, monitors, learned]
