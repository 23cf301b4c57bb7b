"""Checkpoints that other tools left in a folder, read where they are.

Lightning's `.ckpt`, Hugging Face's `checkpoint-*` folders (sharded too, and adapters of `peft`),
plain `.pt`, `.pth`, `.pth.tar` and `.safetensors`, skorch's and timm's among them, Keras's
`.weights.h5` and `.keras`.
"""

import filecmp
import hashlib
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile, is_zipfile

from torch import Tensor, nn

from snapsure import _files
from snapsure.errors import CorruptFile, InvalidInput
from snapsure.snapshots import _keras, _weights
from snapsure.snapshots._base import Snapshots, refuse_missing
from snapsure.snapshots._pickles import read_pickle
from snapsure.snapshots._weights import StateDict

_PICKLES = (".ckpt", ".pt", ".pth", ".pth.tar")
_ENDS = (*_PICKLES, ".safetensors", *_keras.ENDS)
READ = f"{', '.join(_ENDS)} or checkpoint-* folders"
# Hidden files, and what training loops keep beside the weights. In skorch's names the part comes
# last (`train_end_optimizer.pt`).
_NO_NETWORK = (".", "optimizer", "scheduler", "scaler", "rng_state", "criterion")
_NO_NETWORK_ENDS = ("_optimizer", "_criterion")
_WRAPPERS = ("module.", "model.")
_ADAPTERS = ("adapter_model.safetensors", "adapter_model.bin")  # of `peft`

_TICK = 0.02  # seconds in which a file system may give two writings the same time

_DECIMAL = re.compile(r"(\d+)\.(\d+)")
_WORD = re.compile(r"[a-z][\s=_.-]*$", re.I)
# What comes before a number that is a measurement.
_MEASURED = re.compile(
    r"(?:(?<!epoch)=|(?:acc|auc|err|f1|iou|loss|lr|map|prec|score|val)[a-z]*[\s_.-]*)$", re.I
)
# And before one that gives no order in time.
_RESULT = re.compile(r"(?<![a-z])(?:acc(?:uracy)?|err(?:or)?|loss)[\s=_.-]*$", re.I)
# An ISO date, or a date in one piece with a time.
_DATE = re.compile(
    r"(?<!\d)((?:19|20)\d\d)(?:-(\d\d)-(\d\d)|(\d\d)(\d\d)(?=[T_-]\d{4}))"
    r"(?:[T_ -]([01]\d|2[0-3])[-_:h]?([0-5]\d)(?:[-_:m]?([0-5]\d))?)?(?!\d)"
)
_CLOCK = re.compile(  # of no width, so that `resnet18_23-59` gives 23-59 too
    r"(?<!\d)(?<!\d\.)(?=([01]\d|2[0-3])[-_:h]([0-5]\d)(?:[-_:m]([0-5]\d))?(?!\.?\d))"
)


def _after(words: str, short: str) -> tuple[re.Pattern[str], ...]:
    """Match the number after a word; else after a short one that stands alone (`acc89_ep1`)."""
    number = r"[\s=_.-]*(\d+)"
    alone = rf"(?<![a-z0-9#])(?:{short}){number}(?![a-z0-9])"
    return re.compile(f"(?:{words}){number}", re.I), re.compile(alone, re.I)


_EPOCH = _after("epoch|params", "ep|e")  # skorch: params_3.pt
_STEP = _after("step|checkpoint|iter(?:ation)?", "it")
_COPY = re.compile(r"(?<![a-z])(?:best|last|latest|final)(?![a-z])", re.I)


class Times(NamedTuple):
    """When a checkpoint was taken, as far as it is known."""

    epoch: int | None
    step: int | None


