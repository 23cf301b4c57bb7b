"""The recommendation that opens the page: what `evaluation.choose` finds, in words and numbers.

It is exactly what `Predictor.fit` deploys from the same table.
"""

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from snapsure import _validate
from snapsure._types import Bools, Floats
from snapsure.decisions import Threshold
from snapsure.errors import Infeasible
from snapsure.estimators.registry import FINAL
from snapsure.evaluation import Choice, Result
from snapsure.evaluation._engine import find_outcome, mean_interval
from snapsure.metrics import Interval
from snapsure.report.chapter import Bar, Block, Chapter, Text, name_final
from snapsure.report.charts import COLOURS, find_kind
from snapsure.report.tables import Column, Table, interval, percent, write_limit
from snapsure.table import ScoreTable

DELTA = 0.05  # how often the promise may fail
RISKS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)
_KINDS = {"AES": "averaged", "LES": "learned", "PES": "pointwise"}  # of early stopping
_OUTCOMES = {
    "better": "significantly better",
    "worse": "significantly worse",
    "borderline": "borderline: the interval touches 0",
    "no difference": "no significant difference",
}


class Verdict(NamedTuple):
    """A method beside the final softmax: means over all tables, of the intervals' ends too."""

    method: str
    gain: Interval | None  # percent less E-AURC than the final softmax; None if that is 0
    passes: float
    outcome: str  # better, worse, borderline, or no difference


@dataclass(frozen=True)
class Recommendation:
    """What to deploy for each table, and what that accepts at an error limit."""

    risk: float
    choices: Sequence[Choice]  # one per table; without a threshold where the limit is out of reach
    verdicts: Sequence[Verdict]

    @property
    def kappa(self) -> str:
        """The κ of the first table."""
        return self.choices[0].kappa

    @property
    def method(self) -> str:
        """The method that is deployed for most tables."""
        return Counter(choice.method for choice in self.choices).most_common(1)[0][0]

    @property
    def accepted(self) -> float | None:
        """The mean share accepted; a table that cannot promise accepts nothing."""
        return _average([choice.accepted for choice in self.choices])

    @property
    def final_accepted(self) -> float | None:
        """The mean share that the final softmax accepts under the same promise."""
        return _average([choice.final_accepted for choice in self.choices])

    def write(self) -> list[str]:
        """Write the recommendation; the first sentence says what to use."""
        final, limit = f"the {name_final(self.kappa)}", write_limit(self.risk)
        is_final = self.method == FINAL
        agree = sum(choice.method == self.method for choice in self.choices)
        among = "" if agree == len(self.choices) else f" ({agree} of {len(self.choices)} tables)"
        use = final if is_final else self.method
        kind = _KINDS.get(self.method.partition(" ")[0])
        use += f", {kind} early stopping" if kind else ""
        sentences = [f"Use {use}{among}."]

        better = [verdict.method for verdict in self.verdicts if verdict.outcome == "better"]
        if is_final and not better:
            sentences.append("No other method is significantly better here.")
        elif is_final:
            sentences.append(
                f"{better[0]} ranks better, but {final} accepts more under this promise, because "
                "no example is needed to fit it."
            )
        elif self.method not in better:
            sentences.append("Its gain is not significant on these examples alone.")
        if self.accepted is None:
            return [*sentences, f"These examples cannot promise an error limit of {limit}."]
        sentences.append(
            f"Accept {percent(self.accepted)} of the answers at an error limit of {limit}, and "
            f"send {percent(1 - self.accepted)} to review."
        )
        if not is_final:
            share = self.final_accepted
            accepts = "cannot keep that limit" if share is None else f"accepts {percent(share)}"
            sentences.append(f"The {name_final(self.kappa)} {accepts}.")
        return sentences

    def write_deployment(self, folder: str | Path | None, model: str | None, seed: int) -> str:
        """Write the command that deploys it, or without a folder and a model a line of Python."""
        settings: dict[str, Any] = {} if self.accepted is None else {"risk": self.risk}
        if self.kappa != "softmax":
            settings["kappa"] = self.kappa
        if seed:
            settings["seed"] = seed
        if folder is not None and model is not None:
            settings = {"model": model, **settings}
            given = [word for key, value in settings.items() for word in (f"--{key}", str(value))]
            return shlex.join(["snapsure", "fit", str(folder), *given, "--out", "predictor"])
        given = [f"{key}={value!r}" for key, value in settings.items()]
        arguments = ", ".join(["model", "snapshots", "table", *given])
        return f'Predictor.fit({arguments}).save("predictor")'


