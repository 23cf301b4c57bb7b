"""Trainings that resume: what an epoch does follows from the seed, its number, and the weights.

A training that was killed resumes after its last whole epoch and ends with the same weights, bit
for bit where the hardware repeats its arithmetic, as a CPU does. The manifest `history.json` has an
entry per epoch, and the hash of the state to resume from.
"""

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, TypedDict, TypeVar

import numpy as np
import torch
from msgspec import Meta
from torch import Tensor

from snapsure import _files, _json
from snapsure.errors import CorruptFile, InvalidInput

if TYPE_CHECKING:
    from lightning.fabric import Fabric

History = list[dict[str, float]]
T = TypeVar("T")

HISTORY = "history.json"
FILES = re.compile(r"history\.json|state-\d{6,}\.pt")
_STATE = re.compile(r"state-\d{6,}\.pt")
_AGAIN = "restore it, or delete the folder and train again"


class _State(TypedDict):
    file: Annotated[str, Meta(pattern=r"\Astate-\d{6,}\.pt\Z")]
    sha256: str


class _Epochs(TypedDict):
    """What `history.json` holds."""

    epochs: History
    state: NotRequired[_State]


def refuse_another(path: Path, about: Mapping[str, Any], of: str) -> None:
    """Refuse a folder of a training that depends on other things than this one."""
    if not path.exists():
        return
    known = _json.load(path, "the description of a training", dict[str, Any], _AGAIN)
    wanted = json.loads(json.dumps(about))
    if any(known.get(name) != value for name, value in wanted.items()):
        raise InvalidInput(
            f"{path.parent} must hold a training of the same {of}, got another one. Choose another "
            f"folder, or compare {path}."
        )


def read_history(folder: Path) -> History:
    """Return the entries of the epochs that are done."""
    return _read(folder)["epochs"]


def load_state(folder: Path, parts: Mapping[str, Any]) -> History:
    """Load the last saved state into the parts of a training; return the epochs that are done."""
    content = _read(folder)
    if "state" not in content:
        return []
    path = folder / content["state"]["file"]
    _files.check_sha256(path, content["state"]["sha256"], _AGAIN)
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        for name, part in parts.items():
            part.load_state_dict(state[name])
    except Exception as error:  # PyTorch raises many kinds for a state of something else
        raise CorruptFile(
            f"{path} must be the state of this training, got one that cannot be loaded "
            f"({type(error).__name__}: {error}). {_files.instruct(_AGAIN)}"
        ) from None
    return content["epochs"]


def save_state(folder: Path, parts: Mapping[str, Any], history: History) -> None:
    """Save all that resuming after this epoch needs, whole or not at all."""
    name = f"state-{int(history[-1]['epoch']):06d}.pt"
    with _files.replacing(folder / name) as file:
        torch.save({part: value.state_dict() for part, value in parts.items()}, file)
    state = {"file": name, "sha256": _files.sha256(folder / name)}
    _files.write_bytes(folder / HISTORY, _json.text({"epochs": history, "state": state}))
    for path in folder.glob("state-*.pt"):
        if _STATE.fullmatch(path.name) and path.name != name:
            _files.remove(path)


def _read(folder: Path) -> _Epochs:
    try:
        return _json.load(folder / HISTORY, "a training's history", _Epochs, _AGAIN)
    except FileNotFoundError:
        return {"epochs": []}


def read_ahead(read: Callable[[Tensor], T], batches: Sequence[Tensor]) -> Iterator[T]:
    """Read each batch while the network works on the one before."""
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(read, batches[0])
        for rows in batches[1:]:
            reading = pool.submit(read, rows)
            yield waiting.result()
            waiting = reading
        yield waiting.result()


def mix_seeds(*numbers: int) -> int:
    """Return one seed made of several numbers."""
    # A 0 at the end changes nothing: the order of the examples and the augmentation of the first
    # process start from the same seed, for different uses.
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))


def seed_all(seed: int) -> None:
    """Seed everything that dropout or an augmentation may draw from."""
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - augmentations may use it
    random.seed(seed)


@contextmanager
def separate_randomness() -> Iterator[None]:
    """Leave the caller's random numbers as they are."""
    states = random.getstate(), np.random.get_state()  # noqa: NPY002 - augmentations may use it
    try:
        with torch.random.fork_rng():
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002


def describe_time_left(history: History, epochs: int) -> str:
    """Describe the time left, by the median of the epochs that are done."""
    left = (epochs - history[-1]["epoch"]) * float(np.median([row["seconds"] for row in history]))
    return f"{left / 60:.0f} min left" if left >= 90 else f"{left:.0f} s left"


def launch_fabric(
    accelerator: str = "auto", devices: int = 1, precision: Any = "32-true"
) -> "Fabric":
    """Launch Lightning's Fabric; with several devices, the command runs once for each."""
    try:
        from lightning.fabric import Fabric
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "Training needs Lightning, which is not installed: pip install 'snapsure[lightning]'",
            name=error.name,
        ) from None
    try:
        fabric = Fabric(accelerator=accelerator, devices=devices, precision=precision)
    except (ValueError, RuntimeError) as error:
        raise InvalidInput(
            f"--accelerator {accelerator}, --devices {devices} and --precision {precision} must be "
            f"ones that Lightning Fabric has here, got its refusal ({error}). Choose others."
        ) from None
    fabric.launch()
    return fabric
