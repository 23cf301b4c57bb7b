"""A network under observation: logits, embeddings and dropout samples from one pass.

Any `nn.Module` that maps a batch to logits works as it is. One probing pass finds, by hooks, which
modules run in which order: the last linear layer, the dropouts, and what has finished before the
first of them. From then on hooks keep what is needed of each pass. The observed module is a copy;
the user's is not touched.
"""

import copy
import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.hooks import RemovableHandle

from snapsure.errors import InvalidInput
from snapsure.scores._base import Forward, Kappa, Snapshot
from snapsure.scores._data import Rows, to_device

_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)


class Network(Snapshot):
    """A private copy of the model, on the best device, watched for what the κ functions need."""

    def __init__(self, model: nn.Module, kappas: list[Kappa], sample: Any) -> None:
        self.device = _device(model)
        self.module = copy.deepcopy(model).to(self.device).eval()
        self._layers = {layer for kappa in kappas for layer in kappa.layers}
        self._stochastic = any(kappa.stochastic for kappa in kappas)
        self._inputs: dict[str | None, Tensor] = {}
        self._kept: dict[nn.Module, list[Any]] = {}
        self._fragile: set[nn.Module] = set()
        with torch.inference_mode():
            self._watch(_probe(self.module, lambda: self._call(sample)))
            if self._stochastic:
                self._find_fragile(sample)

    def run(self, inputs: Any) -> "Pass":
        """One pass over a batch."""
        self._inputs.clear()
        for outputs in self._kept.values():
            outputs.clear()
        inputs = to_device(inputs, self.device)
        return Pass(self, inputs, self._call(inputs))

    def passes(self, data: Rows) -> Iterator[tuple[Forward, NDArray[np.int64] | None]]:
        """Passes over other data."""
        with torch.inference_mode():
            for inputs, labels in data.batches():
                yield self.run(inputs), labels

    def _call(self, inputs: Any) -> Tensor:
        inputs = to_device(inputs, self.device)
        output = self.module(**inputs) if isinstance(inputs, Mapping) else self.module(inputs)
        if isinstance(output, Mapping) and "logits" in output:
            output = output["logits"]
        if not isinstance(output, Tensor) or output.ndim != 2:
            kind = type(output).__name__
            got = f"shape {tuple(output.shape)}" if isinstance(output, Tensor) else kind
            raise InvalidInput(
                f"`model` must map a batch to logits (rows, classes), got {got}: "
                "wrap it in a module that returns them"
            )
        if not output.isfinite().all():
            raise InvalidInput(
                "`model` must give finite logits, got NaN or infinity: "
                "the training of this snapshot has diverged; leave it out"
            )
        return output

    def _watch(self, order: "_Order") -> None:
        names = {name: module for name, module in self.module.named_modules() if name}
        for layer in self._layers:
            if layer is not None and layer not in names:
                raise InvalidInput(
                    f"`layer` must name a module of the model, got {layer!r}: "
                    f"it has {', '.join(list(names)[:8])}{' …' if len(names) > 8 else ''}"
                )
            watched = order.last_linear() if layer is None else names[layer]
            watched.register_forward_pre_hook(self._keep_input(layer), with_kwargs=True)
        if self._stochastic:
            self.dropouts = order.dropouts()
            self._kept = {module: [] for module in order.finished_before(self.dropouts)}
            for module in self._kept:
                module.register_forward_hook(self._keep_output)

    def _keep_output(self, module: nn.Module, args: Any, output: Any) -> None:
        self._kept[module].append(_cloned(output) if module in self._fragile else output)

    def _find_fragile(self, sample: Any) -> None:
        """Find outputs that the model's own code changes in place when they are replayed."""
        self.run(sample)
        before = {module: _cloned(outputs) for module, outputs in self._kept.items()}
        next(self.sample(sample, 1, None, 0))
        self._fragile = {
            module for module, outputs in self._kept.items() if not _equal(outputs, before[module])
        }

    def _keep_input(self, layer: str | None) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            value = args[0] if args else next(iter(kwargs.values()))
            if value.ndim != 2:
                raise InvalidInput(
                    f"the embedding must be (rows, features), got shape {tuple(value.shape)} at "
                    f"{type(module).__name__}: name another layer, NNDistance(..., layer=...)"
                )
            self._inputs[layer] = value

        return hook

    def embedding(self, layer: str | None) -> Tensor:
        """What the layer was given in the last pass."""
        return self._inputs[layer]

    def sample(self, inputs: Any, passes: int, p: float | None, seed: int) -> Iterator[Tensor]:
        """Logits under dropout; what ran before the first dropout answers from memory."""
        with (
            _replayed(self._kept, self._fragile),
            _dropped(self.dropouts, p),
            _seeded(seed, self.device),
        ):
            for _ in range(passes):
                yield self._call(inputs)


class Pass(Forward):
    """One pass of a network; it lasts until the network's next."""

    def __init__(self, network: Network, inputs: Any, logits: Tensor) -> None:
        self._network, self._inputs, self.logits = network, inputs, logits

    def embedding(self, layer: str | None) -> Tensor:
        """What the layer was given."""
        return self._network.embedding(layer)

    def samples(self, passes: int, p: float | None, seed: int) -> Iterator[Tensor]:
        """Logits under dropout."""
        return self._network.sample(self._inputs, passes, p, seed)


