"""What runs in a pass and in which order, and passes that repeat only what dropout changes.

What ends before the first dropout that is switched on gives the same output in every pass. It is
stored in the plain pass, and answers from memory in the others.
"""

import itertools
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map
from torch.utils.hooks import RemovableHandle

from snapsure.errors import InvalidInput
from snapsure.networks._forward import Sampling

_DROPOUTS: dict[type[nn.Module], Callable[..., Tensor]] = {
    nn.Dropout: nn.functional.dropout,
    nn.Dropout1d: nn.functional.dropout1d,
    nn.Dropout2d: nn.functional.dropout2d,
    nn.Dropout3d: nn.functional.dropout3d,
}
_FUNCTIONS = {"dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout"}


class Trace:
    """When each module started and ended in a pass."""

    def __init__(self) -> None:
        self.events: list[tuple[nn.Module, bool]] = []  # (module, whether it started)
        self.functional: list[str] = []  # modules that call dropout as a function

    def last_linear(self) -> nn.Module:
        """Return the last linear layer that ran."""
        ran = [m for m, started in self.events if started and isinstance(m, nn.Linear)]
        if not ran:
            raise InvalidInput(
                "`model` must have a linear layer whose input is the embedding, got none that ran. "
                "Name a module: NNDistance(..., layer=...)."
            )
        return ran[-1]

    def dropouts(self, module: nn.Module, sampling: Sampling) -> dict[str, _DropoutNd]:
        """Return the dropouts that a sampling switches on, by name, in the order they run."""
        names = {m: name for name, m in module.named_modules()}
        ran = [m for m, started in self.events if started and isinstance(m, _DropoutNd)]
        if not isinstance(sampling.layers, str):
            chosen = _find_named_dropouts(module, {m: names[m] for m in ran}, sampling)
        elif self.functional:
            raise InvalidInput(
                "`model` must use nn.Dropout for MC-dropout, got torch.nn.functional.dropout in "
                f"{self.functional[0]}. Make it a module, which can be found and switched on."
            )
        else:
            active = [m for m in ran if m.p > 0]
            chosen = active[-1:] if sampling.layers == "last" else active
        if not chosen:
            raise InvalidInput(
                "`model` must have dropout for MC-dropout, got no nn.Dropout with p > 0 that ran, "
                "so that κ would be constant. Use another κ, or a network trained with dropout."
            )
        other = [m for m in chosen if not isinstance(m, tuple(_DROPOUTS))]
        if other:
            raise InvalidInput(
                f"`model` must use nn.Dropout for MC-dropout, got {type(other[0]).__name__}, which "
                "does more than drop. Use another κ."
            )
        return {names[m]: m for m in chosen}

    def ended_before(self, modules: Sequence[nn.Module]) -> list[nn.Module]:
        """Return the outermost modules whose calls all ended when the first of `modules` began."""
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
        # A module that also runs inside another is called less often in a replay.
        return [module for module in dict.fromkeys(outer) if module not in inner]


