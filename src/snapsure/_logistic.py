"""Logistic regression by Newton's method: few features, exact to the last digits, no warnings."""

import numpy as np

from snapsure._types import Bools, Floats, Ints

_STEPS = 100
_ENOUGH = 1e-12
# The least that a curvature may be: where all is certain, Newton's step is still defined.
_CURVATURE = 1e-10


def sigmoid(z: Floats) -> Floats:
    """1 / (1 + e^−z), at any z."""
    return _upper(z, np.exp(-np.abs(z)))


def _upper(z: Floats, small: Floats) -> Floats:
    """1 / (1 + e^−z), where small = e^−|z| is known."""
    p: Floats = np.where(z >= 0, 1, small) / (1 + small)
    return p


def log_odds(logits: Floats, chosen: Ints) -> Floats:
    """Log-odds of the chosen class's softmax in each row: exact where the softmax rounds to 1."""
    at = chosen[:, None]
    others = logits - np.take_along_axis(logits, at, axis=1)
    np.put_along_axis(others, at, -np.inf, axis=1)
    top = others.max(axis=1)
    odds: Floats = -(top + np.log(np.exp(others - top[:, None]).sum(axis=1)))
    return odds


def fit_logistic(features: Floats, target: Floats, penalty: Floats) -> Floats:
    """Coefficients that minimise the log-loss plus Σ penalty · coefficient² / 2.

    `features` (n, d) must contain a column of ones where an intercept is wanted; targets may lie
    anywhere in [0, 1].
    """
    coefficients = np.zeros(features.shape[1])
    loss, p = _loss(features, target, penalty, coefficients)
    for _ in range(_STEPS):
        gradient = features.T @ (p - target) + penalty * coefficients
        curvature = (features.T * (p * (1 - p))) @ features
        curvature[np.diag_indices_from(curvature)] += penalty + _CURVATURE * len(target)
        step = np.linalg.solve(curvature, gradient)
        scale = 1.0
        while scale > 1e-8:
            trial = coefficients - scale * step
            trial_loss, trial_p = _loss(features, target, penalty, trial)
            if trial_loss <= loss:
                break
            scale /= 2
        else:
            break
        gained, coefficients, loss, p = loss - trial_loss, trial, trial_loss, trial_p
        if gained <= _ENOUGH * (1 + abs(loss)) and np.abs(step).max() < 1e-8:
            break
    return coefficients


def logit(p: Floats) -> Floats:
    """log p / (1 − p), held within what float64 can tell from 0 and 1."""
    held = np.clip(p, 1e-12, 1 - 1e-12)
    return np.log(held) - np.log1p(-held)


def platt_curve(score: Floats, wrong: Bools) -> tuple[float, float]:
    """Slope and intercept, in units of the score, of the logistic curve to "was right"."""
    target = (~wrong).astype(np.float64)
    if _separable(score, wrong):
        right = int(target.sum())
        target = np.where(wrong, 1 / (wrong.size - right + 2), (right + 1) / (right + 2))
    if score.min() == score.max():  # its std may be a rounding error
        center, spread = float(score[0]), 1.0
    else:
        center, spread = float(score.mean()), float(score.std())
    features = np.column_stack(((score - center) / spread, np.ones_like(score)))
    slope, intercept = fit_logistic(features, target, np.zeros(2))
    return float(slope / spread), float(intercept - slope * center / spread)


def _separable(score: Floats, wrong: Bools) -> bool:
    """Whether a logistic curve could grow without end: one kind only, or a gap between the two."""
    if wrong.all() or not wrong.any():
        return True
    high, low = score[wrong], score[~wrong]
    if score.min() == score.max():
        return False
    return bool(high.max() <= low.min() or low.max() <= high.min())


def _loss(
    features: Floats, target: Floats, penalty: Floats, coefficients: Floats
) -> tuple[float, Floats]:
    """The penalised log-loss, and the probabilities it is of: both from one exponential."""
    z = features @ coefficients
    small = np.exp(-np.abs(z))
    # log(1 + e^z) as max(z, 0) + log(1 + e^−|z|): the exponential serves both.
    losses = np.maximum(z, 0) + np.log1p(small) - target * z
    loss = float(np.sum(losses) + np.sum(penalty * coefficients**2) / 2)
    return loss, _upper(z, small)
