"""GEN, by hand, against its definition, and exact where rows are nearly certain."""

import numpy as np
import pytest
import torch

from snapsure.errors import InvalidInput
from snapsure.kappas import GEN
from snapsure.kappas._logits import Logits
from snapsure.testing import KappaContract


class TestGEN(KappaContract):
    def make(self, inputs, labels):
        return GEN()


def gen(logits, **options):
    return GEN(**options).score(Logits(torch.as_tensor(logits)), np.zeros(len(logits), int), None)


def obvious(logits, gamma, top):
    """Softmax, sort, sum."""
    p = -np.sort(-torch.as_tensor(logits).double().softmax(dim=1).numpy(), axis=1)[:, :top]
    return (p**gamma * (1 - p) ** gamma).sum(axis=1)


LOGITS = torch.randn(60, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 2


def test_three_classes_by_hand():
    terms = [0.6 * 0.4, 0.3 * 0.7, 0.1 * 0.9]
    ours = gen(np.log([[0.6, 0.3, 0.1]]), gamma=0.5)[0]
    assert ours == pytest.approx(1 - sum(t**0.5 for t in terms) / (3 * 0.5), rel=1e-13)


@pytest.mark.parametrize(("gamma", "top"), [(0.1, 100), (0.1, 9), (0.3, 4), (0.9, 1)])
def test_the_definition_up_to_scale(gamma, top):
    most = min(top, 9) * 0.25**gamma
    expected = 1 - obvious(LOGITS, gamma, top) / most
    np.testing.assert_allclose(gen(LOGITS, gamma=gamma, top=top), expected, rtol=1e-11)


def test_the_ends():
    assert gen(torch.zeros(1, 2))[0] == pytest.approx(0, abs=1e-15)  # both probabilities are ½
    assert gen(torch.tensor([[1e30, 0.0, -1e30]])).tolist() == [1]
    assert gen(torch.tensor([[4.0]])).tolist() == [1]  # one class


def test_nearly_certain_rows_stay_apart():
    gaps = np.arange(10.0, 340.0, 10)  # a softmax in float64 is 1 from 37 on
    ours = gen(np.stack([gaps, np.zeros(len(gaps))], axis=1))
    assert (np.diff(ours) > 0).all()


def test_ties_among_the_largest():
    assert gen(torch.tensor([[2.0, 2.0, 0.0]]))[0] == pytest.approx(
        1 - obvious([[2.0, 2.0, 0.0]], 0.1, 3)[0] / (3 * 0.25**0.1), rel=1e-12
    )


def test_a_constant_changes_nothing():
    np.testing.assert_allclose(gen(LOGITS + 7), gen(LOGITS), rtol=1e-12)


def test_it_is_named_with_its_settings():
    assert (GEN().name, GEN(0.2, 7).settings) == ("gen", {"gamma": 0.2, "top": 7})
    for wrong in ({"gamma": 0}, {"gamma": 1}, {"top": 0}):
        with pytest.raises(InvalidInput):
            GEN(**wrong)
