"""MC-dropout: what the answer's probability does when units are dropped at random."""

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from snapsure import _validate
from snapsure._types import Floats, Ints
from snapsure.errors import InvalidInput
from snapsure.kappas._base import Kappa
from snapsure.kappas._logits import gaps
from snapsure.networks._forward import Forward, Sampling

Layers = Literal["all", "last"]
Statistic = Literal["mean", "variance", "entropy", "mutual_information"]

_ENOUGH = 100  # rows that a rank correlation is taken from, at least


class MCDropout(Kappa):
    """κ from passes with dropout; p_s is softmax[y_hat] of pass s (Gal & Ghahramani 2016).

    `mean`: the mean of p_s. `variance`: 1 − 4 · variance of p_s, the paper's. `entropy`:
    1 − H(m) / ln C, H the entropy, m the mean softmax over C classes. `mutual_information`:
    1 − (H(m) − mean of the passes' H) / ln C. The last two do not speak of y_hat.

    Variance behaves like p(1 − p): it ranks as the mean does where most p are above ½, and upside
    down where most are below. A warning says so, once, where both rank at least 100 points against
    each other.

    Each pass is one thinned network, the same for all rows: masks are drawn as for a batch of one
    row, from a generator seeded by `seed`, so neither batch size nor row order changes a value, and
    all rows are compared under the same noise. What runs before the first dropout that is switched
    on is run once, and κ that differ in their statistic alone share their passes.

    Parameters
    ----------
    passes : int
        How many, at least 2.
    p : float or None
        The dropout rate; None keeps each module's own. A rate that differs from a module's own is
        told by a warning, once.
    layers : "all", "last" or sequence of str
        Which dropout modules to switch on: all, the one that runs last (at each of its calls), or
        those named as in `model.named_modules()`. A module whose own rate is 0 stays off, unless it
        is named and `p` is given.
    statistic : "mean", "variance", "entropy" or "mutual_information"
        What κ is made of.
    seed : int
        Fixes the masks.

    Examples
    --------
    The paper's setting, and the mean of the same passes beside it:

    >>> paper = MCDropout(p=0.5, layers="last", statistic="variance")
    >>> mean = MCDropout(p=0.5, layers="last")
    >>> paper.name, mean.name
    ('mc_dropout_variance', 'mc_dropout')
    """

    def __init__(
        self,
        passes: int = 100,
        p: float | None = None,
        layers: Layers | Sequence[str] = "all",
        statistic: Statistic = "mean",
        *,
        seed: int = 0,
    ) -> None:
        if statistic not in _STATISTICS:
            raise InvalidInput(
                f"`statistic` must be one of {', '.join(_STATISTICS)}, got {statistic!r}: choose "
                "among these"
            )
        self._statistic = statistic
        self._sampling = Sampling(
            _validate.count(passes, "passes", least=2),
            None if p is None else _validate.fraction(p, "p", open_above=True),
            _layers(layers),
            _validate.count(seed, "seed", least=0),
        )
        self._rate_checked = self._upside_down = False
        self._compared: list[Tensor] = []  # (2, rows) each: means and variances

    @property
    def name(self) -> str:
        """`mc_dropout`, and the statistic behind it where that is not the mean."""
        return "mc_dropout" if self._statistic == "mean" else f"mc_dropout_{self._statistic}"

    @property
    def sampling(self) -> Sampling:
        """All but the statistic."""
        return self._sampling

    @property
    def settings(self) -> dict[str, Any]:
        """Passes, rate, layers, statistic and seed."""
        chosen = self._sampling
        layers = chosen.layers if isinstance(chosen.layers, str) else list(chosen.layers)
        return {
            "passes": chosen.passes,
            "p": chosen.p,
            "layers": layers,
            "statistic": self._statistic,
            "seed": chosen.seed,
        }

    def score(self, forward: Forward, y_hat: Ints, prepared: Any) -> Floats:
        """The statistic of passes that are summed up one by one: none is kept."""
        self._tell_of_another_rate(forward)
        summary = forward.shared(
            (self._sampling, y_hat.tobytes()),
            lambda: _summed_up(forward.samples(self._sampling), y_hat),
        )
        if self._statistic == "variance":
            self._tell_if_upside_down(summary)
        values: Floats = _STATISTICS[self._statistic](summary).clamp(0, 1).numpy()
        return values

    def _tell_of_another_rate(self, forward: Forward) -> None:
        if self._rate_checked or self._sampling.p is None:
            return
        self._rate_checked = True
        p, own = self._sampling.p, forward.rates(self._sampling)
        differing = [name for name, rate in own.items() if rate != p]
        if differing:
            more = f" and {len(differing) - 1} more" if len(differing) > 1 else ""
            warnings.warn(
                f"`p` should be the rate that the model was trained with, got {p:g} where dropout "
                f"{differing[0]!r} has {own[differing[0]]:g}{more}: leave it out to keep each "
                "dropout's own",
                stacklevel=3,
            )

    def _tell_if_upside_down(self, summary: "_Summary") -> None:
        if self._upside_down:
            return
        self._compared.append(torch.stack([summary.chosen, summary.variance]))
        rows = sum(part.shape[1] for part in self._compared)
        if rows < _ENOUGH:
            return
        mean, variance = torch.cat(self._compared, dim=1)
        self._compared = []
        correlation = _rank_correlation(mean, -variance)
        # Three standard errors below 0: an order that merely has nothing to do with it is not.
        if correlation < -3 / math.sqrt(rows - 1):
            self._upside_down = True
            low = float((mean < 0.5).double().mean())
            warnings.warn(
                "MCDropout's variance ranks points against their mean probability (rank "
                f"correlation {correlation:.2f} over {rows} points, {low:.0%} of them with a mean "
                "below 0.5), so its κ is highest where the answer is least probable: use "
                'statistic="mean"',
                stacklevel=3,
            )


