"""The one map of unbounded scores to [0, 1]."""

from torch import Tensor


def squash(x: Tensor) -> Tensor:
    """1/2 + x / (2 (1 + |x|)), strictly rising: 0 goes to 1/2, ±∞ to 0 and 1.

    It approaches its ends as 1/x does, not as e^−x: float32 logits that differ stay apart up to
    10⁸, where a sigmoid merges them from 37 on. The order of points is that of x; a mean over
    snapshots is one of mapped values.

    Examples
    --------
    >>> import torch
    >>> squash(torch.tensor([-3.0, 0.0, 1.0])).tolist()
    [0.125, 0.5, 0.75]
    """
    short = 0.5 / (1 + x.double().abs())  # of the nearer end, so that both keep full precision
    return short.where(x < 0, 1 - short)
