"""Is the promise still kept? Two alarms on a stream of answers, in fixed memory.

The evidence may be looked at after every answer. It is the wealth of somebody who bets against a
hypothesis at fair prices: if the hypothesis is true, the wealth ever grows a hundredfold with
probability at most 1/100, over all time together (Ville's inequality). So 1 / wealth is a level of
significance that no number of looks weakens.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypedDict

import numpy as np
from msgspec import Meta
from numpy.typing import ArrayLike

from snapsure import _json, _validate
from snapsure._types import Bools, Floats
from snapsure.decisions._threshold import Threshold
from snapsure.errors import CorruptFile, InvalidInput
from snapsure.metrics import Interval

# The bets on the odds of an error, as multiples of what was promised.
_RISK_ODDS = (1.2, 1.5, 2.0, 3.0, 6.0, 15.0)
# The bets on the odds that a confidence lies above a cut. Changes of the odds by less than about a
# fifth win no bet: no stream is exactly like its held-out examples, and it need not be.
_SHIFT_ODDS = (1 / 3, 2 / 3, 3 / 2, 3.0)
# The held-out confidences are cut at so many evenly spaced ranks.
_CUTS = 15
_ANSWERS_AT_ONCE = 1 << 12
# Answers per step of betting. Odds to this power must stay a float64.
_BETS_AT_ONCE = 128
# Starts within this many answers are about equally likely; later ones less and less.
_SCALE = 1000
# The logarithm of no wealth: JSON has no −∞.
_NOTHING = -1e9

_COUNTS = ("streams", "seen", "accepted", "labelled", "wrong")
_TERMS = ("theta", "expected_coverage", "promise", "alpha", "batch")
_Fraction = Annotated[float, Meta(gt=0, lt=1)]


class Alarm(NamedTuple):
    """What no longer matches the promise. `str` of it is one sentence.

    Attributes
    ----------
    kind : str
        "risk": more accepted answers are wrong than promised. "shift": the confidences are not
        distributed as at fitting.
    since : int
        When the alarm was raised, from 1 on: for "risk" counted in labelled accepted answers, for
        "shift" in answers. In a merged monitor it counts the answers of one stream.
    evidence : float
        The greatest e-value so far.
    observed, expected : float
        The values when it was raised. For "risk": the error rate that the evidence supports, and
        the promised one. For "shift": the shares of confidences above `cut`, now and before.
    cut : float or None
        For "shift", the confidence where the difference is clearest.

    Examples
    --------
    >>> monitor = Monitor(Threshold(0.5, coverage=0.9), risk=0.1)
    >>> monitor.update([0.8] * 100, errors=[True] * 100)  # every accepted answer is wrong
    >>> monitor.alarms[0].kind, monitor.alarms[0].expected
    ('risk', 0.1)
    """

    kind: str
    since: int
    evidence: float
    observed: float
    expected: float
    cut: float | None = None

    def __str__(self) -> str:
        """Describe it in one sentence."""
        if self.kind == "risk":
            text = (
                f"risk above the promise: about {self.observed:.3g} of the accepted answers are "
                f"wrong, at most {self.expected:.3g} was promised; raised at labelled answer"
            )
        else:
            text = (
                f"confidences have shifted: about {self.observed:.3g} of them lie above "
                f"{self.cut:.4g}, {self.expected:.3g} did before; raised at answer"
            )
        return f"{text} {self.since:,} (e-value {self.evidence:.3g})"


class Crossing(NamedTuple):
    """The first answer at which the evidence reached its level, and what it is evidence of."""

    point: int  # from 1 on
    question: int
    expected: float  # the chance of yes under the hypothesis
    observed: float  # the chance of yes that the wealth supports


class BetsState(TypedDict):
    """What a file holds of bets."""

    points: _json.Count
    now: float
    peak: float
    crossing: Crossing | None
    log_wealth: list[float]


class CutsState(TypedDict):
    """What a file holds of cuts."""

    kappa: list[float]
    ties: list[float]
    above: list[_json.Count]
    gaps: Annotated[int, Meta(ge=1, le=2**63 - 1)]
    seed: Annotated[int, Meta(ge=0)]  # of any length
    drawn: _json.Count


class _MonitorState(TypedDict):
    """What a saved monitor holds."""

    theta: float
    expected_coverage: float
    promise: _Fraction | None
    alpha: _Fraction
    batch: bool
    streams: _json.Integer
    seen: _json.Integer
    accepted: _json.Integer
    labelled: _json.Integer
    wrong: float
    doubt: float | None
    runs: list[str]
    risk_bets: BetsState | None
    shift_bets: BetsState | None
    cuts: CutsState | None


class Monitor:
    """Watches the answers of a deployed classifier: does its threshold still hold?

    There are two alarms, in fixed memory. You may look at them after every answer:

    - "risk", where labels come back: the error rate among accepted answers exceeds the promise. It
      bets against "each labelled accepted answer is wrong with probability at most `risk`, given
      those before", which is true of independent answers under the promise.
    - "shift", without labels: confidences are not distributed as at fitting. It bets against "the
      held-out confidences and those of the stream are exchangeable". Then the rank of an answer
      among all before it is uniform, whatever the distribution. So the chance of lying above a cut,
      which is a fixed rank of the held-out confidences, is known exactly: the share of gaps between
      all earlier confidences that lie above it. This accounts for a small number of held-out
      examples. Ties are ordered at random, by `seed`.

    As long as both hypotheses hold, the probability of any alarm, ever, is at most `alpha`, split
    equally between the alarms in use. (A promise by `Threshold.at_risk` is itself broken with
    probability delta, in addition.) An alarm stays on.

    Parameters
    ----------
    threshold : Threshold
        Decides which answers are accepted.
    confidence : (n,), n ≥ 15, or None
        The held-out confidences, which nothing but the threshold was fitted on; the monitor keeps
        15 of them. None: no "shift" alarm.
    risk : float or None
        The promised risk. None: the threshold's `risk`; if that is None too, no "risk" alarm.
    alpha : float
        How probable a false alarm may be, over all time.
    batch : bool
        True if answers depend on each other, such as those of one session or document: each call of
        `update` or `feedback` then holds the answers of one batch. The "risk" alarm bets on the
        error rate of the batch, and the "shift" alarm on one of its answers, drawn at random.
        Answers may depend on each other in any way within a batch, but not across batches.
        Batches count alike, whatever their size: where small ones are wrong more often, the mean of
        their error rates exceeds the error rate of all answers. Hold out one answer per batch.
    seed : int
        Fixes the order of ties, and the answers that are drawn.

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
    >>> monitor.update(rng.random(2000) ** 2)  # less confident
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
        batch: bool = False,
        seed: int = 0,
    ) -> None:
        if not isinstance(threshold, Threshold):
            raise InvalidInput(
                f"`threshold` must be a Threshold, got {type(threshold).__name__}. "
                "Choose one by `Threshold.at_risk`."
            )
        if threshold.groups is not None:
            raise InvalidInput(
                "`threshold` must be one for all answers, got one for each of "
                f"{len(threshold.groups)} groups. Use one monitor per group."
            )
        promise = threshold.risk if risk is None else risk
        if promise is None and confidence is None:
            raise InvalidInput(
                "A monitor must have something to compare with, got a threshold that promises no "
                "risk and no `confidence`. Pass the held-out confidences, or `risk`."
            )
        if promise is not None:
            promise = _validate.fraction(promise, "risk", open_above=True)
        seed = _validate.count(seed, "seed", least=0)
        cuts = None if confidence is None else RankCuts(_read_scores(confidence), _CUTS, seed)
        alpha = _validate.fraction(alpha, "alpha", open_above=True)
        theta = _validate.number(threshold.theta, "theta")
        self._start(theta, float(threshold.coverage), promise, alpha, bool(batch), cuts)

    def _start(
        self,
        theta: float,
        expected_coverage: float,
        promise: float | None,
        alpha: float,
        batch: bool,
        cuts: "RankCuts | None",
    ) -> None:
        self._theta, self._expected_coverage = theta, expected_coverage
        self._promise, self._alpha, self._batch, self._cuts = promise, alpha, batch, cuts
        level = math.log(((promise is not None) + (cuts is not None)) / alpha)
        self._risk_bets = Bets(1, _RISK_ODDS, level) if promise is not None else None
        self._shift_bets = Bets(_CUTS, _SHIFT_ODDS, level) if cuts is not None else None
        self._streams = 1
        self._seen = self._accepted = self._labelled = 0
        self._wrong = 0.0
        self._doubt: float | None = 0.0  # the sum of 1 − confidence over accepted answers
        self.runs: list[str] = []  # those that `snapsure predict` has counted, each once

    def __repr__(self) -> str:
        """Show what was observed, beside what was expected."""
        of = "" if self._streams == 1 else f" of {self._streams} streams"
        parts = [f"{self.seen:,} {'answer' if self.seen == 1 else 'answers'}{of}"]
        if self.coverage is not None:
            parts.append(f"{self.coverage:.1%} accepted ({self._expected_coverage:.1%} at fitting)")
        if self.risk is not None:
            promised = "" if self._promise is None else f" (at most {self._promise:.3g} promised)"
            what = "batches labelled" if self._batch else "labelled"
            parts.append(f"{self.labelled:,} {what}: risk {self.risk.estimate:.3g}{promised}")
        alarms = " and ".join(alarm.kind for alarm in self.alarms)
        parts.append(f"alarm: {alarms}" if alarms else "no alarm")
        return f"<Monitor: {', '.join(parts)}>"

    @property
    def seen(self) -> int:
        """The number of answers."""
        return self._seen

    @property
    def labelled(self) -> int:
        """The number of accepted answers whose label came back; of such batches with `batch`."""
        return self._labelled

    @property
    def coverage(self) -> float | None:
        """The share of answers that were accepted; None before the first answer."""
        return self._accepted / self._seen if self._seen else None

    @property
    def risk(self) -> Interval | None:
        """The error rate among labelled accepted answers; None before the first of them.

        With `batch`, the mean over batches of their error rates. The interval holds at all times
        together with probability 1 − alpha, if answers (or batches) are independent and the error
        rate is constant.
        """
        if not self._labelled:
            return None
        return rate_interval(self._wrong, self._labelled, self._alpha)

    @property
    def expected_risk(self) -> float | None:
        """The mean of 1 − confidence over accepted answers: an estimate of the risk without labels.

        It is as good as the confidence is calibrated on these answers, and no promise: where the
        world has changed, ask for labels. None before the first accepted answer, and where an
        accepted confidence is not a probability.
        """
        if self._doubt is None or not self._accepted:
            return None
        return self._doubt / self._accepted

    @property
    def evidence(self) -> dict[str, float]:
        """The greatest e-value so far of each alarm in use, against its hypothesis."""
        return {kind: _exp(bets.peak) for kind, bets in self._bets()}

    @property
    def alarms(self) -> list[Alarm]:
        """The alarms that are on, "risk" first."""
        alarms = []
        for kind, bets in self._bets():
            # One of several streams must show enough evidence for all of them.
            enough = bets.level + math.log(self._streams)
            if bets.crossing is not None and bets.peak >= enough:
                since, question, expected, observed = bets.crossing
                cut = None
                if kind == "shift" and self._cuts is not None:
                    cut = float(self._cuts.kappa[question])
                alarms.append(Alarm(kind, since, _exp(bets.peak), observed, expected, cut))
        return alarms

    def update(self, confidence: ArrayLike, errors: ArrayLike | None = None) -> None:
        """Add new answers, each once. A batch that is refused leaves the monitor unchanged.

        How a stream is cut into batches does not matter (beyond the last digits of the evidence).

        Parameters
        ----------
        confidence : (n,) or one number
            The confidence of all answers, accepted or not.
        errors : (n,), one number, or None
            0 (right), 1 (wrong), NaN or None where the label is unknown. For labels that come
            later, leave them out here and call `feedback` when they come.

        Raises
        ------
        InvalidInput
            For NaN confidences, other errors, shapes that differ, empty input, or a merged monitor.
        """
        score = _read_scores(confidence)
        labels = None if errors is None else _read_labels(errors, score)
        self._refuse_if_merged()

        if self._cuts is not None and self._shift_bets is not None:
            placed = score
            if self._batch:
                draw = np.random.default_rng([self._cuts.seed, 2, self._shift_bets.points])
                placed = score[[draw.integers(score.size)]]
            for low in range(0, placed.size, _ANSWERS_AT_ONCE):
                self._shift_bets.play(*self._cuts.place(placed[low : low + _ANSWERS_AT_ONCE]))

        accepted = score[score >= self._theta]
        self._seen += score.size
        self._accepted += accepted.size
        is_probability = not accepted.size or (accepted.min() >= 0 and accepted.max() <= 1)
        if self._doubt is not None:
            self._doubt = self._doubt + float((1 - accepted).sum()) if is_probability else None
        if labels is not None:
            self._add_labels(score, *labels)

    def feedback(self, confidence: ArrayLike, errors: ArrayLike) -> None:
        """Add labels of earlier answers, in the order in which they come, each once.

        Whether and when a label comes back must not depend on whether the answer was right: send a
        random part of the accepted answers to review, not only those that draw complaints.

        Parameters
        ----------
        confidence : (n,) or one number
            The confidence of these answers. Those that were not accepted do not count.
        errors : (n,) or one number
            0 (right), 1 (wrong), NaN or None where the label is still unknown.

        Examples
        --------
        >>> monitor = Monitor(Threshold(0.8, 0.6), risk=0.05)
        >>> monitor.update([0.9, 0.7, 0.95])
        >>> monitor.feedback([0.95, 0.7], [0, 1])
        >>> monitor.seen, monitor.labelled
        (3, 1)
        """
        score = _read_scores(confidence)
        labels = _read_labels(errors, score)
        self._refuse_if_merged()
        self._add_labels(score, *labels)

    def _add_labels(self, score: Floats, known: Bools, wrong: Bools) -> None:
        counted = wrong[known & (score >= self._theta)].astype(np.float64)
        if self._batch and counted.size:
            counted = counted.mean(keepdims=True)
        self._labelled += counted.size
        self._wrong += float(counted.sum())
        if self._risk_bets is not None and self._promise is not None:
            self._risk_bets.play(counted[:, None], np.array([[self._promise]]))

    def _refuse_if_merged(self) -> None:
        if self._streams > 1:
            raise InvalidInput(
                f"A merged monitor must not be updated, got one of {self._streams} streams. "
                "Update its parts, and merge them again."
            )

    def merge(self, *others: "Monitor") -> "Monitor":
        """Return all streams together, for reading; the order of merges does not matter.

        Counts add up. The evidence of each kind is the greatest of the m streams at any time, and
        raises the alarm at m times what one stream needs. False alarms stay at most alpha: the
        greatest evidence of one stream ever reaches m/a with probability at most a/m (Ville), so
        one of m does with at most a, without assuming independence: streams may share their
        held-out examples. So an alarm of one stream, which is one of m chances for a false alarm,
        may not be an alarm of all together. Send few labels to one monitor rather than merge.

        Merge monitors of different streams, and each once. To resume a stream, `load` it.

        Raises
        ------
        InvalidInput
            If threshold, promise, alpha, or the alarms in use differ.
        """
        for other in others:
            if not isinstance(other, Monitor):
                raise InvalidInput(
                    f"`others` must be monitors, got {type(other).__name__}. Load them first."
                )
            if other.terms != self.terms:
                raise InvalidInput(
                    "`others` must watch the same threshold, promise and alpha, got "
                    f"{other.terms} for {self.terms}. Give all monitors the same settings."
                )

        def rank(bets: Bets | None) -> tuple[float, int]:
            """Order by evidence; of equals, the alarm that was raised first comes last."""
            if bets is None:
                return 0.0, 0
            return bets.peak, 0 if bets.crossing is None else -bets.crossing.point

        everyone = [self, *others]
        state = max(everyone, key=lambda one: rank(one._shift_bets)).as_dict()
        riskiest = max(everyone, key=lambda one: rank(one._risk_bets))
        state["risk_bets"] = riskiest.as_dict()["risk_bets"]
        for name in _COUNTS:
            state[name] = sum(one.as_dict()[name] for one in everyone)
        doubts = [one._doubt for one in everyone]
        state["doubt"] = None if None in doubts else sum(filter(None, doubts))
        state["runs"] = [run for one in everyone for run in one.runs]
        return Monitor.from_dict(state)

    def save(self, path: str | Path) -> None:
        """Write it as JSON, exactly: what `load` reads continues as this would have."""
        _json.write(path, "Monitor", self.as_dict())

    @classmethod
    def load(cls, path: str | Path) -> "Monitor":
        """Read what `save` wrote."""
        state = _json.read(path, "Monitor", _MonitorState)
        try:
            return cls.from_dict(state)
        except (TypeError, ValueError, ArithmeticError):  # parts that contradict each other
            raise CorruptFile(
                f"{path} must be a saved Monitor, got terms and alarms that contradict each other. "
                "Restore it, or save it again."
            ) from None

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> "Monitor":
        """Restore what `as_dict` returned."""
        monitor = cls.__new__(cls)
        cuts = None if state["cuts"] is None else RankCuts.from_state(state["cuts"])
        monitor._start(cuts=cuts, **{name: state[name] for name in _TERMS})
        for name in (*_COUNTS, "doubt"):
            setattr(monitor, f"_{name}", state[name])
        monitor.runs = list(state["runs"])
        for kind, bets in monitor._bets():
            bets.restore(state[f"{kind}_bets"])
        return monitor

    def as_dict(self) -> dict[str, Any]:
        """Return all of it, in JSON's types."""
        state = {name: getattr(self, f"_{name}") for name in (*_TERMS, *_COUNTS, "doubt")}
        state["runs"] = self.runs
        for name in ("risk_bets", "shift_bets", "cuts"):
            part = getattr(self, f"_{name}")
            state[name] = None if part is None else part.state
        return state

    @property
    def terms(self) -> str:
        """What merged monitors must have in common."""
        alarms = " and ".join(kind for kind, _ in self._bets())
        threshold = f"theta {self._theta} at coverage {self._expected_coverage}"
        batches = " by batch" if self._batch else ""
        return f"{threshold}, risk {self._promise}, alpha {self._alpha} on {alarms}{batches}"

    def _bets(self) -> list[tuple[str, "Bets"]]:
        """Return the bets of the alarms in use."""
        both = ("risk", self._risk_bets), ("shift", self._shift_bets)
        return [(kind, bets) for kind, bets in both if bets is not None]


