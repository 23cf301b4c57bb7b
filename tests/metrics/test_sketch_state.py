"""The sketch as a value: what it takes and refuses, how it is copied, sent and summed."""

import copy
import pickle
from contextlib import ExitStack
from unittest.mock import ANY

import numpy as np
import pytest
import ray
import torch

from snapsure import RiskCoverageSketch
from snapsure.errors import InvalidInput
from tests.support.processes import forked
from tests.support.refusals import refuses

BATCH = [0.9, 0.8]


def sketch_of(kappa, errors, bins=65536):
    sketch = RiskCoverageSketch(bins)
    sketch.update(kappa, errors)
    return sketch


def test_copies_go_their_own_way():
    sketch = sketch_of(BATCH, [0, 1])
    for twin in [
        copy.deepcopy(sketch),
        pickle.loads(pickle.dumps(sketch)),
        RiskCoverageSketch.from_state(sketch.state),
        RiskCoverageSketch.from_state(torch.from_numpy(sketch.state)),
    ]:
        assert twin == sketch
        twin.update(0.5, 0)
        assert twin != sketch
    sketch.state[:] = 7
    assert (sketch.n, sketch.errors) == (2, 1)
    assert sketch != sketch_of(BATCH, [0, 1], 256)
    assert sketch != "sketch"
    assert sketch == ANY  # which decides itself
    assert repr(sketch) == "RiskCoverageSketch(bins=65536): 2 examples, 1 wrong"


@pytest.mark.parametrize("convert", [list, np.float16, np.float32, np.longdouble, torch.tensor])
def test_batches_of_all_kinds_and_one_by_one(convert):
    kappa, errors = [0.75, 0.5, 1.0], [0, 1, 1]
    sketch = RiskCoverageSketch()
    for value, error in zip(convert(kappa), convert(errors), strict=True):
        sketch.update(value, error)
    assert sketch == sketch_of(convert(kappa), convert(errors)) == sketch_of(kappa, errors)


@pytest.mark.parametrize(
    ("kappa", "errors", "facts"),
    [
        ([0.5, 1.5], [0, 1], ["`kappa`", "1.5 at row 1"]),
        (-1e-9, 0, ["`kappa`", "-1e-09 at row 0"]),
        ([0.5, np.nan], [0, 1], ["`kappa`", "1 NaN", "row 1"]),
        ([], [], ["`kappa`", "(0,)"]),
        ([BATCH], [0, 1], ["`kappa`", "(1, 2)"]),
        (BATCH, [0, 0.5], ["`errors`", "0.5 at row 1"]),
        (BATCH, 0, ["`errors`", "`kappa`", "1 for 2"]),
    ],
)
def test_a_refused_batch_changes_nothing(kappa, errors, facts):
    sketch = sketch_of(BATCH, [0, 1])
    with refuses(InvalidInput, *facts):
        sketch.update(kappa, errors)
    assert sketch == sketch_of(BATCH, [0, 1])


def full(bins=256):
    state = np.zeros((2, bins), dtype=np.int64)
    state[0, 0] = 2**53
    return RiskCoverageSketch.from_state(state)


@pytest.mark.parametrize(
    ("call", "facts"),
    [
        (lambda: RiskCoverageSketch(128), ["`bins`", "256", "got 128"]),
        (lambda: RiskCoverageSketch(1000), ["`bins`", "got 1000", "1024"]),
        (lambda: RiskCoverageSketch(256.0), ["`bins`", "got 256.0", "int"]),
        (
            lambda: RiskCoverageSketch().merge(RiskCoverageSketch(256)),
            ["`others`", "65536", "got 256", "`bins`"],
        ),
        (
            lambda: RiskCoverageSketch().merge(RiskCoverageSketch().state),
            ["`others`", "ndarray", "from_state"],
        ),
        (
            lambda: RiskCoverageSketch.from_state(np.zeros((2, 256))),
            ["`state`", "(2, bins)", "float64 of shape (2, 256)"],
        ),
        (
            lambda: RiskCoverageSketch.from_state(np.zeros(256, int)),
            ["`state`", "(2, bins)", "int64 of shape (256,)"],
        ),
        (lambda: RiskCoverageSketch.from_state(np.full((2, 256), -1)), ["`state`", "got -1"]),
        (lambda: full().merge(full()), ["2⁵³", "18014398509481984"]),
        (lambda: RiskCoverageSketch.from_state(full().state * 4), ["2⁵³", "36028797018963968"]),
        (RiskCoverageSketch().aurc, ["got none", "`update`"]),
        (RiskCoverageSketch().eaurc_bounds, ["got none", "`update`"]),
        (RiskCoverageSketch().rc_curve, ["got none", "`update`"]),
    ],
)
def test_refusals(call, facts):
    with refuses(InvalidInput, *facts):
        call()


def test_a_sketch_has_no_hash():
    with pytest.raises(TypeError, match=r"^unhashable type: 'RiskCoverageSketch'$"):
        hash(RiskCoverageSketch())


def _add_up(rank, folder):
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2
    )
    data = np.load(f"{folder}/data.npy")[rank::2]
    state = torch.from_numpy(sketch_of(data[:, 0], data[:, 1]).state)
    torch.distributed.all_reduce(state)
    np.save(f"{folder}/rank-{rank}.npy", state.numpy())
    torch.distributed.destroy_process_group()


@pytest.mark.slow
def test_ranks_of_torch_distributed_add_up(tmp_path):
    rng = np.random.default_rng(0)
    data = np.column_stack([rng.random(1001), rng.random(1001) < 0.3])
    np.save(tmp_path / "data.npy", data)
    with ExitStack() as running:
        code = f"from {__name__} import _add_up; import sys; _add_up(int(sys.argv[1]), sys.argv[2])"
        ranks = [running.enter_context(forked(code, rank, tmp_path)) for rank in range(2)]
        assert [rank.wait() for rank in ranks] == [0, 0], [rank.stderr for rank in ranks]
    whole = sketch_of(data[:, 0], data[:, 1])
    for rank in range(2):
        assert RiskCoverageSketch.from_state(np.load(tmp_path / f"rank-{rank}.npy")) == whole


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


@pytest.mark.slow
def test_workers_of_ray_add_up(cluster):
    rng = np.random.default_rng(0)
    kappa, errors = rng.random(1000), rng.random(1000) < 0.3

    def work(rows):
        return sketch_of(kappa[rows], errors[rows])

    task = ray.remote(work)
    references = [task.remote(slice(part, None, 4)) for part in range(4)]
    assert RiskCoverageSketch().merge(*ray.get(references)) == work(slice(None))
    # Arrays from Ray lie in memory that all who ask for them share.
    one, same = ray.get(references[0]), ray.get(references[0])
    one.update(0.5, 1)
    assert (one.n, same.n) == (251, 250)
