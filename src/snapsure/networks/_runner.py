"""Run batches through snapshots of one architecture, as many at a time as memory allows.

Scoring, the predictor and the student all run networks through `Runner`.
"""

import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from snapsure._logit_scores import final_numbers
from snapsure._types import Array, Floats, Ints
from snapsure.errors import CorruptFile, InvalidInput
from snapsure.networks._data import (
    first_rows,
    is_words,
    refuse_infinite,
    refuse_unusual,
    row_count,
    to_device,
)
from snapsure.networks._forward import Forward, Logits, Reader, exponentials
from snapsure.networks._network import (
    Network,
    call,
    choose_device,
    copy_network,
    is_finite,
    name_tensors,
    one_logit,
    refused_inputs,
)
from snapsure.networks._trace import clone
from snapsure.networks._ways import SAMPLED, SHARE, UNKNOWN, Way, choose_way, keep_memory
from snapsure.snapshots._base import Snapshots
from snapsure.snapshots._weights import unwrap

Columns = dict[str, Array]
Slot = tuple[int, int]  # (member, epoch)


class Runner:
    """Networks that hold snapshots in memory, and the passes of batches through them.

    Call `load` with the epochs, of those given here, that the next passes need. Networks of other
    epochs are reused. `members` are one training, or those of an ensemble; `name` is what error
    messages call the inputs.

    Passes run in a `way`. Where it is None, the first batch decides, and `rows` is how many rows
    all passes have together, where that is known. κ functions that watch layers or dropout need
    "eager".
    """

    def __init__(
        self,
        model: nn.Module,
        members: Sequence[Snapshots],
        epochs: Sequence[int],
        kappas: Sequence[Reader] = (),
        *,
        name: str = "data",
        device: torch.device | None = None,
        way: Way | None = "eager",
        rows: int | None = None,
    ) -> None:
        # Whether logits are not enough: then each batch is scored while its pass is in memory.
        self.watches = any(kappa.layers or kappa.sampling for kappa in kappas)
        self.way: Way | None = "eager" if self.watches else way
        self._rows = UNKNOWN if rows is None else rows
        self._model, self._members, self._kappas = model, list(members), list(kappas)
        self._name, self.device = name, device or choose_device(model)
        # Snapshots that are loaded later must still be those of the same training.
        self._hashes = {slot: self._members[slot[0]].sha256(slot[1]) for slot in self.slots(epochs)}
        self._networks: dict[Slot, Network] = {}
        # By their hash: frozen weights that snapshots leave out, which all networks share.
        self._bases: dict[str | None, dict[str, Tensor]] = {}
        self._probing = threading.Lock()
        keep_memory()

    def slots(self, epochs: Sequence[int]) -> list[Slot]:
        """Return every member of each epoch, in order."""
        return [(member, epoch) for epoch in epochs for member in range(len(self._members))]

    def networks(self, epochs: Sequence[int]) -> list[Network]:
        """Return the networks of epochs that are loaded, every member of each epoch."""
        return [self._networks[slot] for slot in self.slots(epochs)]

    @property
    def classes(self) -> int | None:
        """How many classes the networks have; None before the first pass."""
        return next((network.classes for network in self._networks.values()), None)

    def load(self, epochs: Sequence[int]) -> None:
        """Load the snapshots of some epochs, unless they are loaded already."""
        wanted = self.slots(epochs)
        free = [slot for slot in self._networks if slot not in wanted]
        for slot in wanted:
            if slot in self._networks:
                continue
            base = self._members[slot[0]].base(slot[1])
            free.sort(key=lambda other: self._networks[other].base == base)
            network = self._networks.pop(free.pop()) if free else None
            if network is None or network.base != base or network.is_form:
                network = None  # frees its memory
                network = Network(self._copy(base), self._kappas, self.device)
            self._load_into(network.module, slot)
            network.epoch, network.base, self._networks[slot] = slot[1], base, network

    def load_eager(self, slot: Slot) -> nn.Module:
        """Return a network with the weights of one member of an epoch, as PyTorch runs it."""
        module = self._copy(self._members[slot[0]].base(slot[1]))
        self._load_into(module, slot)
        return module

    def states(self, epochs: Sequence[int]) -> Iterator[tuple[Slot, dict[str, Tensor]]]:
        """Yield the weights of every member of each epoch, frozen ones too."""
        for slot in self.slots(epochs):
            yield slot, self.load_eager(slot).state_dict()

    def _copy(self, base: str | None) -> nn.Module:
        return copy_network(self._model, self.device, self._bases.get(base))

    def _load_into(self, module: nn.Module, slot: Slot) -> None:
        """Load a snapshot, which must be the one that was there at the start, into a copy."""
        store, epoch = self._members[slot[0]], slot[1]
        base, before = store.base(epoch), store.sha256(epoch)
        if before == self._hashes[slot]:
            store.load_into(module, epoch, has_base=base in self._bases)
        if not before == store.sha256(epoch) == self._hashes[slot]:
            raise CorruptFile(
                f"The snapshot of epoch {epoch} in {store.path} must not change while it is in "
                "use, got another. Start again with the snapshots as they are now."
            )
        if base is not None and base not in self._bases:
            names = module.state_dict().keys() - store.load(epoch)
            tensors = name_tensors(module).items()
            self._bases[base] = {name: each for name, each in tensors if name in names}

    def clear(self) -> None:
        """Free all networks."""
        self._networks, self._bases = {}, {}

    def probe(self, epochs: Sequence[int], inputs: Any, row: int = 0) -> list[Network]:
        """Return networks, after seeing how they work on the first rows of a batch."""
        networks = self.networks(epochs)
        if self.way is None or any(network.way != self.way for network in networks):
            with self._probing, self._explain(inputs, row):
                for network in networks:
                    network.probe(inputs)
                self.way = self.way or self._choose(networks[0], inputs)
                this = weakref.proxy(self)  # or only the garbage collector would free networks
                for slot, network in zip(self.slots(epochs), networks, strict=True):
                    if network.way != self.way:
                        network.convert(self.way, inputs, partial(Runner.load_eager, this, slot))
        if networks[0].classes == 1:
            raise one_logit("(rows, 1)")
        return networks

    @torch.inference_mode()
    def _choose(self, network: Network, inputs: Any) -> Way:
        """Return how to run passes, by those of one network over some rows of a batch."""
        if network.base is not None:
            return "eager"  # forms would copy frozen weights that networks share
        count = min(SAMPLED, round(self._rows / SHARE), row_count(inputs))
        if not count:
            return "eager"
        sample = first_rows(to_device(inputs, self.device), count)

        def run(module: nn.Module, rows: Any = sample) -> Tensor:
            return call(module, clone(rows))

        few = partial(run, rows=first_rows(sample))
        return choose_way(network.module, run, self._rows / count, few)

    @torch.inference_mode()
    def score(
        self,
        epoch: int,
        inputs: Any,
        y_hat: Ints | None = None,
        prepared: Sequence[Sequence[Any]] | None = None,
        row: int = 0,
    ) -> Columns:
        """Return `labels` and each κ of a batch for one epoch, all of its members together.

        For the epoch that predicts (without `y_hat`), also `final`, five numbers of its logits.

        Parameters
        ----------
        epoch : int
            One that is loaded.
        inputs : batch
            What the network takes.
        y_hat : (n,) int array, optional
            The classes that κ is about; by default, those that this epoch predicts.
        prepared : optional
            For each member, what each κ function has prepared.
        row : int
            The number of the first row, for error messages.
        """
        networks = self.probe([epoch], inputs, row)
        with self._explain(inputs, row):
            forwards = [network.run(inputs) for network in networks]
        columns = self._describe(forwards, y_hat, prepared)
        for network in networks:
            network.forget()
        return columns

    @torch.inference_mode()
    def score_logits(
        self,
        logits: Tensor,
        y_hat: Ints | None = None,
        prepared: Sequence[Sequence[Any]] | None = None,
    ) -> Columns:
        """Return what `score` does, by the logits of any number of batches, where these are enough.

        `logits` are those of one epoch, (members, rows, classes).
        """
        return self._describe([Logits(each) for each in logits], y_hat, prepared)

    def _describe(
        self,
        forwards: Sequence[Forward],
        y_hat: Ints | None,
        prepared: Sequence[Sequence[Any]] | None,
    ) -> Columns:
        labels = vote([forward.logits for forward in forwards])
        chosen = labels if y_hat is None else y_hat

        columns: Columns = {"labels": labels}
        if y_hat is None:
            columns["final"] = describe_logits([forward.logits for forward in forwards], labels)
        for i, kappa in enumerate(self._kappas):
            values = [
                kappa.score(forward, chosen, None if prepared is None else prepared[member][i])
                for member, forward in enumerate(forwards)
            ]
            columns[kappa.name] = mean_kappa(values)
        return columns

    @torch.inference_mode()
    def logits(self, epochs: Sequence[int], inputs: Any, row: int = 0) -> Tensor:
        """Return the logits of a batch, (epochs × members, rows, classes).

        `row` is the number of its first row, for error messages.
        """
        with self._explain(inputs, row):
            inputs = to_device(inputs, self.device)
            networks = self.probe(epochs, inputs, row)
            rows = row_count(inputs)
            each = [network.call(inputs, rows) for network in networks]
            together = torch.cat(each)
            if not is_finite(together):
                for network, one in zip(networks, each, strict=True):
                    network.check(one)
            return together.view(len(networks), rows, -1)

    @contextmanager
    def _explain(self, inputs: Any, row: int = 0) -> Iterator[None]:
        """Name the inputs as the cause where a network fails because of them."""
        try:
            yield
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            refuse_unusual(inputs, self._name)
            if isinstance(error, InvalidInput):
                refuse_infinite(inputs, self._name, row)
            elif any(map(is_words, tree_leaves(inputs, is_leaf=is_words))):
                raise InvalidInput(
                    f"`{self._name}` must be what the network takes, got strings, on which it "
                    f"failed ({error}). Pass what your tokenizer returns (tokenizer(texts, "
                    'padding=True, return_tensors="pt")), or the tokenizer to the predictor: '
                    "Predictor.fit(..., tokenizer=tokenizer), or .load."
                ) from error
            if self._takes_as_one(inputs):
                shapes = [tuple(leaf.shape) for leaf in tree_leaves(inputs)]
                raise InvalidInput(
                    f"`{self._name}` must have its inputs on the first axis, got one input of "
                    f"shape {' and '.join(map(str, shapes))}. Pass a batch of one: x[None]."
                ) from None
            if isinstance(error, RuntimeError | TypeError):  # PyTorch's for shapes and types
                raise refused_inputs(self._name, inputs, error, self._model) from error
            raise

    def _takes_as_one(self, inputs: Any) -> bool:
        """Whether a network takes inputs that it failed on, as a batch of one."""
        widths = []
        # A regression gives as many numbers as there are rows: two for the first two.
        for some in (inputs, first_rows(inputs)):
            with suppress(Exception), torch.inference_mode():
                one = tree_map(lambda leaf: leaf[None], to_device(some, self.device))
                logits = call(next(iter(self._networks.values())).module, one, 1)
                widths.append(logits.shape[1] if is_finite(logits) else 1)
        return bool(widths) and min(widths) > 1 and len({*widths}) == 1