def trace(module: nn.Module, run: Callable[[], Any]) -> Trace:
    """Record which modules run, and where dropout is called as a function, while `run` runs."""
    order, stack = Trace(), []

    def enter(m: nn.Module, *_: Any) -> None:
        order.events.append((m, True))
        stack.append(m)

    def leave(m: nn.Module, *_: Any) -> None:
        order.events.append((m, False))
        stack.pop()

    class Watch(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            inside = stack[-1] if stack else None
            if getattr(func, "__name__", "") in _FUNCTIONS and not isinstance(inside, _DropoutNd):
                order.functional.append(type(inside).__name__)
            return func(*args, **(kwargs or {}))

    handles: list[RemovableHandle] = []
    try:
        for m in module.modules():
            handles.append(m.register_forward_pre_hook(enter, prepend=True))
            handles.append(m.register_forward_hook(leave))
        with Watch():
            run()
    finally:
        for handle in handles:
            handle.remove()
    return order


class Replay:
    """Store what ends before the first of some dropouts, and switch these dropouts on.

    Other dropouts stay off, and may be among what is stored.
    """

    def __init__(self, module: nn.Module, order: Trace, dropouts: Mapping[str, _DropoutNd]) -> None:
        self._dropouts = list(dropouts.values())
        self.rates = {name: float(m.p) for name, m in dropouts.items()}
        ended = order.ended_before(self._dropouts)
        self._unread = _read_by_replayed_only(module, ended)
        self._outputs: dict[nn.Module, list[Any]] = {m: [] for m in ended}
        self._recording = self._dropping = self._late = False
        for m in ended:
            m.register_forward_hook(self._store)
        for m in self._dropouts:
            m.register_forward_pre_hook(self._note_dropout)

    def forget(self) -> None:
        """Free the last pass."""
        self._dropping = self._late = False
        for outputs in self._outputs.values():
            outputs.clear()

    @contextmanager
    def record(self) -> Iterator[None]:
        """Store the outputs of the pass that runs inside; passes with dropout are not stored."""
        self.forget()
        self._recording = True
        try:
            yield
        finally:
            self._recording = False

    def _store(self, module: nn.Module, args: Any, output: Any) -> None:
        if self._recording:
            self._late |= self._dropping
            # Copies, because a model may change the output of a module in place.
            self._outputs[module].append(None if module in self._unread else clone(output))

    def _note_dropout(self, module: nn.Module, args: Any) -> None:
        self._dropping |= self._recording

    @contextmanager
    def play(self, p: float | None, rows: int) -> Iterator[None]:
        """Make every pass over the recorded batch one with dropout.

        What was stored answers call by call, as often as it is asked.
        """
        # A module that this batch also called after the dropout cannot answer from memory.
        stored = {} if self._late else self._outputs
        own = {m: {k: v for k, v in vars(m).items() if k == "forward"} for m in stored}
        hooks = {m: (m._forward_hooks, m._forward_pre_hooks) for m in stored}
        try:
            for m, outputs in stored.items():
                turns = itertools.cycle(tuple(outputs))
                m.forward = lambda *args, turns=turns, **kwargs: clone(next(turns))
                m._forward_hooks, m._forward_pre_hooks = OrderedDict(), OrderedDict()
            with self._drop(p, rows):
                yield
        finally:
            for m in stored:
                m._forward_hooks, m._forward_pre_hooks = hooks[m]
                del m.forward
                vars(m).update(own[m])

    @contextmanager
    def _drop(self, p: float | None, rows: int) -> Iterator[None]:
        """Switch dropouts on, each with one mask for all rows, drawn as for a batch of one."""

        def drop(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
            assert isinstance(module, _DropoutNd)
            if len(args[0]) != rows:
                raise InvalidInput(
                    f"Dropout must see the rows on its first axis, got shape "
                    f"{tuple(args[0].shape)} for {rows} rows. Use batch_first=True."
                )
            function = next(f for kind, f in _DROPOUTS.items() if isinstance(module, kind))
            mask = function(torch.ones_like(args[0][:1]), module.p if p is None else p, True)
            return output.mul_(mask) if module.inplace else output * mask

        handles = [module.register_forward_hook(drop) for module in self._dropouts]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def clone(value: Any) -> Any:
    """Copy every tensor in a batch."""
    return tree_map(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, value)


def _find_named_dropouts(
    module: nn.Module, ran: Mapping[_DropoutNd, str], sampling: Sampling
) -> list[_DropoutNd]:
    """Return the dropouts that a sampling names, in the order they run."""
    every = dict(module.named_modules(remove_duplicate=False))  # by each of its names
    for name in sampling.layers:
        if every.get(name) not in ran:
            raise InvalidInput(
                f"`layers` must name dropouts that the model runs, got {name!r}. It runs "
                f"{', '.join(ran.values()) or 'none'}."
            )
    chosen = [m for m in ran if any(every[name] is m for name in sampling.layers)]
    off = [m for m in chosen if m.p == 0 and sampling.p is None]
    if off:
        raise InvalidInput(
            "`layers` must name dropouts with a rate above 0 where `p` is None, got "
            f"{ran[off[0]]!r} with 0. Leave it out, or set `p`."
        )
    return chosen


def _read_by_replayed_only(module: nn.Module, ended: list[nn.Module]) -> set[nn.Module]:
    """Return the modules whose output only another replayed module reads.

    In a plain `nn.Sequential`, the output of each child goes to the next child and nowhere else.
    """
    replayed, unread = {*ended}, set()
    parents = Counter(child for m in module.modules() for child in m.children())
    for m in module.modules():
        if isinstance(m, nn.Sequential) and type(m).forward is nn.Sequential.forward:
            for child, follower in itertools.pairwise(m):
                if child in replayed and follower in replayed and parents[child] == 1:
                    unread.add(child)
    return unread
