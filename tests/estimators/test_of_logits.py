"""What estimators of the logits refuse, all of them in the same words."""

import re

import numpy as np
import pytest

from snapsure import ScoreTable
from snapsure.errors import InvalidInput
from snapsure.estimators import MaxLogitPNorm, Temperature, registry
from tests.support.tables import of_logits

OF_LOGITS = [MaxLogitPNorm, Temperature]


@pytest.mark.parametrize("estimator", OF_LOGITS)
def test_logits_of_one_class_are_refused(estimator):
    one = of_logits([[1.0], [2.0]], [0, -1])
    fitted = estimator().fit(of_logits([[1.0, 2.0], [3.0, 1.0]], [0, 0]))
    for call in (estimator().fit, fitted.confidence):
        with pytest.raises(InvalidInput, match=r"`table` .* got one column\. .*np\.column_stack"):
            call(one)


@pytest.mark.parametrize("estimator", OF_LOGITS)
@pytest.mark.parametrize("size", [1e151, -1.7e308])
def test_logits_of_a_network_that_diverged(estimator, size):
    words = re.escape(f"got {size:g} at class 1 of row 1")
    with pytest.raises(InvalidInput, match=f"`table` must have logits within ±1e.150, {words}"):
        estimator().fit(of_logits([[1e150, 0], [2, size]], [0, 0]))
    largest = of_logits([[1e150, 0], [2, -1e150]], [0, 0])
    assert np.isfinite(estimator().fit(largest).confidence(largest)).all()


NAMES = [name for name in registry.names() if "logits" in registry.get(name).needs]


@pytest.mark.parametrize("name", NAMES)
def test_answers_need_the_final_snapshot_alone(name):
    y_hat = np.zeros((3, 4), int)
    logits = np.array([[3.0, 1, 0], [2, 1, 0], [1, 0, 0], [4, 0, 2]])
    table = ScoreTable({"softmax": y_hat + 0.5}, y_hat, y_hat[0], logits=logits)
    estimator = registry.get(name).make().fit(table)
    assert estimator.snapshots(table.epochs) == [3]
    assert estimator.needs == {"labels", "logits"}
