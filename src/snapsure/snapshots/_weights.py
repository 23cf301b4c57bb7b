"""State dicts: taken from modules, written as safetensors, read back, fitted to a model."""

import hashlib
import json
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from snapsure import _files
from snapsure.errors import CorruptFile, InvalidInput, WrongArchitecture
from snapsure.snapshots._pickles import TRUST, unpickled

StateDict = dict[str, Tensor]

# Where training loops put the weights in a checkpoint that holds more than these.
_STATES = ("state_dict", "model_state_dict", "model")

_ALIASES = "snapsure.aliases"  # in the metadata of every file of ours
_KINDS = "snapsure.dtypes"  # in that of rounded ones: what the numbers were
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
_FLOATS = {str(dtype)[6:]: dtype for dtype in _DTYPES if dtype.is_floating_point}


def unwrapped(model: nn.Module) -> nn.Module:
    """The user's own module inside DataParallel, DDP or `torch.compile`."""
    # The compiler takes seconds to import: where it is not loaded, nothing has been compiled.
    compiled = (torch._dynamo.OptimizedModule,) if "torch._dynamo" in sys.modules else ()
    while isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel, *compiled)):
        inner = model._orig_mod if isinstance(model, compiled) else model.module
        model = cast(nn.Module, inner)
    return model


def state_of(
    model_or_state: nn.Module | Mapping[str, Tensor] | str | Path, *, trust: bool = False
) -> Mapping[str, Tensor]:
    """Weights and buffers by name; anything that is not a tensor is refused."""
    if isinstance(model_or_state, str | Path):
        state: Mapping[str, Tensor] = read_checkpoint(Path(model_or_state), trust=trust)
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
        metadata[_KINDS] = json.dumps(changed)
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
    try:
        for name, dtype in json.loads(metadata.get(_KINDS, "{}")).items():
            state[name] = state[name].to(_FLOATS[dtype])
        for name, source in json.loads(metadata.get(_ALIASES, "{}")).items():
            state[name] = state[source]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise CorruptFile(
            f"{path} must say of its own tensors which are the same and what they were before "
            "rounding, got something else: restore it, or save that snapshot again"
        ) from None
    return state


def written_by_us(path: Path) -> bool:
    """Whether a file is a safetensors file that `write` made."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(min(length, _HEADER)))
        return _ALIASES in header["__metadata__"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False


def read_checkpoint(path: Path, *, trust: bool = False) -> StateDict:
    """Read a state dict that another tool wrote: safetensors, or a pickle of plain tensors.

    Pickles run no code, unless they are trusted. Several networks in one file, each under a name,
    are read with that name before those of their weights.
    """
    if not path.is_file():
        raise InvalidInput(f"checkpoint {path} must be a file, got none there: check the path")
    if path.suffix == ".safetensors":
        return read(path)
    content = _as_state(unpickled(path, trust=trust))
    if isinstance(content, Mapping):
        parts = {name: _as_state(part) for name, part in content.items()}
        states = {name: part for name, part in parts.items() if _is_state(part)}
        known = [parts[name] for name in _STATES if isinstance(parts.get(name), Mapping)]
        if known or len(states) == 1:
            content = [*known, *states.values()][0]
        elif states:
            content = {f"{n}.{key}": t for n, part in states.items() for key, t in part.items()}
    if not _is_state(content):
        raise InvalidInput(
            f"checkpoint {path} must hold the weights of a network, alone or under "
            f"{', '.join(_STATES)}, got {_told(content)}: save it by "
            "torch.save(model.state_dict(), path)"
        )
    if not trust:  # one number may stand for any number of them
        _files.refuse_bomb(path, sum(tensor.nbytes for tensor in content.values()), TRUST)
    return dict(state_of(content))


def _as_state(part: Any) -> Any:
    """A whole network, which only a trusted file holds, as its weights."""
    return unwrapped(part).state_dict() if isinstance(part, nn.Module) else part


def _is_state(part: Any) -> bool:
    if not isinstance(part, Mapping) or not part:
        return False
    return all(isinstance(tensor, Tensor) for tensor in part.values())


def _told(content: Any) -> str:
    """What a file holds, in a few words."""
    if not isinstance(content, Mapping):
        return f"a {type(content).__name__}"
    others = [name for name, part in content.items() if not isinstance(part, Tensor)]
    more = f" and {len(others) - 3} more" if len(others) > 3 else ""
    return f"{', '.join(map(str, others[:3]))}{more}" if others else "nothing"


def without_compile(state: StateDict) -> StateDict:
    """The names as they are before `torch.compile`, which may have wrapped any module."""
    return {name.replace("_orig_mod.", ""): tensor for name, tensor in state.items()}


def below(state: StateDict, prefix: str) -> StateDict:
    """The tensors whose names begin with a prefix, by the rest of their names."""
    return {n.removeprefix(prefix): tensor for n, tensor in state.items() if n.startswith(prefix)}


def prefix_of(own: StateDict, state: StateDict) -> str:
    """What stands before a model's names in a checkpoint that may hold more than the model."""
    names, aliases = _without_aliases(own)
    fits = _before(names, state)
    whole = [p for p in fits if below(state, p).keys() <= {*names, *aliases}]
    same = [p for p in whole if all(state[p + n].shape == own[n].shape for n in names)]
    if len(same) > 1:
        raise InvalidInput(
            f"a checkpoint must hold the model's network once, got it under {same[0]!r} and "
            f"{same[1]!r}: say which, SnapshotStore.adopt(folder, prefix={same[0]!r}) or --prefix "
            f"{same[0]} on the command line"
        )
    return (same or whole or fits or [""])[0]  # what does not fit is told by `fit`


def _before(names: Sequence[str], all_names: Collection[str]) -> list[str]:
    """What may stand before each of some names, among others."""
    ends = (name.removesuffix(names[0]) for name in all_names if name.endswith(names[0]))
    return [
        prefix
        for prefix in ends
        if (not prefix or prefix.endswith("."))
        and all(prefix + name in all_names for name in names)
    ]


def with_ties(own: StateDict, state: StateDict) -> StateDict:
    """A checkpoint that left out tied weights, with them."""
    _, aliases = _without_aliases(own)
    tied = {n: state[first] for n, first in aliases.items() if first in state and n not in state}
    return state | tied


def fit(
    model: nn.Module, state: Mapping[str, Tensor], origin: str, prefix: str | None = None
) -> None:
    """Load weights into a model, strictly: names and shapes must be the same.

    `prefix` is what was taken from the names, where the user said it.
    """
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
            f"{'; '.join(differences)}: {_way_out(list(own), list(state), prefix)}"
        )
    model.load_state_dict(state)


def _way_out(own: list[str], names: list[str], prefix: str | None) -> str:
    """What to do where a model's names are not the snapshot's: one may be a part of the other."""
    within, around = _before(names, own), _before(own, names)
    if len(within) == 1 and within[0]:
        part = within[0].removesuffix(".")
        return (
            f"the model has {within[0]!r} before the snapshot's names, as a module around the "
            f"network has: pass the part that was saved, model.get_submodule({part!r})"
        )
    if len(around) == 1 and around[0] and prefix is not None:
        return f"the model's names come after {prefix + around[0]!r} there: pass that as `prefix`"
    if len(around) == 1 and around[0]:
        part = around[0].removesuffix(".")
        return (
            f"the snapshot has {around[0]!r} before the model's names: pass the module that was "
            f"recorded, of which this model is the part {part!r}"
        )
    return "build the model that the snapshot was taken of"


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
