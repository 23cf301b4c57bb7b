"""Checks of inputs, and the wording of their errors.

κ is higher where the classifier is more confident. Losses are lower where it is better; 0/1 errors
are the usual case. An error names the argument, the rule, the value and its place, and the remedy.
"""

import operator
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from snapsure._types import Array, Bools, Floats, Ints, Losses, Scores
from snapsure.errors import InvalidInput

# The true label of an example that belongs to none of the classes: every answer to it is wrong.
NO_CLASS = -1
# Above this, neighbouring integers share one float64.
_EXACT_INTEGER = 2**53


def kappa(value: ArrayLike, name: str = "kappa", *, ndim: Sequence[int] = (1,)) -> Scores:
    """Return scores as finite, contiguous float32 or float64 that sort as the originals do.

    float32 stays, because it sorts in half the time; narrower types become float32 or float64
    exactly. Types wider than float64 keep their order: where a value would be rounded, all become
    their dense ranks. Callers that need the values and not only their order use `scores`.
    """
    x = _read_scores(value, name, ndim)
    if x.dtype == np.float16:
        x = x.astype(np.float32)
    elif x.dtype not in (np.float32, np.float64):
        x = _to_float64(x)
    return np.ascontiguousarray(x)


def scores(value: ArrayLike, name: str = "kappa", *, ndim: Sequence[int] = (1,)) -> Floats:
    """Return scores as finite, contiguous float64 in their own unit; wider types are rounded."""
    x = _read_scores(value, name, ndim)
    with np.errstate(over="ignore"):
        rounded = np.ascontiguousarray(x, dtype=np.float64)
    _check_finite(rounded, name)
    return rounded


def losses(
    value: ArrayLike,
    shape: tuple[int, ...] | None = None,
    name: str = "losses",
    of: str = "kappa",
) -> Losses:
    """Return losses as bool where all are 0 or 1, else as finite float64 ≥ 0.

    There is one per example of the array `of`, whose shape is given.
    """
    x = _read_column(value, name)
    if shape is not None:
        same_length(of, shape, name, x.size)
    if x.dtype == np.bool_:
        return x

    low, high = x.min(), x.max()
    if low < 0:
        _refuse_where(x < 0, x, f"`{name}` must be ≥ 0", "Pass 0/1 errors or a loss.")
    if high <= 1 and (x.dtype.kind in "iu" or ((x == 0) | (x == 1)).all()):
        return x.astype(np.bool_)
    if high > np.finfo(np.float64).max / x.size:
        raise InvalidInput(
            f"`{name}` must have a finite sum, got a loss of {high}. Rescale the losses."
        )
    return x.astype(np.float64)


def errors(value: ArrayLike, shape: tuple[int, ...], of: str = "kappa") -> Bools:
    """Return 0/1 errors as bool, one per example of the array `of`; refuse any other loss."""
    x = losses(value, shape, "errors", of=of)
    if x.dtype != np.bool_:
        rule = "`errors` must be 0 (right) or 1 (wrong)"
        _refuse_where((x != 0) & (x != 1), x, rule, "Compare the loss with a limit first.")
    return x.astype(np.bool_, copy=False)


def errors_known(
    value: ArrayLike, shape: tuple[int, ...], of: str = "kappa"
) -> tuple[Bools, Bools]:
    """Return which 0/1 errors are known (the others are NaN or None), and which are 1."""
    if isinstance(value, list | tuple) and any(one is None for one in value):
        value = np.array([np.nan if one is None else one for one in value])
    x = numbers(value, "errors")
    _check_axes(x, "errors", (1,))
    same_length(of, shape, "errors", x.size)

    known = ~np.isnan(x) if x.dtype.kind == "f" else np.ones(x.shape, dtype=np.bool_)
    rule = "`errors` must be 0 (right), 1 (wrong) or NaN (not known)"
    _refuse_where(known & (x != 0) & (x != 1), x, rule, "Write NaN where no label is known.")
    return known, x == 1


def mask(value: ArrayLike, shape: tuple[int, ...], name: str, of: str) -> Bools:
    """Return True or False for each example of the array `of`, at least one of them True."""
    x = _read_column(value, name)
    same_length(of, shape, name, x.size)
    if x.dtype != np.bool_ or not x.any():
        got = f"dtype {x.dtype}" if x.dtype != np.bool_ else "none that is True"
        raise InvalidInput(
            f"`{name}` must be True for some examples and False for the others, got {got}. "
            "Pass a comparison, such as y_hat == 3."
        )
    return x.astype(np.bool_, copy=False)


