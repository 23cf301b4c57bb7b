"""A network under observation: logits, embeddings and dropout samples from one pass.

Any `nn.Module` that maps a batch to logits works as it is. One probing pass finds, by hooks, which
modules run in which order: the last linear layer, the dropouts, and what ends before the first of
them. From then on, hooks store what is needed of each pass. The observed module is a copy; the
user's is not touched. Dropout inside `nn.LSTM` or `nn.MultiheadAttention` is no module of its own,
and stays off.
"""

import copy
import inspect
import logging
import math
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from functools import cache
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from snapsure.errors import InvalidInput
from snapsure.networks._data import first_rows, row_count, to_device
from snapsure.networks._forward import Forward, Reader, Sampling, Snapshot
from snapsure.networks._trace import Replay, Trace, clone, trace
from snapsure.networks._ways import Way, make_form, release_memory
from snapsure.snapshots._weights import unwrap

# Where a model's logits are in what it returns: a name, an index, or a function that takes them.
Output = str | int | Callable[[Any], Tensor]

_log = logging.getLogger("snapsure")
# Masks are drawn from PyTorch's one generator, and a network that is watched holds the state of its
# pass: one thread at a time. A fork waits for the pass that runs, and so finds a network at rest.
TURN = threading.RLock()
if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(
        before=TURN.acquire, after_in_parent=TURN.release, after_in_child=TURN.release
    )
_ABOUT_TYPES = re.compile(r"\b(d?types?|scalar type)\b")


class Network(Snapshot):
    """A module, which must be a private copy, watched for what κ functions read of its passes.

    Load a snapshot before the first pass: random weights may run differently.
    """

    def __init__(
        self,
        module: nn.Module,
        kappas: Iterable[Reader] = (),
        device: torch.device | None = None,
    ) -> None:
        kappas = list(kappas)
        self.module, self.device = module, device or choose_device(module)
        self.epoch: int | None = None  # of the snapshot that it holds
        self.base: str | None = None  # the hash of what that snapshot leaves out
        self.classes: int | None = None  # known after probing
        self.changes_inputs = False  # whether a pass changes its inputs in place
        self.way: Way | None = None  # how it runs; known after `convert`
        self._reload: Callable[[], nn.Module] | None = None  # of a form: the network itself
        self._layers = {layer for kappa in kappas for layer in kappa.layers}
        self._samplings = [kappa.sampling for kappa in kappas if kappa.sampling]
        self._replays: dict[str | tuple[str, ...], Replay] = {}
        self._inputs: dict[str | None, Tensor] = {}
        self._stores = False  # whether the current pass is the one whose embeddings are stored

    def probe(self, inputs: Any) -> None:
        """Run two rows of a batch to see how the module works, unless that is known."""
        if self.classes is not None:
            return
        with torch.inference_mode(False):  # tensors of inference mode do not count their changes
            sample = clone(first_rows(to_device(inputs, self.device)))
        before = _versions(sample)
        outputs = []
        with torch.inference_mode():
            order = trace(self.module, lambda: outputs.append(call(self.module, sample)))
        logits = self.check(outputs[0])
        refuse_probabilities(logits)

        self.changes_inputs = _versions(sample) != before
        self._watch_layers(order)
        for sampling in self._samplings:
            if sampling.layers not in self._replays:
                dropouts = order.dropouts(self.module, sampling)
                self._replays[sampling.layers] = Replay(self.module, order, dropouts)
        self.classes = logits.shape[1]

    @property
    def is_form(self) -> bool:
        """Whether the module is another form of the network, which holds no other snapshot."""
        return self._reload is not None

    @torch.inference_mode()
    def convert(self, way: Way, inputs: Any, reload: Callable[[], nn.Module]) -> None:
        """Run in a way from now on, if that gives the same logits of two rows of a batch.

        `reload` returns the network as it is now, for a batch that the form does not take.
        """
        if way != "eager":
            sample = first_rows(to_device(inputs, self.device))
            form = make_form(
                self.module, way, lambda module: call(module, clone(sample)), self.call(sample)
            )
            if form is not None:
                # Once: odd batches of a service must not read the disk each time.
                self.module, self._reload = form, cache(reload)
                release_memory()
        self.way = way

    def run(self, inputs: Any) -> "Pass":
        """Run one pass over a batch."""
        self.probe(inputs)
        self._inputs = {}
        inputs = to_device(inputs, self.device)
        with ExitStack() as stack:
            for replay in self._replays.values():
                stack.enter_context(replay.record())
            self._stores = True
            stack.callback(setattr, self, "_stores", False)
            logits = self.check(self.call(inputs))
        return Pass(self, inputs, logits, self._replays, self._inputs)

    def forget(self) -> None:
        """Free what the last pass stored."""
        self._inputs = {}
        for replay in self._replays.values():
            replay.forget()

    def call(self, inputs: Any, rows: int | None = None) -> Tensor:
        """Return the logits of a batch, which stays as it is: other networks get it too."""
        given = clone(inputs) if self.changes_inputs else inputs
        try:
            return call(self.module, given, rows)
        except Exception as error:  # of the form or the inputs: the network itself shows which
            if self._reload is None or isinstance(error, torch.OutOfMemoryError):
                raise
            _log.info("The network does not take a batch as %s.", self.way, exc_info=True)
            given = clone(inputs) if self.changes_inputs else inputs
            return call(self._reload(), given, rows)

    def check(self, logits: Tensor) -> Tensor:
        """Return logits of this network, after refusing NaN and infinity."""
        if not is_finite(logits):
            which = "" if self.epoch is None else f" at the snapshot of epoch {self.epoch}"
            raise InvalidInput(
                f"`model` must return finite logits, got NaN or infinity{which}. The training "
                "diverged before it; leave such snapshots out."
            )
        return logits

    def _watch_layers(self, order: Trace) -> None:
        names = {name: module for name, module in self.module.named_modules() if name}
        for layer in self._layers:
            if layer is not None and layer not in names:
                raise InvalidInput(
                    f"`layer` must name a module of the model, got {layer!r}. The model has "
                    f"{', '.join(list(names)[:8])}{' …' if len(names) > 8 else ''}."
                )
            watched = order.last_linear() if layer is None else names[layer]
            watched.register_forward_pre_hook(self._store_input(layer), with_kwargs=True)

    def _store_input(self, layer: str | None) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            value = args[0] if args else next(iter(kwargs.values()))
            if value.ndim != 2:
                raise InvalidInput(
                    f"The embedding must be (rows, features), got shape {tuple(value.shape)} at "
                    f"{type(module).__name__}. Name another layer: NNDistance(..., layer=...)."
                )
            if self._stores:
                self._inputs[layer] = value.clone()

        return hook


