"""MC-dropout: the probability of the prediction when units are dropped at random."""

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from snapsure import _validate
from snapsure._types import Floats, Ints
from snapsure.errors import InvalidInput
from snapsure.kappas._base import Kappa
from snapsure.networks._forward import Forward, Sampling

Layers = Literal["all", "last"]
Statistic = Literal["mean", "variance", "entropy", "mutual_information"]

_ENOUGH = 100  # rows that a rank correlation is taken from, at least


class MCDropout(Kappa):
    """κ from passes with dropout, with p_s the softmax of y_hat in pass s.

    | statistic | κ |
    |---|---|
    | `mean` | mean of p_s |
    | `variance` | 1 − 4 · variance of p_s, as in the paper |
    | `entropy` | 1 − H(m) / ln C, with H the entropy and m the mean softmax over C classes |
    | `mutual_information` | 1 − (H(m) − mean H of the passes) / ln C |

    Gal & Ghahramani 2016, [Dropout as a Bayesian Approximation](https://arxiv.org/abs/1506.02142).
    The last two ignore y_hat. Variance behaves like p(1 − p): it ranks as the mean does where most
    p are above ½, and upside down where most are below. A warning says so, once, where both rank at
    least 100 examples against each other.

    Each pass is one thinned network, the same for all examples: masks are drawn as for a batch of
    one, from a generator seeded by `seed`. Neither batch size nor order changes a value, and all
    examples are compared under the same noise. Layers before the first active dropout run once, and
    several κ that differ in their statistic alone share their passes.

    Parameters
    ----------
    passes : int
        The number of passes, at least 2.
    p : float or None
        The dropout rate. None keeps each module's own. A rate that differs from a module's own
        causes a warning, once.
    layers : "all", "last" or sequence of str
        Which dropout modules are active: all, the one that runs last (at each of its calls), or
        those with these names in `model.named_modules()`. A module whose own rate is 0 stays off,
        unless it is named and `p` is given.
    statistic : "mean", "variance", "entropy" or "mutual_information"
        Which statistic of the passes κ is.
    seed : int
        Fixes the masks.

    Examples
    --------
    The paper's setting, and the mean of the same passes:

    >>> paper = MCDropout(p=0.5, layers="last", statistic="variance")
    >>> mean = MCDropout(p=0.5, layers="last")
    >>> paper.name, mean.name
    ('mc_dropout_variance', 'mc_dropout')
    """

    name = "mc_dropout"

    def __init__(
        self,
        passes: int = 100,
        p: float | None = None,
        layers: Layers | Sequence[str] = "all",
        statistic: Statistic = "mean",
        *,
        seed: int = 0,
    ) -> None:
        _validate.choice(statistic, [*_STATISTICS], "statistic")
        self._statistic = statistic
        if statistic != "mean":
            self.name = f"{self.name}_{statistic}"
        self._sampling = Sampling(
            _validate.count(passes, "passes", least=2),
            None if p is None else _validate.fraction(p, "p", open_above=True),
            _check_layers(layers),
            _validate.count(seed, "seed", least=0),
        )
        self._checked_rate = self._warned_of_variance = False
        self._compared: list[Tensor] = []  # (2, rows) each: means and variances

    @property
    def sampling(self) -> Sampling:
        """The passes, whatever statistic of them κ is."""
        return self._sampling

    @property
    def settings(self) -> dict[str, Any]:
        """Passes, rate, layers, statistic and seed."""
        layers = self._sampling.layers
        names = layers if isinstance(layers, str) else list(layers)
        return {**asdict(self._sampling), "layers": names, "statistic": self._statistic}

    def score(self, forward: Forward, y_hat: Ints, prepared: Any) -> Floats:
        """Return the statistic of the passes, which are summed up one by one."""
        self._check_rate(forward)
        summary = forward.shared(
            (self._sampling, y_hat.tobytes()),
            lambda: _summarize(forward.samples(self._sampling), y_hat),
        )
        if self._statistic == "variance":
            self._check_variance(summary)
        values: Floats = _STATISTICS[self._statistic](summary).clamp(0, 1).numpy()
        return values

    def _check_rate(self, forward: Forward) -> None:
        """Warn, once, of a rate that the network was not trained with."""
        if self._checked_rate or self._sampling.p is None:
            return
        self._checked_rate = True
        p, own = self._sampling.p, forward.rates(self._sampling)
        differing = [name for name, rate in own.items() if rate != p]
        if differing:
            more = f" and {len(differing) - 1} more" if len(differing) > 1 else ""
            warnings.warn(
                f"`p` should be the rate that the model was trained with, got {p:g} where dropout "
                f"{differing[0]!r} has {own[differing[0]]:g}{more}. Leave `p` out to keep each "
                "module's own rate",
                stacklevel=3,
            )

    def _check_variance(self, summary: "_Summary") -> None:
        """Warn, once, where variance ranks against the mean."""
        if self._warned_of_variance:
            return
        self._compared.append(torch.stack([summary.chosen, summary.variance]))
        rows = sum(part.shape[1] for part in self._compared)
        if rows < _ENOUGH:
            return

        mean, variance = torch.cat(self._compared, dim=1)
        self._compared = []
        # Spearman's rank correlation; ties keep the order of the rows.
        ranks = [x.argsort(stable=True).argsort() for x in (mean, -variance)]
        correlation = float(torch.corrcoef(torch.stack(ranks).double())[0, 1])

        # Three standard errors below 0: two unrelated orders do not trigger it.
        if correlation < -3 / math.sqrt(rows - 1):
            self._warned_of_variance = True
            low = float((mean < 0.5).double().mean())
            warnings.warn(
                "MCDropout's variance ranks examples against their mean probability (rank "
                f"correlation {correlation:.2f} over {rows} examples, {low:.0%} of them with a "
                "mean below 0.5), so its κ is highest where the prediction is least probable. Use "
                'statistic="mean"',
                stacklevel=3,
            )


