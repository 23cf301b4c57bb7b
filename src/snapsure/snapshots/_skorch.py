"""skorch's checkpoints: `params_3.pt` says its epoch, of `train_end_params.pt` a history does."""

import json
from collections.abc import Mapping
from pathlib import Path

_WEIGHTS, _HISTORY = "params", "history.json"


def last_epoch(weights: Path) -> Mapping[str, object]:
    """What skorch noted of the epoch that these weights are of; empty if it was another tool."""
    prefix, found, rest = weights.stem.rpartition(_WEIGHTS)
    if not found or rest:
        return {}
    try:
        epochs = json.loads((weights.parent / f"{prefix}{_HISTORY}").read_bytes())
        last = epochs[-1]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return {}
    return last if isinstance(last, dict) else {}