class Pass(Forward):
    """One pass of a network. Draw its samples before the network's next pass."""

    def __init__(
        self,
        network: Network,
        inputs: Any,
        logits: Tensor,
        replays: Mapping[str | tuple[str, ...], Replay],
        embeddings: Mapping[str | None, Tensor],
    ) -> None:
        super().__init__(logits)
        self._network, self._inputs = network, inputs
        self._replays, self._embeddings = replays, embeddings

    def embedding(self, layer: str | None) -> Tensor:
        """Return the input of a layer."""
        return self._embeddings[layer]

    def samples(self, sampling: Sampling) -> Iterator[Tensor]:
        """Yield logits under dropout. What ran before the first dropout answers from memory."""
        network, device = self._network, self._network.device
        play = self._replays[sampling.layers].play(sampling.p, row_count(self._inputs))
        devices = [device] if device.type == "cuda" else []
        # The caller's generator stays as it is.
        with TURN, play, torch.random.fork_rng(devices=devices):
            torch.manual_seed(sampling.seed)
            for _ in range(sampling.passes):
                yield network.check(network.call(self._inputs))

    def rates(self, sampling: Sampling) -> Mapping[str, float]:
        """Return the name and rate of each dropout that a sampling switches on."""
        return self._replays[sampling.layers].rates


def call(module: nn.Module, inputs: Any, rows: int | None = None) -> Tensor:
    """Return the logits of a batch in any form. `rows` are counted if not given."""
    if isinstance(inputs, Tensor):  # the usual cases first: one input must not wait for the others
        output = module(inputs)
    elif isinstance(inputs, Mapping):
        output = module(*inputs.values()) if _is_unnamed(module, inputs) else module(**inputs)
    elif isinstance(inputs, tuple | list):
        output = module(*inputs)
    else:
        output = module(inputs)
    if not isinstance(output, Tensor) and isinstance(output, Mapping) and "logits" in output:
        output = output["logits"]

    if not isinstance(output, Tensor) or output.ndim != 2:
        raise _no_logits(output)
    rows = row_count(inputs) if rows is None else rows
    if output.shape[0] != rows:
        raise InvalidInput(
            f"`model` must return one row of logits per example, got {len(output)} for {rows}. "
            "Wrap it in a module that does."
        )
    return output