class Bets:
    """Wealth of bets on yes/no questions: that yes comes more or less often than it should.

    For every question and every m of `odds` there is a bet that the odds of yes are m times those
    of the hypothesis. An answer multiplies its wealth by the likelihood ratio
    Lᵢ = (m if yes else 1) / (1 + chance · (m − 1)). Its mean under the hypothesis is 1 where
    `chance` is the chance of yes given the past, and at most 1 where m > 1 and `chance` is an upper
    bound. Every bet is placed again at every answer s, with weights w_s that sum to 1, so that a
    long good time does not use up what a late change needs. The evidence after t answers,

        E_t = mean over bets of Σ_{s ≤ t} w_s Π_{i = s…t} Lᵢ  +  Σ_{s > t} w_s,

    is a mean of nonnegative supermartingales that start at 1, hence one itself: it ever reaches 1/a
    with probability at most a. All starts of a bet are one number, W_t = (W_{t−1} + w_t) L_t, so
    memory is fixed.

    Parameters
    ----------
    questions : int
        The number of questions about each answer.
    odds : sequence of float
        Above 1: yes is too frequent. Below 1: too rare.
    level : float
        The evidence to wait for, as a natural logarithm.
    """

    def __init__(self, questions: int, odds: Sequence[float], level: float) -> None:
        self.odds = np.array(odds)
        self.level = level
        self.points = 0
        self.now = self.peak = 0.0  # logarithms of E_t and of its maximum over time
        self.crossing: Crossing | None = None
        self._log_wealth = np.full(questions * len(odds), _NOTHING)

    def play(self, yes: Bools | Floats, chance: Floats) -> None:
        """Bet on more answers: yes (n, questions), and its chances, (n or 1, questions).

        A share of yes in [0, 1] is as good: Lᵢ is linear in it, so that its mean is the same.
        """
        for low in range(0, len(yes), _BETS_AT_ONCE):
            part = slice(low, low + _BETS_AT_ONCE)
            self._play_block(yes[part], chance if len(chance) == 1 else chance[part])

    def _play_block(self, yes: Bools | Floats, chance: Floats) -> None:
        n, more = len(yes), self.odds[:, None] - 1
        offset = np.maximum(self._log_wealth, 0.0)  # so that no wealth overflows
        gain = 1 + yes[:, None, :] * more
        gain /= 1 + chance[:, None, :] * more
        gain = gain.reshape(n, -1)

        growth = np.cumprod(gain, axis=0)
        weights, waiting = start_weights(self.points, n)
        gain /= growth
        gain *= weights[:, None] * np.exp(-offset)
        wealth = np.cumsum(gain, axis=0)
        wealth += np.exp(self._log_wealth - offset)
        wealth *= growth

        top = float(offset.max())
        shares = np.exp(offset - top)
        evidence = np.log(wealth @ shares / offset.size + waiting * math.exp(-top)) + top
        highest = float(evidence.max())
        if self.crossing is None and highest >= self.level:
            at = int(np.argmax(evidence >= self.level))
            # The richest question, and what its bets claim, averaged by their wealth.
            rich = (wealth[at] * shares).reshape(self.odds.size, -1)
            question = int(np.argmax(rich.sum(axis=0)))
            expected = float(chance[at % len(chance), question])
            claims = self.odds * expected / (1 + expected * (self.odds - 1))
            observed = float(np.average(claims, weights=rich[:, question]))
            self.crossing = Crossing(self.points + at + 1, question, expected, observed)

        with np.errstate(divide="ignore"):
            self._log_wealth = np.maximum(np.log(wealth[-1]) + offset, _NOTHING)
        self.points += n
        self.now = float(evidence[-1])
        self.peak = max(self.peak, highest)

    @property
    def state(self) -> BetsState:
        """All that changes; JSON reads these floats back exactly."""
        return {
            "points": self.points,
            "now": self.now,
            "peak": self.peak,
            "crossing": self.crossing,
            "log_wealth": self._log_wealth.tolist(),
        }

    def restore(self, state: BetsState) -> None:
        """Continue from a state."""
        log_wealth = np.array(state["log_wealth"], dtype=np.float64)
        if log_wealth.shape != self._log_wealth.shape:
            raise ValueError("a wealth for each bet")
        self.points, self.now, self.peak = state["points"], state["now"], state["peak"]
        self.crossing = None if state["crossing"] is None else Crossing(*state["crossing"])
        self._log_wealth = log_wealth


