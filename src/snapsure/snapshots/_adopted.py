"""Checkpoints that other tools left in a folder, read where they lie.

Lightning's `.ckpt`, Hugging Face's `checkpoint-*` folders (sharded too), plain `.pt`, `.pth` and
`.safetensors`, skorch's among them, Keras's `.weights.h5` and `.keras`.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from torch import Tensor, nn

from snapsure import _files
from snapsure.errors import CorruptFile, InvalidInput
from snapsure.snapshots import _keras, _skorch, _weights
from snapsure.snapshots._base import Snapshots, unknown_epoch
from snapsure.snapshots._numbering import Times, in_name, numbered
from snapsure.snapshots._pickles import unpickled
from snapsure.snapshots._pretrained import renamed

_PICKLES = (".ckpt", ".pt", ".pth")
_ENDS = (*_PICKLES, ".safetensors", *_keras.ENDS)
# Hidden files, and what training loops keep beside the weights; of the last two, skorch says first
# which training they are of (`train_end_optimizer.pt`).
_NO_NETWORK = (".", "optimizer", "scheduler", "scaler", "rng_state", "criterion")
_NO_NETWORK_ENDS = ("_optimizer", "_criterion")
_WRAPPERS = ("module.", "model.")


class Checkpoint(NamedTuple):
    """One checkpoint: its name, and its files."""

    name: str
    files: tuple[Path, ...]
    trust: bool = False  # whether reading it may run code, or take any amount of memory

    def state(self) -> dict[str, Tensor]:
        """All its tensors, by the names in the files."""
        state: dict[str, Tensor] = {}
        for file in self.files:
            state |= (
                _keras.read(file, trust=self.trust)
                if _keras.is_keras(file)
                else _weights.read_checkpoint(file, trust=self.trust)
            )
        if not state:
            raise InvalidInput(
                f"checkpoint {self.files[0]} must hold at least one tensor, got none: move it away"
            )
        return _weights.without_compile(state)

    def times(self) -> Times:
        """Epoch and step, where they are told inside or beside."""
        noted = _skorch.last_epoch(self.files[0])
        if noted:
            return Times(_whole(noted.get("epoch")), None)
        if self.files[0].suffix in _PICKLES:
            content = unpickled(self.files[0], trust=self.trust)
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
    trust : bool
        Read pickles that need more than tensors and plain values, which can run code.
    """

    def __init__(
        self, folder: str | Path, *, prefix: str | None = None, trust: bool = False
    ) -> None:
        self.path = Path(folder)
        self._prefix = prefix if not prefix else prefix.removesuffix(".") + "."
        found = [one._replace(trust=trust) for one in _checkpoints(self.path)]
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
        state = self._checkpoint(epoch).state()
        if self._prefix is not None:
            return self._below_prefix(state)
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
        if _keras.is_keras(file):
            checkpoint.state()  # refuses what is empty or cut short
            _keras.load_into(model, file, epoch)
            return
        network, state = _weights.unwrapped(model), checkpoint.state()
        own = network.state_dict()
        if self._prefix is None:
            part = _weights.below(state, _weights.prefix_of(own, state))
        else:
            part = self._below_prefix(state)
        part = _weights.with_ties(own, part)
        if part.keys() != own.keys():
            part = renamed(network, part)
        _weights.fit(model, part, f"checkpoint of epoch {epoch} ({file})", self._prefix)

    def sha256(self, epoch: int) -> str:
        """The hash of the checkpoint's files, taken when it is first asked for."""
        checkpoint = self._checkpoint(epoch)
        if epoch not in self._hashes:
            parts = [_files.sha256(file) for file in checkpoint.files]
            parts += [self._prefix] if self._prefix else []  # which of its networks is meant
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

    def _below_prefix(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        part = _weights.below(state, self._prefix or "")
        if not part:
            raise InvalidInput(
                f"`prefix` must stand before names in the checkpoints, got {self._prefix!r}: they "
                f"have {', '.join(list(state)[:3])} …"
            )
        return part

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


def checkpoint_names(folder: Path) -> list[str]:
    """The files in a folder, not below it, that are checkpoints of any kind."""
    return [one.files[0].name for one in _plain(folder)]


def _checkpoints(folder: Path) -> list[Checkpoint]:
    places = list(_folders(folder)) if folder.is_dir() else []
    if not places:
        got = f"a file: pass its folder, {folder.parent}" if folder.is_file() else None
        raise InvalidInput(
            f"`folder` must hold checkpoints ({', '.join(_ENDS)} or checkpoint-* folders), got "
            + (got or f"none in {folder}: check the path")
        )
    if len(places) > 1:
        spread = _one_in_each(folder, places)
        if spread:
            return spread
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
    found = [
        path
        for path in below
        if not (path / "manifest.json").exists() and (_saved_by_trainer(path) or _plain(path))
    ]
    return [path for path in found if path.parent not in found]


def _one_in_each(folder: Path, places: Iterable[Path]) -> list[Checkpoint]:
    """A training with a folder per epoch: `epoch_1/model.pt`, or a name of Lightning's with a /."""
    found = [
        one._replace(name=str(one.files[0].relative_to(folder)))
        for place in places
        for one in _plain(place)
    ]
    # What comes before the part that tells the epoch must be the same: else they are several.
    parts = [one.name.split("/") for one in found]
    at = [next((i for i, p in enumerate(own) if in_name(p).epoch is not None), 0) for own in parts]
    epochs = {in_name(own[i]).epoch for own, i in zip(parts, at, strict=True)}
    before = {tuple(own[:i]) for own, i in zip(parts, at, strict=True)}
    return found if None not in epochs and len(epochs) == len(found) and len(before) == 1 else []


def _saved_by_trainer(folder: Path) -> list[Checkpoint]:
    """Hugging Face's folders, one per checkpoint; or one of them itself."""
    one = (folder / "trainer_state.json").is_file()
    paths = [folder] if one else sorted(folder.glob("checkpoint-*"))
    found = []
    for path in paths:
        files = _weight_files(path)
        if files:
            found.append(Checkpoint(path.name, files))
        elif (path / "adapter_config.json").is_file():
            raise InvalidInput(
                f"`folder` must hold whole networks, got an adapter in {path}: merge it into its "
                "network and save that"
            )
    return found


def _weight_files(path: Path) -> tuple[Path, ...]:
    for name in ("model.safetensors", "pytorch_model.bin"):
        if (path / name).is_file():
            return (path / name,)
        if (path / f"{name}.index.json").is_file():
            return _shards(path / f"{name}.index.json")
    return ()


def _shards(index: Path) -> tuple[Path, ...]:
    try:
        names = {*json.loads(index.read_bytes())["weight_map"].values()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise CorruptFile(
            f"{index} must list the shards of a checkpoint, got something else: copy it again"
        ) from None
    elsewhere = [name for name in names if not _files.is_plain(name)]
    if elsewhere:
        raise CorruptFile(
            f"{index} must list files beside it, got {elsewhere[0]!r}: copy the folder again from "
            "a source that you trust"
        )
    missing = sorted(name for name in names if not (index.parent / name).is_file())
    if missing:
        raise CorruptFile(
            f"{index} must have its shards beside it, got no {missing[0]}: copy the folder again"
        )
    return tuple(index.parent / name for name in sorted(names))


def _plain(folder: Path) -> list[Checkpoint]:
    found = [
        Checkpoint(path.name.removesuffix(end), (path,))
        for path in sorted(folder.iterdir())
        for end in _ENDS
        if path.name.endswith(end) and path.is_file() and not path.name.startswith(_NO_NETWORK)
    ]
    return [one for one in found if not one.name.endswith(_NO_NETWORK_ENDS)]


def _trainer_state(folder: Path) -> Mapping[str, object]:
    """What Hugging Face's Trainer wrote beside the weights, if it did."""
    try:
        content = json.loads((folder / "trainer_state.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _whole(value: object) -> int | None:
    """A number that can be an epoch's or a step's."""
    if isinstance(value, int | float) and 0 <= value < 2**63 and abs(value - round(value)) < 1e-6:
        return round(value)
    return None
