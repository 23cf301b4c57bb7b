"""What the metrics take, and how they refuse: the whole sentence."""

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

AREAS = [aurc, eaurc, augrc, naurc]
OF_A_SCORE = [
    *AREAS,
    rc_curve,
    lambda kappa, losses: risk_at_coverage(kappa, losses, 0.5),
    lambda kappa, losses: coverage_at_risk(kappa, losses, 0.5),
]
OF_A_PROBABILITY = [nll, brier, ece]


def sentence(call, *arguments, **options):
    with pytest.raises(InvalidInput) as caught:
        call(*arguments, **options)
    return str(caught.value)


def test_a_refusal_is_a_value_error_and_ours():
    assert issubclass(InvalidInput, ValueError)
    assert issubclass(InvalidInput, SnapsureError)


BAD_PAIRS = [
    (
        [0.1, np.nan, 0.3, np.nan],
        [0, 1, 0, 1],
        "`kappa` must be finite, got 2 NaN (first at row 1): drop or impute those rows",
    ),
    (
        [0.1, 0.2, np.inf],
        [0, 1, 0],
        "`kappa` must be finite, got 1 infinite (first at row 2): drop or impute those rows",
    ),
    (
        [-np.inf, 0.2, np.inf],
        [0, 1, 0],
        "`kappa` must be finite, got 2 infinite (first at row 0): drop or impute those rows",
    ),
    ([], [], "`kappa` must hold at least one value, got shape (0,): pass a non-empty set"),
    (
        [0.1, 0.2, 0.3],
        [0, 1],
        "`losses` must have one value per point of `kappa`, got 2 for 3: "
        "pass both from the same rows",
    ),
    (
        [0.1, 0.2],
        [[0, 1]],
        "`losses` must be 1-D (n,), got shape (1, 2): pass one value per point",
    ),
    ([0.1, 0.2], [0, -1], "`losses` must be ≥ 0, got -1 at row 1: pass 0/1 errors or a loss"),
    (
        [0.1, 0.2],
        [0, np.nan],
        "`losses` must be finite, got 1 NaN (first at row 1): drop or impute those rows",
    ),
    (["a", "b"], [0, 1], "`kappa` must hold real numbers, got dtype <U1: convert it to float"),
    ([1j, 2j], [0, 1], "`kappa` must hold real numbers, got dtype complex128: convert it to float"),
    (
        [0.1, None],
        [0, 1],
        "`kappa` must hold real numbers, got dtype object: convert it to float",
    ),
    (
        [[0.1], [0.1, 0.2]],
        [0, 1],
        "`kappa` must be a rectangular array, got rows of different lengths: "
        "give every row the same length",
    ),
    (
        (x for x in [0.1, 0.2]),
        [0, 1],
        "`kappa` must be an array or a list, got generator: pass list(...)",
    ),
    (
        [torch.tensor(0.1, requires_grad=True)],
        [0],
        "`kappa` must be readable by NumPy, got list (Can't call numpy() on Tensor that requires "
        "grad. Use tensor.detach().numpy() instead.): pass a list or an array",
    ),
    (
        np.ma.array([0.1, 0.2], mask=[True, False]),
        [0, 1],
        "`kappa` must have no masked values, got a masked array: drop them",
    ),
]


@pytest.mark.parametrize(("kappa", "losses", "expected"), BAD_PAIRS)
def test_bad_pairs_are_refused(kappa, losses, expected):
    for call in OF_A_SCORE:
        assert sentence(call, kappa, losses) == expected


@pytest.mark.parametrize("area", AREAS)
def test_shapes_of_the_areas(area):
    assert sentence(area, np.zeros((2, 3, 4)), [0] * 4) == (
        "`kappa` must be 1-D (n,) or 2-D (snapshots, n), got shape (2, 3, 4): reshape it"
    )
    assert sentence(area, 0.5, [0]) == (
        "`kappa` must be 1-D (n,) or 2-D (snapshots, n), got shape (): reshape it"
    )
    assert sentence(area, np.zeros((100, 10)), [0] * 100) == (
        "`losses` must have one value per point of `kappa`, got 100 for 10 points in each of 100 "
        "snapshots: pass both from the same rows, or `kappa` transposed"
    )
    table = np.zeros((2, 3))
    table[1, 2] = np.nan
    assert sentence(area, table, [0] * 3) == (
        "`kappa` must be finite, got 1 NaN (first at row 2 of snapshot 1): "
        "drop or impute those rows"
    )
    assert sentence(area, np.zeros((2, 0)), []) == (
        "`kappa` must hold at least one value, got shape (2, 0): pass a non-empty set"
    )
    assert sentence(area, [0.1, 0.2], [0, 1], ties="random") == (
        '`ties` must be "expected" or "threshold", got \'random\': choose one of them'
    )