def groups(value: ArrayLike, shape: tuple[int, ...], of: str) -> Array:
    """Return the group of each example of the array `of`, whole numbers or strings."""
    x = np.asarray(_from_torch(value))
    if x.dtype == np.object_ and all(isinstance(each, str) for each in x.flat):
        x = x.astype(np.str_)
    if x.ndim != 1 or x.dtype.kind not in "iuU":
        raise InvalidInput(
            f"`groups` must hold one whole number or one string per example, got dtype {x.dtype} "
            f"of shape {x.shape}. Pass, for example, the predicted classes."
        )
    same_length(of, shape, "groups", x.size)
    return x


def probabilities(value: ArrayLike, name: str = "p") -> Floats:
    """Return probabilities of being right as float64 in [0, 1]."""
    x = _read_column(value, name)
    remedy = "Calibrate the score to a probability first."
    _refuse_where((x < 0) | (x > 1), x, f"`{name}` must lie in [0, 1]", remedy)
    return x.astype(np.float64)


def logits(value: ArrayLike, name: str = "logits") -> Floats:
    """Return one finite row of float64 per example, one column per class."""
    x = numbers(value, name)
    if x.ndim != 2:
        raise InvalidInput(
            f"`{name}` must be 2-D (n, classes), got shape {x.shape}. Pass one snapshot's logits."
        )
    _check_not_empty(x, name)
    _check_finite(x, name, ("class", "row"))
    return x.astype(np.float64)


def class_numbers(value: ArrayLike, name: str) -> Ints:
    """Return class numbers; where names came, say how to number the classes."""
    x = _read(value, name)
    if x.size and isinstance(x.flat[0], str):
        raise InvalidInput(
            f"`{name}` must hold class numbers (0, 1, …), got names such as {str(x.flat[0])!r}. "
            "Pass [classes.index(label) for label in labels], where `classes` has the names in the "
            "order of the model's outputs."
        )
    return whole_numbers(value, name)


def class_names(value: Sequence[str]) -> list[str]:
    """Return names of classes as text that can be written to files."""
    if isinstance(value, str):
        raise InvalidInput(f"`classes` must be a list of names, got {value!r}. Write [...].")
    names = [str(name) for name in value]
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise InvalidInput(
                f"`classes` must be Unicode text, got {name!r}. Decode it as UTF-8 first."
            ) from None
    return names


def in_range(labels: Ints, classes: int, what: str, start: int = 0) -> None:
    """Refuse true labels that are neither a class nor `NO_CLASS`; the first is row `start`."""
    rule = f"{what} must lie in 0…{classes - 1}, or be −1 for examples of none of the classes"
    bad = (labels < NO_CLASS) | (labels >= classes)
    _refuse_where(bad, labels, rule, "Number the classes as the model does.", start)


def _refuse_where(bad: Bools, x: Array, rule: str, remedy: str, start: int = 0) -> None:
    """Refuse the first value that breaks a rule; the first of all is row `start`."""
    if bad.any():
        at = int(np.argmax(bad))
        raise InvalidInput(f"{rule}, got {x[at]} at row {start + at}. {remedy}")


def fraction(value: float, name: str, *, open_above: bool = False) -> float:
    """Return a number in (0, 1], or in (0, 1)."""
    x = number(value, name)
    if not 0 < x <= 1 or (open_above and x == 1):
        example = x if 2 <= x < 100 else 95 if open_above else 80
        raise InvalidInput(
            f"`{name}` must lie in (0, 1{')' if open_above else ']'}, got {value}. "
            f"Write {example:g} % as {example / 100:g}."
        )
    return x


def share(value: float, name: str) -> float:
    """Return a number in [0, 1)."""
    x = number(value, name)
    if not 0 <= x < 1:
        raise InvalidInput(f"`{name}` must lie in [0, 1), got {value}. Write 40 % as 0.4.")
    return x


def at_least(value: float, least: float, name: str) -> float:
    """Return a finite number not below `least`."""
    x = number(value, name)
    if x < least:
        raise InvalidInput(f"`{name}` must be ≥ {least:g}, got {value}. Use at least {least:g}.")
    return x


def positive(value: float, name: str) -> float:
    """Return a finite number above 0."""
    x = number(value, name)
    if x <= 0:
        raise InvalidInput(f"`{name}` must be > 0, got {value}. Use a number above 0.")
    return x


def count(value: int, name: str, least: int = 1) -> int:
    """Return a whole number ≥ `least`."""
    try:
        x = operator.index(value)
    except TypeError:
        raise InvalidInput(
            f"`{name}` must be a whole number ≥ {least}, got {value!r}. Pass an int."
        ) from None
    if x < least:
        raise InvalidInput(
            f"`{name}` must be a whole number ≥ {least}, got {x}. Use at least {least}."
        )
    return x