def adapt_output(model: nn.Module, output: Output | None) -> nn.Module:
    """Return the model with logits taken out of what it returns; it shares all weights."""
    if output is None:
        return model
    if isinstance(output, bool) or not (isinstance(output, str | int) or callable(output)):
        raise InvalidInput(
            f"`output` must be a name, an index or a function, got {output!r}. Write "
            'output="logits", output=0 or output=lambda o: o[0].'
        )
    adapted: Any = copy.copy(unwrap(model))
    for name in [name for name in vars(adapted) if name.startswith("_forward_hooks")]:
        setattr(adapted, name, copy.copy(getattr(adapted, name)))
    adapted.register_forward_hook(_Take(output))
    adapted.logits_are = None if callable(output) else output  # counts in `model_digest`
    return cast(nn.Module, adapted)


class _Take:
    """A forward hook that takes logits out of an output."""

    def __init__(self, output: Output) -> None:
        self.output = output
        if callable(output):
            self.__wrapped__ = output  # whose code counts in `model_digest`

    def __call__(self, module: nn.Module, args: Any, result: Any) -> Any:
        if callable(self.output):
            return self.output(result)
        try:
            if isinstance(self.output, str) and not isinstance(result, Mapping):
                return getattr(result, self.output)
            return result[self.output]
        except (KeyError, IndexError, AttributeError, TypeError, ValueError):
            raise InvalidInput(
                f"`output` must name a part of what the model returns, got {self.output!r} for "
                f"{_describe_output(result)}. Name another."
            ) from None


def _describe_output(output: Any) -> str:
    if isinstance(output, Tensor):
        return f"shape {tuple(output.shape)}"
    kind = type(output).__name__
    if isinstance(output, Mapping):
        return f"{kind} with {', '.join(map(repr, output))}"
    return f"{kind} of {len(output)}" if isinstance(output, tuple | list) else kind


def _no_logits(output: Any) -> InvalidInput:
    """Explain an output that is no (rows, classes), and show the line that makes it one."""
    if isinstance(output, Tensor) and output.ndim == 1:
        return one_logit("(rows,)")
    got = f"`model` must map a batch to logits (rows, classes), got {_describe_output(output)}."
    if isinstance(output, Tensor):
        way = "o.mean(dim=(2, 3))" if output.ndim == 4 else "o[:, 0]"
        return InvalidInput(
            f"{got} A class for each pixel or word (segmentation, tagging) is not supported, one "
            f"for each input is: score(..., output=lambda o: {way}). Or make each pixel or word an "
            "example of ScoreTable.from_probabilities."
        )
    parts: Any = enumerate(output) if isinstance(output, tuple | list) else ()
    if isinstance(output, Mapping) or hasattr(output, "__dict__"):
        parts = (output if isinstance(output, Mapping) else vars(output)).items()
    fits = (name for name, part in parts if isinstance(part, Tensor) and part.ndim == 2)
    name = next(fits, 0 if isinstance(output, tuple | list) else "logits")
    is_object = not isinstance(output, Mapping | tuple | list)
    way = f"output.{name}" if is_object else f"output[{name!r}]"
    return InvalidInput(
        f"{got} Say which part they are: output={name!r} in score and Predictor, or for every use "
        f"model.register_forward_hook(lambda module, args, output: {way})."
    )


def _is_unnamed(module: nn.Module, inputs: Mapping[str, Any]) -> bool:
    """Whether one input has a name that only the data uses: `{"image": …}` for `forward(x)`."""
    if len(inputs) != 1:
        return False
    parameters = inspect.signature(module.forward).parameters.values()
    return not any(one.name in inputs or one.kind is one.VAR_KEYWORD for one in parameters)


def is_finite(logits: Tensor) -> bool:
    """Return whether there is neither NaN nor infinity among logits."""
    # The sum is infinite or NaN where any logit is, and costs a fifth of looking at each.
    return math.isfinite(logits.sum()) or bool(logits.isfinite().all())


def refuse_probabilities(output: Tensor) -> None:
    """Refuse probabilities: their softmax is no confidence, and nothing later would show it."""
    sums = output.double().sum(dim=1)
    if output.shape[1] > 1 and (output >= 0).all() and (sums - 1).abs().max() < 1e-4:
        raise InvalidInput(
            "`model` must map a batch to logits, got probabilities (each row sums to 1). Leave out "
            "its last softmax (snapsure.integrations.keras.Classifier does so for a Keras model "
            "whose last layer it is)."
        )


