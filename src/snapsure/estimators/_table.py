"""What estimators share: checks of κ tables, epochs, and their JSON files."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from snapsure import _files, _validate
from snapsure.errors import CorruptFile, InvalidInput, NotFitted

Kappa = NDArray[np.float64]

# Areas nearer than this differ by rounding alone.
EQUAL = 1e-13


def table_of(kappa: ArrayLike, snapshots: int | None = None) -> Kappa:
    """κ as (T, n) in [0, 1], with as many snapshots as were fitted."""
    x = _validate.kappa(kappa, ndim=(2,)).astype(np.float64, copy=False)
    low, high = x.min(), x.max()
    if low < 0 or high > 1:
        t, i = np.unravel_index(int((x < 0).argmax() if low < 0 else x.argmax()), x.shape)
        raise InvalidInput(
            f"`kappa` must lie in [0, 1], got {x[t, i]} at row {i} of snapshot {t}: "
            "map the score to [0, 1] first"
        )
    if snapshots is not None and len(x) != snapshots:
        raise InvalidInput(
            f"`kappa` must have the {snapshots} snapshots that were fitted, got {len(x)}: "
            "score the points with the same snapshots"
        )
    return x


def epochs_of(epochs: ArrayLike | None, snapshots: int) -> NDArray[np.int64]:
    """Epochs of the snapshots, 1 … T if not given."""
    if epochs is None:
        return np.arange(1, snapshots + 1)
    x = _validate.whole_numbers(epochs, "epochs")
    if x.shape != (snapshots,) or (np.diff(x) <= 0).any():
        raise InvalidInput(
            f"`epochs` must be {snapshots} rising numbers, one per snapshot, got {x.tolist()}: "
            "pass the table's epochs"
        )
    return x


def best_snapshot(excess: NDArray[np.float64]) -> int:
    """The snapshot of the least E-AURC; of equals (but for rounding), the latest."""
    return int(np.flatnonzero(excess <= excess.min() + EQUAL)[-1])


def fitted(value: Any, name: str) -> Any:
    """What fitting left, or the refusal of an estimator that was not fitted."""
    if value is None:
        raise NotFitted(f"{name} must be fitted before it is used, got one that is not: call .fit")
    return value


def write_json(path: str | Path, kind: str, content: dict[str, Any], version: int = 1) -> None:
    """Write a fitted estimator."""
    text = json.dumps({"format": f"snapsure {kind} {version}", **content}, indent=1)
    _files.write_bytes(Path(path), text.encode())


def read_json(
    path: str | Path, kind: str, key: str = "snapshots", version: int = 1
) -> dict[str, Any]:
    """Read a fitted estimator, which must have the key."""
    content: Any
    try:
        content = json.loads(Path(path).read_bytes())
    except FileNotFoundError:
        raise InvalidInput(f"{path} must be a fitted {kind}, got no file: check the path") from None
    except ValueError:
        content = None
    format_ = content.get("format") if isinstance(content, dict) else None
    if format_ in {f"snapsure {kind} {earlier}" for earlier in range(1, version)}:
        raise InvalidInput(
            f"{path} must be a fitted {kind} of format {version}, got format "
            f"{format_.rsplit(' ')[-1]} of an earlier snapsure, which lacks what is needed now: "
            "fit it again and save it"
        )
    if format_ != f"snapsure {kind} {version}" or key not in content:
        raise CorruptFile(f"{path} must be a fitted {kind}, got something else: save it again")
    return dict(content)
