"""Checkpoints that other tools left in a folder, read where they lie.

Lightning's `.ckpt`, Hugging Face's `checkpoint-*` folders (sharded too), plain `.pt`, `.pth` and
`.safetensors`, Keras's `.weights.h5`.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

from torch import Tensor, nn

from snapsure import _files
from snapsure.errors import CorruptFile, InvalidInput
from snapsure.snapshots import _weights
from snapsure.snapshots._base import Snapshots, unknown_epoch
from snapsure.snapshots._numbering import Times, numbered
from snapsure.snapshots._pretrained import renamed

_PICKLES = (".ckpt", ".pt", ".pth")
_ENDS = (*_PICKLES, ".safetensors", ".weights.h5")
_WRAPPERS = ("module.", "model.")


@runtime_checkable
class ReadsKeras(Protocol):
    """A model that takes Keras's own weight files, as keras.Model does."""

    def load_weights(self, filepath: str) -> None:
        """Take the weights of a `.weights.h5` file."""


class Checkpoint(NamedTuple):
    """One checkpoint: its name, and its files."""

    name: str
    files: tuple[Path, ...]

    def state(self) -> dict[str, Tensor]:
        """All its tensors, by the names in the files."""
        if self.files[0].suffix == ".h5":
            return _read_h5(self.files[0])
        state: dict[str, Tensor] = {}
        for file in self.files:
            state |= _weights.read_checkpoint(file)
        return state

    def times(self) -> Times:
        """Epoch and step, where they are told inside."""
        if self.files[0].suffix in _PICKLES:
            content = _weights.unpickled(self.files[0])
            told = content if isinstance(content, Mapping) else {}
        else:
            told = _trainer_state(self.files[0].parent)
        return Times(_whole(told.get("epoch")), _whole(told.get("global_step", told.get("step"))))

    def mark(self) -> tuple[tuple[int, int], ...]:
        """What changes when a file does."""
        return tuple((stat.st_size, stat.st_mtime_ns) for stat in map(Path.stat, self.files))


class Adopted(Snapshots):
    """The checkpoints in a folder as they were when it was adopted. Made by `SnapshotStore.adopt`.

    Parameters
    ----------
    folder : str or Path
        Where they lie, or a folder with one folder of them below it.
    prefix : str, optional
        What stands before the names of the network's weights, for checkpoints that hold several
        networks.
    """

    def __init__(self, folder: str | Path, *, prefix: str | None = None) -> None:
        self.path = Path(folder)
        self._prefix = prefix
        found = _checkpoints(self.path)
        places = numbered([one.name for one in found], lambda i: found[i].times(), self.path)
        self._found = {epoch: found[place] for epoch, place in sorted(places.items())}
        self._marks = {epoch: one.mark() for epoch, one in self._found.items()}
        self._hashes: dict[int, str] = {}

    @property
    def epochs(self) -> list[int]:
        """Epochs held, in order; steps, where one epoch has several checkpoints."""
        return list(self._found)

    def load(self, epoch: int) -> dict[str, Tensor]:
        """Read a checkpoint's weights, on the CPU, wrappers' prefixes taken from their names.

        `_orig_mod.` is taken out of all names; `module.` and `model.` where all begin with it.
        """
        state = _weights.without_compile(self._checkpoint(epoch).state())
        if self._prefix is not None:
            return _weights.below(state, self._prefix)
        while prefix := next((p for p in _WRAPPERS if all(n.startswith(p) for n in state)), None):
            state = _weights.below(state, prefix)
        return state

    def load_into(self, model: nn.Module, epoch: int) -> None:
        """Load a checkpoint into a model, under whichever prefix the model's weights are there.

        Raises
        ------
        WrongArchitecture
            Naming what differs.
        InvalidInput
            If the checkpoint holds the network under several prefixes, or needs a Keras model.
        """
        checkpoint = self._checkpoint(epoch)
        file = checkpoint.files[0]
        if file.suffix == ".h5":
            if not isinstance(model, ReadsKeras):
                raise InvalidInput(
                    f"`model` must be a Keras model for {file.name}, got {type(model).__name__}: "
                    "wrap it in snapsure.integrations.keras.Classifier"
                )
            model.load_weights(str(file))
            return
        network = _weights.unwrapped(model)
        state = renamed(network, _weights.without_compile(checkpoint.state()))
        own = network.state_dict()
        prefix = _weights.prefix_of(own, state) if self._prefix is None else self._prefix
        part = _weights.with_ties(own, _weights.below(state, prefix))
        _weights.fit(model, part, f"checkpoint of epoch {epoch} ({checkpoint.files[0]})")

    def sha256(self, epoch: int) -> str:
        """The hash of the checkpoint's files, taken when it is first asked for."""
        checkpoint = self._checkpoint(epoch)
        if epoch not in self._hashes:
            parts = [_files.sha256(file) for file in checkpoint.files]
            joined = hashlib.sha256("".join(parts).encode()).hexdigest()
            self._hashes[epoch] = parts[0] if len(parts) == 1 else joined
        return self._hashes[epoch]

    def verify(self) -> None:
        """Read every checkpoint.

        Raises
        ------
        CorruptFile
            For the first that is gone, cut short, or changed since it was adopted.
        """
        for epoch in self.epochs:
            self.load(epoch)

    def _checkpoint(self, epoch: int) -> Checkpoint:
        if epoch not in self._found:
            raise InvalidInput(unknown_epoch(self.path, self.epochs, epoch))
        checkpoint = self._found[epoch]
        try:
            now = checkpoint.mark()
        except OSError:
            now = ()
        if now != self._marks[epoch]:
            raise CorruptFile(
                f"checkpoint of epoch {epoch} ({checkpoint.files[0]}) must be as it was when "
                f"the folder was adopted, got {'another file' if now else 'no file'}: adopt the "
                "folder again when training has ended"
            )
        return checkpoint


