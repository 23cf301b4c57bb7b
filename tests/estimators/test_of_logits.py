"""What estimators of the logits refuse, all of them in the same words."""

import re

import pytest

from snapsure.errors import InvalidInput
from snapsure.estimators import MaxLogitPNorm, Temperature
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
        estimator().fit(of_logits([[1e150, 0], [2, size]], [0, 0]))  # the largest allowed
