"""A network under observation: logits, embeddings and dropout samples from one pass.

Any `nn.Module` that maps a batch to logits works as it is. One probing pass finds, by hooks, which
modules run in which order: the last linear layer, the dropouts, and what has finished before the
first of them. From then on hooks keep what is needed of each pass. The observed module is a copy;
the user's is not touched. Dropout inside `nn.LSTM` or `nn.MultiheadAttention` is no module of its
own, and stays off.
"""

import copy
import inspect
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from snapsure.errors import InvalidInput
from snapsure.networks._data import row_count, to_device
from snapsure.networks._forward import Forward, Sampling, Snapshot
from snapsure.networks._probe import Order, probe
from snapsure.networks._replay import Replay, cloned
from snapsure.snapshots._weights import unwrap


def refuse_no_network(model: Any) -> None:
    """Refuse what is no network: a name, a class, a function."""
    if not isinstance(model, nn.Module):
        is_class = isinstance(model, type) and issubclass(model, nn.Module)
        raise InvalidInput(
            f"`model` must be a torch.nn.Module, got "
            f"{f'the class {model.__name__}' if is_class else repr(model)}: pass "
            f"{f'what it makes, {model.__name__}(…)' if is_class else 'the network itself'}"
        )


_OF_TYPES = re.compile(r"\b(d?types?|scalar type)\b")


def private_copy(model: nn.Module, device: torch.device | None = None) -> nn.Module:
    """A copy that may be watched and loaded at will, on a device or the best, for evaluation."""
    device = device or device_of(model)
    try:
        return copy.deepcopy(unwrap(model)).to(device).eval()
    except RuntimeError as error:
        raise InvalidInput(
            f"`model` must be one that copy.deepcopy can copy, got an error ({error}): for "
            "torch.nn.utils.weight_norm, use torch.nn.utils.parametrizations.weight_norm"
        ) from None


class Network(Snapshot):
    """A module, which must be a private copy, watched for what is asked of its passes.

    Parameters
    ----------
    module : nn.Module
        With the weights of a snapshot: one of random weights may run otherwise.
    sample : batch
        Two rows, to see how it runs.
    layers : names of modules, or None for the last linear layer
        Whose inputs are kept.
    samplings : Sampling
        Passes with dropout that will be asked for.
    device : torch.device, optional
        Where the module is, if not on the best.
    """

    def __init__(
        self,
        module: nn.Module,
        sample: Any,
        *,
        layers: Iterable[str | None] = (),
        samplings: Iterable[Sampling] = (),
        device: torch.device | None = None,
    ) -> None:
        self.module = module
        self.device = device or device_of(module)
        self._layers = {*layers}
        self._inputs: dict[str | None, Tensor] = {}
        self._plain = False  # whether the pass that runs is the plain one
        sample = cloned(to_device(sample, self.device))
        untouched = versions(sample)
        with torch.inference_mode():
            order = probe(module, lambda: refuse_probabilities(self._call(sample)))
        self._spoils = versions(sample) != untouched
        self._watch_layers(order)
        chosen = {sampling.layers: order.dropouts(module, sampling) for sampling in samplings}
        self._replays = {layers: Replay(module, order, those) for layers, those in chosen.items()}

    def run(self, inputs: Any) -> "Pass":
        """One pass over a batch."""
        self._inputs = {}
        inputs = to_device(inputs, self.device)
        with ExitStack() as stack:
            for replay in self._replays.values():
                stack.enter_context(replay.listening())
            stack.enter_context(self._keeping())
            logits = self._call(self._own(inputs))
        return Pass(self, inputs, logits, self._inputs)

    def forget(self) -> None:
        """Let go of what the last pass left."""
        self._inputs = {}
        for replay in self._replays.values():
            replay.forget()

    def sample(self, inputs: Any, sampling: Sampling) -> Iterator[Tensor]:
        """Logits under dropout; what ran before the first dropout answers from memory."""
        played = self._replays[sampling.layers].played(sampling.p, row_count(inputs))
        with played, _seeded(sampling.seed, self.device):
            for _ in range(sampling.passes):
                yield self._call(self._own(inputs))

    def rates(self, sampling: Sampling) -> Mapping[str, float]:
        """Names and own rates of the dropouts that a sampling switches on."""
        return self._replays[sampling.layers].rates

    @contextmanager
    def _keeping(self) -> Iterator[None]:
        """Embeddings are those of the plain pass."""
        self._plain = True
        try:
            yield
        finally:
            self._plain = False

    def _own(self, inputs: Any) -> Any:
        """Inputs that the module may change: other networks are given the same batch."""
        return cloned(inputs) if self._spoils else inputs

    def _call(self, inputs: Any) -> Tensor:
        return finite(called(self.module, inputs))

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
            if self._plain:
                self._inputs[layer] = value.clone()

        return hook


