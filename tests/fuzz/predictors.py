"""Predictors: inputs of every form, against the network called by hand."""

from functools import cache
from tempfile import TemporaryDirectory

import numpy as np
import torch

from snapsure import AES, Predictor, SnapshotStore, Threshold
from snapsure.testing import small_network
from tests.fuzz.judge import Wrong, outcome, shape_of
from tests.fuzz.zoo import pick

_COLUMNS = 5


@cache
def deployed():
    """A predictor of two snapshots, and the two networks."""
    networks = []
    with TemporaryDirectory() as folder:
        store = SnapshotStore(folder)
        for epoch in (1, 2):
            model = small_network().eval()
            with torch.no_grad():
                model[0].weight.mul_(epoch)
            store.save(model, epoch)
            networks.append(model)
        made = Predictor(small_network(), store, AES(k=2, start=0), Threshold(0.4, 0.5))
        made(torch.zeros(1, _COLUMNS))  # now its snapshots are in memory
        return made, networks


def by_hand(x):
    """Label and confidence of the mean softmax of y_hat, both by the networks themselves."""
    _, networks = deployed()
    with torch.inference_mode():
        logits = [network(torch.tensor(x, dtype=torch.float32)).double() for network in networks]
    label = logits[-1].argmax(dim=1)
    kappa = [torch.softmax(z, dim=1)[torch.arange(len(label)), label] for z in logits]
    return label.numpy(), torch.stack(kappa).mean(dim=0).numpy()


def predictors(rng):
    n = int(rng.integers(1, 5))
    kinds = ("unit", "normal", "bits", "tiny", "special", "huge")
    inputs, exact, plain = pick(rng, (n, _COLUMNS), kinds)
    predictor, _ = deployed()
    fine = shape_of(exact) == (n, _COLUMNS) and np.max(np.abs(exact)) < 1e30
    as_floats = isinstance(inputs, np.ndarray) and inputs.dtype in (np.float32, np.float64)
    as_floats = as_floats and not isinstance(inputs, np.ma.MaskedArray)
    ours = outcome(lambda: predictor(inputs), must=plain and fine and as_floats)
    if ours is None:
        return
    if exact is None and not plain:
        raise Wrong(f"a predictor answered {inputs!r}")
    if not fine:
        return  # what a network makes of infinity is its own
    label, confidence = by_hand([[float(x) for x in row] for row in exact])
    if ours.label.tolist() != label.tolist():
        raise Wrong(f"labels {ours.label} for {label} of {inputs!r}")
    if not np.allclose(ours.confidence, confidence, rtol=1e-4, atol=1e-6):
        raise Wrong(f"confidence {ours.confidence} for {confidence} of {inputs!r}")
    if ours.accepted.tolist() != (ours.confidence >= 0.4).tolist():
        raise Wrong(f"accepted {ours}")


PREDICTORS = [predictors]
