"""Arrays as they come: every type, form and size of number, and the exact values that each holds.

A form makes what a user might pass of a nested list of Python's numbers. `exact` reads it
back: fractions where all is finite and real, None where a refusal is due.
"""

import array
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import torch

DTYPES = ("f8", "f8", "f8", "f4", "f2", "g", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "?")
TENSORS = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8)
SPECIAL = (0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, 5e-324, 2.2e-308, 1e-170, 1e-16, 1 - 2**-53)
SPECIAL += (1 + 2**-52, 2.0**53, 2.0**53 + 2, 1e150, 1e300, 1.7976931348623157e308)
BROKEN = (math.nan, math.inf, -math.inf)


# n numbers of each kind.
VALUES = {
    "unit": lambda rng, n: rng.random(n).tolist(),
    "levels": lambda rng, n: (rng.integers(0, 6, n) / 5).tolist(),
    "bits": lambda rng, n: rng.integers(0, 2, n).tolist(),
    "classes": lambda rng, n: rng.integers(-1, 4, n).tolist(),
    "normal": lambda rng, n: rng.normal(size=n).tolist(),
    "huge": lambda rng, n: (rng.normal(size=n) * 10.0 ** rng.integers(100, 307)).tolist(),
    "tiny": lambda rng, n: (rng.normal(size=n) * 10.0 ** -rng.integers(100, 322)).tolist(),
    "special": lambda rng, n: [SPECIAL[i] for i in rng.integers(0, len(SPECIAL), n)],
    "above 2**53": lambda rng, n: [2**60 + int(i) for i in rng.integers(0, 5000, n)],
    "broken": lambda rng, n: [
        BROKEN[i] if rng.random() < 0.2 else float(rng.random()) for i in rng.integers(0, 3, n)
    ],
}


def nested(rng, shape, kind):
    """Numbers of a kind, of a shape."""
    flat = VALUES[kind](rng, math.prod(shape))
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


def framed(rng, x, name):
    """A series or a frame, of up to two axes."""
    if x.ndim > 2:
        return x
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


def masked(rng, x, share):
    return np.ma.array(x, mask=rng.random(x.shape) < share)


def complex_of(data):
    with np.errstate(all="ignore"):
        return np.array(data, np.float64) * (1 + 1j)


# Forms that must be taken, of the data and of an array of some type that holds them …
PLAIN = {
    "list": lambda rng, data, x: data,
    "tuple": lambda rng, data, x: tuple(data),
    "array": lambda rng, data, x: x,
    "strided": lambda rng, data, x: np.repeat(x, 2, axis=-1)[..., ::2],
    "reversed": lambda rng, data, x: np.ascontiguousarray(x[..., ::-1])[..., ::-1],
    "fortran": lambda rng, data, x: np.asfortranarray(x),
    "read-only": lambda rng, data, x: x.setflags(write=False) or x,
    "swapped": lambda rng, data, x: x.astype(x.dtype.newbyteorder(">")),
    "unmasked": lambda rng, data, x: masked(rng, x, 0),
    "tensor": lambda rng, data, x: tensor(rng, data),
    "strided tensor": lambda rng, data, x: tensor(rng, data).repeat_interleave(2, -1)[..., ::2],
    "on the graph": lambda rng, data, x: torch.tensor(np.array(data, float), requires_grad=True),
    "pandas": lambda rng, data, x: framed(rng, x, "pandas"),
    "odd index": lambda rng, data, x: framed(rng, x, "odd index"),
    "array.array": lambda rng, data, x: (
        array.array("d", x.astype(float)) if x.ndim == 1 else memoryview(x.astype(float))
    ),
}
# … and those that may be taken or refused, but never misread.
ODD = {
    "masked": lambda rng, data, x: masked(rng, x, 0.2),
    "objects": lambda rng, data, x: np.array(x.tolist(), object),
    "decimals": lambda rng, data, x: [
        Decimal(repr(each)) if isinstance(each, float) else each for each in data
    ],
    "strings": lambda rng, data, x: [str(each) for each in data],
    "complex": lambda rng, data, x: complex_of(data),
    "dates": lambda rng, data, x: np.zeros(x.shape, "M8[s]"),
    "nullable": lambda rng, data, x: framed(rng, x, "nullable"),
    "ragged": lambda rng, data, x: [data, [*data, *data]],
    "scalar": lambda rng, data, x: x.flat[0],
    "empty": lambda rng, data, x: x[..., :0],
    "generator": lambda rng, data, x: (each for each in data),
    "another axis": lambda rng, data, x: x[None],
    "none": lambda rng, data, x: [None, *data[1:]],
    "categories": lambda rng, data, x: framed(rng, x, "categories"),
    "sparse": lambda rng, data, x: framed(rng, x, "sparse"),
}


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
    forms = ODD if rng.random() < odds else PLAIN
    name = [*forms][rng.integers(len(forms))]
    data = nested(rng, shape, kind)
    held = forms[name](rng, data, typed(rng, data))
    if name == "generator":
        return held, None, False
    return held, exact(held), name in PLAIN
