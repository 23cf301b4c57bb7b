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
from typing import Any, TypedDict, TypeVar

import numpy as np
import torch
from torch import Tensor

from snapsure import _files, _json, _sealed
from snapsure.errors import CorruptFile, InvalidInput

History = list[dict[str, float]]
T = TypeVar("T")

_LAST, _HISTORY = "last.pt", "history.json"
_AGAIN = "restore it, or delete the folder and train again"


class _Epochs(TypedDict):
    """What `history.json` holds."""

    epochs: History


def refuse_another(path: Path, about: Mapping[str, Any], of: str) -> None:
    """Refuse a folder whose training depends on other things than this one."""
    if not path.exists():
        return
    known = _json.load(path, "the description of a training", dict[str, Any], _AGAIN)
    wanted = json.loads(json.dumps(about))
    if any(known.get(name) != value for name, value in wanted.items()):
        raise InvalidInput(
            f"{path.parent} must hold a training of the same {of}, got another one: choose another "
            f"folder, or compare {path}"
        )


def read_history(folder: Path) -> History:
    """What is known of each epoch."""
    try:
        return _json.load(folder / _HISTORY, "a training's history", _Epochs, _AGAIN)["epochs"]
    except FileNotFoundError:
        return []


def write_history(folder: Path, history: History) -> None:
    """For people, and for whoever asks whether a training is finished."""
    _files.write_bytes(folder / _HISTORY, _json.text({"epochs": history}))


def resume(folder: Path, parts: Mapping[str, Any]) -> History:
    """Load what `keep` kept into the parts of a training; give the epochs that are done."""
    path = folder / _LAST
    if not path.exists():
        return []
    _sealed.check(path, _AGAIN)
    try:
        last = torch.load(path, map_location="cpu", weights_only=True)
        for name, part in parts.items():
            part.load_state_dict(last[name])
        history: History = last["history"]
    except Exception as error:  # damaged bytes make PyTorch say many things
        raise CorruptFile(
            f"{path} must be the state of this training, got one that cannot be loaded "
            f"({type(error).__name__}: {error}): {_AGAIN}"
        ) from None
    return history


def keep(folder: Path, parts: Mapping[str, Any], history: History) -> None:
    """Keep all that resuming after this epoch needs, whole or not at all."""
    with _sealed.replacing(folder / _LAST) as file:
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