@dataclass(frozen=True)
class _Summary:
    """What passes come to, row by row; means are over the passes."""

    chosen: Tensor  # mean of p_s
    rest: Tensor  # mean of 1 − p_s
    variance: Tensor  # of p_s
    softmax: Tensor  # mean of it, (rows, classes)
    entropy: Tensor  # mean of the passes'


def _summed_up(samples: Iterable[Tensor], y_hat: Ints) -> _Summary:
    """Sums over passes, and the variance by Welford's update.

    With the largest logit subtracted, the other classes are summed without the chosen one: as a
    difference from 1, the rest of confident points would be rounded to nothing.
    """
    answer = torch.tensor(y_hat).long()[:, None]
    mean = squares = rest = softmax = entropy = torch.zeros(())
    for i, logits in enumerate(samples, 1):
        gap = gaps(logits)
        weight = gap.exp()
        total = weight.sum(dim=1)
        share = weight / total[:, None]
        chosen = share.gather(1, answer)[:, 0]
        step = chosen - mean
        mean = mean + step / i
        squares = squares + step * (chosen - mean)
        rest = rest + (weight.scatter(1, answer, 0).sum(dim=1) / total - rest) / i
        softmax = softmax + (share - softmax) / i
        entropy = entropy + (total.log() - (share * gap).sum(dim=1) - entropy) / i
    return _Summary(mean, rest, squares / i, softmax, entropy)


def _mean(summary: _Summary) -> Tensor:
    return summary.chosen.where(summary.chosen < 0.5, 1 - summary.rest)


def _variance(summary: _Summary) -> Tensor:
    return 1 - 4 * summary.variance


def _entropy(summary: _Summary) -> Tensor:
    return 1 - _entropy_of(summary.softmax) / _most(summary)


def _mutual_information(summary: _Summary) -> Tensor:
    return 1 - (_entropy_of(summary.softmax) - summary.entropy) / _most(summary)


_STATISTICS: dict[Statistic, Callable[[_Summary], Tensor]] = {
    "mean": _mean,
    "variance": _variance,
    "entropy": _entropy,
    "mutual_information": _mutual_information,
}


def _most(summary: _Summary) -> float:
    """The largest entropy there is; one class has none."""
    return math.log(summary.softmax.shape[1]) or 1.0


def _entropy_of(p: Tensor) -> Tensor:
    """−Σ p ln p of each row, the largest p as what the others leave of 1."""
    others = p.scatter(1, p.argmax(dim=1, keepdim=True), 0)
    missing = others.sum(dim=1)
    return -torch.xlogy(others, others).sum(dim=1) - (1 - missing) * (-missing).log1p()


def _layers(layers: str | Sequence[str]) -> str | tuple[str, ...]:
    """As given, names without repetition in an order of their own."""
    if isinstance(layers, str):
        if layers not in ("all", "last"):
            raise InvalidInput(
                '`layers` must be "all", "last" or a sequence of module names, got '
                f"{layers!r}: write [{layers!r}] for one name"
            )
        return layers
    names = tuple(layers)
    if not names or not all(isinstance(name, str) for name in names):
        raise InvalidInput(
            f'`layers` must be "all", "last" or a sequence of module names, got {layers!r}: name '
            "at least one dropout"
        )
    return tuple(sorted({*names}))


def _rank_correlation(a: Tensor, b: Tensor) -> float:
    """Spearman's, ties standing in the order of the rows."""
    ranks = torch.stack([x.argsort(stable=True).argsort() for x in (a, b)]).double()
    return float(torch.corrcoef(ranks)[0, 1])