class _Order:
    """When each module started and ended in a pass."""

    def __init__(self) -> None:
        self.events: list[tuple[nn.Module, bool]] = []  # (module, whether it started)
        self.functional: list[str] = []  # where dropout was called as a function

    def last_linear(self) -> nn.Module:
        """The last linear layer that ran."""
        ran = [m for m, started in self.events if started and isinstance(m, nn.Linear)]
        if not ran:
            raise InvalidInput(
                "`model` must have a linear layer whose input is the embedding, got none that ran: "
                "name a module, NNDistance(..., layer=...)"
            )
        return ran[-1]

    def dropouts(self) -> list[nn.Module]:
        """The dropout modules that ran and are not switched off."""
        if self.functional:
            raise InvalidInput(
                "`model` must use nn.Dropout for MC-dropout, got torch.nn.functional.dropout in "
                f"{self.functional[0]}: make it a module, which can be found and switched on"
            )
        ran = [m for m, started in self.events if started and isinstance(m, _DROPOUTS) and m.p > 0]
        if not ran:
            raise InvalidInput(
                "`model` must have dropout for MC-dropout, got no nn.Dropout with p > 0 that ran: "
                "its κ would be constant; use another κ, or a network trained with dropout"
            )
        return list(dict.fromkeys(ran))

    def finished_before(self, modules: list[nn.Module]) -> list[nn.Module]:
        """The outermost modules all of whose calls had ended when the first of `modules` began."""
        begin = next(i for i, (m, started) in enumerate(self.events) if started and m in modules)
        later = {module for module, _ in self.events[begin:]}
        outer, inner, depth = [], set(), 0
        for module, started in self.events[:begin]:
            if module in later:
                continue
            depth += 1 if started else -1
            if started and depth == 1:
                outer.append(module)
            elif started:
                inner.add(module)
        # One that also runs inside another would be called less often than it was heard.
        return [module for module in dict.fromkeys(outer) if module not in inner]


class _SeesDropout(TorchFunctionMode):
    """Notices dropout that is called as a function, outside of a dropout module."""

    def __init__(self, order: _Order, stack: list[nn.Module]) -> None:
        super().__init__()
        self._order, self._stack = order, stack

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Pass the call on."""
        called = getattr(func, "__name__", "")
        inside = self._stack[-1] if self._stack else None
        if called in _FUNCTIONS and not isinstance(inside, nn.modules.dropout._DropoutNd):
            self._order.functional.append(type(inside).__name__)
        return func(*args, **(kwargs or {}))


_FUNCTIONS = {"dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout"}


def _probe(module: nn.Module, run: Callable[[], Any]) -> _Order:
    order, stack = _Order(), []

    def enter(m: nn.Module, *_: Any) -> None:
        order.events.append((m, True))
        stack.append(m)

    def leave(m: nn.Module, *_: Any) -> None:
        order.events.append((m, False))
        stack.pop()

    handles: list[RemovableHandle] = []
    try:
        for m in module.modules():
            handles.append(m.register_forward_pre_hook(enter, prepend=True))
            handles.append(m.register_forward_hook(leave))
        with _SeesDropout(order, stack):
            run()
    finally:
        for handle in handles:
            handle.remove()
    return order


@contextmanager
def _replayed(kept: dict[nn.Module, list[Any]], fragile: set[nn.Module]) -> Iterator[None]:
    """Let modules answer with the outputs of their last pass, call by call, over and over."""

    def replay(module: nn.Module, outputs: tuple[Any, ...]) -> Callable[..., Any]:
        turns = itertools.cycle(outputs)
        if module in fragile:
            return lambda *args, **kwargs: _cloned(next(turns))
        return lambda *args, **kwargs: next(turns)

    hooks = {module: module._forward_hooks for module in kept}
    try:
        for module, outputs in kept.items():
            module.forward = replay(module, tuple(outputs))
            module._forward_hooks = OrderedDict()  # what is replayed is not heard again
        yield
    finally:
        for module in kept:
            del module.forward
            module._forward_hooks = hooks[module]


@contextmanager
def _dropped(dropouts: list[nn.Module], p: float | None) -> Iterator[None]:
    """Switch dropouts on, each with one mask for all rows, drawn as for a batch of one."""

    def drop(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
        assert isinstance(module, nn.modules.dropout._DropoutNd)
        ones = torch.ones_like(args[0][:1])
        return output * _FUNCTION_OF[type(module)](ones, module.p if p is None else p, True)

    handles = [module.register_forward_hook(drop) for module in dropouts]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


_FUNCTION_OF: dict[type[nn.Module], Callable[..., Tensor]] = {
    nn.Dropout: nn.functional.dropout,
    nn.Dropout1d: nn.functional.dropout1d,
    nn.Dropout2d: nn.functional.dropout2d,
    nn.Dropout3d: nn.functional.dropout3d,
}


@contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Draw from a fresh generator, and leave the caller's as it was."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


def _cloned(value: Any) -> Any:
    return tree_map(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, value)


def _equal(a: Any, b: Any) -> bool:
    pairs = zip(tree_leaves(a), tree_leaves(b), strict=True)
    return all(torch.equal(x, y) for x, y in pairs if isinstance(x, Tensor))


def _device(model: nn.Module) -> torch.device:
    """Where the model is, unless that is the CPU and there is something faster."""
    tensors = [*model.parameters(), *model.buffers()]
    own = tensors[0].device if tensors else torch.device("cpu")
    if own.type == "cpu" and torch.accelerator.is_available():
        return torch.accelerator.current_accelerator() or own
    return own