def recommend(
    tables: Sequence[ScoreTable], choices: Sequence[Choice], risk: float | None
) -> Recommendation:
    """Promise one error limit for all tables, and judge the methods that all tables have.

    Without `risk` the limit is a round one, by the examples that methods learn from: the promise
    is made on the others.
    """
    pairs = [*zip(tables, choices, strict=True)]
    is_fixed = risk is not None
    if risk is None:
        risk = _choose_limit(
            [
                (table.kappa(choice.kappa)[-1][choice.learn], table.errors[choice.learn])
                for table, choice in pairs
            ]
        )
    risk = _validate.fraction(risk, "risk", open_above=True)
    promised = []
    for table, choice in pairs:
        try:
            promised.append(choice.promise(table, risk, DELTA, risk_is_fixed=is_fixed))
        except Infeasible:
            promised.append(choice)

    results = [{row.method: row for row in choice.candidates} for choice in choices]
    common = [method for method in results[0] if all(method in each for each in results)]
    verdicts = [judge([each[name] for each in results]) for name in common if name != FINAL]
    return Recommendation(risk, promised, verdicts)


def judge(rows: Sequence[Result]) -> Verdict:
    """Judge a method by its results on every table.

    Borderline: an end of the interval is 0 when written with one digit.
    """
    difference = mean_interval(row.difference for row in rows)
    outcome: str = find_outcome(difference)
    final = float(np.mean([row.reference_eaurc for row in rows]))
    gain = None
    if final > 0:
        estimate, low, high = (-100 * end / final for end in difference)
        gain = Interval(estimate, high, low)
        if min(abs(gain.low), abs(gain.high)) < 0.05:
            outcome = "borderline"
    return Verdict(rows[0].method, gain, float(np.mean([row.passes for row in rows])), outcome)


def _choose_limit(examples: Sequence[tuple[Floats, Bools]]) -> float:
    """Return the largest round risk up to half of the error, or the next that can be promised."""
    error = float(np.mean([wrong.mean() for _, wrong in examples]))
    wanted = max((risk for risk in RISKS if risk <= error / 2), default=RISKS[0])
    for risk in (risk for risk in RISKS if wanted <= risk < error):
        try:
            for kappa, wrong in examples:
                Threshold.at_risk(kappa, wrong, risk, DELTA)
        except Infeasible:
            continue
        return risk
    return wanted


def _average(shares: Sequence[float | None]) -> float | None:
    if all(share is None for share in shares):
        return None
    return float(np.mean([share or 0.0 for share in shares]))


def summarise(advice: Recommendation, chapters: Sequence[Chapter], deployment: str) -> list[Block]:
    """Show what follows the recommendation: bars, the promise, how to deploy, every method."""
    final, limit = name_final(advice.kappa), write_limit(advice.risk)
    table = chapters[0].table
    right = [float(1 - chapter.table.errors.mean()) for chapter in chapters]
    mean = f" (mean of {len(chapters)} tables)" if len(chapters) > 1 else ""
    blocks: list[Block] = []
    if advice.accepted is not None:
        shares: dict[str, float | None] = {final: advice.accepted}
        if advice.method != FINAL:
            shares = {advice.method: advice.accepted, final: advice.final_accepted}
        blocks += [
            Bar(
                name,
                share or 0.0,
                percent(share) if share else "cannot keep this limit",
                COLOURS[find_kind(name)],
            )
            for name, share in shares.items()
        ]
        about = f"Answers accepted at an error limit of {limit}{mean}. The rest goes to review."
        blocks.append(Text(about, is_note=True))
    blocks += [
        Text(
            f"{table.y_hat.size:,} examples, {percent(float(np.mean(right)))} right{mean}; "
            f"{table.epochs.size} snapshots; confidence: {advice.kappa}.",
            is_note=True,
        ),
        Text(
            f"The error limit is a promise: at most {limit} of the accepted answers to new inputs "
            "like these are wrong. It comes from examples that nothing was fitted on, and fails "
            f"for at most 1 in {round(1 / DELTA)} draws of them.",
            is_note=True,
        ),
        Text("To deploy it:", is_note=True, code=deployment),
        Table(
            [
                Column("method", text=True),
                Column("gain, % (95 % interval)", interval),
                Column("passes", "{:.0f}".format),
                Column("verdict", text=True),
            ],
            [
                (name, gain or "–", passes, _OUTCOMES[outcome])
                for name, gain, passes, outcome in advice.verdicts
            ],
            f"Methods compared with the {final}: averaged (AES), learned (LES) and pointwise (PES) "
            "early stopping. Gain: percent less E-AURC, which is what an imperfect ranking costs. "
            "Passes: forward passes per answer.",
        ),
    ]
    if len(chapters) == 1:
        return blocks
    columns = [
        *(Column(head, text=True) for head in ("table", "recommended")),
        *(Column(head, percent) for head in ("right", "accepted", f"{final} accepts")),
    ]
    rows = []
    for chapter, accuracy in zip(chapters, right, strict=True):
        shares_of = (chapter.choice.accepted, chapter.choice.final_accepted)
        accepted = ("nothing" if share is None else share for share in shares_of)
        rows.append((chapter.name, chapter.deployed, accuracy, *accepted))
    return [*blocks, Table(columns, rows, f"Each table at an error limit of {limit}")]
