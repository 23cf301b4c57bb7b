"""Trainings that resume: what an epoch does follows from the seed, its number, and the weights.

So a training that was killed resumes after its last whole epoch, and ends with the same weights,
bit for bit where the hardware repeats its arithmetic, as a CPU does.
"""

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from snapsure import _files
from snapsure.errors import InvalidInput

History = list[dict[str, float]]
T = TypeVar("T")

_LAST, _HISTORY = "last.pt", "history.json"


def refuse_another(path: Path, about: Mapping[str, Any], of: str) -> None:
    """Refuse a folder whose training depends on other things than this one."""
    if not path.exists():
        return
    known, wanted = json.loads(path.read_text()), json.loads(json.dumps(about))
    if any(known.get(name) != value for name, value in wanted.items()):
        raise InvalidInput(
            f"{path.parent} must hold a training of the same {of}, got another one: choose another "
            f"folder, or compare {path}"
        )


def read_history(folder: Path) -> History:
    """What is known of each epoch."""
    path = folder / _HISTORY
    history: History = json.loads(path.read_text()) if path.exists() else []
    return history


def write_history(folder: Path, history: History) -> None:
    """For people, and for whoever asks whether a training is finished."""
    _files.write_bytes(folder / _HISTORY, json.dumps(history, indent=1).encode())


def resume(folder: Path, parts: Mapping[str, Any]) -> History:
    """Load what `keep` kept into the parts of a training; give the epochs that are done."""
    if not (folder / _LAST).exists():
        return []
    last = torch.load(folder / _LAST, map_location="cpu", weights_only=True)
    for name, part in parts.items():
        part.load_state_dict(last[name])
    history: History = last["history"]
    return history


def keep(folder: Path, parts: Mapping[str, Any], history: History) -> None:
    """Keep all that resuming after this epoch needs, whole or not at all."""
    with _files.replacing(folder / _LAST) as file:
        torch.save(
            {name: part.state_dict() for name, part in parts.items()} | {"history": history}, file
        )
    write_history(folder, history)


def ahead(read: Callable[[Tensor], T], batches: Sequence[Tensor]) -> Iterator[T]:
    """Read each batch while the network works on the one before."""
    with ThreadPoolExecutor(1) as pool:
        waiting = None
        for rows in batches:
            reading = pool.submit(read, rows)
            if waiting is not None:
                yield waiting.result()
            waiting = reading
        if waiting is not None:
            yield waiting.result()


def mixed(*numbers: int) -> int:
    """One seed out of several numbers.

    (A 0 at the end changes nothing: the order of the points and the augmentation of the first
    process start from the same seed, for different uses.)
    """
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))


def seed_all(seed: int) -> None:
    """What dropout draws from, and whatever an augmentation may draw from."""
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - that of others
    random.seed(seed)


@contextmanager
def own_chance() -> Iterator[None]:
    """Leave the caller's random numbers as they are."""
    states = random.getstate(), np.random.get_state()  # noqa: NPY002 - that of others
    try:
        with torch.random.fork_rng():
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002


def time_left(history: History, epochs: int) -> str:
    """By the median of the epochs that are done."""
    left = (epochs - history[-1]["epoch"]) * float(np.median([row["seconds"] for row in history]))
    return f"{left / 60:.0f} min left" if left >= 90 else f"{left:.0f} s left"
