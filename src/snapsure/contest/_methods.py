"""The contestants: each learns on one half of the points what it must, and scores the other.

To add one: a function that gives a `Method`, and a line in `methods_of`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from snapsure._spacing import choose
from snapsure.contest._run import Run
from snapsure.estimators import AES, LES, PES, SPTD, MaxLogitPNorm, Temperature

Floats = NDArray[np.float64]
Scorer = Callable[[Run], Floats]

AVERAGED = 30  # AES's snapshots, as in the paper
LEARNT = 20  # LES's, of one κ
SHARED = 5  # of each κ, where LES sees them all


@dataclass(frozen=True)
class Fitted:
    """A scorer, and which snapshots an answer of it passes through (places in the table)."""

    score: Scorer
    snapshots: Sequence[int]


@dataclass(frozen=True)
class Method:
    """A way to one confidence."""

    name: str
    fit: Callable[[Run], Fitted]
    calibrated: bool = False  # its score is a probability of being right
    other: str | None = None  # whose predictions it speaks of, if not the final classifier's
    each: int = 1  # passes per snapshot
    kept: int | None = None  # snapshots, if not those that it passes through and the final one


def methods_of(run: Run) -> list[Method]:
    """All that can be had of a run, the final κ of each kind first."""
    table = run.table
    price = run.passes
    found = [_final(name, price[name]) for name in table.names]
    if run.logits is not None:
        found += [_temperature("nll"), _temperature("aurc"), _max_logit_pnorm()]
    found += [_other(name, price[name], run.kept[name]) for name in run.others]
    if len(table.epochs) > 1:
        for name in table.names:
            found += [_aes(name, price[name]), _pes(f"PES of {name}", name, price[name], PES())]
            found.append(_les([name], LEARNT, f"LES of {name}", price[name]))
        if len(table.names) > 1:
            all_of_them = sum(price[name] - 1 for name in table.names) + 1  # they share a pass
            found.append(_les(table.names, SHARED, "LES of all κ", all_of_them))
        # PES as the paper writes it and as plain as can be: of the first κ alone, since with every
        # method more the correction for many comparisons takes more from all.
        first = table.names[0]
        letter, plain = PES(assign="paper"), PES(layer=1.0)  # one layer: one snapshot for all
        found.append(_pes(f"PES to the letter of {first}", first, price[first], letter))
        found.append(_pes(f"best snapshot of {first}", first, price[first], plain))
    if (table.labels != table.y_hat).any():  # packed tables may not have the snapshots' own labels
        found.append(_sptd())
    return found


def _final(name: str, each: int) -> Method:
    return Method(
        name, lambda run: Fitted(lambda other: other.table.kappa(name)[-1], _last(run)), each=each
    )


def _aes(name: str, each: int) -> Method:
    aes = AES(AVERAGED)

    def fit(run: Run) -> Fitted:
        return Fitted(
            lambda other: aes.confidence(other.table.kappa(name), other.table.epochs),
            aes.snapshots(run.table.epochs).tolist(),
        )

    return Method(f"AES of {name}", fit, each=each)


def _pes(title: str, name: str, each: int, settings: PES) -> Method:
    def fit(run: Run) -> Fitted:
        pes = PES(settings.layer, settings.assign).fit(run.table.kappa(name), run.table.errors)
        return Fitted(lambda other: pes.confidence(other.table.kappa(name)), pes.snapshots_)

    return Method(title, fit, each=each)


def _les(names: Sequence[str], k: int, title: str, each: int) -> Method:
    def fit(run: Run) -> Fitted:
        used = choose(run.table.epochs, k, 0.0)

        def features(other: Run) -> Floats:
            # The first κ comes last: with too few errors to learn from, LES falls back to that.
            return np.vstack([other.table.kappa(name)[used] for name in reversed(names)])

        x = features(run)
        les = LES(len(x)).fit(x, run.table.errors)
        return Fitted(
            lambda other: les.confidence(features(other)),
            _last(run) if les.fallback_ else used.tolist(),
        )

    return Method(title, fit, calibrated=True, each=each)


def _sptd() -> Method:
    return Method(
        "SPTD",
        lambda run: Fitted(
            lambda other: SPTD().confidence(
                other.table.labels, other.table.epochs, y_hat=other.table.y_hat
            ),
            range(len(run.table.epochs)),
        ),
    )


def _temperature(by: str) -> Method:
    def fit(run: Run) -> Fitted:
        scaling = Temperature(by=by).fit(_logits(run), run.y)
        return Fitted(lambda other: scaling.confidence(_logits(other)), _last(run))

    return Method(f"temperature by {by.upper()}", fit, calibrated=by == "nll")


def _max_logit_pnorm() -> Method:
    def fit(run: Run) -> Fitted:
        scorer = MaxLogitPNorm().fit(_logits(run), run.table.errors)
        return Fitted(lambda other: scorer.confidence(_logits(other)), _last(run))

    return Method("MaxLogit-pNorm", fit)


def _other(name: str, each: int, kept: int) -> Method:
    return Method(
        name,
        lambda run: Fitted(lambda other: other.others[name][0], _last(run)),
        other=name,
        each=each,
        kept=kept,
    )


def _last(run: Run) -> Sequence[int]:
    return [len(run.table.epochs) - 1]


def _logits(run: Run) -> Floats:
    assert run.logits is not None
    return run.logits


def errors_of(method: Method, run: Run) -> NDArray[np.bool_]:
    """Where the classifier that a method speaks of is wrong."""
    if method.other is None:
        return run.table.errors
    wrong: NDArray[np.bool_] = run.others[method.other][1] != run.y
    return wrong


def halves(n: int, seed: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Each half of the points, and the other: to learn on one and to be judged on the other."""
    order = np.random.default_rng(seed).permutation(n)
    one, two = np.sort(order[: n // 2]), np.sort(order[n // 2 :])
    yield one, two
    yield two, one