class Checkpoint(NamedTuple):
    """One checkpoint: its name, and its files."""

    name: str
    files: tuple[Path, ...]
    trust: bool = False  # whether reading it may run code, or take any amount of memory
    part: str | None = None  # which of its weights, if not the usual ones

    def read(self) -> StateDict:
        """Read all tensors, by the names in the files."""
        state: StateDict = {}
        alone = self.part if len(self.files) == 1 else None
        for file in self.files:
            if _keras.is_keras(file):
                state |= _keras.read(file, trust=self.trust)
            else:
                state |= _weights.read_checkpoint(file, trust=self.trust, part=alone)
        if self.part is not None and alone is None:
            state = _weights.select_prefix(state, f"{self.part}.")
        if not state:
            raise InvalidInput(
                f"Checkpoint {self.files[0]} must hold at least one tensor, got none. Move it away."
            )
        # `torch.compile` marks the names of any module that it wraps.
        return {name.replace("_orig_mod.", ""): tensor for name, tensor in state.items()}

    def read_times(self) -> Times:
        """Read epoch and step inside the checkpoint, or in a file beside it."""
        file = self.files[0]
        prefix, params, rest = file.stem.rpartition("params")
        if params and not rest:  # skorch's `train_end_params.pt`
            history = read_json(file.with_name(f"{prefix}history.json"))
            last = history[-1] if isinstance(history, list) and history else None
            if isinstance(last, dict) and last:
                return Times(_to_whole_number(last.get("epoch")), None)
        if file.name.endswith(_PICKLES):
            content = read_pickle(file, trust=self.trust, numbers=False)
        else:  # Hugging Face's
            content = read_json(file.with_name("trainer_state.json"))
        if not isinstance(content, Mapping):
            return Times(None, None)
        step = content.get("global_step", content.get("step"))
        return Times(_to_whole_number(content.get("epoch")), _to_whole_number(step))

    def stat(self) -> tuple[tuple[int, int], ...]:
        """Return sizes and times of the files, which change when a file does."""
        return tuple((stat.st_size, stat.st_mtime_ns) for stat in map(Path.stat, self.files))


class CheckpointFolder(Snapshots):
    """The checkpoints in a folder as they were when `SnapshotStore.adopt` made this."""

    def __init__(self, folder: str | Path, *, state: str | None, trust: bool) -> None:
        if not isinstance(state, str | None):
            raise InvalidInput(
                f"`state` must name an entry of the checkpoints, got {state!r}. Write state='ema'."
            )
        self.path, self._part = Path(folder), state.removesuffix(".") if state else None
        found = _find_checkpoints(self.path)
        checkpoints = _leave_out_copies(
            [one._replace(trust=trust, part=self._part) for one in found]
        )
        numbers = number_checkpoints(
            [one.name for one in checkpoints], lambda i: checkpoints[i].read_times(), self.path
        )
        self._checkpoints = {epoch: checkpoints[i] for epoch, i in sorted(numbers.items())}
        self._stats = {epoch: one.stat() for epoch, one in self._checkpoints.items()}
        self._hashes: dict[int, str] = {}
        latest = max(changed for stat in self._stats.values() for _, changed in stat) / 1e9
        if abs(time.time() - latest) < _TICK:  # so that a later writing gets a later time
            time.sleep(_TICK)

    @property
    def epochs(self) -> list[int]:
        """Epochs of the checkpoints, in order; steps, where one epoch has several."""
        return list(self._checkpoints)

    @property
    def adapter_configs(self) -> list[Path]:
        """What `peft` wrote beside each checkpoint that is an adapter."""
        files = [one.files[0] for one in self._checkpoints.values()]
        return [file.with_name("adapter_config.json") for file in files if file.name in _ADAPTERS]

    def load(self, epoch: int) -> dict[str, Tensor]:
        """Read a checkpoint's weights, on the CPU, without the prefixes of wrappers.

        `_orig_mod.` is removed from all names; `module.` and `model.` where all begin with it.
        """
        with self._reading(epoch) as checkpoint:
            state = checkpoint.read()
        while prefix := next((p for p in _WRAPPERS if all(n.startswith(p) for n in state)), None):
            state = _weights.select_prefix(state, prefix)
        return state

    def load_into(self, model: nn.Module, epoch: int, *, has_base: bool = False) -> None:
        """Load a checkpoint into a model, under whichever prefix the model's weights are there.

        Raises
        ------
        WrongArchitecture
            Naming what differs.
        InvalidInput
            If the checkpoint holds the network under several prefixes, or needs a Keras model.
        """
        with self._reading(epoch) as checkpoint:
            file, state = checkpoint.files[0], checkpoint.read()  # refuses what is empty or cut
            if _keras.is_keras(file):
                _keras.load_into(model, file, epoch)
                return
        network = _weights.unwrap(model)
        own = network.state_dict()
        part = _weights.select_prefix(state, _weights.find_prefix(own, state))
        part = _weights.add_ties(own, part)
        if part.keys() != own.keys():
            part = _weights.translate_names(network, part)
        origin = f"Checkpoint of epoch {epoch} ({file})"
        _weights.load_strictly(model, part, origin)

    def sha256(self, epoch: int) -> str:
        """Return the hash of the checkpoint's files, computed at the first call."""
        with self._reading(epoch) as checkpoint:
            if epoch not in self._hashes:
                parts = [_files.sha256(file) for file in checkpoint.files]
                parts += [self._part] if self._part else []  # which of its networks is meant
                whole = hashlib.sha256("".join(parts).encode()).hexdigest()
                self._hashes[epoch] = parts[0] if len(parts) == 1 else whole
        return self._hashes[epoch]

    @contextmanager
    def _reading(self, epoch: int) -> Iterator[Checkpoint]:
        """Yield a checkpoint, whose files must not change until it has been read."""
        refuse_missing(epoch, self._checkpoints, self.path)
        checkpoint = self._checkpoints[epoch]

        def check(changed: str) -> None:
            try:
                got = None if checkpoint.stat() == self._stats[epoch] else changed
            except OSError:
                got = "no file"
            if got:
                raise CorruptFile(
                    f"Checkpoint of epoch {epoch} ({checkpoint.files[0]}) must be as it was when "
                    f"the folder was adopted, got {got}. Adopt the folder again when training has "
                    "ended."
                ) from None

        check("another file")
        try:
            yield checkpoint
        finally:
            check("one that is still being written")


