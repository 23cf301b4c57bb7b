"""The metrics of torchmetrics: equal to the functions, over any batches and any processes."""

import json
import pickle
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from lightning import LightningModule, Trainer
from torch import distributed
from torchmetrics import MetricCollection

from snapsure import augrc, aurc, eaurc
from snapsure.errors import InvalidInput
from snapsure.integrations.torchmetrics import AUGRC, AURC, EAURC
from tests.support.processes import forked
from tests.support.refusals import refuses

pytestmark = pytest.mark.slow

PAIRS = {
    f"{metric.__name__} {options}": (metric, function, options)
    for metric, function, more in (
        (AURC, aurc, [{}]),
        (EAURC, eaurc, [{}, {"optimal": "integral"}]),
        (AUGRC, augrc, [{}]),
    )
    for options in ({**one, "ties": ties} for one in more for ties in ("expected", "threshold"))
}


def points(n=500, seed=0):
    """Scores with ties, and errors."""
    rng = np.random.default_rng(seed)
    kappa = rng.random(n).round(2)
    return torch.tensor(kappa), torch.tensor(rng.random(n) > kappa)


def fed(metric, kappa, losses, size=64):
    for batch in zip(kappa.split(size), losses.split(size), strict=True):
        metric.update(*batch)
    return metric


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_equal_to_the_function(pair, dtype):
    metric, function, options = PAIRS[pair]
    kappa, errors = points()
    kappa = kappa.to(dtype)
    value = fed(metric(**options), kappa, errors).compute()
    assert (value.shape, value.dtype) == ((), torch.float64)
    assert value.item() == function(kappa, errors, **options)


@pytest.mark.parametrize("kind", [torch.bool, torch.int64, torch.uint8, torch.float32])
def test_errors_of_any_type_and_other_losses(kind):
    kappa, errors = points()
    assert fed(AURC(), kappa, errors.to(kind)).compute().item() == aurc(kappa, errors)
    losses = torch.rand(500, generator=torch.Generator().manual_seed(0))
    assert fed(EAURC(), kappa, losses).compute().item() == eaurc(kappa, losses)


@given(
    rows=st.lists(
        st.tuples(st.floats(width=32, allow_nan=False, allow_infinity=False), st.booleans()),
        min_size=1,
        max_size=40,
    ),
    cuts=st.lists(st.integers(1, 39)),
    pair=st.sampled_from(list(PAIRS)),
)
def test_batches_do_not_matter(rows, cuts, pair):
    metric, function, options = PAIRS[pair]
    kappa, errors = map(np.array, zip(*rows, strict=True))
    filled = metric(**options)
    places = sorted({cut for cut in cuts if cut < len(rows)})
    for batch in zip(np.split(kappa, places), np.split(errors, places), strict=True):
        filled.update(*batch)
    assert filled.compute().item() == function(kappa, errors, **options)


SHARES = [(7, 300), (0, 30), (12, 0), (20, 20)]  # of the points, for either process


def worker(rank, folder):
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2
    )
    values = {}
    for shares in SHARES:
        kappa, errors = points(sum(shares))
        mine = slice(0, shares[0]) if rank == 0 else slice(shares[0], None)
        # The types differ, too: what is gathered must not depend on them.
        kinds = (torch.float32, torch.bool) if rank == 0 else (torch.float64, torch.int64)
        kappa, errors = kappa[mine].to(kinds[0]), errors[mine].to(kinds[1])
        metrics = MetricCollection([AURC(), EAURC(), AUGRC()]).to("cpu")
        if shares[rank]:
            fed(metrics, kappa, errors, size=8)
        both = {name: value.item() for name, value in metrics.compute().items()}
        own = len(metrics["AURC"].kappa_bits)  # after the gathering its own batches are back
        values[str(shares)] = [both, own]
    kappa, errors = points(40)
    every = AURC(dist_sync_on_step=True)
    values["step"] = every(kappa[rank::2], errors[rank::2]).item()
    Path(folder, f"{rank}.json").write_text(json.dumps(values))
    distributed.destroy_process_group()