def group_epochs(
    model: nn.Module,
    members: Sequence[Snapshots],
    epochs: Sequence[int],
    memory: int,
    most: int | None = None,
) -> list[tuple[int, ...]]:
    """Cut epochs into groups whose weights, of all members, fit into `memory` bytes.

    Frozen weights that snapshots leave out count once. A group has at least one epoch, and at most
    `most` networks where that is given.
    """
    weights = {name: value.nbytes for name, value in unwrap(model).state_dict().items()}
    total = each = sum(weights.values())
    if members[0].base(epochs[0]) is not None:
        each = sum(weights.get(name, 0) for name in members[0].load(epochs[0]))
    networks = (memory - (total - each)) // max(1, each)
    size = max(1, (networks if most is None else min(most, networks)) // len(members))
    return [tuple(epochs[i : i + size]) for i in range(0, len(epochs), size)]


def vote(logits: Sequence[Tensor]) -> Ints:
    """Return the class with the highest mean probability over members; of one, by its logits."""
    if len(logits) == 1:
        alone: Ints = logits[0].cpu().double().numpy().argmax(axis=1)
        return alone
    each = [exponentials(one) for one in logits]
    together: Ints = _mean([e / e.sum(axis=1, keepdims=True) for e in each]).argmax(axis=1)
    return together


def describe_logits(logits: Sequence[Tensor], y_hat: Ints) -> Floats:
    """Return five numbers of the logits, (rows, 5), the mean of those of the members."""
    return mean_kappa([final_numbers(one.cpu().double().numpy(), y_hat) for one in logits])


def mean_kappa(values: Sequence[Floats]) -> Floats:
    """Return the mean κ of the members."""
    mean: Floats = np.clip(_mean(values), 0, 1)
    return mean


def _mean(values: Sequence[Floats]) -> Floats:
    """Return the mean, added one by one so that its last bit does not depend on the rows."""
    total = values[0] / len(values)
    for value in values[1:]:
        total = total + value / len(values)
    return total