def is_foreign(folder: Path) -> bool:
    """Say whether a folder holds checkpoints of other tools, and no store of ours."""
    no_store = folder.is_dir() and not (folder / "manifest.json").exists()
    return no_store and bool(_find_folders(folder))


def list_checkpoint_files(folder: Path) -> list[str]:
    """List the files in a folder, not below it, that are checkpoints of any kind."""
    return [one.files[0].name for one in _list_files(folder)] if folder.is_dir() else []


def _find_checkpoints(folder: Path) -> list[Checkpoint]:
    places = _find_folders(folder) if folder.is_dir() else []
    if not places:
        if folder.is_file():
            raise InvalidInput(
                f"`folder` must hold checkpoints ({READ}), got a file. Pass its folder, "
                f"{folder.parent}."
            )
        raise InvalidInput(
            f"`folder` must hold checkpoints ({READ}), got none in {folder}"
            f"{describe_content(folder)}. Check the path."
        )
    if len(places) == 1:
        return _list_checkpoints(places[0])

    # A folder per epoch: `epoch_1/model.pt`, or a name of Lightning's with a slash.
    found, epochs, before = [], set(), set()
    for one in (one for place in places for one in _list_files(place)):
        name = str(one.files[0].relative_to(folder))
        numbers = [parse_name(part).epoch for part in name.split("/")]
        at = next((i for i, number in enumerate(numbers) if number is not None), 0)
        found.append(one._replace(name=name))
        epochs.add(numbers[at])
        before.add(tuple(name.split("/")[:at]))  # if these differ, there are several trainings
    if None in epochs or len(epochs) < len(found) or len(before) != 1:
        raise InvalidInput(
            f"`folder` must hold the checkpoints of one training, got some in {places[0]} and in "
            f"{places[1]}. Name one of these."
        )
    return found


def describe_content(folder: Path) -> str:
    """Say what a folder without checkpoints has instead."""
    if not folder.is_dir():
        return ", which is a file, not a folder" if folder.exists() else ", which does not exist"
    names = sorted(f"{path.name}/" if path.is_dir() else path.name for path in folder.iterdir())
    return f", which has {_weights.list_some(names) or 'nothing'} in it"


def _leave_out_copies(checkpoints: list[Checkpoint]) -> list[Checkpoint]:
    """Leave out a file like `best.pt` with the content of another, whose name says more."""

    def rank(one: Checkpoint) -> tuple[bool, ...]:
        epoch, step = parse_name(one.name)
        counts = bool(re.search(r"\d", one.name))
        return not _COPY.search(one.name), epoch is not None, step is not None, counts

    def is_copy(one: Checkpoint, other: Checkpoint) -> bool:
        alike = rank(one) < rank(other) and len(one.files) == len(other.files)
        return alike and all(map(_has_same_content, one.files, other.files))

    return [one for one in checkpoints if not any(is_copy(one, other) for other in checkpoints)]


def _has_same_content(a: Path, b: Path) -> bool:
    """Compare files by their bytes; what `torch.save` wrote under another name, by checksums."""
    if is_zipfile(a) and is_zipfile(b):
        try:
            with ZipFile(a) as one, ZipFile(b) as other:
                lists = [
                    [(e.filename.split("/", 1)[-1], e.file_size, e.CRC) for e in each.infolist()]
                    for each in (one, other)
                ]
        except Exception:  # a damaged directory makes zipfile raise many things
            return False
        if any(checksum for _, _, checksum in lists[0]):  # PyTorch can leave them out
            return lists[0] == lists[1]
    return filecmp.cmp(a, b, shallow=False)


