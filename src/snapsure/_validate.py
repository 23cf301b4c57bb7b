"""Every input check and its wording: nothing else in the package words a refusal of an array.

Scores: κ higher is surer. Losses: lower is better, 0/1 errors being the usual case.
"""

import operator
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from snapsure._types import Array, Bools, Floats, Ints, Losses, Scores
from snapsure.errors import InvalidInput

# The true label of a point that belongs to none of the classes: every answer to it is wrong.
NO_CLASS = -1
# Above this, neighbouring integers share one float64.
_EXACT_INTEGER = 2**53


def kappa(value: ArrayLike, name: str = "kappa", *, ndim: Sequence[int] = (1,)) -> Scores:
    """Give scores as finite, contiguous float32 or float64 that sort as the originals do.

    float32 stays (it sorts in half the time), everything narrower becomes float32 or float64
    exactly. Types wider than float64 keep their order: where a value would be rounded, all become
    their dense ranks. For whoever looks at values and not at their order alone: `scores`.
    """
    x = _of_axes(value, name, ndim)
    if x.dtype == np.float16:
        x = x.astype(np.float32)
    elif x.dtype not in (np.float32, np.float64):
        x = _to_float64(x)
    return np.ascontiguousarray(x)


def scores(value: ArrayLike, name: str = "kappa", *, ndim: Sequence[int] = (1,)) -> Floats:
    """Give scores as finite, contiguous float64 in their own unit: wider types are rounded."""
    x = _of_axes(value, name, ndim)
    with np.errstate(over="ignore"):
        rounded = np.ascontiguousarray(x, dtype=np.float64)
    _finite(rounded, name)
    return rounded


def losses(
    value: ArrayLike,
    shape: tuple[int, ...] | None = None,
    name: str = "losses",
    of: str = "kappa",
) -> Losses:
    """Give losses as bool where all are 0 or 1, else as finite float64 ≥ 0.

    One per point of the array `of`, whose shape is given.
    """
    x = _column(value, name)
    if shape is not None:
        same_length(of, shape, name, x.size)
    if x.dtype == np.bool_:
        return x
    low, high = x.min(), x.max()
    if low < 0:
        at = int(np.flatnonzero(x < 0)[0])
        raise InvalidInput(
            f"`{name}` must be ≥ 0, got {x[at]} at row {at}: pass 0/1 errors or a loss"
        )
    if high <= 1 and (x.dtype.kind in "iu" or ((x == 0) | (x == 1)).all()):
        return x.astype(np.bool_)
    if high > np.finfo(np.float64).max / x.size:
        raise InvalidInput(
            f"`{name}` must have a finite sum, got a loss of {high}: rescale the losses"
        )
    return x.astype(np.float64)


def errors(value: ArrayLike, shape: tuple[int, ...], of: str = "kappa") -> Bools:
    """Give 0/1 errors as bool, one per point of the array `of`; refuse any other loss."""
    name = "errors"
    x = losses(value, shape, name, of=of)
    if x.dtype != np.bool_:
        at = int(np.flatnonzero((x != 0) & (x != 1))[0])
        raise InvalidInput(
            f"`{name}` must be 0 (right) or 1 (wrong), got {x[at]} at row {at}: "
            "threshold the loss first"
        )
    return x.astype(np.bool_, copy=False)


def mask(value: ArrayLike, shape: tuple[int, ...], name: str, of: str) -> Bools:
    """Give True or False for each point of the array `of`, at least one of them True."""
    x = _column(value, name)
    same_length(of, shape, name, x.size)
    if x.dtype != np.bool_ or not x.any():
        got = f"dtype {x.dtype}" if x.dtype != np.bool_ else "none that is True"
        raise InvalidInput(
            f"`{name}` must be True for some of the points and False for the others, got {got}: "
            "pass a comparison, such as y_hat == 3"
        )
    return x.astype(np.bool_, copy=False)


