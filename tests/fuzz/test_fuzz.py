"""Whatever comes: the reference's number or a sentence of ours, never anything else.

The short form runs with all tests; `make torture` tries a million inputs.
"""

import numpy as np
import pytest

from tests.fuzz.decisions import DECISIONS
from tests.fuzz.metrics import METRICS
from tests.fuzz.predictors import PREDICTORS

TARGETS = [*METRICS, *DECISIONS, *PREDICTORS]
LONG, PARTS = 1_000_000, 20


def tried(first, count):
    """So many inputs, each by a seed of its own: a failure names it."""
    for seed in range(first, first + count):
        rng = np.random.default_rng(seed)
        target = TARGETS[rng.integers(len(TARGETS))]
        try:
            target(rng)
        except Exception as error:
            raise AssertionError(f"{target.__name__}, seed {seed}: {error!r}") from error


def test_numbers_or_sentences():
    tried(0, 2000)


@pytest.mark.torture
@pytest.mark.parametrize("part", range(PARTS))
def test_a_million_inputs(part):
    tried(2000 + part * (LONG // PARTS), LONG // PARTS)


def test_a_wrong_number_is_noticed(monkeypatch):
    """The judge itself: an area that is off by a millionth, and a refusal of what is in order."""
    from tests.fuzz import metrics

    monkeypatch.setattr(metrics, "aurc", lambda *a, **o: metrics.eaurc(*a, **o) * (1 + 1e-6) + 1e-6)
    with pytest.raises(AssertionError, match="the reference is"):
        tried(0, 300)
