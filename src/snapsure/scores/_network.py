"""A network under observation: logits, embeddings and dropout samples from one pass.

Any `nn.Module` that maps a batch to logits works as it is. One probing pass finds, by hooks, which
modules run in which order: the last linear layer, the dropouts, and what has finished before the
first of them. From then on hooks keep what is needed of each pass. The observed module is a copy;
the user's is not touched. Dropout inside `nn.LSTM` or `nn.MultiheadAttention` is no module of its
own, and stays off.
"""

import copy
import itertools
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from snapsure.errors import InvalidInput
from snapsure.scores._base import Forward, Kappa, Snapshot
from snapsure.scores._data import row_count, to_device
from snapsure.scores._probe import DROPOUTS, Order, probe
from snapsure.snapshots._weights import unwrapped


def private_copy(model: nn.Module) -> nn.Module:
    """A copy that may be watched and loaded at will, on the best device, in evaluation mode."""
    device = _device(model)
    try:
        return copy.deepcopy(unwrapped(model)).to(device).eval()
    except RuntimeError as error:
        raise InvalidInput(
            f"`model` must be one that copy.deepcopy can copy, got an error ({error}): for "
            "torch.nn.utils.weight_norm, use torch.nn.utils.parametrizations.weight_norm"
        ) from None


class Network(Snapshot):
    """A module, which must be a private copy, watched for what the κ functions need."""

    def __init__(self, module: nn.Module, kappas: list[Kappa], sample: Any) -> None:
        self.module = module
        self.device = _device(module)
        self._layers = {layer for kappa in kappas for layer in kappa.layers}
        self._inputs: dict[str | None, Tensor] = {}
        self._replay = _Replay()
        sample = cloned(to_device(sample, self.device))
        untouched = _versions(sample)
        with torch.inference_mode():
            order = probe(module, lambda: refuse_probabilities(self._call(sample)))
        self._spoils = _versions(sample) != untouched
        self._watch_layers(order)
        if any(kappa.stochastic for kappa in kappas):
            self._replay.watch(module, order)

    def run(self, inputs: Any) -> "Pass":
        """One pass over a batch."""
        self._inputs = {}
        self._replay.begin()
        inputs = to_device(inputs, self.device)
        logits = self._call(self._own(inputs))
        return Pass(self, inputs, logits, self._inputs)

    def forget(self) -> None:
        """Let go of what the last pass left."""
        self._inputs = {}
        self._replay.begin()

    def sample(self, inputs: Any, passes: int, p: float | None, seed: int) -> Iterator[Tensor]:
        """Logits under dropout; what ran before the first dropout answers from memory."""
        replay = self._replay
        with replay.played(), replay.dropped(p, row_count(inputs)), _seeded(seed, self.device):
            for _ in range(passes):
                yield self._call(self._own(inputs))

    def _own(self, inputs: Any) -> Any:
        """Inputs that the module may change: other networks are given the same batch."""
        return cloned(inputs) if self._spoils else inputs

    def _call(self, inputs: Any) -> Tensor:
        if isinstance(inputs, Mapping):
            output = self.module(**inputs)
        elif isinstance(inputs, tuple | list):
            output = self.module(*inputs)
        else:
            output = self.module(inputs)
        if isinstance(output, Mapping) and "logits" in output:
            output = output["logits"]
        if not isinstance(output, Tensor) or output.ndim != 2:
            kind = type(output).__name__
            got = f"shape {tuple(output.shape)}" if isinstance(output, Tensor) else kind
            raise InvalidInput(
                f"`model` must map a batch to logits (rows, classes), got {got}: "
                "wrap it in a module that returns them"
            )
        if len(output) != row_count(inputs):
            raise InvalidInput(
                f"`model` must give one row of logits per point, got {len(output)} for "
                f"{row_count(inputs)}: wrap it in a module that does"
            )
        if not output.isfinite().all():
            raise InvalidInput(
                "`model` must give finite logits, got NaN or infinity: "
                "the training of this snapshot has diverged; leave it out"
            )
        return output

    def _watch_layers(self, order: Order) -> None:
        names = {name: module for name, module in self.module.named_modules() if name}
        for layer in self._layers:
            if layer is not None and layer not in names:
                raise InvalidInput(
                    f"`layer` must name a module of the model, got {layer!r}: "
                    f"it has {', '.join(list(names)[:8])}{' …' if len(names) > 8 else ''}"
                )
            watched = order.last_linear() if layer is None else names[layer]
            watched.register_forward_pre_hook(self._keep_input(layer), with_kwargs=True)

    def _keep_input(self, layer: str | None) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            value = args[0] if args else next(iter(kwargs.values()))
            if value.ndim != 2:
                raise InvalidInput(
                    f"the embedding must be (rows, features), got shape {tuple(value.shape)} at "
                    f"{type(module).__name__}: name another layer, NNDistance(..., layer=...)"
                )
            if not self._replay.playing:  # the embedding is that of the plain pass
                self._inputs[layer] = value.clone()

        return hook


