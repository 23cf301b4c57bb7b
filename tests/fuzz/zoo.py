"""Arrays as they come: every type, form and size of number, and the exact values that each holds.

A form takes a nested list of Python's numbers and gives what a user might pass. `exact` reads it
back: fractions where all is finite and real, None where a refusal is due.
"""

import array
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import torch

# Forms that must be taken, and those that may be taken or refused, but never misread.
PLAIN = ("list", "tuple", "array", "strided", "reversed", "fortran", "read-only", "swapped")
PLAIN += (
    "unmasked",
    "tensor",
    "strided tensor",
    "on the graph",
    "pandas",
    "odd index",
    "array.array",
)
ODD = (
    "masked",
    "objects",
    "decimals",
    "strings",
    "complex",
    "dates",
    "nullable",
    "ragged",
    "scalar",
)
ODD += ("empty", "generator", "another axis", "none", "categories", "sparse")
DTYPES = ("f8", "f8", "f8", "f4", "f2", "g", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "?")
TENSORS = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8)
SPECIAL = (0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, 5e-324, 2.2e-308, 1e-170, 1e-16, 1 - 2**-53)
SPECIAL += (1 + 2**-52, 2.0**53, 2.0**53 + 2, 1e150, 1e300, 1.7976931348623157e308)
BROKEN = (math.nan, math.inf, -math.inf)


def values(rng, n, kind):
    """n numbers of a kind."""
    if kind == "unit":
        return rng.random(n).tolist()
    if kind == "levels":
        return (rng.integers(0, 6, n) / 5).tolist()
    if kind == "bits":
        return rng.integers(0, 2, n).tolist()
    if kind == "classes":
        return rng.integers(-1, 4, n).tolist()
    if kind == "normal":
        return rng.normal(size=n).tolist()
    if kind == "huge":
        return (rng.normal(size=n) * 10.0 ** rng.integers(100, 307)).tolist()
    if kind == "tiny":
        return (rng.normal(size=n) * 10.0 ** -rng.integers(100, 322)).tolist()
    if kind == "special":
        return [SPECIAL[i] for i in rng.integers(0, len(SPECIAL), n)]
    if kind == "above 2**53":
        return [2**60 + int(i) for i in rng.integers(0, 5000, n)]
    assert kind == "broken"
    return [BROKEN[i] if rng.random() < 0.2 else float(rng.random()) for i in rng.integers(0, 3, n)]


def nested(rng, shape, kind):
    """Numbers of a kind, of a shape."""
    flat = values(rng, math.prod(shape), kind)
    for size in shape[:0:-1]:
        flat = [flat[i : i + size] for i in range(0, len(flat), size)]
    return flat


def typed(rng, data):
    """A NumPy array of some type that can be made of the data."""
    dtype = DTYPES[rng.integers(len(DTYPES))]
    with np.errstate(all="ignore"):
        try:
            return np.array(data, dtype)
        except (OverflowError, ValueError):
            return np.array(data, np.float64)


def tensor(rng, data):
    made = torch.tensor(np.array(data, np.float64))
    kind = TENSORS[rng.integers(len(TENSORS))]
    return made.to(kind) if kind.is_floating_point or bool(made.isfinite().all()) else made


def form(rng, data, name):
    """The data as a user might pass it."""
    x = typed(rng, data)
    if name in ("list", "tuple"):
        return data if name == "list" else tuple(data)
    if name == "strided":
        return np.repeat(x, 2, axis=-1)[..., ::2]
    if name == "reversed":
        return np.ascontiguousarray(x[..., ::-1])[..., ::-1]
    if name == "fortran":
        return np.asfortranarray(x)
    if name == "read-only":
        x.flags.writeable = False
        return x
    if name == "swapped":
        return x.astype(x.dtype.newbyteorder(">"))
    if name in ("unmasked", "masked"):
        return np.ma.array(x, mask=rng.random(x.shape) < (0.2 if name == "masked" else 0))
    if name == "tensor":
        return tensor(rng, data)
    if name == "strided tensor":
        return tensor(rng, data).repeat_interleave(2, dim=-1)[..., ::2]
    if name == "on the graph":
        return torch.tensor(np.array(data, np.float64), requires_grad=True)
    if name in ("pandas", "odd index", "nullable", "categories", "sparse"):
        return framed(rng, x, name) if x.ndim < 3 else x
    if name == "array.array":
        return array.array("d", x.astype(float)) if x.ndim == 1 else memoryview(x.astype(float))
    if name == "array":
        return x
    return odd(rng, data, x, name)


