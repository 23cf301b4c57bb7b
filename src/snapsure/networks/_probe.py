"""One pass with hooks everywhere: which modules run, in which order, and where dropout is."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle

from snapsure.errors import InvalidInput
from snapsure.networks._forward import Sampling

DROPOUTS: dict[type[nn.Module], Callable[..., Tensor]] = {
    nn.Dropout: nn.functional.dropout,
    nn.Dropout1d: nn.functional.dropout1d,
    nn.Dropout2d: nn.functional.dropout2d,
    nn.Dropout3d: nn.functional.dropout3d,
}


class Order:
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

    def dropouts(self, module: nn.Module, sampling: Sampling) -> dict[str, nn.Module]:
        """The dropout modules that a sampling switches on, by name, in the order they run."""
        names = {m: name for name, m in module.named_modules()}
        ran = [
            m
            for m, started in self.events
            if started and isinstance(m, nn.modules.dropout._DropoutNd)
        ]
        if isinstance(sampling.layers, str):
            chosen = self._trained_with(ran)
            chosen = chosen[-1:] if sampling.layers == "last" else chosen
        else:
            chosen = _named(module, {m: names[m] for m in ran}, sampling)
        other = [m for m in chosen if not isinstance(m, tuple(DROPOUTS))]
        if other:
            raise InvalidInput(
                f"`model` must use nn.Dropout for MC-dropout, got {type(other[0]).__name__}, which "
                "does more than drop: use another κ"
            )
        return {names[m]: m for m in chosen}

    def _trained_with(self, ran: list[nn.modules.dropout._DropoutNd]) -> list[nn.Module]:
        """Those that are not switched off, call by call; refuses if some cannot be found."""
        if self.functional:
            raise InvalidInput(
                "`model` must use nn.Dropout for MC-dropout, got torch.nn.functional.dropout in "
                f"{self.functional[0]}: make it a module, which can be found and switched on"
            )
        trained: list[nn.Module] = [m for m in ran if m.p > 0]
        if not trained:
            raise InvalidInput(
                "`model` must have dropout for MC-dropout, got no nn.Dropout with p > 0 that ran: "
                "its κ would be constant; use another κ, or a network trained with dropout"
            )
        return trained

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


def _named(
    module: nn.Module, ran: dict[nn.modules.dropout._DropoutNd, str], sampling: Sampling
) -> list[nn.Module]:
    """The dropouts that a sampling names, in the order they run."""
    every = dict(module.named_modules(remove_duplicate=False))  # by each of its names
    for name in sampling.layers:
        if every.get(name) not in ran:
            raise InvalidInput(
                f"`layers` must name dropouts that the model runs, got {name!r}: it runs "
                f"{', '.join(ran.values()) or 'none'}"
            )
    chosen = [m for m in ran if any(every[name] is m for name in sampling.layers)]
    off = [m for m in chosen if m.p == 0 and sampling.p is None]
    if off:
        raise InvalidInput(
            "`layers` must name dropouts with a rate above 0 where `p` is None, got "
            f"{ran[off[0]]!r} with 0: leave it out, or give a p"
        )
    return [*chosen]


class _SeesDropout(TorchFunctionMode):
    """Notices dropout that is called as a function, outside of a dropout module."""

    def __init__(self, order: Order, stack: list[nn.Module]) -> None:
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


def probe(module: nn.Module, run: Callable[[], Any]) -> Order:
    order, stack = Order(), []

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