class Pass(Forward):
    """One pass of a network. Its samples can be drawn until the network's next pass."""

    def __init__(
        self, network: Network, inputs: Any, logits: Tensor, embeddings: dict[str | None, Tensor]
    ) -> None:
        self._network, self._inputs, self.logits = network, inputs, logits
        self._embeddings = embeddings

    def embedding(self, layer: str | None) -> Tensor:
        """What the layer was given."""
        return self._embeddings[layer]

    def samples(self, passes: int, p: float | None, seed: int) -> Iterator[Tensor]:
        """Logits under dropout."""
        return self._network.sample(self._inputs, passes, p, seed)


class _Replay:
    """Remembers what finished before the first dropout, and answers for it in the samples."""

    def __init__(self) -> None:
        self.playing = False
        self._dropouts: list[nn.Module] = []
        self._kept: dict[nn.Module, list[Any]] = {}
        self._unseen: set[nn.Module] = set()
        self._dropping = self._late = False

    def watch(self, module: nn.Module, order: Order) -> None:
        """Listen to the modules that matter."""
        self._dropouts = order.dropouts()
        finished = order.finished_before(self._dropouts)
        self._unseen = _only_seen_by_the_next(module, finished)
        self._kept = {m: [] for m in finished}
        for m in finished:
            m.register_forward_hook(self._keep)
        for m in self._dropouts:
            m.register_forward_pre_hook(self._note_dropout)

    def begin(self) -> None:
        """Forget the last pass."""
        self._dropping = self._late = False
        for outputs in self._kept.values():
            outputs.clear()

    def _keep(self, module: nn.Module, args: Any, output: Any) -> None:
        self._late |= self._dropping
        # Copies, because a model may change a module's output in place.
        self._kept[module].append(None if module in self._unseen else cloned(output))

    def _note_dropout(self, module: nn.Module, args: Any) -> None:
        self._dropping = True

    @contextmanager
    def played(self) -> Iterator[None]:
        """Let modules answer with the outputs of their last pass, call by call, over and over."""
        # A module that this batch also called after the dropout cannot answer from memory.
        kept = {} if self._late else self._kept
        own = {m: {k: v for k, v in vars(m).items() if k == "forward"} for m in kept}
        heard = {m: (m._forward_hooks, m._forward_pre_hooks) for m in kept}
        self.playing = True
        try:
            for m, outputs in kept.items():
                m.forward = _player(tuple(outputs))
                m._forward_hooks, m._forward_pre_hooks = OrderedDict(), OrderedDict()
            yield
        finally:
            self.playing = False
            for m in kept:
                m._forward_hooks, m._forward_pre_hooks = heard[m]
                del m.forward
                vars(m).update(own[m])

    @contextmanager
    def dropped(self, p: float | None, rows: int) -> Iterator[None]:
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


@contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Draw from a fresh generator, and leave the caller's as it was."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


def _versions(inputs: Any) -> list[int]:
    """How often each tensor has been changed in place."""
    return [leaf._version for leaf in tree_leaves(inputs) if isinstance(leaf, Tensor)]


def cloned(value: Any) -> Any:
    """A copy of every tensor."""
    return tree_map(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, value)


def refuse_probabilities(output: Tensor) -> None:
    """Softmax of probabilities is no confidence, and nothing later would show it."""
    sums = output.double().sum(dim=1)
    if output.shape[1] > 1 and (output >= 0).all() and (sums - 1).abs().max() < 1e-4:
        raise InvalidInput(
            "`model` must map a batch to logits, got probabilities (each row sums to 1): leave out "
            "its last softmax (snapsure.integrations.keras.Classifier does so for a Keras model "
            "whose last layer it is)"
        )


def _device(model: nn.Module) -> torch.device:
    """Where the model is, unless that is the CPU and there is something faster."""
    tensors = [*model.parameters(), *model.buffers()]
    own = tensors[0].device if tensors else torch.device("cpu")
    if own.type == "cpu" and torch.accelerator.is_available():
        return torch.accelerator.current_accelerator() or own
    return own