def is_foreign(folder: Path) -> bool:
    """Whether checkpoints of other tools lie there, and no store of ours."""
    return folder.is_dir() and not (folder / "manifest.json").exists() and any(_folders(folder))


def _checkpoints(folder: Path) -> list[Checkpoint]:
    places = list(_folders(folder)) if folder.is_dir() else []
    if not places:
        raise InvalidInput(
            f"`folder` must hold checkpoints ({', '.join(_ENDS)} or checkpoint-* folders), got "
            f"none in {folder}: check the path"
        )
    if len(places) > 1:
        raise InvalidInput(
            f"`folder` must hold the checkpoints of one training, got some in {places[0]} and in "
            f"{places[1]}: name one of these"
        )
    return _saved_by_trainer(places[0]) or _plain(places[0])


def _folders(folder: Path) -> Iterable[Path]:
    """The folder itself if checkpoints lie in it, else those below in which they do."""
    if _saved_by_trainer(folder) or _plain(folder):
        return [folder]
    below = sorted(path for path in folder.rglob("*") if path.is_dir())
    found = [path for path in below if _saved_by_trainer(path) or _plain(path)]
    return [path for path in found if path.parent not in found]


def _saved_by_trainer(folder: Path) -> list[Checkpoint]:
    """Hugging Face's folders, one per checkpoint."""
    found = []
    for path in sorted(folder.glob("checkpoint-*")):
        for name in ("model.safetensors", "pytorch_model.bin"):
            if (path / name).is_file():
                found.append(Checkpoint(path.name, (path / name,)))
                break
            if (path / f"{name}.index.json").is_file():
                found.append(Checkpoint(path.name, _shards(path / f"{name}.index.json")))
                break
    return found


def _shards(index: Path) -> tuple[Path, ...]:
    try:
        names = {*json.loads(index.read_bytes())["weight_map"].values()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CorruptFile(
            f"{index} must list the shards of a checkpoint, got something else: copy it again"
        ) from None
    missing = sorted(name for name in names if not (index.parent / name).is_file())
    if missing:
        raise CorruptFile(
            f"{index} must have its shards beside it, got no {missing[0]}: copy the folder again"
        )
    return tuple(index.parent / name for name in sorted(names))


def _plain(folder: Path) -> list[Checkpoint]:
    return [
        Checkpoint(path.name.removesuffix(end), (path,))
        for path in sorted(folder.iterdir())
        for end in _ENDS
        if path.name.endswith(end) and path.is_file() and not path.name.startswith(".")
    ]


def _trainer_state(folder: Path) -> Mapping[str, object]:
    """What Hugging Face's Trainer wrote beside the weights, if it did."""
    try:
        content = json.loads((folder / "trainer_state.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _whole(value: object) -> int | None:
    if isinstance(value, int | float) and abs(value - round(value)) < 1e-6 and value >= 0:
        return round(value)
    return None


def _read_h5(path: Path) -> dict[str, Tensor]:
    import h5py
    import torch

    state: dict[str, Tensor] = {}

    def keep(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset):
            state[name] = torch.tensor(item[()])

    try:
        with h5py.File(path, "r") as file:
            file.visititems(keep)
    except OSError as error:
        raise CorruptFile(
            f"{path} must be a whole HDF5 file, got one that cannot be read ({error}): copy it "
            "again"
        ) from None
    return state
