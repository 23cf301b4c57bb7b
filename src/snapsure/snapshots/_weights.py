"""State dicts: taken from modules, written as safetensors, read back, fitted to a model."""

import hashlib
import json
import pickle
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, cast
from zipfile import ZIP_STORED, ZipFile, is_zipfile

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from snapsure.errors import CorruptFile, InvalidInput, UnsafeFile, WrongArchitecture
from snapsure.snapshots._everyday import EVERYDAY

StateDict = dict[str, Tensor]

# Where training loops put the weights in a checkpoint that holds more than these.
_STATES = ("state_dict", "model_state_dict", "model")

_ALIASES = "snapsure.aliases"  # in the metadata of every file of ours
_HEADER = 100_000_000  # bytes; safetensors allows no more

_DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


def unwrapped(model: nn.Module) -> nn.Module:
    """The user's own module inside DataParallel, DDP or `torch.compile`."""
    # The compiler takes seconds to import: where it is not loaded, nothing has been compiled.
    compiled = (torch._dynamo.OptimizedModule,) if "torch._dynamo" in sys.modules else ()
    while isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel, *compiled)):
        inner = model._orig_mod if isinstance(model, compiled) else model.module
        model = cast(nn.Module, inner)
    return model


def state_of(model_or_state: nn.Module | Mapping[str, Tensor] | str | Path) -> Mapping[str, Tensor]:
    """Weights and buffers by name; anything that is not a tensor is refused."""
    if isinstance(model_or_state, str | Path):
        state: Mapping[str, Tensor] = read_checkpoint(Path(model_or_state))
    elif isinstance(model_or_state, nn.Module):
        state = unwrapped(model_or_state).state_dict()
    elif isinstance(model_or_state, Mapping):
        state = model_or_state
    else:
        raise InvalidInput(
            "`model_or_state_dict` must be a torch.nn.Module, a state dict or a checkpoint's path, "
            f"got {type(model_or_state).__name__}: pass the network or its .state_dict()"
        )
    for name, value in state.items():
        if not isinstance(value, Tensor):
            kind = type(value).__name__
        elif value.layout != torch.strided or value.is_meta or is_lazy(value):
            kind = f"a {'meta or lazy' if value.layout == torch.strided else value.layout} tensor"
        else:
            kind = "" if value.dtype in _DTYPES else str(value.dtype)
        if kind:
            raise InvalidInput(
                "`model_or_state_dict` must hold dense tensors of ordinary numbers, "
                f"got {kind} at {name!r}: leave it out of the state dict"
            )
    if not state:
        raise InvalidInput(
            "`model_or_state_dict` must hold at least one tensor, got none: pass a network with "
            "weights"
        )
    return state


def write(
    file: BinaryIO, state: Mapping[str, Tensor], dtype: torch.dtype | None
) -> Callable[[], str]:
    """Write a safetensors file; what is returned gives its SHA-256, hashed while the disk is busy.

    Tensors that are one and the same (tied weights) are written once. With `dtype`, floating point
    numbers are stored in it; the metadata says what they were.
    """
    first, aliases = _without_aliases(state)
    stored = {name: _stored(name, state[name], dtype) for name in first}
    metadata = {_ALIASES: json.dumps(aliases)}
    if dtype is not None:
        changed = {n: str(state[n].dtype)[6:] for n in first if stored[n].dtype != state[n].dtype}
        metadata["snapsure.dtypes"] = json.dumps(changed)
    parts: list[Any] = [_header(stored, metadata), *(_bytes(tensor) for tensor in stored.values())]

    def digest() -> str:
        hashed = hashlib.sha256()
        for part in parts:
            hashed.update(part)
        return hashed.hexdigest()

    pool = ThreadPoolExecutor(1)
    hashed = pool.submit(digest)
    pool.shutdown(wait=False)
    for part in parts:
        file.write(part)
    return hashed.result


def read(path: Path) -> StateDict:
    """Read a safetensors file; tied weights come back as one tensor, with their own dtype."""
    # Not by safe_open: PyTorch swallows a Ctrl-C that meets it while it maps a file, and says that
    # the storage has no shape.
    content = path.read_bytes()
    try:
        state = load(content)
    except SafetensorError as error:
        raise CorruptFile(
            f"{path} must be a whole safetensors file, got one that ends early or is none "
            f"({error}): copy it again, or delete it and train that epoch again"
        ) from None
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    metadata = header.get("__metadata__", {})
    for name, dtype in json.loads(metadata.get("snapsure.dtypes", "{}")).items():
        state[name] = state[name].to(getattr(torch, dtype))
    for name, source in json.loads(metadata.get(_ALIASES, "{}")).items():
        state[name] = state[source]
    return state