def one_logit(shape: str) -> InvalidInput:
    """Explain why one output is not enough: its softmax is always 1."""
    return InvalidInput(
        f"`model` must return one logit per class, got one per example, {shape}. Regression is not "
        "supported. If z is the logit of a binary classifier, before its sigmoid, return two: "
        "model.register_forward_hook(lambda module, args, z: "
        "torch.nn.functional.pad(z.reshape(-1, 1), (1, 0)))"
    )


def refused_inputs(
    name: str, inputs: Any, error: Exception, model: nn.Module | None = None
) -> InvalidInput:
    """Explain an error of PyTorch about shapes or types by the inputs that caused it."""
    leaves = [leaf for leaf in tree_leaves(inputs) if isinstance(leaf, Tensor)]
    got = " and ".join(f"{leaf.dtype} of shape {tuple(leaf.shape)}" for leaf in leaves)
    first, _, _ = str(error).partition("\n")
    tensors = () if model is None else model.parameters()
    weights = [tensor.dtype for tensor in tensors if tensor.is_floating_point()]

    remedy = "Pass inputs as in training, with the examples on the first axis."
    if "indices" in first and "Long" in first:
        remedy = "Convert ids to whole numbers: x.long()."
    elif _ABOUT_TYPES.search(first) and {leaf.dtype for leaf in leaves} - {*weights[:1]}:
        kind = weights[0] if weights else torch.float32
        remedy = (
            f"Convert the inputs to the type of its weights, x.to({kind}), scaled as in training."
        )
    return InvalidInput(
        f"`{name}` must be what the network takes, got {got or type(inputs).__name__}, on which it "
        f"failed ({first}). {remedy}"
    )


def refuse_no_network(model: Any) -> None:
    """Refuse a model that is a name, a class or a function."""
    if isinstance(model, nn.Module):
        return
    if isinstance(model, type) and issubclass(model, nn.Module):
        name = model.__name__
        raise InvalidInput(
            f"`model` must be a torch.nn.Module, got the class {name}. Pass an object, {name}(…)."
        )
    raise InvalidInput(
        f"`model` must be a torch.nn.Module, got {model!r}. Pass the network itself."
    )


def copy_network(
    model: nn.Module,
    device: torch.device | None = None,
    shared: Mapping[str, Tensor] | None = None,
) -> nn.Module:
    """Return a copy for evaluation, on a device or the best one.

    `shared` are tensors, by name, that the copy takes as they are, in place of the model's.
    """
    device = device or choose_device(model)
    own = name_tensors(model) if shared else {}
    memo: dict[int, Any] = {id(own[name]): tensor for name, tensor in (shared or {}).items()}
    try:
        return copy.deepcopy(unwrap(model), memo).to(device).eval()
    except RuntimeError as error:
        raise InvalidInput(
            f"`model` must be one that copy.deepcopy can copy, got an error ({error}). Instead of "
            "torch.nn.utils.weight_norm, use torch.nn.utils.parametrizations.weight_norm."
        ) from None


def name_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return a model's parameters and buffers themselves, by name."""
    model = unwrap(model)
    return {
        **dict(model.named_parameters(remove_duplicate=False)),
        **dict(model.named_buffers(remove_duplicate=False)),
    }


def find_device(name: str | torch.device | None) -> torch.device | None:
    """Return the device of a name, or refuse one that PyTorch does not have here."""
    if name is None:
        return None
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        first, _, _ = str(error).partition("\n")
        why = "" if first.startswith("Expected one of") else f" ({first})"  # of a list of twenty
        raise InvalidInput(
            f"`device` must be one that PyTorch has here, got {str(name)!r}{why}. Choose cpu, cuda "
            "or mps, or leave it out for the best there is."
        ) from None


def choose_device(model: nn.Module) -> torch.device:
    """Return where the model is, or an accelerator if the model is on the CPU."""
    tensors = [*model.parameters(), *model.buffers()]
    own = tensors[0].device if tensors else torch.device("cpu")
    if own.type == "cpu" and torch.accelerator.is_available():
        return torch.accelerator.current_accelerator() or own
    return own


def _versions(inputs: Any) -> list[int]:
    """Return how often each tensor has been changed in place."""
    return [leaf._version for leaf in tree_leaves(inputs) if isinstance(leaf, Tensor)]
