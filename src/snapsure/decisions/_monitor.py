"""Is the promise still kept? Two alarms on a stream of answers, in fixed memory."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypedDict

import numpy as np
from msgspec import Meta
from numpy.typing import ArrayLike

from snapsure import _json, _validate
from snapsure._types import Bools, Floats
from snapsure.decisions._alarm import Alarm
from snapsure.decisions._betting import Bets, BetsState, CutsState, RankCuts, rate_interval
from snapsure.decisions._threshold import Threshold
from snapsure.errors import CorruptFile, InvalidInput
from snapsure.metrics._bootstrap import Interval

# What the bets say of the odds of an error, as multiples of what was promised.
_RISK_ODDS = (1.2, 1.5, 2.0, 3.0, 6.0, 15.0)
# What they say of the odds that a confidence lies above a cut. Changes of the odds by less than
# about a fifth find no bet that wins: no stream is quite like its held-out points, and it need not.
_SHIFT_ODDS = (1 / 3, 2 / 3, 3 / 2, 3.0)
# The confidences at fitting are cut into so many parts of one size, and one more.
_CUTS = 15
# Answers at once.
_BLOCK = 1 << 12

_COUNTS = ("streams", "seen", "accepted", "labelled", "wrong")
_TERMS = ("theta", "expected_coverage", "promise", "alpha")
_Fraction = Annotated[float, Meta(gt=0, lt=1)]


class _MonitorState(TypedDict):
    """What a saved monitor holds."""

    theta: float
    expected_coverage: float
    promise: _Fraction | None
    alpha: _Fraction
    streams: _json.Integer
    seen: _json.Integer
    accepted: _json.Integer
    labelled: _json.Integer
    wrong: _json.Integer
    risk_bets: BetsState | None
    shift_bets: BetsState | None
    cuts: CutsState | None


class Monitor:
    """Watches the answers of a deployed classifier: is its threshold still to be trusted?

    Two alarms, in fixed memory, that may be looked at after every answer:

    - "risk", where labels come back: the error rate among accepted answers is above the promise.
      It bets against "each accepted answer whose label comes back is wrong with probability at most
      `risk`, given those before".
    - "shift", where none do: confidences are not distributed as at fitting. It bets against
      "the confidences at fitting and those of the stream are exchangeable". Given that, the rank of
      an answer among all before it is uniform whatever the distribution, so the chance of
      lying above a cut, which is a fixed rank of those at fitting, is known exactly: the share of
      the gaps between all earlier confidences that lie above it. That there were only so many
      points at fitting is thereby accounted for. Ties are ordered at random, by `seed`.

    As long as both hypotheses hold, the probability that there is ever any alarm is at most
    `alpha`, of which each alarm that is on has an equal part. (A promise by `Threshold.at_risk` is
    itself broken with probability delta, which comes on top.) An alarm stays.

    Parameters
    ----------
    threshold : Threshold
        What decides which answers are accepted.
    confidence : (n,), n ≥ 15, or None
        The held-out confidences at fitting, which nothing but the threshold was fitted on; 15 of
        them are kept. None: no alarm "shift".
    risk : float or None
        The risk promised. None: the threshold's `risk_bound`, and if that is None too, no alarm
        "risk".
    alpha : float
        How probable a false alarm may be, over all time.
    seed : int
        For the order of ties.

    Raises
    ------
    InvalidInput
        If there is neither a promise nor confidences; for anything out of range.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> kappa = rng.random(5000)
    >>> threshold = Threshold.at_risk(kappa, rng.random(5000) > kappa, risk=0.2)
    >>> monitor = Monitor(threshold, kappa)
    >>> monitor.update(rng.random(20_000))  # answers as they were at fitting
    >>> monitor.alarms
    []
    >>> monitor.update(rng.random(2000) ** 2)  # less sure
    >>> [alarm.kind for alarm in monitor.alarms]
    ['shift']
    """

    def __init__(
        self,
        threshold: Threshold,
        confidence: ArrayLike | None = None,
        *,
        risk: float | None = None,
        alpha: float = 0.05,
        seed: int = 0,
    ) -> None:
        if not isinstance(threshold, Threshold):
            raise InvalidInput(
                f"`threshold` must be a Threshold, got {type(threshold).__name__}: "
                "make one by `Threshold.at_risk`"
            )
        if threshold.groups is not None:
            raise InvalidInput(
                f"`threshold` must be one for all answers, got one for each of "
                f"{len(threshold.groups)} groups: watch each group by a monitor of its own"
            )
        promise = threshold.risk_bound if risk is None else risk
        if promise is None and confidence is None:
            raise InvalidInput(
                "a monitor must have something to compare with, got a threshold that promises no "
                "risk and no `confidence`: pass the held-out confidences, or `risk`"
            )
        if promise is not None:
            promise = _validate.fraction(promise, "risk", open_above=True)
        seed = _validate.count(seed, "seed", least=0)
        cuts = None if confidence is None else RankCuts(_scores(confidence), _CUTS, seed)
        alpha = _validate.fraction(alpha, "alpha", open_above=True)
        self._set_up(_validate.number(threshold.theta, "theta"), promise, alpha, cuts)
        self._expected_coverage = float(threshold.coverage)

    def _set_up(
        self, theta: float, promise: float | None, alpha: float, cuts: RankCuts | None
    ) -> None:
        self._theta, self._promise, self._alpha, self._cuts = theta, promise, alpha, cuts
        level = math.log(((promise is not None) + (cuts is not None)) / alpha)
        self._risk_bets = Bets(1, _RISK_ODDS, level) if promise is not None else None
        self._shift_bets = Bets(_CUTS, _SHIFT_ODDS, level) if cuts is not None else None
        self._streams = 1
        self._seen = self._accepted = self._labelled = self._wrong = 0

    def __repr__(self) -> str:
        """What was seen, beside what was expected."""
        of = "" if self._streams == 1 else f" of {self._streams} streams"
        said = [f"{self.seen:,} answers{of}"]
        if self.coverage is not None:
            said.append(f"{self.coverage:.3g} accepted ({self._expected_coverage:.3g} at fitting)")
        if self.risk is not None:
            promised = "" if self._promise is None else f" (at most {self._promise:.3g} promised)"
            said.append(f"{self.labelled:,} labelled: risk {self.risk.estimate:.3g}{promised}")
        alarms = [alarm.kind for alarm in self.alarms]
        said.append(f"alarm: {' and '.join(alarms)}" if alarms else "no alarm")
        return f"<Monitor: {', '.join(said)}>"

    @property
    def seen(self) -> int:
        """How many answers there were."""
        return self._seen

    @property
    def labelled(self) -> int:
        """How many accepted answers there were whose label came back."""
        return self._labelled

    @property
    def coverage(self) -> float | None:
        """Share of the answers that were accepted; None before the first."""
        return self._accepted / self._seen if self._seen else None

    @property
    def risk(self) -> Interval | None:
        """Share of errors among accepted answers whose label came back; None before the first.

        With an interval that holds at all times together with probability 1 − alpha, if the
        answers are independent and the error rate stays the same.
        """
        if not self._labelled:
            return None
        return rate_interval(self._wrong, self._labelled, self._alpha)

    @property
    def evidence(self) -> dict[str, float]:
        """The greatest e-value so far of each alarm that is on, against its hypothesis."""
        return {kind: _exp(bets.peak) for kind, bets in self._bets()}

    @property
    def alarms(self) -> list[Alarm]:
        """What is wrong, "risk" first; empty as long as nothing is."""
        found = []
        for kind, bets in self._bets():
            what = bets.crossing
            # Each of several streams must show the evidence for all.
            if what is not None and bets.peak >= bets.level + math.log(self._streams):
                cut = None
                if kind == "shift" and self._cuts is not None:
                    cut = float(self._cuts.kappa[what.question])
                evidence = _exp(bets.peak)
                alarm = Alarm(kind, what.point, evidence, what.observed, what.expected, cut)
                found.append(alarm)
        return found

    def update(self, confidence: ArrayLike, errors: ArrayLike | None = None) -> None:
        """Take in new answers, each once. A batch that is refused leaves all as it was.

        How a stream is cut into batches changes nothing (beyond the last digits of the evidence).

        Parameters
        ----------
        confidence : (n,) or one number
            Of all answers, accepted or not.
        errors : (n,), one number, or None
            0 (right), 1 (wrong), NaN or None where the label is not known. For labels that come
            later, leave them out here and call `feedback` when they come.

        Raises
        ------
        InvalidInput
            For NaN confidences, other errors, shapes that differ, empty input, or a merged monitor.
        """
        score = _scores(confidence)
        labels = None if errors is None else _labels(errors, score)
        self._refuse_if_merged()
        for low in range(0, score.size, _BLOCK):
            part = score[low : low + _BLOCK]
            if self._cuts is not None and self._shift_bets is not None:
                self._shift_bets.play(*self._cuts.place(part))
        self._seen += score.size
        self._accepted += int((score >= self._theta).sum())
        if labels is not None:
            self._learn(score, *labels)

    def feedback(self, confidence: ArrayLike, errors: ArrayLike) -> None:
        """Take in labels of earlier answers, in the order in which they come, each once.

        Whether and when a label comes back must not depend on whether the answer was right: send
        a random part of the accepted answers to a person, and not the complaints alone.

        Parameters
        ----------
        confidence : (n,) or one number
            What the answers had. Those that were not accepted do not count.
        errors : (n,) or one number
            0 (right), 1 (wrong), NaN or None where the label is still not known.

        Examples
        --------
        >>> monitor = Monitor(Threshold(0.8, 0.6), risk=0.05)
        >>> monitor.update([0.9, 0.7, 0.95])
        >>> monitor.feedback([0.95, 0.7], [0, 1])
        >>> monitor.seen, monitor.labelled
        (3, 1)
        """
        score = _scores(confidence)
        labels = _labels(errors, score)
        self._refuse_if_merged()
        self._learn(score, *labels)

    def _learn(self, score: Floats, known: Bools, wrong: Bools) -> None:
        counted = wrong[known & (score >= self._theta)]
        self._labelled += counted.size
        self._wrong += int(counted.sum())
        if self._risk_bets is not None and self._promise is not None:
            self._risk_bets.play(counted[:, None], np.array([[self._promise]]))

    def merge(self, *others: "Monitor") -> "Monitor":
        """All streams together, for reading: the order of merges changes no bit.

        Counts add up. Of each kind, the evidence is the greatest that one of the m streams has
        shown at any time, and it raises the alarm if it is m times what one stream needs. False
        alarms stay at most alpha: the greatest evidence of one stream ever reaches m/a with
        probability at most a/m (Ville), so that one of m does with at most a, and no independence
        was needed: streams may share the points at fitting. One stream's own alarm, which is one of
        m chances for a false one, may therefore be none of all together; labels that are few are
        better sent to one monitor than merged.

        Merge monitors of different streams, and each once. To resume a stream, `load` it.

        Raises
        ------
        InvalidInput
            If threshold, promise, alpha, or the alarms that are on differ.
        """
        for other in others:
            if not isinstance(other, Monitor):
                raise InvalidInput(
                    f"`others` must be monitors, got {type(other).__name__}: load them first"
                )
            if other.terms != self.terms:
                raise InvalidInput(
                    "`others` must watch the same threshold, promise and alpha, got "
                    f"{other.terms} for {self.terms}: make all monitors alike"
                )
        everyone = [self, *others]
        state = max(everyone, key=lambda one: _order(one._shift_bets)).as_dict()
        riskiest = max(everyone, key=lambda one: _order(one._risk_bets))
        state["risk_bets"] = riskiest.as_dict()["risk_bets"]
        for name in _COUNTS:
            state[name] = sum(one.as_dict()[name] for one in everyone)
        return Monitor.from_dict(state)

    def save(self, path: str | Path) -> None:
        """Write it as JSON, exactly: what `load` reads goes on as this would have."""
        _json.write(path, "Monitor", self.as_dict())

    @classmethod
    def load(cls, path: str | Path) -> "Monitor":
        """Read what `save` wrote."""
        content = _json.read(path, "Monitor", _MonitorState)
        try:
            return cls.from_dict(content)
        except (TypeError, ValueError, ArithmeticError):  # parts that contradict each other
            raise CorruptFile(
                f"{path} must be a saved Monitor, got terms and alarms that none has: restore it, "
                "or save it again"
            ) from None

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> "Monitor":
        """What `as_dict` told of."""
        monitor = cls.__new__(cls)
        cuts = None if state["cuts"] is None else RankCuts.restored(state["cuts"])
        monitor._set_up(state["theta"], state["promise"], state["alpha"], cuts)
        monitor._expected_coverage = state["expected_coverage"]
        for name in _COUNTS:
            setattr(monitor, f"_{name}", state[name])
        for kind, bets in monitor._bets():
            bets.restore(state[f"{kind}_bets"])
        return monitor

    def as_dict(self) -> dict[str, Any]:
        """All of it, in JSON's types."""
        state = {name: getattr(self, f"_{name}") for name in (*_TERMS, *_COUNTS)}
        for name in ("risk_bets", "shift_bets", "cuts"):
            part = getattr(self, f"_{name}")
            state[name] = None if part is None else part.state
        return state

    def _bets(self) -> list[tuple[str, Bets]]:
        """Those that are on."""
        all_bets = ("risk", self._risk_bets), ("shift", self._shift_bets)
        return [(kind, bets) for kind, bets in all_bets if bets is not None]

    @property
    def terms(self) -> str:
        """What monitors that are merged must share."""
        alarms = " and ".join(kind for kind, _ in self._bets())
        threshold = f"theta {self._theta} at coverage {self._expected_coverage}"
        return f"{threshold}, risk {self._promise}, alpha {self._alpha} on {alarms}"

    def _refuse_if_merged(self) -> None:
        if self._streams > 1:
            raise InvalidInput(
                f"a merged monitor must not be updated, got one of {self._streams} streams: "
                "update its parts, and merge them again"
            )


def _scores(confidence: ArrayLike) -> Floats:
    column = np.atleast_1d(_validate.numbers(confidence, "confidence"))
    return _validate.scores(column, "confidence")


def _labels(errors: ArrayLike, score: Floats) -> tuple[Bools, Bools]:
    alone = errors is None or np.isscalar(errors) or getattr(errors, "ndim", 1) == 0
    column: Any = [errors] if alone else errors
    return _validate.errors_known(column, score.shape, of="confidence")


def _order(bets: Bets | None) -> tuple[float, int]:
    """The greatest evidence last; among equals, what was raised first."""
    if bets is None:
        return 0.0, 0
    return bets.peak, 0 if bets.crossing is None else -bets.crossing.point


def _exp(log: float) -> float:
    """An e-value as a float, at most the largest there is."""
    return math.exp(min(log, 709.0))
