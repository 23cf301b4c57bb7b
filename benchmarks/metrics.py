"""The metrics against `np.sort`, against the fastest peer, and against a plain loop."""

import importlib.util
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Case, peak_megabytes
from snapsure import PES, ScoreTable, aurc, bootstrap, eaurc

N = 10**7


def cases() -> Iterator[Case]:
    """Every row of the table."""
    rng = np.random.default_rng(0)
    kappa, errors = rng.random(N), rng.random(N) < 0.1
    keys = rng.integers(0, 2**63, N, dtype=np.uint64)
    sort = "np.sort of 10⁷ uint64"
    yield Case("aurc, 10⁷, no ties", sort, lambda: aurc(kappa, errors), lambda: np.sort(keys), 1.8)
    for levels in (1000, 100_000):
        tied = np.round(kappa * levels) / levels
        name = f"aurc, 10⁷, {levels:,} distinct κ"
        yield Case(name, sort, partial(aurc, tied, errors), partial(np.sort, keys), 2.2)
    yield from _peers(kappa, errors)
    for rows, n, goal in ((250, 10_000, 1.5), (90, 50_000, 2)):
        table, wrong = rng.random((rows, n)), rng.random(n) < 0.3
        yield Case(
            f"eaurc, {rows} × {n:,}",
            "np.sort of the rows, two threads",
            partial(eaurc, table, wrong),
            partial(_sort_rows, table.view(np.uint64)),
            at_most=goal,
            rounds=31,
        )
    yield from _bootstrap(rng)
    for rows, n in ((250, 7000), (90, 35_000)):
        table, wrong = rng.random((rows, n)), rng.random(n) < 0.3
        yield Case(
            f"PES.fit, {rows} × {n:,}",
            "np.sort of the rows, two threads",
            partial(PES().fit, ScoreTable.from_kappa(table, wrong)),
            partial(_sort_rows, table.view(np.uint64)),
            rounds=9,
        )


def memory() -> dict[str, float]:
    """Peak megabytes above the inputs."""
    rng = np.random.default_rng(0)
    kappa, errors = rng.random(N), rng.random(N) < 0.1
    return {"aurc, 10⁷, no ties": peak_megabytes(lambda: aurc(kappa, errors))}


def _peers(kappa: NDArray[Any], errors: NDArray[Any]) -> Iterator[Case]:
    peer = _torch_uncertainty()
    if peer is None:
        return
    import torch

    scores, wrong = torch.from_numpy(kappa), torch.from_numpy(errors).double()

    def theirs() -> Any:
        metric = peer.AURC()
        metric.scores, metric.errors = [scores], [wrong]
        metric._update_count = 1  # the states are set by hand: its update would take softmax rows
        return metric.compute()

    yield Case(
        "aurc, 10⁷, no ties",
        "torch-uncertainty AURC.compute",
        lambda: aurc(kappa, errors),
        theirs,
        at_least=10,
        rounds=5,
    )


def _torch_uncertainty() -> Any:
    """The peer's own file: its package imports torchvision, which not every machine can have."""
    package = importlib.util.find_spec("torch_uncertainty")
    if package is None or package.submodule_search_locations is None:
        return None
    folder = Path(package.submodule_search_locations[0])
    path = folder / "metrics" / "classification" / "risk_coverage.py"
    spec = importlib.util.spec_from_file_location("peer", path)
    if spec is None or spec.loader is None:
        return None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _sort_rows(keys: NDArray[Any]) -> None:
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(np.sort, np.array_split(keys, 8)))


def _bootstrap(rng: np.random.Generator) -> Iterator[Case]:
    n, resamples = 10_000, 1000
    kappa, errors = rng.random(n), rng.random(n) < 0.1
    tied = np.round(kappa, 3)

    ours = partial(bootstrap, aurc, kappa, errors, resamples=resamples)
    ours_tied = partial(bootstrap, aurc, tied, errors, resamples=resamples)

    def in_numpy(kappa: NDArray[Any]) -> Any:
        draws = np.random.default_rng(0)
        areas = []
        for _ in range(resamples):
            rows = draws.integers(0, n, n)
            order = np.argsort(-kappa[rows])
            areas.append(np.mean(np.cumsum(errors[rows][order]) / np.arange(1, n + 1)))
        return np.quantile(areas, [0.025, 0.975])

    name = "bootstrap(aurc), 1,000 × 10,000"
    loop = "argsort and cumsum per resample"
    yield Case(name, loop, ours, partial(in_numpy, kappa), at_least=4, rounds=9)
    name += ", 1,000 distinct κ"
    yield Case(name, f"{loop}, ties left", ours_tied, partial(in_numpy, tied), at_least=4, rounds=9)
