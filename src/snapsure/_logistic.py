"""Logistic regression by Newton's method: for few features, exact to the last digits."""

import numpy as np

from snapsure._types import Bools, Floats, Ints

_STEPS = 100
_ENOUGH = 1e-13
_SHORT = 1e-5
# Lower bound of the curvature, so that Newton's step is defined where every example is certain.
_CURVATURE = 1e-10
_FOLDINGS = 9  # a product of 2⁹ numbers of at most 2 is a float64


def sigmoid(z: Floats) -> Floats:
    """Return 1 / (1 + e^−z), for any z."""
    return _upper(z, np.exp(-np.abs(z)))


def _upper(z: Floats, small: Floats) -> Floats:
    """Return 1 / (1 + e^−z), given small = e^−|z|."""
    p: Floats = np.maximum(small, z >= 0) / (1 + small)  # 1 or small above; faster than np.where
    return p


def log_odds(logits: Floats, chosen: Ints) -> Floats:
    """Return the log-odds of the chosen class in each row, exact where its softmax rounds to 1."""
    at = chosen[:, None]
    others = logits - np.take_along_axis(logits, at, axis=1)
    np.put_along_axis(others, at, -np.inf, axis=1)
    top = others.max(axis=1)
    odds: Floats = -(top + np.log(np.exp(others - top[:, None]).sum(axis=1)))
    return odds


def fit_logistic(
    features: Floats, target: Floats, penalty: Floats, start: Floats | None = None
) -> Floats:
    """Return the coefficients that minimise the log-loss plus Σ penalty · coefficient² / 2.

    Features are (n, d), or (m, n, d) for m fits to one target (n,), which is anywhere in [0, 1].
    From `start` (m, d) instead of 0 the result is the same, sooner.
    """
    if features.ndim == 2:
        alone: Floats = fit_logistic(features[None], target, penalty)[0]
        return alone
    across = features.swapaxes(1, 2)
    coefficients = np.zeros((len(features), features.shape[2])) if start is None else start.copy()
    loss, p = _loss(features, target, penalty, coefficients)
    diagonal = np.arange(features.shape[2])
    moving = np.ones(len(features), np.bool_)
    for _ in range(_STEPS):
        gradient = (across @ (p - target)[:, :, None])[:, :, 0] + penalty * coefficients
        curvature = (across * (p * (1 - p))[:, None, :]) @ features
        curvature[:, diagonal, diagonal] += penalty + _CURVATURE * len(target)
        step = np.linalg.solve(curvature, gradient[:, :, None])[:, :, 0]
        noise = _ENOUGH * (1 + np.abs(loss))
        # The error is squared by every step: after one as short as this, the next is rounding.
        last = ((gradient * step).sum(axis=1) <= noise) & (np.abs(step).max(axis=1) <= _SHORT)
        coefficients[moving & last] -= step[moving & last]
        moving &= ~last
        if not moving.any():
            break
        scale = np.ones((len(features), 1))
        while True:
            trial = coefficients - scale * step
            trial_loss, trial_p = _loss(features, target, penalty, trial)
            worse = moving & ~(trial_loss <= loss + noise)
            if not worse.any():
                break
            scale[worse] /= 2
            moving &= scale[:, 0] > 1e-8
        coefficients[moving], loss[moving], p[moving] = (
            trial[moving],
            trial_loss[moving],
            trial_p[moving],
        )
    return coefficients


def logit(p: Floats) -> Floats:
    """Return log p / (1 − p), with p kept where float64 can tell it from 0 and 1."""
    held = np.clip(p, 1e-12, 1 - 1e-12)
    return np.log(held) - np.log1p(-held)


def platt_curve(score: Floats, wrong: Bools) -> tuple[float, float]:
    """Return slope and intercept, in units of the score, of the logistic curve to "was right".

    The slope is infinite where scores are too small for float64 to hold it.
    """
    target = (~wrong).astype(np.float64)
    if _separable(score, wrong):
        right = int(target.sum())
        target = np.where(wrong, 1 / (wrong.size - right + 2), (right + 1) / (right + 2))
    # Scale by a power of two, which rounds nothing, so that squares neither vanish nor overflow.
    exponent = int(np.frexp(np.abs(score).max())[1])
    score = np.ldexp(score, -exponent)
    if score.min() == score.max():  # its std may be a rounding error
        center, spread = float(score[0]), 1.0
    else:
        center, spread = float(score.mean()), float(score.std())
    features = np.column_stack(((score - center) / spread, np.ones_like(score)))
    slope, intercept = fit_logistic(features, target, np.zeros(2))
    with np.errstate(over="ignore"):
        own_slope = float(np.ldexp(slope / spread, -exponent))
    return own_slope, float(intercept - slope * center / spread)


def _separable(score: Floats, wrong: Bools) -> bool:
    """Whether the best slope is infinite: one kind of example only, or a gap between the two."""
    if wrong.all() or not wrong.any():
        return True
    high, low = score[wrong], score[~wrong]
    if score.min() == score.max():
        return False
    return bool(high.max() <= low.min() or low.max() <= high.min())


def summed_losses(z: Floats, target: Floats) -> Floats:
    """Return Σ log-loss of each row of log-odds (m, n)."""
    return _losses(z, target, np.exp(-np.abs(z)))


def _loss(
    features: Floats, target: Floats, penalty: Floats, coefficients: Floats
) -> tuple[Floats, Floats]:
    """Return the penalised log-losses and the probabilities, both from one exponential."""
    z = (features @ coefficients[:, :, None])[:, :, 0]
    small = np.exp(-np.abs(z))
    total = _losses(z, target, small) + np.sum(penalty * coefficients**2, axis=1) / 2
    return total, _upper(z, small)


def _losses(z: Floats, target: Floats, small: Floats) -> Floats:
    """Return Σ log(1 + e^z) − target · z of each row, given small = e^−|z|."""
    losses: Floats = np.sum(np.maximum(z, 0) - target * z, axis=1) + _sum_of_logs(1 + small)
    return losses


def _sum_of_logs(values: Floats) -> Floats:
    """Return Σ log of each row of values in [1, 2], by fewer logarithms of products."""
    size = values.shape[1]
    for _ in range(_FOLDINGS):
        half = (size + 1) // 2
        values[:, : size - half] *= values[:, half:size]
        size = half
    logs: Floats = np.log(values[:, :size]).sum(axis=1)
    return logs