def written_by_us(path: Path) -> bool:
    """Whether a file is a safetensors file that `write` made."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(min(length, _HEADER)))
        return _ALIASES in header["__metadata__"]
    except (OSError, ValueError, KeyError, TypeError):
        return False


def read_checkpoint(path: Path) -> StateDict:
    """Read a state dict that another tool wrote: safetensors, or a pickle of plain tensors.

    Pickles are read with `weights_only=True`, which runs no code.
    """
    if not path.is_file():
        raise InvalidInput(f"checkpoint {path} must be a file, got none there: check the path")
    if path.suffix == ".safetensors":
        return read(path)
    content = unpickled(path)
    if isinstance(content, Mapping):
        named = (content.get(key) for key in _STATES)
        content = next((part for part in named if isinstance(part, Mapping)), _only_state(content))
    return dict(state_of(content))


def _only_state(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """The one entry that is a state dict, if what is around it is none."""
    states = [
        part
        for part in content.values()
        if isinstance(part, Mapping) and part and all(isinstance(t, Tensor) for t in part.values())
    ]
    return states[0] if len(states) == 1 else content


def unpickled(path: Path) -> Any:
    """What `torch.save` wrote, if it is made of tensors and plain things; mapped, not copied."""
    mapped = _can_be_mapped(path)
    try:
        with torch.serialization.safe_globals(EVERYDAY):
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except pickle.UnpicklingError as error:
        needed = re.search(r"GLOBAL (\S+)", str(error))
        raise UnsafeFile(
            f"{path} must hold tensors and plain values alone, got a pickle that could run code on "
            f"loading (it needs {needed[1] if needed else 'more than that'}): if you trust it, "
            "load it yourself and save its state_dict(), or allow the type by "
            "torch.serialization.add_safe_globals"
        ) from None
    except Exception as error:  # whatever bytes that are no checkpoint make torch say
        said = " ".join([type(error).__name__, *str(error).splitlines()[:1]])
        raise CorruptFile(
            f"{path} must be a whole checkpoint, got one that cannot be read ({said}): copy it "
            "again"
        ) from None


def _can_be_mapped(path: Path) -> bool:
    """Whether the file is in PyTorch's format since 1.6, its tensors as they are in memory.

    PyTorch maps what a compressed entry begins with, without a word, and takes it for weights.
    """
    if not is_zipfile(path):
        return False
    with ZipFile(path) as file:
        return all(entry.compress_type == ZIP_STORED for entry in file.infolist())


def without_compile(state: StateDict) -> StateDict:
    """The names as they are before `torch.compile`, which may have wrapped any module."""
    return {name.replace("_orig_mod.", ""): tensor for name, tensor in state.items()}


def below(state: StateDict, prefix: str) -> StateDict:
    """The tensors whose names begin with a prefix, by the rest of their names."""
    return {n.removeprefix(prefix): tensor for n, tensor in state.items() if n.startswith(prefix)}


def prefix_of(own: StateDict, state: StateDict) -> str:
    """What stands before a model's names in a checkpoint that may hold more than the model."""
    names, aliases = _without_aliases(own)
    ends = (name.removesuffix(names[0]) for name in state if name.endswith(names[0]))
    fits = [
        prefix
        for prefix in ends
        if (not prefix or prefix.endswith(".")) and all(prefix + name in state for name in names)
    ]
    whole = [p for p in fits if below(state, p).keys() <= {*names, *aliases}]
    same = [p for p in whole if all(state[p + n].shape == own[n].shape for n in names)]
    if len(same) > 1:
        raise InvalidInput(
            f"a checkpoint must hold the model's network once, got it under {same[0]!r} and "
            f"{same[1]!r}: say which, SnapshotStore.adopt(folder, prefix={same[0]!r})"
        )
    return (same or whole or fits or [""])[0]  # what does not fit is told by `fit`


def with_ties(own: StateDict, state: StateDict) -> StateDict:
    """A checkpoint that left out tied weights, with them."""
    _, aliases = _without_aliases(own)
    tied = {n: state[first] for n, first in aliases.items() if first in state and n not in state}
    return state | tied


def fit(model: nn.Module, state: Mapping[str, Tensor], origin: str) -> None:
    """Load weights into a model, strictly: names and shapes must be the same."""
    model = unwrapped(model)
    own = model.state_dict()
    differences = [
        *_named("missing in the snapshot", own.keys() - state.keys()),
        *_named("unknown to the model", state.keys() - own.keys()),
        *_named(
            "of another shape",
            (
                f"{name} {tuple(state[name].shape)} for {tuple(own[name].shape)}"
                for name in own.keys() & state.keys()
                if own[name].shape != state[name].shape
            ),
        ),
        *_named(
            "of another kind of number",
            (
                name
                for name in own.keys() & state.keys()
                if own[name].is_floating_point() != state[name].is_floating_point()
            ),
        ),
    ]
    if differences:
        raise WrongArchitecture(
            f"{origin} must have the architecture of `model`, got differences: "
            f"{'; '.join(differences)}: build the model that the snapshot was taken of"
        )
    model.load_state_dict(state)


def _named(what: str, names: Iterable[str]) -> list[str]:
    ordered = sorted(names)
    if not ordered:
        return []
    rest = f" and {len(ordered) - 3} more" if len(ordered) > 3 else ""
    return [f"{what}: {', '.join(ordered[:3])}{rest}"]


def _without_aliases(state: Mapping[str, Tensor]) -> tuple[list[str], dict[str, str]]:
    """Names to write, and for each tensor that is another one again, which."""
    seen: dict[object, str] = {}
    names, aliases = [], {}
    for name, tensor in state.items():
        place = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if tensor.numel() and place in seen:
            aliases[name] = seen[place]
        else:
            seen[place] = name
            names.append(name)
    return names, aliases


def _stored(name: str, tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
    tensor = tensor.detach()
    if dtype is not None and tensor.is_floating_point():
        rounded = tensor.to(dtype)
        if not torch.equal(rounded.isfinite(), tensor.isfinite()):
            raise InvalidInput(
                f"`dtype` must hold every weight, got {str(dtype)[6:]} for {name!r}, which it "
                'makes infinite: choose "bfloat16"'
            )
        tensor = rounded
    return tensor.cpu().contiguous()


def _header(tensors: Mapping[str, Tensor], metadata: dict[str, str]) -> bytes:
    """The head of a safetensors file: its length, then names, types, shapes and places as JSON."""
    entries: dict[str, object] = {"__metadata__": metadata}
    end = 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.numel() * tensor.element_size()
        entries[name] = {
            "dtype": _DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _bytes(tensor: Tensor) -> Any:
    """The tensor's memory as a buffer."""
    return tensor.reshape(-1).view(torch.uint8).numpy().data