def _find_folders(folder: Path) -> list[Path]:
    """Find the folder itself if it has checkpoints, else the topmost ones below that have."""
    if _list_checkpoints(folder):
        return [folder]
    below = (path for path in sorted(folder.rglob("*")) if path.is_dir())
    found = [p for p in below if not (p / "manifest.json").exists() and _list_checkpoints(p)]
    return [path for path in found if path.parent not in found]


def _list_checkpoints(folder: Path) -> list[Checkpoint]:
    return _list_trainer_folders(folder) or _list_files(folder)


def _list_trainer_folders(folder: Path) -> list[Checkpoint]:
    """List Hugging Face's folders, one per checkpoint; or the folder itself, if it is one."""
    is_one = (folder / "trainer_state.json").is_file()
    found = []
    for path in [folder] if is_one else sorted(folder.glob("checkpoint-*")):
        files = _list_weight_files(path)
        if files:
            found.append(Checkpoint(path.name, files))
    return found


def _list_weight_files(path: Path) -> tuple[Path, ...]:
    """List the files of one checkpoint of Hugging Face's: one, or the shards of an index."""
    for name in ("model.safetensors", "pytorch_model.bin", *_ADAPTERS):
        index = path / f"{name}.index.json"
        if (path / name).is_file():
            return (path / name,)
        if not index.is_file():
            continue

        try:
            names = {*json.loads(index.read_bytes())["weight_map"].values()}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise CorruptFile(
                f"{index} must list the shards of a checkpoint, got something else. Copy it again."
            ) from None
        elsewhere = [name for name in names if not _files.is_plain(name)]
        if elsewhere:
            raise CorruptFile(
                f"{index} must list files beside it, got {elsewhere[0]!r}. Copy the folder again "
                "from a source that you trust."
            )
        missing = sorted(name for name in names if not (path / name).is_file())
        if missing:
            raise CorruptFile(
                f"{index} must have its shards beside it, got no {missing[0]}. Copy the folder "
                "again."
            )
        return tuple(path / name for name in sorted(names))
    return ()


def _list_files(folder: Path) -> list[Checkpoint]:
    found = []
    for path in sorted(folder.iterdir()):
        ends = [] if path.name.startswith(_NO_NETWORK) else [*filter(path.name.endswith, _ENDS)]
        if ends and _files.is_special(path):
            raise InvalidInput(
                f"`folder` must hold checkpoints in files, got {path}, which is a pipe, a socket "
                "or a device. Move it away."
            )
        found += [Checkpoint(path.name.removesuffix(e), (path,)) for e in ends if path.is_file()]
    return [one for one in found if not one.name.endswith(_NO_NETWORK_ENDS)]


def parse_name(name: str) -> Times:
    """Find epoch and step in a name. Decimals are measurements (`loss=0.31`)."""
    plain = _DECIMAL.sub("#", name)

    def find(long: re.Pattern[str], short: re.Pattern[str]) -> int | None:
        found, alone = long.findall(plain), {*short.findall(plain)}
        last = found[-1] if found else alone.pop() if len(alone) == 1 else None
        return _to_whole_number(last)

    return Times(find(*_EPOCH), find(*_STEP))


def number_checkpoints(
    names: Sequence[str], read_times: Callable[[int], Times], folder: Path
) -> dict[int, int]:
    """Number checkpoints by epochs, else by steps, else by a number in the names.

    `read_times(i)` looks into the i-th file, and is called only where its name is not enough. A
    file like `last.ckpt` that turns out to be of the same time as one with a time in its name is a
    copy, and is left out. Returns the index of each checkpoint by its number.
    """
    times = [parse_name(name) for name in names]
    by_name = [time.epoch is not None for time in times]
    places = list(range(len(names)))
    if not all(by_name) or len({time.epoch for time in times}) < len(times):
        for i, (epoch, step) in enumerate(times):
            if epoch is None or step is None:
                inside = read_times(i)
                times[i] = Times(
                    inside.epoch if epoch is None else epoch, inside.step if step is None else step
                )
        known = {time for time, is_known in zip(times, by_name, strict=True) if is_known}
        places = [i for i in places if by_name[i] or times[i] not in known]

    for numbers in ([times[i].epoch for i in places], [times[i].step for i in places]):
        whole = [number for number in numbers if number is not None]
        if len({*whole}) == len(places):
            return dict(zip(whole, places, strict=True))
    first: dict[int | None, str] = {}
    for name, (epoch, _) in zip(names, times, strict=True) if all(by_name) else ():
        other = first.setdefault(epoch, name)
        if other != name:
            raise InvalidInput(
                f"`folder` must hold each epoch of one training once, got epoch {epoch} as "
                f"{other} and as {name} in {folder}. Move other trainings away."
            )
    return dict(zip(_find_varying_number(names, folder), range(len(names)), strict=True))


