"""Passes with dropout that repeat only what dropout can change.

What finished before the first dropout that is switched on gives the same output in every pass. It
is kept from the plain pass, and answers from memory in the others.
"""

import itertools
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from snapsure.errors import InvalidInput
from snapsure.networks._probe import DROPOUTS, Order


class Replay:
    """Remembers what finished before the first of some dropouts, and switches these on.

    Other dropouts stay off, and may be among what is remembered.
    """

    def __init__(self, module: nn.Module, order: Order, dropouts: Mapping[str, nn.Module]) -> None:
        self.rates = {name: float(_rate(drop)) for name, drop in dropouts.items()}
        self._dropouts = list(dropouts.values())
        finished = order.finished_before(self._dropouts)
        self._unseen = _only_seen_by_the_next(module, finished)
        self._kept: dict[nn.Module, list[Any]] = {m: [] for m in finished}
        self._listening = self._dropping = self._late = False
        for m in finished:
            m.register_forward_hook(self._keep)
        for m in self._dropouts:
            m.register_forward_pre_hook(self._note_dropout)

    def forget(self) -> None:
        """Let go of the last pass."""
        self._dropping = self._late = False
        for outputs in self._kept.values():
            outputs.clear()

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Remember the pass that is made meanwhile; passes with dropout are not to be heard."""
        self.forget()
        self._listening = True
        try:
            yield
        finally:
            self._listening = False

    @contextmanager
    def played(self, p: float | None, rows: int) -> Iterator[None]:
        """Let every pass over the batch that was heard be one with dropout."""
        with self._remembered(), self._dropped(p, rows):
            yield

    def _keep(self, module: nn.Module, args: Any, output: Any) -> None:
        if self._listening:
            self._late |= self._dropping
            # Copies, because a model may change a module's output in place.
            self._kept[module].append(None if module in self._unseen else cloned(output))

    def _note_dropout(self, module: nn.Module, args: Any) -> None:
        self._dropping |= self._listening

    @contextmanager
    def _remembered(self) -> Iterator[None]:
        """Let modules answer with the outputs of their last pass, call by call, over and over."""
        # A module that this batch also called after the dropout cannot answer from memory.
        kept = {} if self._late else self._kept
        own = {m: {k: v for k, v in vars(m).items() if k == "forward"} for m in kept}
        heard = {m: (m._forward_hooks, m._forward_pre_hooks) for m in kept}
        try:
            for m, outputs in kept.items():
                m.forward = _player(tuple(outputs))
                m._forward_hooks, m._forward_pre_hooks = OrderedDict(), OrderedDict()
            yield
        finally:
            for m in kept:
                m._forward_hooks, m._forward_pre_hooks = heard[m]
                del m.forward
                vars(m).update(own[m])

    @contextmanager
    def _dropped(self, p: float | None, rows: int) -> Iterator[None]:
        """Switch dropouts on, each with one mask for all rows, drawn as for a batch of one."""

        def drop(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
            assert isinstance(module, nn.modules.dropout._DropoutNd)
            if len(args[0]) != rows:
                raise InvalidInput(
                    f"dropout must see the rows on its first axis, got shape "
                    f"{tuple(args[0].shape)} for {rows} rows: use batch_first=True"
                )
            function = next(f for kind, f in DROPOUTS.items() if isinstance(module, kind))
            mask = function(torch.ones_like(args[0][:1]), module.p if p is None else p, True)
            return output.mul_(mask) if module.inplace else output * mask

        handles = [module.register_forward_hook(drop) for module in self._dropouts]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def cloned(value: Any) -> Any:
    """A copy of every tensor."""
    return tree_map(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, value)


def _rate(dropout: nn.Module) -> float:
    assert isinstance(dropout, nn.modules.dropout._DropoutNd)
    return dropout.p


def _player(outputs: tuple[Any, ...]) -> Callable[..., Any]:
    turns = itertools.cycle(outputs)
    return lambda *args, **kwargs: cloned(next(turns))


def _only_seen_by_the_next(module: nn.Module, finished: list[nn.Module]) -> set[nn.Module]:
    """Of the modules that will be replayed, those whose output only a replayed one would read.

    In a plain `nn.Sequential` each child's output goes to the next child and nowhere else.
    """
    replayed, unseen = {*finished}, set()
    parents = Counter(child for m in module.modules() for child in m.children())
    for m in module.modules():
        if isinstance(m, nn.Sequential) and type(m).forward is nn.Sequential.forward:
            for child, follower in itertools.pairwise(m):
                if child in replayed and follower in replayed and parents[child] == 1:
                    unseen.add(child)
    return unseen
