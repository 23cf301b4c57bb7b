"""What the metrics take, and how they refuse the rest."""

import numpy as np
import pytest
import torch

from snapsure import (
    augrc,
    aurc,
    aurc_optimal,
    brier,
    coverage_at_risk,
    eaurc,
    ece,
    naurc,
    nll,
    rc_curve,
    risk_at_coverage,
)
from snapsure.errors import InvalidInput, SnapsureError
from tests.support.refusals import refuses

AREAS = [aurc, eaurc, augrc, naurc]
OF_A_SCORE = [
    *AREAS,
    rc_curve,
    lambda kappa, losses: risk_at_coverage(kappa, losses, 0.5),
    lambda kappa, losses: coverage_at_risk(kappa, losses, 0.5),
]
OF_A_PROBABILITY = [nll, brier, ece]
TIES = ["`ties`", '"expected"', '"threshold"', "'random'"]


def test_a_refusal_is_a_value_error_and_ours():
    assert issubclass(InvalidInput, ValueError)
    assert issubclass(InvalidInput, SnapsureError)


BAD_PAIRS = [
    ([0.1, np.nan, 0.3, np.nan], [0, 1, 0, 1], ["`kappa`", "2 NaN", "row 1"]),
    ([0.1, 0.2, np.inf], [0, 1, 0], ["`kappa`", "1 infinite", "row 2"]),
    ([-np.inf, 0.2, np.inf], [0, 1, 0], ["`kappa`", "2 infinite", "row 0"]),
    ([], [], ["`kappa`", "(0,)"]),
    ([0.1, 0.2, 0.3], [0, 1], ["`losses`", "`kappa`", "2 for 3"]),
    ([0.1, 0.2], [[0, 1]], ["`losses`", "1-D", "(1, 2)"]),
    ([0.1, 0.2], [0, -1], ["`losses`", "-1 at row 1"]),
    ([0.1, 0.2], [0, np.nan], ["`losses`", "1 NaN", "row 1"]),
    (["a", "b"], [0, 1], ["`kappa`", "<U1", "float"]),
    ([1j, 2j], [0, 1], ["`kappa`", "complex128", "float"]),
    ([0.1, None], [0, 1], ["`kappa`", "object", "float"]),
    ([[0.1], [0.1, 0.2]], [0, 1], ["`kappa`", "different lengths"]),
    ((x for x in [0.1, 0.2]), [0, 1], ["`kappa`", "generator", "list("]),
    ([torch.tensor(0.1, requires_grad=True)], [0], ["`kappa`", "list", "requires grad"]),
    (np.ma.array([0.1, 0.2], mask=[True, False]), [0, 1], ["`kappa`", "masked"]),
]


@pytest.mark.parametrize(("kappa", "losses", "facts"), BAD_PAIRS)
def test_bad_pairs_are_refused(kappa, losses, facts):
    for call in OF_A_SCORE:
        with refuses(InvalidInput, *facts):
            call(kappa, losses)


@pytest.mark.parametrize("area", AREAS)
@pytest.mark.parametrize(
    ("kappa", "losses", "facts"),
    [
        (np.zeros((2, 3, 4)), [0] * 4, ["`kappa`", "1-D", "2-D", "(2, 3, 4)", "Reshape"]),
        (0.5, [0], ["`kappa`", "1-D", "2-D", "()"]),
        (np.zeros((100, 10)), [0] * 100, ["`losses`", "100 for 10", "100", "transposed"]),
        ([[0, 0, 0], [0, 0, np.nan]], [0] * 3, ["`kappa`", "1 NaN", "row 2", "snapshot 1"]),
        (np.zeros((2, 0)), [], ["`kappa`", "(2, 0)"]),
    ],
)
def test_bad_shapes_are_refused(area, kappa, losses, facts):
    with refuses(InvalidInput, *facts):
        area(kappa, losses)