@dataclass(frozen=True)
class _Summary:
    """Statistics of the passes for each row; means are over the passes."""

    chosen: Tensor  # mean of p_s
    rest: Tensor  # mean of 1 − p_s
    variance: Tensor  # of p_s
    softmax: Tensor  # its mean, (rows, classes)
    entropy: Tensor  # its mean


def _summarize(samples: Iterable[Tensor], y_hat: Ints) -> _Summary:
    """Average over the passes, with the variance by Welford's update.

    The other classes are summed without the chosen one. As a difference from 1, the rest of
    confident examples would round to 0.
    """
    answer = torch.tensor(y_hat).long()[:, None]
    mean = squares = rest = softmax = entropy = torch.zeros(())
    for i, logits in enumerate(samples, 1):
        z = logits.cpu().double()  # on the CPU: some accelerators have no float64
        gap = z - z.amax(dim=1, keepdim=True)
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


def _certainty(entropy: Tensor, summary: _Summary) -> Tensor:
    return 1 - entropy / (math.log(summary.softmax.shape[1]) or 1.0)  # one class has no entropy


_STATISTICS: dict[Statistic, Callable[[_Summary], Tensor]] = {
    "mean": lambda of: of.chosen.where(of.chosen < 0.5, 1 - of.rest),
    "variance": lambda of: 1 - 4 * of.variance,
    "entropy": lambda of: _certainty(_entropy_of(of.softmax), of),
    "mutual_information": lambda of: _certainty(_entropy_of(of.softmax) - of.entropy, of),
}


def _entropy_of(p: Tensor) -> Tensor:
    """Return −Σ p ln p of each row, with the largest p as 1 minus the others."""
    others = p.scatter(1, p.argmax(dim=1, keepdim=True), 0)
    missing = others.sum(dim=1)
    return -torch.xlogy(others, others).sum(dim=1) - (1 - missing) * (-missing).log1p()


def _check_layers(layers: str | Sequence[str]) -> str | tuple[str, ...]:
    """Return "all", "last", or the names sorted and without repetition."""
    if layers in ("all", "last"):
        return str(layers)
    names = () if isinstance(layers, str) else tuple(layers)
    if not names or not all(isinstance(name, str) for name in names):
        remedy = f"Write [{layers!r}] for one name" if isinstance(layers, str) else "Name a dropout"
        raise InvalidInput(
            f'`layers` must be "all", "last" or a sequence of module names, got {layers!r}. '
            f"{remedy}."
        )
    return tuple(sorted({*names}))