def start_weights(points: int, n: int) -> tuple[Floats, Floats]:
    """Return the weight of a start at each of the next n answers, and of all starts after each.

    Half is at the first answer. What waits after t answers falls from the other half as 1 / ln t.
    """
    at = np.arange(points, points + n + 1, dtype=np.float64)
    logs = 1 + np.log1p(at / _SCALE)
    # As a product: far out, a difference of what waits is nothing but rounding.
    weights = 0.5 * np.log1p(1 / (_SCALE + at[:-1])) / (logs[:-1] * logs[1:])
    if points == 0:
        weights[0] += 0.5
    return weights, 0.5 / logs[1:]


class RankCuts:
    """Is a new value above each of some cuts, and how probable was that?

    Cuts are values at fixed ranks of a reference. If reference and stream are exchangeable, a new
    value falls into each gap between all values before it with the same probability, given the
    ranks so far: the chance of lying above a cut is the share of gaps above it. Ties are ordered
    at random: values are pairs of themselves and a uniform number.
    """

    def __init__(self, reference: Floats, cuts: int, seed: int) -> None:
        n = reference.size
        if n < cuts:
            raise InvalidInput(
                f"`confidence` must hold at least {cuts} held-out examples, got {n}. Hold out more."
            )
        ties = np.random.default_rng([seed, 0]).random(n)
        ranks = np.arange(1, cuts + 1) * (n + 1) // (cuts + 1)
        at = np.lexsort((ties, reference))[ranks - 1]
        self.kappa, self._ties = reference[at], ties[at]
        self._above = n + 1 - ranks  # gaps above each cut
        self._gaps = n + 1
        self.seed, self._drawn = seed, 0

    def place(self, values: Floats) -> tuple[Bools, Floats]:
        """Return which values lie above which cuts, and the chance of it: (n, cuts) both."""
        n = values.size
        # Number t of the sequence belongs to value t, however values are cut into batches.
        bits = np.random.PCG64(np.random.SeedSequence([self.seed, 1])).advance(self._drawn)
        ties = np.random.Generator(bits).random(n)[:, None]
        column = values[:, None]
        above, tied = column > self.kappa, column == self.kappa
        if tied.any():
            above |= tied & (ties > self._ties)

        count = np.cumsum(above, axis=0)
        chance = (self._above + count - above) / (self._gaps + np.arange(n))[:, None]
        self._above = self._above + count[-1]
        self._gaps += n
        self._drawn += n
        return above, chance

    @property
    def state(self) -> CutsState:
        """All of it, in JSON's types."""
        return {
            "kappa": self.kappa.tolist(),
            "ties": self._ties.tolist(),
            "above": self._above.tolist(),
            "gaps": self._gaps,
            "seed": self.seed,
            "drawn": self._drawn,
        }

    @classmethod
    def from_state(cls, state: CutsState) -> "RankCuts":
        """Continue from a state."""
        if len({len(state["kappa"]), len(state["ties"]), len(state["above"])}) > 1:
            raise ValueError("a value, a tie and a count for each cut")
        cuts = cls.__new__(cls)
        cuts.kappa, cuts._ties = (np.array(state[name], dtype=float) for name in ("kappa", "ties"))
        cuts._above = np.array(state["above"], dtype=np.int64)
        cuts._gaps, cuts.seed, cuts._drawn = state["gaps"], state["seed"], state["drawn"]
        return cuts