@pytest.mark.parametrize("call", OF_A_SCORE[4:])
def test_a_curve_is_of_one_row(call):
    with refuses(InvalidInput, "`kappa`", "1-D", "(2, 3)", "one row per call"):
        call(np.zeros((2, 3)), [0] * 3)


@pytest.mark.parametrize("call", OF_A_PROBABILITY)
@pytest.mark.parametrize(
    ("p", "errors", "facts"),
    [
        ([0.5, 1.5], [0, 1], ["`p`", "1.5 at row 1"]),
        ([0.5, 0.5], [0, 0.5], ["`errors`", "0.5 at row 1"]),
        ([0.5, 0.5], [0], ["`errors`", "`p`", "1 for 2"]),
        ([np.nan, 0.5], [0, 1], ["`p`", "1 NaN", "row 0"]),
    ],
)
def test_bad_probabilities_are_refused(call, p, errors, facts):
    with refuses(InvalidInput, *facts):
        call(p, errors)


@pytest.mark.parametrize(
    ("call", "facts"),
    [
        *((lambda area=area: area([1, 2], [0, 1], ties="random"), TIES) for area in AREAS),
        (lambda: aurc_optimal([]), ["`losses`", "(0,)"]),
        (lambda: aurc_optimal([0, 1], method="x"), ["`method`", '"exact"', '"integral"', "'x'"]),
        (lambda: eaurc([1], [0], optimal="x"), ["`optimal`", '"exact"', '"integral"', "'x'"]),
        (lambda: coverage_at_risk([0.1, 0.2], [0, 1], 5), ["`risk`", "got 5", "0.05"]),
        (lambda: coverage_at_risk([0.1], [0], "low"), ["`risk`", "'low'", "float"]),
        (lambda: coverage_at_risk([0.1], [0], -0.1), ["`risk`", "got -0.1"]),
        (lambda: risk_at_coverage([0.1], [0], np.nan), ["`coverage`", "nan"]),
        *(
            (
                lambda c=c: risk_at_coverage([0.1], [0], c),
                ["`coverage`", "(0, 1]", f"got {c}", remedy],
            )
            for c, remedy in [(0, "0.8"), (-0.1, "0.8"), (1.01, "0.8"), (2, "0.02"), (100, "0.8")]
        ),
        (lambda: ece([0.5], [0], bins=1.5), ["`bins`", "got 1.5", "int"]),
    ],
)
def test_bad_options_are_refused(call, facts):
    with refuses(InvalidInput, *facts):
        call()


def test_a_risk_above_1_may_limit_a_loss():
    assert coverage_at_risk([0.1, 0.2], [0, 9.0], 5) == 1


@pytest.mark.parametrize("area", AREAS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
def test_tensors(area, dtype):
    kappa, errors = [3, 1, 2, 2, 0], [0, 1, 1, 0, 1]
    tensor = torch.tensor(kappa, dtype=dtype)
    assert area(tensor, torch.tensor(errors)) == area(kappa, errors)
    assert area(tensor, torch.tensor(errors, dtype=torch.bool)) == area(kappa, errors)


def test_masked_arrays_in_which_nothing_is_masked():
    assert aurc(np.ma.array([3.0, 1, 2]), np.ma.array([0, 1, 1])) == aurc([3, 1, 2], [0, 1, 1])


def test_tensors_on_the_graph_and_views():
    kappa = torch.tensor([[3.0, 9], [1, 9], [2, 9]], requires_grad=True)[:, 0]
    assert aurc(kappa, torch.tensor([0, 1, 1])) == aurc([3, 1, 2], [0, 1, 1])


def test_views_and_read_only_arrays():
    kappa = np.arange(20.0)[::-2]
    kappa.flags.writeable = False
    errors = (np.arange(20) % 3 == 0)[::2]
    errors.flags.writeable = False
    before = kappa.copy()
    assert aurc(kappa, errors) == aurc(kappa.tolist(), errors.tolist())
    assert (kappa == before).all()
