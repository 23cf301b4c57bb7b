"""Is the promise still kept? Two alarms on a stream of answers, in fixed memory.

The evidence may be looked at after every answer. It is the wealth of somebody who bets against a
hypothesis at fair prices: if the hypothesis is true, the wealth ever grows a hundredfold with
probability at most 1/100, over all time together (Ville's inequality). So 1 / wealth is a level of
significance that no number of looks weakens.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta, Struct
from numpy.typing import ArrayLike

from snapsure import _json, _validate
from snapsure._types import Bools, Floats
from snapsure.decisions._threshold import Threshold
from snapsure.errors import InvalidInput
from snapsure.metrics import Interval

# The bets on the odds of an error, as multiples of what was promised.
_RISK_ODDS = (1.2, 1.5, 2.0, 3.0, 6.0, 15.0)
# The bets on the odds that a confidence lies above a cut. Changes of the odds by less than about a
# fifth win no bet: no stream is exactly like its held-out examples, and it need not be.
_SHIFT_ODDS = (1 / 3, 2 / 3, 3 / 2, 3.0)
# The held-out confidences are cut at so many evenly spaced ranks.
_CUTS = 15
_PER_CUT = Meta(min_length=_CUTS, max_length=_CUTS)
_ANSWERS_AT_ONCE = 1 << 12
# Answers per step of betting. Odds to this power must stay a float64.
_BETS_AT_ONCE = 128
# Starts within this many answers are about equally likely; later ones less and less.
_SCALE = 1000
# The logarithm of no wealth: JSON has no −∞.
_NOTHING = -1e9

_COUNTS = ("streams", "seen", "accepted", "labelled", "wrong")  # that a merge adds up
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
        cuts = None if confidence is None else RankCuts.of(_read_scores(confidence), seed)
        self._state = State(
            theta=_validate.number(threshold.theta, "theta"),
            expected_coverage=float(threshold.coverage),
            promise=promise,
            alpha=_validate.fraction(alpha, "alpha", open_above=True),
            batch=bool(batch),
            streams=1,
            seen=0,
            accepted=0,
            labelled=0,
            wrong=0.0,
            doubt=0.0,
            runs=[],
            risk_bets=None if promise is None else Bets.start(len(_RISK_ODDS)),
            shift_bets=None if cuts is None else Bets.start(_CUTS * len(_SHIFT_ODDS)),
            cuts=cuts,
        )

    def __repr__(self) -> str:
        """Show what was observed, beside what was expected."""
        state = self._state
        of = "" if state.streams == 1 else f" of {state.streams} streams"
        parts = [f"{self.seen:,} {'answer' if self.seen == 1 else 'answers'}{of}"]
        if self.coverage is not None:
            parts.append(f"{self.coverage:.1%} accepted ({state.expected_coverage:.1%} at fitting)")
        if self.risk is not None:
            promised = "" if state.promise is None else f" (at most {state.promise:.3g} promised)"
            what = "batches labelled" if state.batch else "labelled"
            parts.append(f"{self.labelled:,} {what}: risk {self.risk.estimate:.3g}{promised}")
        alarms = " and ".join(alarm.kind for alarm in self.alarms)
        parts.append(f"alarm: {alarms}" if alarms else "no alarm")
        return f"<Monitor: {', '.join(parts)}>"

    @property
    def seen(self) -> int:
        """The number of answers."""
        return self._state.seen

    @property
    def labelled(self) -> int:
        """The number of accepted answers whose label came back; of such batches with `batch`."""
        return self._state.labelled

    @property
    def runs(self) -> list[str]:
        """The runs that `snapsure predict` has counted, each once."""
        return self._state.runs

    @property
    def coverage(self) -> float | None:
        """The share of answers that were accepted; None before the first answer."""
        return self._state.accepted / self.seen if self.seen else None

    @property
    def risk(self) -> Interval | None:
        """The error rate among labelled accepted answers; None before the first of them.

        With `batch`, the mean over batches of their error rates. The interval holds at all times
        together with probability 1 − alpha, if answers (or batches) are independent and the error
        rate is constant.
        """
        state = self._state
        return rate_interval(state.wrong, state.labelled, state.alpha) if state.labelled else None

    @property
    def expected_risk(self) -> float | None:
        """The mean of 1 − confidence over accepted answers: an estimate of the risk without labels.

        It is as good as the confidence is calibrated on these answers, and no promise: where the
        world has changed, ask for labels. None before the first accepted answer, and where an
        accepted confidence is not a probability.
        """
        state = self._state
        return state.doubt / state.accepted if state.accepted and state.doubt is not None else None

    @property
    def evidence(self) -> dict[str, float]:
        """The greatest e-value so far of each alarm in use, against its hypothesis."""
        return {kind: _exp(bets.peak) for kind, bets in self._state.bets.items()}

    @property
    def alarms(self) -> list[Alarm]:
        """The alarms that are on, "risk" first."""
        # One of several streams must show enough evidence for all of them.
        alarms, enough = [], self._state.level + math.log(self._state.streams)
        for kind, bets in self._state.bets.items():
            if bets.crossing is not None and bets.peak >= enough:
                since, question, expected, observed = bets.crossing
                cut = None
                if kind == "shift" and self._state.cuts is not None:
                    cut = self._state.cuts.kappa[question]
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

        state, cuts, bets = self._state, self._state.cuts, self._state.shift_bets
        if cuts is not None and bets is not None:
            placed = score
            if state.batch:
                draw = np.random.default_rng([cuts.seed, 2, bets.points])
                placed = score[[draw.integers(score.size)]]
            for low in range(0, placed.size, _ANSWERS_AT_ONCE):
                yes, chance = cuts.place(placed[low : low + _ANSWERS_AT_ONCE])
                bets.play(yes, chance, _SHIFT_ODDS, state.level)

        accepted = score[score >= state.theta]
        state.seen += score.size
        state.accepted += accepted.size
        is_probability = not accepted.size or (accepted.min() >= 0 and accepted.max() <= 1)
        if state.doubt is not None:
            state.doubt = state.doubt + float((1 - accepted).sum()) if is_probability else None
        if labels is not None:
            self._add_labels(score, *labels)

    def feedback(self, confidence: ArrayLike, errors: ArrayLike) -> None:
        """Add labels of earlier answers, in the order in which they come, each once.

        Whether and when a label comes back must not depend on whether the answer was right: send a
        random part of the accepted answers to review, not only those that draw complaints.

        Arguments are as for `update`. Answers that were not accepted do not count.

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
        state = self._state
        counted = wrong[known & (score >= state.theta)].astype(np.float64)
        if state.batch and counted.size:
            counted = counted.mean(keepdims=True)
        state.labelled += counted.size
        state.wrong += float(counted.sum())
        if state.risk_bets is not None:
            chance = np.array([[state.promise]])
            state.risk_bets.play(counted[:, None], chance, _RISK_ODDS, state.level)

    def _refuse_if_merged(self) -> None:
        if self._state.streams > 1:
            raise InvalidInput(
                f"A merged monitor must not be updated, got one of {self._state.streams} streams. "
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

        everyone = [self, *others]

        def most_evident(kind: str) -> dict[str, Any]:
            """Return the monitor with most evidence; of equals, the first that raised the alarm."""

            def rank(one: Monitor) -> tuple[float, int]:
                bets = one._state.bets.get(kind)
                if bets is None:
                    return 0.0, 0
                return bets.peak, 0 if bets.crossing is None else -bets.crossing.point

            return max(everyone, key=rank).as_dict()

        state = most_evident("shift") | {"risk_bets": most_evident("risk")["risk_bets"]}
        for name in _COUNTS:
            state[name] = sum(getattr(one._state, name) for one in everyone)
        doubts = [one._state.doubt for one in everyone]
        state["doubt"] = None if None in doubts else sum(filter(None, doubts))
        state["runs"] = [run for one in everyone for run in one.runs]
        return Monitor.from_dict(state)

    def save(self, path: str | Path) -> None:
        """Write it as JSON, exactly: what `load` reads continues as this would have."""
        _json.write(path, "Monitor", self.as_dict())

    @classmethod
    def load(cls, path: str | Path) -> "Monitor":
        """Read what `save` wrote."""
        monitor = cls.__new__(cls)
        monitor._state = _json.read(path, "Monitor", State)
        return monitor

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> "Monitor":
        """Restore what `as_dict` returned."""
        monitor = cls.__new__(cls)
        try:
            monitor._state = msgspec.convert(state, State)
        except msgspec.ValidationError as error:
            raise InvalidInput(
                f"`state` must be what `as_dict` returned, got something else ({error}). Save the "
                "monitor, or fit the predictor that it is of, again."
            ) from None
        return monitor

    def as_dict(self) -> dict[str, Any]:
        """Return all of it, in JSON's types."""
        content: dict[str, Any] = msgspec.to_builtins(self._state)
        return content

    @property
    def terms(self) -> str:
        """What merged monitors must have in common."""
        state, alarms = self._state, " and ".join(self._state.bets)
        threshold = f"theta {state.theta} at coverage {state.expected_coverage}"
        batches = " by batch" if state.batch else ""
        return f"{threshold}, risk {state.promise}, alpha {state.alpha} on {alarms}{batches}"


class State(Struct):
    """What a monitor knows, and what its file holds."""

    theta: float
    expected_coverage: float
    promise: _Fraction | None
    alpha: _Fraction
    batch: bool
    streams: Annotated[int, Meta(ge=1, le=2**63 - 1)]
    seen: _json.Count
    accepted: _json.Count
    labelled: _json.Count
    wrong: float
    doubt: float | None  # the sum of 1 − confidence over accepted answers
    runs: list[str]
    risk_bets: "Bets | None"
    shift_bets: "Bets | None"
    cuts: "RankCuts | None"

    def __post_init__(self) -> None:
        """Refuse a file whose parts contradict each other."""
        wealth = {kind: len(bets.log_wealth) for kind, bets in self.bets.items()}
        due = {} if self.promise is None else {"risk": len(_RISK_ODDS)}
        due |= {} if self.cuts is None else {"shift": _CUTS * len(_SHIFT_ODDS)}
        if wealth != due or not due:
            raise ValueError("terms and alarms must not contradict each other")
        if not 0 <= self.wrong <= self.labelled or self.accepted > self.seen:
            raise ValueError("counts must not contradict each other")
        if self.cuts is not None and max(self.cuts.above) >= self.cuts.gaps:
            raise ValueError("there must be more gaps than lie above a cut")
        for kind, bets in self.bets.items():
            questions = 1 if kind == "risk" else _CUTS
            if bets.crossing is not None and not 0 <= bets.crossing.question < questions:
                raise ValueError("an alarm must name one of the questions")

    @property
    def bets(self) -> "dict[str, Bets]":
        """The bets of the alarms in use."""
        both = {"risk": self.risk_bets, "shift": self.shift_bets}
        return {kind: bets for kind, bets in both.items() if bets is not None}

    @property
    def level(self) -> float:
        """The logarithm of the evidence that raises an alarm; alarms share alpha."""
        return math.log(len(self.bets) / self.alpha)


class Crossing(NamedTuple):
    """The first answer at which the evidence reached its level, and what it is evidence of."""

    point: int  # from 1 on
    question: int
    expected: float  # the chance of yes under the hypothesis
    observed: float  # the chance of yes that the wealth supports


class Bets(Struct):
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

    `odds` above 1 say that yes is too frequent, below 1 too rare. `level` is the evidence to wait
    for. Evidence, level and wealth are natural logarithms.
    """

    points: _json.Count
    now: float  # E_t …
    peak: float  # … and its maximum over time
    crossing: Crossing | None
    log_wealth: list[float]  # of each question for the first of the odds, for the second, …

    @classmethod
    def start(cls, bets: int) -> "Bets":
        """Return so many bets without any wealth."""
        return cls(0, 0.0, 0.0, None, [_NOTHING] * bets)

    def play(
        self, yes: Bools | Floats, chance: Floats, odds: Sequence[float], level: float
    ) -> None:
        """Bet on more answers: yes (n, questions), and its chances, (n or 1, questions).

        A share of yes in [0, 1] is as good: Lᵢ is linear in it, so that its mean is the same.
        """
        for low in range(0, len(yes), _BETS_AT_ONCE):
            part = slice(low, low + _BETS_AT_ONCE)
            block = chance if len(chance) == 1 else chance[part]
            self._play_block(yes[part], block, np.array(odds), level)

    def _play_block(self, yes: Bools | Floats, chance: Floats, odds: Floats, level: float) -> None:
        n, more, before = len(yes), odds[:, None] - 1, np.array(self.log_wealth)
        offset = np.maximum(before, 0.0)  # so that no wealth overflows
        gain = 1 + yes[:, None, :] * more
        gain /= 1 + chance[:, None, :] * more
        gain = gain.reshape(n, -1)

        growth = np.cumprod(gain, axis=0)
        weights, waiting = start_weights(self.points, n)
        gain /= growth
        gain *= weights[:, None] * np.exp(-offset)
        wealth = np.cumsum(gain, axis=0)
        wealth += np.exp(before - offset)
        wealth *= growth

        top = float(offset.max())
        shares = np.exp(offset - top)
        evidence = np.log(wealth @ shares / offset.size + waiting * math.exp(-top)) + top
        highest = float(evidence.max())
        if self.crossing is None and highest >= level:
            at = int(np.argmax(evidence >= level))
            # The richest question, and what its bets claim, averaged by their wealth.
            rich = (wealth[at] * shares).reshape(odds.size, -1)
            question = int(np.argmax(rich.sum(axis=0)))
            expected = float(chance[at % len(chance), question])
            claims = odds * expected / (1 + expected * (odds - 1))
            observed = float(np.average(claims, weights=rich[:, question]))
            self.crossing = Crossing(self.points + at + 1, question, expected, observed)

        with np.errstate(divide="ignore"):
            self.log_wealth = np.maximum(np.log(wealth[-1]) + offset, _NOTHING).tolist()
        self.points += n
        self.now = float(evidence[-1])
        self.peak = max(self.peak, highest)


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


class RankCuts(Struct):
    """Is a new value above each of some cuts, and how probable was that?

    Cuts are values at fixed ranks of a reference. If reference and stream are exchangeable, a new
    value falls into each gap between all values before it with the same probability, given the
    ranks so far: the chance of lying above a cut is the share of gaps above it. Ties are ordered
    at random: values are pairs of themselves and a uniform number.
    """

    kappa: Annotated[list[float], _PER_CUT]
    ties: Annotated[list[float], _PER_CUT]
    above: Annotated[list[_json.Count], _PER_CUT]  # gaps above each cut
    gaps: Annotated[int, Meta(ge=1, le=2**63 - 1)]
    seed: Annotated[int, Meta(ge=0)]  # of any length
    drawn: _json.Count

    @classmethod
    def of(cls, reference: Floats, seed: int) -> "RankCuts":
        """Cut a reference at evenly spaced ranks."""
        n = reference.size
        if n < _CUTS:
            raise InvalidInput(
                f"`confidence` must hold at least {_CUTS} held-out examples, got {n}. Hold out "
                "more."
            )
        ties = np.random.default_rng([seed, 0]).random(n)
        ranks = np.arange(1, _CUTS + 1) * (n + 1) // (_CUTS + 1)
        at = np.lexsort((ties, reference))[ranks - 1]
        above = (n + 1 - ranks).tolist()
        return cls(reference[at].tolist(), ties[at].tolist(), above, n + 1, seed, 0)

    def place(self, values: Floats) -> tuple[Bools, Floats]:
        """Return which values lie above which cuts, and the chance of it: (n, cuts) both."""
        n = values.size
        # Number t of the sequence belongs to value t, however values are cut into batches.
        bits = np.random.PCG64(np.random.SeedSequence([self.seed, 1])).advance(self.drawn)
        ties = np.random.Generator(bits).random(n)[:, None]
        column, cuts = values[:, None], np.array(self.kappa)
        above, tied = column > cuts, column == cuts
        if tied.any():
            above |= tied & (ties > self.ties)

        count = np.cumsum(above, axis=0)
        chance = (np.array(self.above) + count - above) / (self.gaps + np.arange(n))[:, None]
        self.above = (np.array(self.above) + count[-1]).tolist()
        self.gaps += n
        self.drawn += n
        return above, chance


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
        likelihood = yes * math.log(p) + (n - yes) * math.log1p(-p)
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