def groups(value: ArrayLike, shape: tuple[int, ...], of: str) -> Array:
    """Give the group of each point of the array `of`, whole numbers or strings."""
    name = "groups"
    x = np.asarray(_from_torch(value))
    if x.dtype == np.object_ and all(isinstance(each, str) for each in x.flat):
        x = x.astype(np.str_)
    if x.ndim != 1 or x.dtype.kind not in "iuU":
        raise InvalidInput(
            f"`{name}` must hold one whole number or one string per point, got dtype {x.dtype} of "
            f"shape {x.shape}: pass e.g. the predicted classes"
        )
    same_length(of, shape, name, x.size)
    return x


def probabilities(value: ArrayLike, name: str = "p") -> Floats:
    """Give probabilities of being right as float64 in [0, 1]."""
    x = _column(value, name)
    outside = np.flatnonzero((x < 0) | (x > 1))
    if outside.size:
        at = int(outside[0])
        raise InvalidInput(
            f"`{name}` must lie in [0, 1], got {x[at]} at row {at}: "
            "calibrate the score to a probability first"
        )
    return x.astype(np.float64)


def errors_known(
    value: ArrayLike, shape: tuple[int, ...], of: str = "kappa"
) -> tuple[Bools, Bools]:
    """Give which 0/1 errors are known (the others are NaN or None), and which are 1."""
    name = "errors"
    if isinstance(value, list | tuple) and any(one is None for one in value):
        value = np.array([np.nan if one is None else one for one in value])
    x = numbers(value, name)
    _one_axis(x, name)
    same_length(of, shape, name, x.size)
    known = ~np.isnan(x) if x.dtype.kind == "f" else np.ones(x.shape, dtype=np.bool_)
    bad = np.flatnonzero(known & (x != 0) & (x != 1))
    if bad.size:
        raise InvalidInput(
            f"`{name}` must be 0 (right), 1 (wrong) or NaN (not known), got {x[bad[0]]} at row "
            f"{bad[0]}: write NaN where no label came back"
        )
    return known, x == 1


def logits(value: ArrayLike, name: str = "logits") -> Floats:
    """Give one finite row of float64 per point, one column per class."""
    x = numbers(value, name)
    if x.ndim != 2:
        raise InvalidInput(
            f"`{name}` must be 2-D (n, classes), got shape {x.shape}: pass one snapshot's logits"
        )
    _not_empty(x, name)
    _finite(x, name, ("class", "row"))
    return x.astype(np.float64)


def labels(value: ArrayLike, shape: tuple[int, ...], name: str, of: str) -> Ints:
    """Give the class of each point of an array `of`, (n, classes), whose shape is given."""
    _refuse_names(_read(value, name), name)
    x = whole_numbers(_column(value, name), name)
    same_length(of, shape[:1], name, x.size)
    in_range(x, shape[1], f"`{name}`")
    return x


def fraction(value: float, name: str, *, open_above: bool = False) -> float:
    """Give a number in (0, 1], or in (0, 1)."""
    x = number(value, name)
    if not 0 < x <= 1 or (open_above and x == 1):
        example = x if 2 <= x < 100 else 95 if open_above else 80
        raise InvalidInput(
            f"`{name}` must lie in (0, 1{')' if open_above else ']'}, got {value}: "
            f"write {example:g} % as {example / 100:g}"
        )
    return x


def share(value: float, name: str) -> float:
    """Give a number in [0, 1)."""
    x = number(value, name)
    if not 0 <= x < 1:
        raise InvalidInput(f"`{name}` must lie in [0, 1), got {value}: write 40 % as 0.4")
    return x


def at_least(value: float, least: float, name: str) -> float:
    """Give a finite number not below `least`."""
    x = number(value, name)
    if x < least:
        raise InvalidInput(f"`{name}` must be ≥ {least:g}, got {value}: raise it")
    return x


