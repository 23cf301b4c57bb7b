"""Evidence that may be looked at after every point: bets against a hypothesis.

Somebody who bets at fair prices against a true hypothesis becomes a hundred times richer with
probability at most 1/100, over all time together (Ville's inequality). So the wealth is evidence,
and 1 / wealth a level that no number of looks weakens.
"""

import math
from collections.abc import Callable, Sequence
from typing import Annotated, NamedTuple, TypedDict

import numpy as np
from msgspec import Meta

from snapsure import _json
from snapsure._types import Bools, Floats
from snapsure.errors import InvalidInput
from snapsure.metrics._bootstrap import Interval

# Points at once. Odds to this power must stay a float64.
_BLOCK = 128
# Starts within so many points are about equally likely; later ones ever less, as 1 / (s ln² s).
_SCALE = 1000
# The logarithm of nothing: JSON has no −∞.
_NOTHING = -1e9


class Crossing(NamedTuple):
    """The first point at which the evidence reached its level, and what it was evidence of."""

    point: int  # from 1 on
    question: int
    expected: float  # the chance of yes under the hypothesis
    observed: float  # the chance of yes that the wealth speaks for


def start_weights(points: int, n: int) -> tuple[Floats, Floats]:
    """Weights of a start at each of the n points after these, and of all starts after each.

    Half at the first point. What waits after t points falls from the other half as 1 / ln t.
    """
    at = np.arange(points, points + n + 1, dtype=np.float64)
    logs = 1 + np.log1p(at / _SCALE)
    # As a product: far out, a difference of what waits is all rounding.
    weights = 0.5 * np.log1p(1 / (_SCALE + at[:-1])) / (logs[:-1] * logs[1:])
    if points == 0:
        weights[0] += 0.5
    return weights, 0.5 / logs[1:]


class Bets:
    """Wealth of bets on yes/no questions: that yes comes oftener or more rarely than it should.

    For every question and every m of `odds` there is a bet that the odds of yes are m times what
    the hypothesis says. A point multiplies its wealth by the likelihood ratio
    Lᵢ = (m if yes else 1) / (1 + chance · (m − 1)), whose mean under the hypothesis is 1 where
    `chance` is the chance of yes given the past, and at most 1 where m > 1 and `chance` is an upper
    bound. Every bet is placed anew at every point s, with weights w_s that sum to 1, so that a
    long good time does not eat up what a late change needs. The evidence after t points,

        E_t = mean over bets of Σ_{s ≤ t} w_s Π_{i = s…t} Lᵢ  +  Σ_{s > t} w_s,

    is a mean of nonnegative supermartingales that begin at 1, hence one itself: that it ever
    reaches 1/a has probability at most a. All starts of a bet are one number,
    W_t = (W_{t−1} + w_t) L_t: the memory is fixed.

    Parameters
    ----------
    questions : int
        How many are asked of each point.
    odds : sequence of float
        Above 1: yes is too frequent. Below 1: too rare.
    level : float
        The evidence to wait for, as a natural logarithm.
    """

    def __init__(self, questions: int, odds: Sequence[float], level: float) -> None:
        self.odds = np.array(odds)
        self._more = self.odds[:, None] - 1
        self.level = level
        self.points = 0
        self.now = self.peak = 0.0  # logarithms of E_t and of its maximum over time
        self.crossing: Crossing | None = None
        self._log_wealth = np.full(questions * len(odds), _NOTHING)

    def play(self, yes: Bools, chance: Floats) -> None:
        """Bet on more points: answers (n, questions), and their chances, (n or 1, questions)."""
        for low in range(0, len(yes), _BLOCK):
            part = slice(low, low + _BLOCK)
            self._play(yes[part], chance if len(chance) == 1 else chance[part])

    def _play(self, yes: Bools, chance: Floats) -> None:
        n = len(yes)
        offset = np.maximum(self._log_wealth, 0.0)  # so that no wealth is too large for a float
        gain = 1 + yes[:, None, :] * self._more
        gain /= 1 + chance[:, None, :] * self._more
        gain = gain.reshape(n, -1)
        grown = np.cumprod(gain, axis=0)
        weights, waiting = start_weights(self.points, n)
        gain /= grown
        gain *= weights[:, None] * np.exp(-offset)
        wealth = np.cumsum(gain, axis=0)
        wealth += np.exp(self._log_wealth - offset)
        wealth *= grown
        top = float(offset.max())
        shares = np.exp(offset - top)
        evidence = np.log(wealth @ shares / offset.size + waiting * math.exp(-top)) + top
        highest = float(evidence.max())
        if self.crossing is None and highest >= self.level:
            at = int(np.argmax(evidence >= self.level))
            rich = wealth[at] * shares
            self.crossing = self._crossing(self.points + at + 1, rich, chance[at % len(chance)])
        with np.errstate(divide="ignore"):
            self._log_wealth = np.maximum(np.log(wealth[-1]) + offset, _NOTHING)
        self.points += n
        self.now = float(evidence[-1])
        self.peak = max(self.peak, highest)

    def _crossing(self, point: int, wealth: Floats, chance: Floats) -> Crossing:
        """The richest question, and the mean of what its bets say, by their wealth."""
        rich = wealth.reshape(self.odds.size, -1)
        question = int(np.argmax(rich.sum(axis=0)))
        expected = float(chance[question])
        claims = self.odds * expected / (1 + expected * (self.odds - 1))
        observed = float(np.average(claims, weights=rich[:, question]))
        return Crossing(point, question, expected, observed)

    @property
    def state(self) -> "BetsState":
        """All that changes, for JSON: floats are written so that they are read back exactly."""
        return {
            "points": self.points,
            "now": self.now,
            "peak": self.peak,
            "crossing": self.crossing,
            "log_wealth": self._log_wealth.tolist(),
        }

    def restore(self, state: "BetsState") -> None:
        """Take up where `state` was read."""
        log_wealth = np.array(state["log_wealth"], dtype=np.float64)
        if log_wealth.shape != self._log_wealth.shape:
            raise ValueError("a wealth for each bet")
        self.points, self.now, self.peak = state["points"], state["now"], state["peak"]
        self.crossing = None if state["crossing"] is None else Crossing(*state["crossing"])
        self._log_wealth = log_wealth


