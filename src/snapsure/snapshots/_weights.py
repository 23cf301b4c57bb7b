"""State dicts: written as safetensors, read back, loaded into a model."""

import hashlib
import json
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from snapsure import _files
from snapsure._types import Precision
from snapsure.errors import CorruptFile, InvalidInput, WrongArchitecture
from snapsure.snapshots._pickles import TRUST, read_pickle

StateDict = dict[str, Tensor]

# Where training loops put the weights in a checkpoint that holds more than these.
_STATES = ("state_dict", "model_state_dict", "model")

_ALIASES = "snapsure.aliases"  # in the metadata of every file of ours
_KINDS = "snapsure.dtypes"  # in the metadata of rounded files: the dtypes before rounding
_BASE = "snapsure.base"  # in the metadata of files without frozen weights: the hash of these
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


def unwrap(model: nn.Module) -> nn.Module:
    """Take the user's own module out of DataParallel, DDP or `torch.compile`."""
    # The compiler takes seconds to import: where it is not loaded, nothing has been compiled.
    compiled = (torch._dynamo.OptimizedModule,) if "torch._dynamo" in sys.modules else ()
    while isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel, *compiled)):
        wrapper: Any = model
        model = wrapper._orig_mod if isinstance(model, compiled) else wrapper.module
    return model


def get_state(
    model_or_state: nn.Module | Mapping[str, Tensor] | str | Path, *, trust: bool = False
) -> Mapping[str, Tensor]:
    """Get weights and buffers by name, and refuse anything that is not an ordinary tensor."""
    if isinstance(model_or_state, str | Path):
        state: Mapping[str, Tensor] = read_checkpoint(Path(model_or_state), trust=trust)
    elif isinstance(model_or_state, nn.Module):
        state = unwrap(model_or_state).state_dict()
    elif isinstance(model_or_state, Mapping):
        state = model_or_state
    else:
        raise InvalidInput(
            "`model_or_state_dict` must be a torch.nn.Module, a state dict or a checkpoint's path, "
            f"got {type(model_or_state).__name__}. Pass the network or its .state_dict()."
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
                "`model_or_state_dict` must hold dense tensors of ordinary numbers, got "
                f"{kind} at {name!r}. Leave it out of the state dict."
            )
    if not state:
        raise InvalidInput(
            "`model_or_state_dict` must hold at least one tensor, got none. Pass a network with "
            "weights."
        )
    return state


def select_trained(
    given: nn.Module | Mapping[str, Tensor] | str | Path, trainable_only: bool | None
) -> tuple[nn.Module | Mapping[str, Tensor] | str | Path, str | None]:
    """Select what training changes of a network, and hash its base, which is the rest.

    That is every weight with `requires_grad`, and every buffer, since batch normalisation changes
    those of frozen layers too. What counts as a whole is returned as it is, without a hash: by
    default, everything but a network with adapters.
    """
    if trainable_only is False or (trainable_only is None and not isinstance(given, nn.Module)):
        return given, None
    if not isinstance(given, nn.Module):
        raise InvalidInput(
            "`model_or_state_dict` must be a torch.nn.Module for trainable_only=True, got "
            f"{type(given).__name__}, which does not say what is trained. Pass the network."
        )
    model = unwrap(given)
    weights = model.named_parameters(remove_duplicate=False)
    trained = {name for name, weight in weights if weight.requires_grad}
    if trainable_only is None and not (trained and _has_adapters(model)):
        return given, None
    if not trained:
        raise InvalidInput(
            "`model_or_state_dict` must have weights that are trained for trainable_only=True, got "
            "none with requires_grad. Record before you freeze it, or with trainable_only=False."
        )
    trained |= {name for name, _ in model.named_buffers(remove_duplicate=False)}
    state = {name: tensor for name, tensor in model.state_dict().items() if name in trained}
    return state, hash_base(model, state)


