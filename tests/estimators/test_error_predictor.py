"""The error predictor: how many errors it takes to learn of classes (numbers: `test_compare`)."""

import numpy as np
import pytest

from snapsure.estimators._error_predictor import ErrorPredictor
from tests.support.tables import of_logits


@pytest.mark.parametrize("few", ["wrong", "right"])
@pytest.mark.parametrize(("left", "features"), [(29, 1), (30, 4)])
def test_thirty_of_each_kind_are_enough_to_learn_of_each_class(few, left, features):
    """Three classes and the log-odds; the third class has the same logit everywhere."""
    z = np.random.default_rng(0).uniform(0.1, 3, 200)
    is_few = np.arange(200) < left
    table = of_logits(np.column_stack((z, -z, 0 * z)), errors=is_few == (few == "wrong"))
    model = ErrorPredictor().fit(table)
    assert len(model.fitted["center"]) == features
    assert np.isfinite(model.confidence(table)).all()
