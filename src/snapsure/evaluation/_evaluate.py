"""`evaluate` and `confidences`: methods on every κ of a table, beside its final snapshot."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from snapsure import _validate
from snapsure._types import Floats
from snapsure.estimators import registry
from snapsure.estimators._base import refuse_no_table
from snapsure.estimators.registry import FINAL, Method
from snapsure.evaluation._engine import (
    FEWEST,
    Candidate,
    Methods,
    Trial,
    check_table,
    find_methods,
    find_outcome,
    judge_all,
    list_candidates,
    mean_interval,
    mean_numbers,
    percent_saved,
    standard_error,
    try_all,
    write_verdict,
)
from snapsure.evaluation._protocol import Halves, Protocol, Splits
from snapsure.evaluation._results import Board, Comparison, Result, name_reference
from snapsure.evaluation._run import Run
from snapsure.metrics import Interval, aurc, eaurc
from snapsure.metrics._intervals import compute_intervals, jackknife_interval
from snapsure.table import ScoreTable


def evaluate(
    tables: ScoreTable | Sequence[ScoreTable],
    *,
    kappa: str | Sequence[str] | None = None,
    methods: Methods | None = None,
    protocol: Protocol | None = None,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Comparison:
    """Compare methods with the final snapshot, for every κ of a table.

    Methods that learn nothing are judged on all examples. Those that learn are fitted on 70 % of
    the examples and judged on the rest, in ten random splits; their numbers, and the ends of their
    intervals, are means over the splits. NLL and Brier score are of the calibrated confidence:
    Platt's curve over its log-odds, fitted on the 70 %, unless it is a probability already.

    Gains are of E-AURC, but those of averaged weights of AURC: their answers are their own, and
    AURC counts the errors too.

    Parameters
    ----------
    tables
        With labels. Several are seeds of one training: results are means over them.
    kappa
        One or several κ; all if not given.
    methods
        Registered methods by name, or others. If not given, those that `choose` may deploy, but not
        those of few passes, such as "LES (3 passes)".
    protocol
        `Splits(count=10, share=0.7, seed=seed)` if not given.
    resamples, level, seed
        Of the paired bootstrap over the examples. Intervals of fewer than 50 errors are of the
        jackknife instead, with Student's t.

    Returns
    -------
    Comparison
        A board per κ.

    Raises
    ------
    InvalidInput
        If a table has no labels, no errors or nothing but errors, or a κ or method is unknown.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> kappa = rng.random((10, 400))
    >>> table = ScoreTable.from_kappa(kappa, errors=rng.random(400) > kappa.mean(axis=0))
    >>> result = evaluate(table)
    >>> result["final"].gain.estimate, result["AES"].gain.estimate > 0
    (0.0, True)
    """
    some = list(tables) if isinstance(tables, list | tuple) else [cast(ScoreTable, tables)]
    for table in some:
        refuse_no_table(table)
    names = some[0].names if kappa is None else [kappa] if isinstance(kappa, str) else kappa
    for i, table in enumerate(some):
        check_table(table, names, 1, f"`tables` (table {i})")
    protocol = Splits(seed=seed) if protocol is None else protocol
    resamples = _validate.count(resamples, "resamples")
    chosen = _find_methods(methods)

    boards = {}
    for name in names:
        runs = [Run(_select_kappa(table, name)) for table in some]
        candidates = list_candidates(runs[0], chosen, [name], single=True)
        rows = compare_with_final(name, candidates, runs, protocol, resamples, level, seed)
        n = some[0].y_hat.size
        boards[name] = Board(name, FINAL, name, len(some), n, rows, level, resamples)
    return Comparison(boards, None)


def confidences(
    table: ScoreTable,
    *,
    kappa: str | None = None,
    methods: Methods | None = None,
    seed: int = 0,
) -> dict[str, Floats]:
    """Return the probability of being right that each method gives each example of a table.

    The examples are halved. What a method learns, and Platt's curve that makes its confidence a
    probability, are fitted on one half and answer for the other: no example is judged by what was
    fitted on it.

    `methods` are as for `evaluate`, and `seed` is of the halves. Without `kappa`, the table's first
    κ is used.

    Returns
    -------
    dict of str to (n,) array
        By the method's name.

    Raises
    ------
    InvalidInput
        If a table has fewer than 4 right or 4 wrong examples, or a κ or method is unknown.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> kappa = rng.random((10, 400))
    >>> table = ScoreTable.from_kappa(kappa, errors=rng.random(400) > kappa.mean(axis=0))
    >>> {name: p.shape for name, p in confidences(table, methods=["final", "LES"]).items()}
    {'final': (400,), 'LES': (400,)}
    """
    name = table.names[0] if kappa is None else kappa
    check_table(table, [name], FEWEST, "`table`")
    run = Run(_select_kappa(table, name))
    every = list_candidates(run, _find_methods(methods), [name], single=True)
    candidates = [one for one in every if not one.is_other]  # averaged weights answer otherwise
    halves = Halves(_validate.count(seed, "seed", least=0))
    trials = try_all(candidates, run, halves)
    order = np.concatenate([rest for _, rest in halves.parts(table.y_hat.size)])
    found = {}
    for candidate, trial in zip(candidates, trials, strict=True):
        found[candidate.method] = np.empty(order.size)
        found[candidate.method][order] = np.concatenate([one.p for one in trial.judged])
    return found


def _find_methods(methods: Methods | None) -> list[Method]:
    """Look up methods, "final" among them; the candidates of `choose` if none are given."""
    if methods is None:
        every = [method for method in map(registry.get, registry.names()) if method.is_candidate]
        # To search for few snapshots would take longer than all else.
        return [one for one in every if one.passes is None or "snapshots" not in one.needs]
    found = find_methods(methods)
    has_final = any(method.name == FINAL for method in found)
    return found if has_final else [registry.get(FINAL), *found]


def _select_kappa(table: ScoreTable, name: str) -> ScoreTable:
    """Return the table with one κ, so that splits copy no other."""
    averaged = table.averaged if name == "softmax" else None  # whose softmax it is
    return table._replace(_kappas={name: table.kappa(name)}, averaged=averaged)


def compare_with_final(
    kappa: str,
    candidates: Sequence[Candidate],
    runs: Sequence[Run],
    protocol: Protocol,
    resamples: int,
    level: float,
    seed: int,
) -> list[Result]:
    """Return a result per candidate: means over the runs, and the difference from the final one.

    Splits overlap, so the interval of a mean over splits is the mean of their intervals' ends.
    """
    base = [candidate.key for candidate in candidates].index((FINAL, kappa))
    each_run = [_try_beside_final(candidates, run, protocol, base) for run in runs]
    columns = [*zip(*each_run, strict=True)]
    pairs = [
        [both for trial, final in column for both in zip(trial.judged, final.judged, strict=True)]
        for column in columns
    ]
    # All at once, so that parts of the same size share their resamples.
    of_same_answers = iter(
        compute_intervals(
            eaurc,
            [
                ({"score": one.score, "final": final.score}, one.errors)
                for candidate, some in zip(candidates, pairs, strict=True)
                if not candidate.is_other
                for one, final in some
            ],
            *(resamples, level, seed),
        )
    )

    rows = []
    for i, (candidate, column) in enumerate(zip(candidates, columns, strict=True)):
        metric = "aurc" if candidate.is_other else "eaurc"
        numbers: dict[str, Any] = mean_numbers(trial.numbers for trial, _ in column)
        reference = mean_numbers(final.numbers for _, final in column)
        difference = mean_interval(
            jackknife_interval(aurc, [(one.score, one.errors), (final.score, final.errors)], level)
            if candidate.is_other
            else next(of_same_answers)
            for one, final in pairs[i]
        )
        area = reference[metric]
        saved = percent_saved(numbers[metric], area)
        gain = None
        if saved is not None:
            gain = Interval(saved, -100 * difference.high / area, -100 * difference.low / area)
        outcome = "reference" if i == base else find_outcome(difference)
        of = " of AURC" if candidate.is_other else ""
        verdict = write_verdict(outcome, saved, name_reference(FINAL, kappa), of)
        if candidate.is_other:
            wrong, before = numbers["error"], reference["error"]
            verdict += f"; its own answers: {wrong:.1%} wrong instead of {before:.1%}"
        spreads = [
            standard_error([one.numbers["eaurc"] for one in trial.judged])
            for trial, _ in column
            if len(trial.judged) > 1
        ]
        rows.append(
            Result(
                method=candidate.method,
                kappa=candidate.kappa,
                **numbers,
                bytes=None,
                standard_error=float(np.mean(spreads)) if spreads else None,
                reference_eaurc=reference["eaurc"],
                difference=difference,
                gain=gain,
                gains=tuple(
                    percent_saved(trial.numbers[metric], final.numbers[metric])
                    for trial, final in column
                ),
                outcome=outcome,
                verdict=verdict,
            )
        )
    return rows


def _try_beside_final(
    candidates: Sequence[Candidate], run: Run, protocol: Protocol, base: int
) -> list[tuple[Trial, Trial]]:
    """Judge each candidate, and the final one (`base`) on the same examples.

    Where the protocol says so, candidates that learn nothing are judged on all examples at once.
    The curve that calibrates them does learn, so their NLL and Brier score stay means over parts.
    """
    trials = try_all(candidates, run, protocol)
    whole = {}
    if protocol.whole:
        free = [i for i, candidate in enumerate(candidates) if not candidate.make().learns]
        for i, one in zip(free, judge_all([candidates[i] for i in free], run, run), strict=True):
            calibrated = {name: trials[i].numbers[name] for name in ("nll", "brier")}
            whole[i] = Trial([one], one.numbers | calibrated)
    return [
        (whole[i], whole[base]) if i in whole else (trial, trials[base])
        for i, trial in enumerate(trials)
    ]