def hash_base(model: nn.Module, names: Collection[str]) -> str:
    """Hash the tensors of a model that a snapshot of some names leaves out.

    The factors by which `peft` scales adapters count too: no tensor shows them. A layer that it
    trains as a whole stays in the model in its first state as well. Nothing runs that, and it is
    random where the layer is new, so it does not count.
    """
    peft: Any = sys.modules.get("peft")
    kinds = () if peft is None else (peft.utils.ModulesToSaveWrapper,)
    unused = tuple(
        f"{name}.original_module."
        for name, module in model.named_modules()
        if isinstance(module, kinds)
    )
    factors = [
        (name, sorted(module.scaling.items()))
        for name, module in model.named_modules()
        if isinstance(getattr(module, "scaling", None), dict)
    ]
    digest = hashlib.sha256(repr(factors).encode())
    for name, tensor in sorted(model.state_dict().items()):
        if name not in names and not name.startswith(unused) and isinstance(tensor, Tensor):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            digest.update(_get_bytes(tensor.detach().cpu().contiguous()))
    return digest.hexdigest()


def _has_adapters(model: nn.Module) -> bool:
    """Whether `peft` made a model, or a part of it."""
    peft: Any = sys.modules.get("peft")
    if peft is None:
        return False
    kinds = peft.PeftModel, peft.tuners.tuners_utils.BaseTunerLayer
    return any(isinstance(module, kinds) for module in model.modules())


