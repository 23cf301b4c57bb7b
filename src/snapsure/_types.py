"""Types that several modules use, each written once."""

from collections.abc import Callable
from typing import Any, Literal, SupportsFloat

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Matrix = np.ndarray[tuple[int, int], np.dtype[np.float64]]
Losses = NDArray[Any]  # bool for 0/1 errors, else float64
Scores = NDArray[np.floating[Any]]  # κ as it sorts fastest: float32 or float64

Metric = Callable[[Floats, Losses], SupportsFloat]  # of κ and losses

Ties = Literal["expected", "threshold"]
Optimal = Literal["exact", "integral"]
Precision = Literal["bfloat16", "float16", "float32"]