def choice(value: str, allowed: Sequence[str], name: str) -> None:
    """Refuse a word that is not among those allowed."""
    if value not in allowed:
        words = " or ".join(f'"{word}"' for word in allowed)
        raise InvalidInput(f"`{name}` must be {words}, got {value!r}. Choose one of them.")


def same_length(name_a: str, a: tuple[int, ...], name_b: str, b: int) -> None:
    """Refuse a column of length b that does not fit an array of shape a, examples last."""
    if a[-1] == b:
        return
    got, remedy = f"{b} for {a[-1]}", "Pass both from the same examples"
    if len(a) == 2:
        got += f" examples in each of {a[0]} snapshots"
        remedy += f", or `{name_a}` transposed" if a[0] == b else ""
    raise InvalidInput(
        f"`{name_b}` must have one value per example of `{name_a}`, got {got}. {remedy}."
    )


def number(value: float, name: str) -> float:
    """Return one finite real number."""
    try:
        x = float(value)
    except OverflowError:
        x = np.inf
    except (TypeError, ValueError):
        raise InvalidInput(f"`{name}` must be a number, got {value!r}. Pass a float.") from None
    if not np.isfinite(x):
        raise InvalidInput(f"`{name}` must be finite, got {value}. Pass an ordinary number.")
    return x


def whole_numbers(value: ArrayLike, name: str) -> Ints:
    """Return class numbers or epochs as int64."""
    x = numbers(value, name)
    if x.dtype.kind == "f" and not (x == np.floor(x)).all():
        raise InvalidInput(
            f"`{name}` must hold whole numbers, got {x[x != np.floor(x)][0]:g}. Pass class "
            "numbers; regression is not supported."
        )
    beyond = np.abs(x) >= np.float64(2**63) if x.dtype.kind == "f" else x > np.iinfo(np.int64).max
    if beyond.any():
        raise InvalidInput(
            f"`{name}` must hold whole numbers below 2⁶³, got {x[beyond][0]}. Pass class numbers."
        )
    return x.astype(np.int64)


def numbers(value: ArrayLike, name: str) -> Array:
    """Read lists, arrays and tensors as a NumPy array of numbers, without importing torch."""
    x = _read(value, name)
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise InvalidInput(f"`{name}` must have no masked values, got a masked array. Drop them.")
    if x.dtype == np.object_ and x.ndim == 0:
        raise InvalidInput(
            f"`{name}` must be an array or a list, got {type(value).__name__}. Pass list(...)."
        )
    if x.dtype.kind not in "biuf":
        raise InvalidInput(
            f"`{name}` must hold real numbers, got dtype {x.dtype}. Convert it to float."
        )
    return x.astype(x.dtype.newbyteorder("="), copy=False)


def _read(value: ArrayLike, name: str) -> Array:
    """Read lists, arrays and tensors as a NumPy array of anything."""
    try:
        x: Array = np.asarray(_from_torch(value))
        return x
    except Exception as error:
        rule = (
            f"be readable by NumPy, got {type(value).__name__} ({error}). Pass a list or an array"
        )
        if "inhomogeneous" in str(error):
            rule = "be rectangular, got rows of different lengths. Give every row the same length"
        raise InvalidInput(f"`{name}` must {rule}.") from None


def _from_torch(value: Any) -> Any:
    """Bring a tensor to the CPU, off the graph, in a type that NumPy has; leave all else."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        return value
    value = value.detach().cpu()
    return value.float() if value.dtype == torch.bfloat16 else value.numpy()


def _read_scores(value: ArrayLike, name: str, ndim: Sequence[int]) -> Array:
    x = numbers(value, name)
    _check_axes(x, name, ndim)
    _check_not_empty(x, name)
    _check_finite(x, name)
    return x


def _read_column(value: ArrayLike, name: str) -> Array:
    return np.ascontiguousarray(_read_scores(value, name, (1,)))


def _check_axes(x: Array, name: str, ndim: Sequence[int]) -> None:
    if x.ndim not in ndim:
        allowed = " or ".join({1: "1-D (n,)", 2: "2-D (snapshots, n)"}[d] for d in ndim)
        raise InvalidInput(
            f"`{name}` must be {allowed}, got shape {x.shape}. "
            f"{'Pass one row per call.' if x.ndim == 2 else 'Reshape it.'}"
        )


def _check_not_empty(x: Array, name: str) -> None:
    if x.size == 0:
        raise InvalidInput(
            f"`{name}` must hold at least one value, got shape {x.shape}. Pass a non-empty set."
        )


def _check_finite(x: Array, name: str, axes: tuple[str, str] = ("row", "snapshot")) -> None:
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
        f"`{name}` must be finite, got {int(bad.sum())} {kind} (first at {place}). "
        "Drop or impute them."
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