class BetsState(TypedDict):
    """What a file holds of bets."""

    points: _json.Count
    now: float
    peak: float
    crossing: Crossing | None
    log_wealth: list[float]


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
                f"`confidence` must hold at least {cuts} held-out points, got {n}: hold out more"
            )
        ties = np.random.default_rng([seed, 0]).random(n)
        ranks = np.arange(1, cuts + 1) * (n + 1) // (cuts + 1)
        at = np.lexsort((ties, reference))[ranks - 1]
        self.kappa, self._ties = reference[at], ties[at]
        self._above = n + 1 - ranks  # gaps
        self._gaps = n + 1
        self._seed, self._drawn = seed, 0

    def place(self, values: Floats) -> tuple[Bools, Floats]:
        """Which lie above which cuts, and what the chance of it was: (n, cuts) both."""
        n = values.size
        # Number t of the sequence belongs to value t, however values are cut into batches.
        bits = np.random.PCG64(np.random.SeedSequence([self._seed, 1])).advance(self._drawn)
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
    def state(self) -> "CutsState":
        """All there is, for JSON."""
        return {
            "kappa": self.kappa.tolist(),
            "ties": self._ties.tolist(),
            "above": self._above.tolist(),
            "gaps": self._gaps,
            "seed": self._seed,
            "drawn": self._drawn,
        }

    @classmethod
    def restored(cls, state: "CutsState") -> "RankCuts":
        """Take up where `state` was read."""
        if len({len(state["kappa"]), len(state["ties"]), len(state["above"])}) > 1:
            raise ValueError("a value, a tie and a count for each cut")
        cuts = cls.__new__(cls)
        cuts.kappa, cuts._ties = (np.array(state[name], dtype=float) for name in ("kappa", "ties"))
        cuts._above = np.array(state["above"], dtype=np.int64)
        cuts._gaps, cuts._seed, cuts._drawn = state["gaps"], state["seed"], state["drawn"]
        return cuts


class CutsState(TypedDict):
    """What a file holds of cuts."""

    kappa: list[float]
    ties: list[float]
    above: list[_json.Count]
    gaps: Annotated[int, Meta(ge=1, le=2**63 - 1)]
    seed: Annotated[int, Meta(ge=0)]  # of any length
    drawn: _json.Count


def rate_interval(yes: int, n: int, alpha: float) -> Interval:
    """The share of yes, and an interval for its chance that holds at all times together.

    The rates p against which a bet spread over all rates by Beta(½, ½) has not won 1 / alpha: for
    independent answers of one rate, the probability that p ever lies outside is at most alpha.
    """
    log_mixture = _log_beta(yes + 0.5, n - yes + 0.5) - _log_beta(0.5, 0.5)

    def inside(p: float) -> bool:
        likelihood = (yes * math.log(p) if yes else 0.0) + (
            (n - yes) * math.log1p(-p) if n > yes else 0.0
        )
        return log_mixture - likelihood < -math.log(alpha)

    rate = yes / n
    low = 0.0 if yes == 0 else _edge(inside, rate, 0.0)
    high = 1.0 if yes == n else _edge(inside, rate, 1.0)
    return Interval(rate, low, high)


def _edge(inside: Callable[[float], bool], within: float, outside: float) -> float:
    """Where `inside` ends between the two, by halving."""
    for _ in range(100):
        middle = (within + outside) / 2
        if middle in (within, outside):
            break
        within, outside = (middle, outside) if inside(middle) else (within, middle)
    return outside


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