def rate_interval(yes: float, n: int, alpha: float) -> Interval:
    """Return the share of yes, and an interval for its chance that holds at all times together.

    It holds the rates p against which a bet spread over all rates by Beta(½, ½) has not won
    1 / alpha: for independent answers of one rate, p ever lies outside with probability at most
    alpha. Answers in [0, 1] with mean p, such as shares, have no larger expected wealth.
    """

    def log_beta(a: float, b: float) -> float:
        return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)

    log_mixture = log_beta(yes + 0.5, n - yes + 0.5) - log_beta(0.5, 0.5)

    def is_inside(p: float) -> bool:
        likelihood = (yes * math.log(p) if yes else 0.0) + (
            (n - yes) * math.log1p(-p) if n > yes else 0.0
        )
        return log_mixture - likelihood < -math.log(alpha)

    rate = yes / n
    low = 0.0 if yes == 0 else _bisect(is_inside, rate, 0.0)
    high = 1.0 if yes == n else _bisect(is_inside, rate, 1.0)
    return Interval(rate, low, high)


def _bisect(is_inside: Callable[[float], bool], inside: float, outside: float) -> float:
    """Find where `is_inside` ends between the two."""
    for _ in range(100):
        middle = (inside + outside) / 2
        if middle in (inside, outside):
            break
        inside, outside = (middle, outside) if is_inside(middle) else (inside, middle)
    return outside


def _exp(log: float) -> float:
    """Return an e-value as a float, at most the largest there is."""
    return math.exp(min(log, 709.0))


def _read_scores(confidence: ArrayLike) -> Floats:
    column = np.atleast_1d(_validate.numbers(confidence, "confidence"))
    return _validate.scores(column, "confidence")


def _read_labels(errors: ArrayLike, score: Floats) -> tuple[Bools, Bools]:
    is_single = errors is None or np.isscalar(errors) or getattr(errors, "ndim", 1) == 0
    column: Any = [errors] if is_single else errors
    return _validate.errors_known(column, score.shape, of="confidence")