def called(module: nn.Module, inputs: Any, rows: int | None = None) -> Tensor:
    """Logits of a batch, whichever form the inputs have; `rows` are counted if not given."""
    if isinstance(inputs, Mapping):
        output = module(*inputs.values()) if _needs_no_name(module, inputs) else module(**inputs)
    elif isinstance(inputs, tuple | list):
        output = module(*inputs)
    else:
        output = module(inputs)
    if isinstance(output, Mapping) and "logits" in output:
        output = output["logits"]
    if isinstance(output, Tensor) and output.ndim == 1:
        raise one_logit("(rows,)")
    if not isinstance(output, Tensor) or output.ndim != 2:
        kind = type(output).__name__
        got = f"shape {tuple(output.shape)}" if isinstance(output, Tensor) else kind
        raise InvalidInput(
            f"`model` must map a batch to logits (rows, classes), got {got}: "
            "wrap it in a module that returns them"
        )
    rows = row_count(inputs) if rows is None else rows
    if output.shape[0] != rows:
        raise InvalidInput(
            f"`model` must give one row of logits per point, got {len(output)} for {rows}: wrap it "
            "in a module that does"
        )
    return output


def _needs_no_name(module: nn.Module, inputs: Mapping[str, Any]) -> bool:
    """Whether inputs are one, of a name that only the data has: `{"image": …}` for `forward(x)`."""
    if len(inputs) != 1:
        return False
    taken = inspect.signature(module.forward).parameters.values()
    by_name = any(one.name in inputs or one.kind is one.VAR_KEYWORD for one in taken)
    return not by_name


def one_logit(shape: str) -> InvalidInput:
    """What to say of a binary classifier with one output, of which softmax would be 1."""
    return InvalidInput(
        f"`model` must give one logit per class, got one per point, {shape}: of a binary "
        "classifier's logit z, before its sigmoid, make two by "
        "model.register_forward_hook(lambda module, args, z: "
        "torch.nn.functional.pad(z.reshape(-1, 1), (1, 0)))"
    )


def not_taken(
    name: str, inputs: Any, error: Exception, model: nn.Module | None = None
) -> InvalidInput:
    """What to say of inputs that a network failed at: what PyTorch says is of shapes and types."""
    leaves = [leaf for leaf in tree_leaves(inputs) if isinstance(leaf, Tensor)]
    got = " and ".join(f"{leaf.dtype} of shape {tuple(leaf.shape)}" for leaf in leaves)
    first, _, _ = str(error).partition("\n")
    tensors = () if model is None else model.parameters()
    weights = [tensor.dtype for tensor in tensors if tensor.is_floating_point()]
    way = "give inputs as in training, the rows on the first axis"
    if "indices" in first and "Long" in first:
        way = "convert ids to whole numbers, x.long()"
    elif _OF_TYPES.search(first) and any(leaf.dtype != own for leaf in leaves for own in weights):
        way = f"convert them to the type of its weights, x.to({weights[0]}), scaled as in training"
    return InvalidInput(
        f"`{name}` must be what the network takes, got {got or type(inputs).__name__}, at which it "
        f"failed ({first}): {way}"
    )


def finite(logits: Tensor) -> Tensor:
    """They, where every number is one."""
    # A sum of numbers and one that is none is none, and costs a fifth of asking each.
    if not math.isfinite(logits.sum()) and not logits.isfinite().all():
        raise InvalidInput(
            "`model` must give finite logits, got NaN or infinity: "
            "the training of this snapshot has diverged; leave it out"
        )
    return logits


class Pass(Forward):
    """One pass of a network. Its samples can be drawn until the network's next pass."""

    def __init__(
        self, network: Network, inputs: Any, logits: Tensor, embeddings: dict[str | None, Tensor]
    ) -> None:
        super().__init__(logits)
        self._network, self._inputs, self._embeddings = network, inputs, embeddings

    def embedding(self, layer: str | None) -> Tensor:
        """What the layer was given."""
        return self._embeddings[layer]

    def samples(self, sampling: Sampling) -> Iterator[Tensor]:
        """Logits under dropout."""
        return self._network.sample(self._inputs, sampling)

    def rates(self, sampling: Sampling) -> Mapping[str, float]:
        """Names and own rates of dropouts."""
        return self._network.rates(sampling)


@contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Draw from a fresh generator, and leave the caller's as it was."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


def versions(inputs: Any) -> list[int]:
    """How often each tensor has been changed in place."""
    return [leaf._version for leaf in tree_leaves(inputs) if isinstance(leaf, Tensor)]


def refuse_probabilities(output: Tensor) -> None:
    """Softmax of probabilities is no confidence, and nothing later would show it."""
    sums = output.double().sum(dim=1)
    if output.shape[1] > 1 and (output >= 0).all() and (sums - 1).abs().max() < 1e-4:
        raise InvalidInput(
            "`model` must map a batch to logits, got probabilities (each row sums to 1): leave out "
            "its last softmax (snapsure.integrations.keras.Classifier does so for a Keras model "
            "whose last layer it is)"
        )


def device_named(name: str | torch.device | None) -> torch.device | None:
    """A device that PyTorch has here, by its name."""
    if name is None:
        return None
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise InvalidInput(
            f"`device` must be one that PyTorch has here, got {str(name)!r} "
            f"({str(error).splitlines()[0]}): choose cpu, or leave it out for the best there is"
        ) from None


def device_of(model: nn.Module) -> torch.device:
    """Where the model is, unless that is the CPU and there is something faster."""
    tensors = [*model.parameters(), *model.buffers()]
    own = tensors[0].device if tensors else torch.device("cpu")
    if own.type == "cpu" and torch.accelerator.is_available():
        return torch.accelerator.current_accelerator() or own
    return own
