"""Sketches made by real Ray workers. Deselect this file where starting Ray is too much."""

import numpy as np
import pytest
import ray

from snapsure import RiskCoverageSketch

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster():
    ray.init(
        "local",
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=10**8,
        log_to_driver=False,
    )
    yield
    ray.shutdown()


def test_workers_add_up(cluster):
    rng = np.random.default_rng(0)
    kappa, errors = rng.random(1000), rng.random(1000) < 0.3

    def work(rows):
        sketch = RiskCoverageSketch()
        sketch.update(kappa[rows], errors[rows])
        return sketch

    task = ray.remote(work)
    references = [task.remote(slice(part, None, 4)) for part in range(4)]
    assert RiskCoverageSketch().merge(*ray.get(references)) == work(slice(None))
    # Arrays from Ray lie in memory that all who ask for them share.
    one, same = ray.get(references[0]), ray.get(references[0])
    one.update(0.5, 1)
    assert (one.n, same.n) == (251, 250)