def framed(rng, x, name):
    """A series or a frame."""
    x = x.astype(np.float64) if x.dtype.itemsize > 8 or x.dtype == np.float16 else x
    made = pd.Series(x) if x.ndim == 1 else pd.DataFrame(x)
    if name == "odd index":
        n = len(made)
        indices = (
            [f"row {i % 3}" for i in range(n)],
            rng.permutation(n) - n // 2,
            pd.date_range("2026-01-01", periods=n),
            pd.MultiIndex.from_arrays([np.arange(n) % 2, np.arange(n)]),
        )
        made.index = indices[rng.integers(len(indices))]
    if x.ndim > 1:
        return made
    if name == "nullable":
        return made.astype("Float64" if made.dtype.kind == "f" else made.dtype)
    if name == "categories":
        return made.astype("category")
    return pd.Series(pd.arrays.SparseArray(x)) if name == "sparse" else made


def odd(rng, data, x, name):
    """What may be refused."""
    if name == "objects":
        return np.array(x.tolist(), object)
    if name == "decimals":
        return [Decimal(repr(each)) if isinstance(each, float) else each for each in data]
    if name == "strings":
        return [str(each) for each in data]
    if name == "complex":
        with np.errstate(all="ignore"):
            return np.array(data, np.float64) * (1 + 1j)
    if name == "dates":
        return np.zeros(x.shape, "M8[s]")
    if name == "ragged":
        return [data, [*data, *data]]
    if name == "scalar":
        return x.flat[0]
    if name == "empty":
        return x[..., :0]
    if name == "generator":
        return (each for each in data)
    if name == "another axis":
        return x[None]
    assert name == "none"
    return [None, *data[1:]]


def exact(held):
    """The finite real numbers in it, as nested lists of fractions; None where there are others."""
    try:
        return _exact(held)
    except (TypeError, ValueError, OverflowError, AttributeError, ArithmeticError):
        return None


def _exact(held):
    if isinstance(held, np.ma.MaskedArray) and np.ma.is_masked(held):
        return None
    if isinstance(held, torch.Tensor):
        held = held.detach().double() if held.is_floating_point() else held
        return _exact(held.tolist())
    if isinstance(held, pd.Series | pd.DataFrame):
        held = held.to_numpy()
    if isinstance(held, memoryview | array.array):
        held = np.asarray(held)
    if isinstance(held, np.ndarray):
        return [_exact(each) for each in held] if held.ndim else _exact(held[()])
    if isinstance(held, list | tuple):
        return [_exact(each) for each in held]
    if isinstance(held, str | complex | np.datetime64):
        raise TypeError
    whole = isinstance(held, np.bool_ | np.integer)
    return Fraction(int(held)) if whole else Fraction(*held.as_integer_ratio())


def pick(rng, shape, kinds, odds=0.1):
    """Some array of one of the kinds, its exact values, and whether it must be taken."""
    kind = "broken" if rng.random() < odds / 2 else kinds[rng.integers(len(kinds))]
    names = ODD if rng.random() < odds else PLAIN
    name = names[rng.integers(len(names))]
    held = form(rng, nested(rng, shape, kind), name)
    if name == "generator":
        return held, None, False
    return held, exact(held), name in PLAIN
