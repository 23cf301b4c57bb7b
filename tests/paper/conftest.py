"""Small data sets in their true layouts, and an experiment of simulated networks."""

import pytest

from tests.support.datasets import cache, cifar
from tests.support.experiments import simulate_experiment

__all__ = ["cache", "cifar"]


@pytest.fixture(scope="package")
def experiment():
    return simulate_experiment()
