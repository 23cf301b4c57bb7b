"""The sketch of a stream against a histogram, and against keeping all examples."""

from collections.abc import Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Case, peak_megabytes
from snapsure import RiskCoverageSketch, aurc

N, BATCH = 10**7, 10**5

Stream = list[tuple[NDArray[np.float64], NDArray[np.bool_]]]


def cases() -> Iterator[Case]:
    """Every row of the table."""
    stream = _stream()
    name = f"RiskCoverageSketch, 10⁷ in batches of {BATCH:,}"
    ours = partial(_sketch, stream)
    yield Case(name, "np.histogram of each batch", ours, partial(_count, stream), at_most=1.5)
    yield Case(name, "keep all, then aurc", ours, partial(_keep, stream))


def memory() -> dict[str, float]:
    """Peak megabytes above the stream itself, of which a source holds one batch at a time."""
    stream = _stream()
    return {
        "RiskCoverageSketch, 10⁷": peak_megabytes(partial(_sketch, stream)),
        "keep all, then aurc, 10⁷": peak_megabytes(partial(_keep, stream)),
    }


def _stream() -> Stream:
    rng = np.random.default_rng(0)
    batches = [rng.random(BATCH) for _ in range(N // BATCH)]
    return [(kappa, rng.random(BATCH) > kappa) for kappa in batches]


def _sketch(stream: Stream) -> float:
    sketch = RiskCoverageSketch()
    for kappa, errors in stream:
        sketch.update(kappa, errors)
    return sketch.aurc()


def _keep(stream: Stream) -> float:
    kappa, errors = (np.concatenate(column) for column in zip(*stream, strict=True))
    return float(aurc(kappa, errors))


def _count(stream: Stream) -> None:
    total = np.zeros(65536, dtype=np.int64)
    for kappa, _ in stream:
        total += np.histogram(kappa, bins=total.size, range=(0, 1))[0]