def write(
    file: BinaryIO,
    state: Mapping[str, Tensor],
    dtype: Precision | None = None,
    base: str | None = None,
) -> Callable[[], str]:
    """Write a safetensors file; return a function that waits for its SHA-256.

    Tensors that are one and the same (tied weights) are written once. With `dtype`, floating point
    numbers are stored in it; the metadata has the dtype that they had, and the hash of the base.

    `safetensors.torch.save` takes 4 times as long and twice the memory; `save_file` takes 2 times
    as long, renames a temporary file of its own, and hides the system's error number.
    """
    names, aliases = _find_aliases(state)
    stored = {name: _convert(name, state[name], dtype) for name in names}
    metadata = {_ALIASES: json.dumps(aliases)}
    if dtype is not None:
        kinds = {n: str(state[n].dtype)[6:] for n in names if stored[n].dtype != state[n].dtype}
        metadata[_KINDS] = json.dumps(kinds)
    if base is not None:
        metadata[_BASE] = base

    header: dict[str, object] = {"__metadata__": metadata}
    end = 0
    for name, tensor in stored.items():
        begin, end = end, end + tensor.nbytes
        header[name] = {
            "dtype": _DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    parts: list[Any] = [len(text).to_bytes(8, "little"), text, *map(_get_bytes, stored.values())]

    def hash_parts() -> str:
        digest = hashlib.sha256()
        for part in parts:
            digest.update(part)
        return digest.hexdigest()

    pool = ThreadPoolExecutor(1)  # hashes while the disk is busy
    sha256 = pool.submit(hash_parts)
    pool.shutdown(wait=False)
    file.writelines(parts)
    return sha256.result


def _get_bytes(tensor: Tensor) -> memoryview:
    return tensor.reshape(-1).view(torch.uint8).numpy().data


def _find_aliases(state: Mapping[str, Tensor]) -> tuple[list[str], dict[str, str]]:
    """List the names to write, and for each tensor that is another one again, which."""
    first: dict[object, str] = {}
    names, aliases = [], {}
    for name, tensor in state.items():
        place = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if tensor.numel() and place in first:
            aliases[name] = first[place]
        else:
            first[place] = name
            names.append(name)
    return names, aliases


def _convert(name: str, tensor: Tensor, dtype: Precision | None) -> Tensor:
    """Round a tensor as asked, and bring it to the CPU in one piece."""
    tensor = tensor.detach()
    if dtype is not None and tensor.is_floating_point():
        rounded = tensor.to(_FLOATS[dtype])
        if not torch.equal(rounded.isfinite(), tensor.isfinite()):
            raise InvalidInput(
                f"`dtype` must hold every weight, got {dtype} for {name!r}, which it "
                'makes infinite. Choose "bfloat16".'
            )
        tensor = rounded
    return tensor.cpu().contiguous()


def read(path: Path) -> StateDict:
    """Read a safetensors file; tied weights come back as one tensor, with their own dtype."""
    return parse(path.read_bytes(), path)


def parse(content: bytes, path: Path) -> StateDict:
    """Parse the content of a safetensors file."""
    # Not by safe_open: PyTorch turns a Ctrl-C while it maps a file into another error.
    try:
        state = load(content)
    except SafetensorError as error:
        raise CorruptFile(
            f"{path} must be a whole safetensors file, got one that ends early or is none "
            f"({error}). Copy it again, or delete it and train that epoch again."
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
            f"{path} must name its own tensors in its metadata (ties, and dtypes before rounding), "
            "got something else. Restore it, or save that snapshot again."
        ) from None
    return state


def is_own_file(path: Path) -> bool:
    """Say whether a file is a safetensors file that `write` made."""
    return _ALIASES in _read_metadata(path)


def read_base(path: Path) -> str | None:
    """Read the hash of the base that a file of ours leaves out; None where it is whole."""
    return _read_metadata(path).get(_BASE)


def _read_metadata(path: Path) -> dict[str, str]:
    """Read what a safetensors file says about itself; nothing where it is none."""
    try:
        with _files.open_file(path) as file:
            length = int.from_bytes(file.read(8), "little")
            metadata = json.loads(file.read(min(length, _HEADER)))["__metadata__"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}
    is_text = isinstance(metadata, dict) and all(isinstance(v, str) for v in metadata.values())
    return metadata if is_text else {}  # safetensors refuses anything else


def read_checkpoint(path: Path, *, trust: bool, part: str | None = None) -> StateDict:
    """Read a state dict that another tool wrote: safetensors, or a pickle of plain tensors.

    Pickles run no code, unless they are trusted. Where a file holds several networks, each under a
    name, the names of their weights begin with that name. `part` names the entry that is wanted, or
    what precedes the names of its weights; a warning says so where there is a choice.
    """
    if not path.is_file():
        raise InvalidInput(f"Checkpoint {path} must be a file, got none there. Check the path.")
    is_plain = path.suffix == ".safetensors"
    content = read(path) if is_plain else read_pickle(path, trust=trust)
    state = _find_state(content)
    if part is not None:
        state = _select_part(content, state, part, path)
    if is_plain:
        return dict(state)

    if not _is_state(state):
        got = f"a {type(state).__name__}"
        if isinstance(state, Mapping):
            others = [str(name) for name, part in state.items() if not isinstance(part, Tensor)]
            got = list_some(others) or "nothing"
        raise InvalidInput(
            f"Checkpoint {path} must hold the weights of a network, alone or under "
            f"{', '.join(_STATES)}, got {got}. Save it by torch.save(model.state_dict(), path)."
        )
    if not trust:  # one number may stand for any number of them
        _files.refuse_bomb(path, sum(tensor.nbytes for tensor in state.values()), TRUST)
    if part is None:
        _warn_of_choice(content, state, path)
    return dict(get_state(state))


def _get_weights(part: Any) -> Any:  # only a trusted file holds a whole network
    return unwrap(part).state_dict() if isinstance(part, nn.Module) else part


def _find_state(content: Any) -> Any:
    """Find the weights in a checkpoint: itself, a usual entry, the only one, or all networks'."""
    content = _get_weights(content)
    if not isinstance(content, Mapping):
        return content
    parts = {name: _get_weights(part) for name, part in content.items()}
    for name in _STATES:
        if isinstance(parts.get(name), Mapping):
            return parts[name]
    states = {name: part for name, part in parts.items() if _is_state(part)}
    if len(states) == 1:
        return next(iter(states.values()))
    return {f"{n}.{key}": t for n, part in states.items() for key, t in part.items()} or content


def _flatten(content: Any, before: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor in a checkpoint by a dotted name, such as `model_ema.0.weight`."""
    for name, part in _get_weights(content).items():
        if isinstance(part, Tensor):
            yield f"{before}{name}", part
        elif isinstance(part, Mapping | nn.Module):
            yield from _flatten(part, f"{before}{name}.")


def _select_part(content: Any, state: Any, part: str, path: Path) -> StateDict:
    """Select the weights under an entry of a checkpoint, else those whose names begin so."""
    every = dict(_flatten(content)) if isinstance(_get_weights(content), Mapping) else {}
    usual = state if _is_state(state) else {}
    found = select_prefix(every, f"{part}.") or select_prefix(usual, f"{part}.")
    if not found:
        entries = dict.fromkeys(name.rpartition(".")[0] or name for name in every)
        raise InvalidInput(
            f"`state` must name weights in the checkpoints, got {part!r}. {path} has "
            f"{list_some([*entries]) or 'none'}."
        )
    return found


def _warn_of_choice(content: Any, chosen: StateDict, path: Path) -> None:
    """Report other weights of the same network in a checkpoint, such as their moving average."""

    def list_places(state: StateDict) -> list[int]:
        return [tensor.data_ptr() for tensor in state.values()]

    shapes = Counter(tensor.shape for tensor in chosen.values())
    own, others = list[str](), list[str]()
    for name, state in _list_states(content):
        # One tensor more, because averages count what they are of.
        if len(state) <= len(chosen) + 1 and shapes <= Counter(t.shape for t in state.values()):
            (own if list_places(state) == list_places(chosen) else others).append(name)
    if own and others:
        warnings.warn(
            f"Checkpoints in {path.parent} hold the network as {own[0]!r} and as {others[0]!r}; "
            f"{own[0]!r} is used. Name the one that you mean: SnapshotStore.adopt(folder, "
            f"state={others[0]!r}), or --state {others[0]} on the command line.",
            stacklevel=2,
        )


def _list_states(content: Any) -> list[tuple[str, StateDict]]:
    """List the state dicts in a checkpoint, and those one level below, by name."""
    if not isinstance(content, Mapping):
        return []
    parts = [(str(name), _get_weights(part)) for name, part in content.items()]
    below = [
        (f"{name}.{inner}", _get_weights(deeper))
        for name, part in parts
        if isinstance(part, Mapping)
        for inner, deeper in part.items()
    ]
    return [(name, part) for name, part in [*parts, *below] if _is_state(part)]


def _is_state(part: Any) -> bool:
    if not isinstance(part, Mapping) or not part:
        return False
    return all(isinstance(tensor, Tensor) for tensor in part.values())


def select_prefix(state: StateDict, prefix: str) -> StateDict:
    """Select the tensors whose names begin with a prefix, by the rest of their names."""
    return {n.removeprefix(prefix): tensor for n, tensor in state.items() if n.startswith(prefix)}


def find_prefix(own: StateDict, state: StateDict) -> str:
    """Find what precedes a model's names in a checkpoint that may hold more than the model."""
    names, aliases = _find_aliases(own)
    fits = _find_prefixes(names, state)
    whole = [p for p in fits if select_prefix(state, p).keys() <= {*names, *aliases}]
    same = [p for p in whole if all(state[p + n].shape == own[n].shape for n in names)]
    if len(same) > 1:
        raise InvalidInput(
            f"A checkpoint must hold the model's network once, got it under {same[0]!r} and "
            f"{same[1]!r}. Name one: SnapshotStore.adopt(folder, state={same[0][:-1]!r}), or "
            f"--state {same[0][:-1]} on the command line."
        )
    return (same or whole or fits or [""])[0]  # `load_strictly` reports what does not fit


def _find_prefixes(names: Sequence[str], all_names: Collection[str]) -> list[str]:
    """Find what precedes each of some names among others."""
    starts = [n.removesuffix(first) for first in names[:1] for n in all_names if n.endswith(first)]
    whole = [start for start in starts if not start or start.endswith(".")]
    return [start for start in whole if all(start + name in all_names for name in names)]


def add_ties(own: StateDict, state: StateDict) -> StateDict:
    """Add the tied weights that a checkpoint left out."""
    _, aliases = _find_aliases(own)
    tied = {n: state[first] for n, first in aliases.items() if first in state and n not in state}
    return state | tied


def translate_names(model: nn.Module, state: StateDict) -> StateDict:
    """Rename a checkpoint's weights to the model's own names, where Transformers can.

    Transformers 5 writes many models (ViT among them) with the names of earlier versions, and
    translates on loading.
    """
    transformers: Any = sys.modules.get("transformers")
    if transformers is None or not isinstance(model, transformers.PreTrainedModel):
        return state
    logging = transformers.utils.logging
    level, has_bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    try:  # without a progress bar for each snapshot, and without a report on what does not fit
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        loaded, problems = type(model).from_pretrained(
            None, config=model.config, state_dict=dict(state), output_loading_info=True
        )
    except (RuntimeError, TypeError):  # other shapes, or a class that is made otherwise
        return state
    finally:
        logging.set_verbosity(level)
        if has_bar:
            logging.enable_progress_bar()
    return state if any(problems.values()) else dict(loaded.state_dict())


def load_strictly(
    model: nn.Module,
    state: Mapping[str, Tensor],
    origin: str,
    *,
    is_part: bool = False,
    base: str | None = None,
) -> None:
    """Load weights into a model; names and shapes must be the same.

    With `is_part`, the rest of the model stays as it is. If `base` is given, the rest must have
    that hash.
    """
    model = unwrap(model)
    own = model.state_dict()
    common = own.keys() & state.keys()
    differences: dict[str, Iterable[str]] = {
        "missing in the snapshot": () if is_part else own.keys() - state.keys(),
        "unknown to the model": state.keys() - own.keys(),
        "of another shape": (
            f"{name} {tuple(state[name].shape)} for {tuple(own[name].shape)}"
            for name in common
            if own[name].shape != state[name].shape
        ),
        "of another kind of number": (
            name
            for name in common
            if own[name].is_floating_point() != state[name].is_floating_point()
        ),
    }
    lists = {what: list_some(sorted(names)) for what, names in differences.items()}
    got = "; ".join(f"{what}: {names}" for what, names in lists.items() if names)
    if got:
        raise WrongArchitecture(
            f"{origin} must have the architecture of `model`, got differences: {got}. "
            f"{_suggest_part(list(own), list(state))}"
        )
    if base is not None and (found := hash_base(model, state)) != base:
        raise InvalidInput(
            f"{origin} leaves out the weights that were frozen in training, which `model` must "
            f"have (SHA-256 {base}), got others ({found}). Build it from the same pretrained "
            "weights, in the same precision, with adapters of the same settings."
        )
    model.load_state_dict(state, strict=not is_part)


def _suggest_part(own: list[str], names: list[str]) -> str:
    """Suggest which model to pass, where one of model and snapshot may be a part of the other."""
    # A PeftModel's names, such as base_model.model.fc.lora_A.default.weight.
    has, takes = (
        any(name.startswith("base_model.") and ".default." in name for name in some)
        for some in (names, own)
    )
    if has and not takes:
        return (
            "The snapshot has adapters of peft. Pass the base with adapters, as in training: "
            "peft.get_peft_model(base, config)."
        )
    within, around = _find_prefixes(names, own), _find_prefixes(own, names)
    if len(within) == 1 and within[0]:
        return (
            f"The model has {within[0]!r} before the snapshot's names, as a module around the "
            "network has. Pass the part that was saved, "
            f"model.get_submodule({within[0].removesuffix('.')!r})."
        )
    if len(around) == 1 and around[0]:
        return (
            f"The snapshot has {around[0]!r} before the model's names. Pass the module that was "
            f"recorded, of which this model is the part {around[0].removesuffix('.')!r}."
        )
    return "Build the model that the snapshot was taken of."


def list_some(names: Sequence[str]) -> str:
    """List the first three names, and count the rest."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
