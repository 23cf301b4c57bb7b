"""Score tables for the tests of estimators: of bare κ, of labels, of logits."""

import numpy as np

from snapsure import ScoreTable


def of(kappa, errors=None, epochs=None):
    return ScoreTable.from_kappa(kappa, errors, epochs)


def of_labels(labels, epochs=None, *, y_hat=None):
    labels = np.asarray(labels)
    return ScoreTable({"softmax": np.full(labels.shape, 0.5)}, labels, y_hat=y_hat, epochs=epochs)


def of_logits(logits, y=None, *, errors=None):
    """With true classes, or with errors: a wrong point's class is the one after its answer."""
    logits = np.asarray(logits, float)
    y_hat = logits.argmax(axis=1)
    if errors is not None:
        y = (y_hat + np.asarray(errors).astype(int)) % max(2, logits.shape[1])
    return ScoreTable({"softmax": np.full((1, len(logits)), 0.5)}, y_hat[None], y, logits=logits)
