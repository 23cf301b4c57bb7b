"""What estimators of the logits refuse, all of them in the same words."""

import pytest

from snapsure.errors import InvalidInput
from snapsure.estimators import MaxLogitPNorm, Temperature
from tests.support.tables import of_logits

OF_LOGITS = [MaxLogitPNorm, Temperature]


@pytest.mark.parametrize("estimator", OF_LOGITS)
def test_logits_of_one_class_are_refused(estimator):
    one = of_logits([[1.0], [2.0]], [0, -1])
    sentence = (
        "`table` must have logits of at least two classes, got one column: for a model of two "
        "classes with one logit z, pass np.column_stack([0 * z, z])"
    )
    fitted = estimator().fit(of_logits([[1.0, 2.0], [3.0, 1.0]], [0, 0]))
    for call in (estimator().fit, fitted.confidence):
        with pytest.raises(InvalidInput) as caught:
            call(one)
        assert str(caught.value) == sentence


@pytest.mark.parametrize("estimator", OF_LOGITS)
@pytest.mark.parametrize("size", [1e151, -1.7e308])
def test_logits_of_a_network_that_diverged(estimator, size):
    with pytest.raises(InvalidInput) as caught:
        estimator().fit(of_logits([[1e150, 0], [2, size]], [0, 0]))  # the largest that may be
    assert str(caught.value) == (
        f"`table` must have logits within ±1e+150, got {size:g} at class 1 of row 1: the network "
        "has diverged; take an earlier snapshot"
    )