def positive(value: float, name: str) -> float:
    """Give a finite number above 0."""
    x = number(value, name)
    if x <= 0:
        raise InvalidInput(f"`{name}` must be > 0, got {value}: raise it")
    return x


def count(value: int, name: str, least: int = 1) -> int:
    """Give a whole number ≥ `least`."""
    try:
        x = operator.index(value)
    except TypeError:
        raise InvalidInput(
            f"`{name}` must be a whole number ≥ {least}, got {value!r}: pass an int"
        ) from None
    if x < least:
        raise InvalidInput(f"`{name}` must be a whole number ≥ {least}, got {x}: raise it")
    return x


def choice(value: str, allowed: Sequence[str], name: str) -> None:
    """Refuse a word that is not among those allowed."""
    if value not in allowed:
        words = " or ".join(f'"{word}"' for word in allowed)
        raise InvalidInput(f"`{name}` must be {words}, got {value!r}: choose one of them")


def same_length(name_a: str, a: tuple[int, ...], name_b: str, b: int) -> None:
    """Refuse a column that does not line up with an array whose last axis are the points."""
    if len(a) == 2 and a[1] != b:
        raise InvalidInput(
            f"`{name_b}` must have one value per point of `{name_a}`, got {b} for {a[1]} points in "
            f"each of {a[0]} snapshots: pass both from the same rows"
            + (f", or `{name_a}` transposed" if a[0] == b else "")
        )
    if a[-1] != b:
        raise InvalidInput(
            f"`{name_b}` must have one value per point of `{name_a}`, "
            f"got {b} for {a[-1]}: pass both from the same rows"
        )


def number(value: float, name: str) -> float:
    """Give one finite real number."""
    try:
        x = float(value)
    except OverflowError:
        x = np.inf
    except (TypeError, ValueError):
        raise InvalidInput(f"`{name}` must be a number, got {value!r}: pass a float") from None
    if not np.isfinite(x):
        raise InvalidInput(f"`{name}` must be finite, got {value}: pass an ordinary number")
    return x


def whole_numbers(value: ArrayLike, name: str) -> Ints:
    """Read class ids or epochs."""
    x = numbers(value, name)
    if x.dtype.kind == "f" and not (x == np.floor(x)).all():
        raise InvalidInput(f"`{name}` must hold whole numbers, got dtype {x.dtype}: pass class ids")
    beyond = np.abs(x) >= np.float64(2**63) if x.dtype.kind == "f" else x > np.iinfo(np.int64).max
    if beyond.any():
        raise InvalidInput(
            f"`{name}` must hold whole numbers below 2⁶³, got {x[beyond][0]}: pass class ids"
        )
    return x.astype(np.int64)


def class_numbers(value: ArrayLike, name: str) -> Ints:
    """Read class ids, and say how to number the classes where their names came."""
    _refuse_names(_read(value, name), name)
    return whole_numbers(value, name)


def in_range(labels: Ints, classes: int, what: str, start: int = 0) -> None:
    """Refuse true labels that are neither a class nor `NO_CLASS`; the first is row `start`."""
    bad = np.flatnonzero((labels < NO_CLASS) | (labels >= classes))
    if bad.size:
        raise InvalidInput(
            f"{what} must lie in 0…{classes - 1}, or be −1 for points of none of the classes, got "
            f"{labels[bad[0]]} at row {start + bad[0]}: number the classes as the model does"
        )


def numbers(value: ArrayLike, name: str) -> Array:
    """Read lists, arrays and tensors as a NumPy array of numbers, torch never being imported."""
    x = _read(value, name)
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise InvalidInput(f"`{name}` must have no masked values, got a masked array: drop them")
    if x.dtype == np.object_ and x.ndim == 0:
        raise InvalidInput(
            f"`{name}` must be an array or a list, got {type(value).__name__}: pass list(...)"
        )
    if x.dtype.kind not in "biuf":
        raise InvalidInput(
            f"`{name}` must hold real numbers, got dtype {x.dtype}: convert it to float"
        )
    return x.astype(x.dtype.newbyteorder("="), copy=False)