def _find_varying_number(names: Sequence[str], folder: Path) -> list[int]:
    """Find the first number that varies from name to name, where they are otherwise alike.

    A date with its time is one number. Numbers that put the names in different orders are refused.
    """

    def join(date: re.Match[str]) -> str:
        return "".join(filter(None, date.groups())).ljust(14, "0")

    plain = [_DATE.sub(join, n) for n in names] if all(map(_DATE.search, names)) else names
    parts = [re.split(r"(\d+)", _DECIMAL.sub("#", name)) for name in plain]
    odd = [name for name, own in zip(names, parts, strict=True) if own[::2] != parts[0][::2]]
    columns = zip(*(map(int, part[1::2]) for part in parts), strict=False)
    found = [
        (column, len(names) > 1 and bool(_RESULT.search(word)))
        for column, word in zip(columns, parts[0][::2], strict=False)
        if len({*column}) == len(column) and max(column) < 2**63
    ]
    varying = [column for column, _ in found]
    orders = {
        tuple(sorted(range(len(c)), key=c.__getitem__))
        for c in [*varying, *_list_doubtful(plain)]
        if len({*c}) == len(c)
    }
    remedy = "Name them epoch-1, epoch-2 …, and move others away."
    if varying and not odd and len(orders) > 1:
        raise InvalidInput(
            "`folder` must hold checkpoints whose names give one order, got several numbers that "
            f"disagree, as in {names[0]} and {names[1]} in {folder}. {remedy}"
        )
    if odd or all(is_result for _, is_result in found):
        same = [name for name, count in Counter(names).items() if count > 1]
        got = f"two of {same[0]}" if same else " beside ".join([names[0], *odd[:1]])
        raise InvalidInput(
            "`folder` must hold checkpoints with their epochs in their names or inside, each once, "
            f"got {got} in {folder}. {remedy}"
        )
    # For a single name it is the last: `resnet18-7` is of epoch 7.
    return list(varying[-1] if len(names) == 1 else varying[0])


def _list_doubtful(names: Sequence[str]) -> Iterator[Sequence[int]]:
    """Yield numbers that names may hold in another reading, a column at a time."""

    def find_decimals(name: str) -> Iterator[re.Match[str]]:
        for decimal in _DECIMAL.finditer(name):
            before, after = name[: decimal.start()], name[decimal.end() :]
            is_word = _WORD.search(before) and not _MEASURED.search(before)
            if is_word or (after.startswith(".") and not re.search(r"\d[\s_-]+$", before)):
                yield decimal

    # `model-3.224` may be 3 and 224, unless that is a measurement as in `3-0.224` and `loss0.224`.
    for decimals in zip(*map(find_decimals, names), strict=False):
        yield [int(decimal[1]) for decimal in decimals]
        if all(decimal[1] != "0" for decimal in decimals):
            yield [int(decimal[2]) for decimal in decimals]
    # A clock time may have passed midnight: it is counted from the longest pause.
    found = [[*_CLOCK.finditer(name)] for name in names]
    ends = [each[::-1] for each in found]  # 07-01-23 may be 01-23 too, where 06-36-23 is no other
    for clocks in (*zip(*found, strict=False), *zip(*ends, strict=False)):
        times = [3600 * int(c[1]) + 60 * int(c[2]) + int(c[3] or 0) for c in clocks]
        ordered, day = sorted(times), 24 * 3600
        pauses = zip(ordered, [ordered[-1] - day, *ordered[:-1]], strict=True)
        _, _, start = max((time - last, time == ordered[0], time) for time, last in pauses)
        if len({clock[2] for clock in clocks}) > 1:  # else it is a pair such as `03-20`, 3 of 20
            yield [(time - start) % day for time in times]


def read_json(path: Path) -> object:
    """Read what another tool noted beside its weights, if it did."""
    try:
        content: object = json.loads(_files.read_bytes(path))
    except (OSError, ValueError, RecursionError):
        return None
    return content


def _to_whole_number(value: object) -> int | None:
    """Convert what can be the number of an epoch or a step."""
    number = int(value) if isinstance(value, str) else value  # digits in a name
    if isinstance(number, int | float) and 0 <= number < 2**63:
        return round(number) if abs(number - round(number)) < 1e-6 else None
    return None