def test_two_processes_with_different_numbers_of_points(tmp_path):
    with ExitStack() as running:
        code = f"from {__name__} import worker; import sys; worker(int(sys.argv[1]), sys.argv[2])"
        loaded = ("lightning", "torchmetrics")
        ranks = [
            running.enter_context(forked(code, rank, tmp_path, loaded=loaded)) for rank in range(2)
        ]
        assert [rank.wait() for rank in ranks] == [0, 0], [rank.stderr for rank in ranks]
    for rank in range(2):
        values = json.loads((tmp_path / f"{rank}.json").read_text())
        for shares in SHARES:
            kappa, errors = points(sum(shares))
            kappa[: shares[0]] = kappa[: shares[0]].float().double()
            both, own = values[str(shares)]
            assert both == {
                "AURC": aurc(kappa, errors),
                "EAURC": eaurc(kappa, errors),
                "AUGRC": augrc(kappa, errors),
            }
            assert own == -(-shares[rank] // 8)
        assert values["step"] == aurc(*points(40))


def test_forward_gives_the_batch_and_keeps_all():
    kappa, errors = points()
    metric = EAURC()
    for batch in zip(kappa.split(100), errors.split(100), strict=True):
        assert metric(*batch).item() == eaurc(*batch)
    assert metric.compute().item() == eaurc(kappa, errors)
    metric.reset()
    metric.update(kappa[:9], errors[:9])
    assert metric.compute().item() == eaurc(kappa[:9], errors[:9])


def test_clones_pickles_and_merged_states_go_on():
    kappa, errors = points()
    options = {"ties": "threshold", "optimal": "integral"}
    metric, rest = (
        fed(EAURC(**options), kappa[part], errors[part]) for part in (slice(300), slice(300, None))
    )
    whole = eaurc(kappa, errors, **options)
    for copy in (metric.clone(), pickle.loads(pickle.dumps(metric))):
        assert fed(copy, kappa[300:], errors[300:]).compute().item() == whole
    metric.merge_state(rest)  # unchanged by what its copies got
    assert metric.compute().item() == whole


# torchmetrics saves the points, not that there were any.
@pytest.mark.filterwarnings("ignore:The ``compute`` method of metric AURC was called before")
def test_the_state_is_saved_where_asked_for():
    kappa, errors = points()
    metric = fed(AURC(), kappa, errors)
    assert metric.state_dict() == {}
    metric.persistent(True)
    other = AURC()
    other.persistent(True)
    other.load_state_dict(metric.state_dict())
    assert other.compute().item() == aurc(kappa, errors)


@pytest.mark.parametrize(
    "change",
    [
        lambda network: network.half(),
        lambda network: network.float(),
        lambda network: network.to(torch.bfloat16),
        lambda network: network.to("cpu", torch.float16),
        lambda network: network[0].set_dtype(torch.float16),
        lambda network: MetricCollection([network[0]]).set_dtype(torch.float16),
    ],
)
def test_no_change_of_precision_reaches_the_points(change):
    """Scores that are one number in float32 already."""
    kappa, errors = 1 - torch.arange(20, dtype=torch.float64) * 1e-12, torch.arange(20) % 3 == 0
    network = torch.nn.ModuleList([fed(AURC(), kappa, errors), torch.nn.Linear(2, 2)])
    change(network)
    assert network[0].compute().item() == aurc(kappa, errors)
    assert aurc(kappa, errors) != aurc(kappa.float(), errors)
    fed(network[0], kappa - 0.5, errors)
    both = torch.cat([kappa, kappa - 0.5])
    assert network[0].compute().item() == aurc(both, torch.cat([errors, errors]))


def test_a_collection_shares_the_points():
    kappa, errors = points()
    metrics = MetricCollection({"a": AURC(), "e": EAURC(), "g": AUGRC()}, prefix="val_")
    fed(metrics, kappa, errors)
    assert metrics.compute_groups == {0: ["a", "e", "g"]}
    assert {name: value.item() for name, value in metrics.compute().items()} == {
        "val_a": aurc(kappa, errors),
        "val_e": eaurc(kappa, errors),
        "val_g": augrc(kappa, errors),
    }
    metrics.reset()
    metrics.update(kappa[:5], errors[:5])
    assert metrics.compute()["val_g"].item() == augrc(kappa[:5], errors[:5])


def test_plot(monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    kappa, errors = points()
    metric = AURC()
    steps = [metric(*batch) for batch in zip(kappa.split(100), errors.split(100), strict=True)]
    _, axes = metric.plot()
    assert axes.get_ylabel() == "AURC"
    assert axes.lines[0].get_ydata()[0] == aurc(kappa, errors)
    _, axes = metric.plot(steps)
    assert axes.lines[0].get_ydata().tolist() == [step.item() for step in steps]


class Validated(LightningModule):
    """As a person would log the metric."""

    def __init__(self):
        super().__init__()
        self.network, self.eaurc = torch.nn.Linear(4, 3), EAURC()

    def validation_step(self, batch):
        x, y = batch
        kappa, y_hat = self.network(x).softmax(dim=1).max(dim=1)
        self.eaurc.update(kappa, y_hat != y)
        self.log("eaurc", self.eaurc)


@pytest.mark.filterwarnings("ignore:.*does not have many workers")  # 90 rows in memory
@pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")  # Lightning's own
def test_logged_by_lightning(tmp_path):
    torch.manual_seed(0)
    data = torch.utils.data.TensorDataset(torch.randn(90, 4), torch.randint(0, 3, (90,)))
    model = Validated()
    trainer = Trainer(
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
    )
    (logged,) = trainer.validate(
        model, torch.utils.data.DataLoader(data, batch_size=32), verbose=False
    )
    kappa, y_hat = model.network(data.tensors[0]).softmax(dim=1).max(dim=1)
    assert logged["eaurc"] == pytest.approx(eaurc(kappa, y_hat != data.tensors[1]), abs=1e-6)


def test_options_are_refused_at_construction():
    for metric in (AURC, EAURC, AUGRC):
        with refuses(InvalidInput, "`ties`", '"expected"', "'first'"):
            metric(ties="first")
    with refuses(InvalidInput, "`optimal`", '"exact"', "'sum'"):
        EAURC(optimal="sum")
    with pytest.raises(ValueError, match=r"^Unexpected keyword arguments: `optimal`$"):
        AURC(optimal="exact")


def test_examples_are_refused_at_their_batch():
    kappa, errors = points(20)
    metric = fed(EAURC(optimal="integral"), kappa, errors)
    broken = kappa.clone()
    broken[3] = float("nan")
    for batch, facts in (
        ((broken, errors), ["`kappa`", "1 NaN", "row 3"]),
        ((kappa, errors[:19]), ["`losses`", "`kappa`", "19 for 20"]),
        ((kappa[None], errors), ["`kappa`", "1-D", "(1, 20)"]),
        ((kappa[:0], errors[:0]), ["`kappa`", "(0,)"]),
        ((kappa, errors * 0.5), ["`losses`", "0/1", "got 0.5"]),
        ((torch.tensor([2**60, 2**60 + 1]), errors[:2]), ["`kappa`", "float64", "int64"]),
    ):
        with refuses(InvalidInput, *facts):
            metric.update(*batch)
    assert metric.compute().item() == eaurc(kappa, errors, optimal="integral")
    with refuses(InvalidInput, "`kappa`"):
        metric(broken, errors)  # by `forward`, which empties the metric first
    assert metric.kappa_bits == []


# torchmetrics says the same, as a warning.
@pytest.mark.filterwarnings("ignore:The ``compute`` method of metric AURC was called before")
def test_no_examples_at_all():
    with refuses(InvalidInput, "`kappa`", "(0,)"):
        AURC().compute()