def _read(value: ArrayLike, name: str) -> Array:
    """Read lists, arrays and tensors as a NumPy array of anything."""
    try:
        x: Array = np.asarray(_from_torch(value))
    except Exception as error:
        if "inhomogeneous" in str(error):
            raise InvalidInput(
                f"`{name}` must be a rectangular array, got rows of different lengths: "
                "give every row the same length"
            ) from None
        raise InvalidInput(
            f"`{name}` must be readable by NumPy, got {type(value).__name__} ({error}): "
            "pass a list or an array"
        ) from None
    return x


def _refuse_names(x: Array, name: str) -> None:
    if x.size and isinstance(x.flat[0], str):
        raise InvalidInput(
            f"`{name}` must hold class numbers (0, 1, …), got names such as {str(x.flat[0])!r}: "
            "pass [classes.index(label) for label in labels], `classes` being the names in the "
            "order of the model's outputs"
        )


def _from_torch(value: Any) -> Any:
    """Bring a tensor to the CPU, off the graph, in a type that NumPy has; leave all else."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        return value
    value = value.detach().cpu()
    return value.float() if value.dtype == torch.bfloat16 else value.numpy()


def _of_axes(value: ArrayLike, name: str, ndim: Sequence[int]) -> Array:
    x = numbers(value, name)
    if x.ndim not in ndim:
        allowed = " or ".join({1: "1-D (n,)", 2: "2-D (snapshots, n)"}[d] for d in ndim)
        raise InvalidInput(
            f"`{name}` must be {allowed}, got shape {x.shape}: "
            f"{'pass one row per call' if x.ndim == 2 else 'reshape it'}"
        )
    _not_empty(x, name)
    _finite(x, name)
    return x


def _column(value: ArrayLike, name: str) -> Array:
    x = numbers(value, name)
    _one_axis(x, name)
    _not_empty(x, name)
    _finite(x, name)
    return np.ascontiguousarray(x)


def _one_axis(x: Array, name: str) -> None:
    if x.ndim != 1:
        raise InvalidInput(
            f"`{name}` must be 1-D (n,), got shape {x.shape}: pass one value per point"
        )


def _not_empty(x: Array, name: str) -> None:
    if x.size == 0:
        raise InvalidInput(
            f"`{name}` must hold at least one value, got shape {x.shape}: pass a non-empty set"
        )


def _finite(x: Array, name: str, axes: tuple[str, str] = ("row", "snapshot")) -> None:
    """Refuse NaN and infinity; `axes` are named from the last one on."""
    if x.dtype.kind != "f":
        return
    # NaN and infinity travel through a sum, which needs one pass and no temporary.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(x.sum()) or np.isfinite(x).all():
            return
    nans = np.isnan(x)
    bad, kind = (nans, "NaN") if nans.any() else (np.isinf(x), "infinite")
    first = np.unravel_index(int(np.argmax(bad)), x.shape)
    place = " of ".join(f"{word} {at}" for word, at in zip(axes, first[::-1], strict=False))
    raise InvalidInput(
        f"`{name}` must be finite, got {int(bad.sum())} {kind} (first at {place}): "
        "drop or impute those rows"
    )


def _to_float64(x: Array) -> Floats:
    """Convert exactly, or to dense ranks where float64 would merge different values."""
    if x.dtype.kind == "f":
        with np.errstate(over="ignore"):
            exact = bool((x.astype(np.float64) == x).all())
    else:
        exact = -_EXACT_INTEGER <= int(x.min()) and int(x.max()) <= _EXACT_INTEGER
    if exact:
        return x.astype(np.float64)
    ranks = np.unique(x, return_inverse=True)[1]
    return ranks.reshape(x.shape).astype(np.float64)