@pytest.mark.parametrize("call", OF_A_SCORE[4:])
def test_a_curve_is_of_one_row(call):
    assert sentence(call, np.zeros((2, 3)), [0] * 3) == (
        "`kappa` must be 1-D (n,), got shape (2, 3): pass one row per call"
    )


def test_words_and_empty_sets_of_the_optimum():
    assert sentence(aurc_optimal, []) == (
        "`losses` must hold at least one value, got shape (0,): pass a non-empty set"
    )
    assert sentence(aurc_optimal, [0, 1], method="exactly") == (
        '`method` must be "exact" or "integral", got \'exactly\': choose one of them'
    )
    assert sentence(eaurc, [1, 2], [0, 1], optimal="best") == (
        '`optimal` must be "exact" or "integral", got \'best\': choose one of them'
    )


def test_a_risk_in_percent():
    assert sentence(coverage_at_risk, [0.1, 0.2], [0, 1], 5) == (
        "`risk` must lie in (0, 1], got 5: write 5 % as 0.05"
    )
    assert coverage_at_risk([0.1, 0.2], [0, 9.0], 5) == 1  # a loss may be more than an error


@pytest.mark.parametrize("coverage", [0, -0.1, 1.01, 80])
def test_coverage_outside_its_range(coverage):
    assert sentence(risk_at_coverage, [0.1], [0], coverage) == (
        f"`coverage` must lie in (0, 1], got {coverage}: write 80 % as 0.8"
    )


def test_numbers_that_are_none():
    assert sentence(risk_at_coverage, [0.1], [0], np.nan) == (
        "`coverage` must be finite, got nan: pass an ordinary number"
    )
    assert sentence(coverage_at_risk, [0.1], [0], "low") == (
        "`risk` must be a number, got 'low': pass a float"
    )
    assert sentence(coverage_at_risk, [0.1], [0], -0.1) == "`risk` must be ≥ 0, got -0.1: raise it"


@pytest.mark.parametrize("call", OF_A_PROBABILITY)
def test_probabilities(call):
    assert sentence(call, [0.5, 1.5], [0, 1]) == (
        "`p` must lie in [0, 1], got 1.5 at row 1: calibrate the score to a probability first"
    )
    assert sentence(call, [0.5, 0.5], [0, 0.5]) == (
        "`errors` must be 0 (right) or 1 (wrong), got 0.5 at row 1: threshold the loss first"
    )
    assert sentence(call, [0.5, 0.5], [0]) == (
        "`errors` must have one value per point of `p`, got 1 for 2: pass both from the same rows"
    )
    assert sentence(call, [np.nan, 0.5], [0, 1]) == (
        "`p` must be finite, got 1 NaN (first at row 0): drop or impute those rows"
    )


def test_bins():
    assert sentence(ece, [0.5], [0], bins=1.5) == (
        "`bins` must be a whole number ≥ 1, got 1.5: pass an int"
    )


@pytest.mark.parametrize("area", AREAS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
def test_tensors(area, dtype):
    kappa, errors = [3, 1, 2, 2, 0], [0, 1, 1, 0, 1]
    tensor = torch.tensor(kappa, dtype=dtype)
    assert area(tensor, torch.tensor(errors)) == area(kappa, errors)
    assert area(tensor, torch.tensor(errors, dtype=torch.bool)) == area(kappa, errors)


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


def test_huge_finite_scores_pass_the_check_for_infinity():
    top = np.finfo(np.float64).max
    assert aurc([top, top, top], [1, 1, 1]) == pytest.approx(1.0)
