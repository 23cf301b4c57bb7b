"""Data as rows in a fixed order, read in batches: rows must line up between snapshots."""

import copy
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    SequentialSampler,
    Subset,
)

from snapsure import _validate
from snapsure._types import Ints
from snapsure.errors import InvalidInput

Batch = tuple[Any, Ints | None]

# Under which names batches hold the classes; the first that is there counts.
LABELS = ("labels", "label", "y", "targets", "target")

BATCH = 256
_SAMPLED = 8


class Rows(ABC):
    """Points in a fixed order; ranges of them can be read again and give the same."""

    def __init__(self, name: str, n: int, batch_size: int) -> None:
        if not n:
            raise InvalidInput(f"`{name}` must hold at least one point, got none: pass some data")
        self.name, self.n, self.batch_size = name, n, batch_size
        self._identity: dict[str, Any] | None = None

    @staticmethod
    def of(data: Any, name: str, batch_size: int | None = None) -> "Rows":
        """Read a DataLoader, a Dataset, an (inputs, labels) pair, or inputs alone."""
        if batch_size is not None and isinstance(data, Rows | DataLoader):
            raise InvalidInput(
                f"`batch_size` must be left out where `{name}` says it, got {batch_size} and a "
                "DataLoader: set it there"
            )
        size = BATCH if batch_size is None else _validate.count(batch_size, "batch_size")
        if isinstance(data, Rows):
            return data
        if isinstance(data, DataLoader):
            return _of_loader(data, name)
        if isinstance(data, IterableDataset):
            return _Stream(DataLoader(data, batch_size=size), name)
        if isinstance(data, Dataset):
            return _Loaded(DataLoader(data, batch_size=size), name)
        if type(data).__module__.startswith("datasets."):
            raise InvalidInput(
                f"`{name}` must say how rows become batches, got a data set of Hugging Face's: "
                "pass trainer.get_eval_dataloader(), or a DataLoader of it with a collate_fn"
            )
        return _Arrays(data, name, size)

    @property
    @abstractmethod
    def divisible(self) -> bool:
        """Whether a range can be read without reading all before it."""

    @abstractmethod
    def read(self, start: int, stop: int) -> Iterator[Batch]:
        """Batches of the rows of a range that starts at a multiple of the batch size."""

    def take(self, index: Ints) -> Any:
        """Inputs of some rows, in this order, as a batch.

        Raises
        ------
        InvalidInput
            If the data can only be read from its beginning.
        """
        raise InvalidInput(
            f"`{self.name}` must give any of its rows when asked, got an iterable data set: pass a "
            "map-style one, or arrays"
        )

    def batches(self, start: int = 0, stop: int | None = None) -> Iterator[Batch]:
        """The same, all rows by default, refusing data that has shrunk or grown."""
        stop = self.n if stop is None else stop
        rows = 0
        for inputs, labels in self.read(start, stop):
            rows += row_count(inputs)
            if labels is not None and len(labels) != row_count(inputs):
                raise InvalidInput(
                    f"`{self.name}` must give one label per point, got {len(labels)} labels for "
                    f"{row_count(inputs)} points in a batch: give each point its class"
                )
            yield inputs, labels
        if rows != stop - start:
            raise InvalidInput(
                f"`{self.name}` must keep its length, got {rows} rows where there were "
                f"{stop - start}: use a data set that gives the same rows at every pass"
            )

    def identity(self) -> dict[str, Any]:
        """What tells these rows from most others, by some of their batches."""
        if self._identity is None:
            digest, labelled = Digest(), False
            for inputs, labels in self._sampled():
                labelled = labels is not None
                digest.add(inputs, labels)
            self._identity = {
                "content": digest.hex()[:16],
                "labelled": labelled,
                "n": self.n,
                "batch_size": self.batch_size,
            }
        return self._identity

    def whole_identity(self) -> dict[str, Any]:
        """What tells these rows from all others: they are read every time, and may change."""
        return {**self.identity(), "content": self.digest(0, self.n)}

    def digest(
        self, start: int, stop: int, advance: Callable[[int], None] = lambda rows: None
    ) -> str:
        """The digest of a range, all of its inputs and labels; `advance` is told of rows read."""
        digest = Digest()
        for inputs, labels in self.batches(start, stop):
            digest.add(inputs, labels)
            advance(row_count(inputs))
        return digest.hex()

    def _sampled(self) -> Iterator[Batch]:
        """Eight batches, the first and the last among them."""
        last = (self.n - 1) // self.batch_size
        chosen = np.unique(np.linspace(0, last, _SAMPLED).astype(int)) * self.batch_size
        for start in chosen.tolist():
            yield from self.batches(start, min(start + self.batch_size, self.n))


class _Loaded(Rows):
    """A map-style data set behind a DataLoader."""

    divisible = True

    def __init__(self, loader: DataLoader[Any], name: str) -> None:
        self._loader = loader
        size = getattr(loader.batch_sampler, "batch_size", BATCH)
        super().__init__(name, len(loader.dataset), size)  # type: ignore[arg-type]

    def __getstate__(self) -> dict[str, Any]:
        """To other processes goes the loader alone, without workers that it may have running."""
        loader = copy.copy(self._loader)
        loader._iterator = None
        return {**self.__dict__, "_loader": loader}

    def read(self, start: int, stop: int) -> Iterator[Batch]:
        loader = self._loader
        part = DataLoader(
            Subset(loader.dataset, range(start, stop)),
            batch_size=self.batch_size,
            num_workers=loader.num_workers,
            collate_fn=loader.collate_fn,
            pin_memory=loader.pin_memory,
            multiprocessing_context=loader.multiprocessing_context,
            worker_init_fn=loader.worker_init_fn,
            timeout=loader.timeout,
            prefetch_factor=loader.prefetch_factor,
            generator=loader.generator,
        )
        return (split(batch, self.name) for batch in part)

    def take(self, index: Ints) -> Any:
        rows = [self._loader.dataset[int(i)] for i in index]
        return split(self._loader.collate_fn(rows), self.name)[0]

    def _sampled(self) -> Iterator[Batch]:
        """As others, after reading the first twice: a data set may augment at random."""
        first = (0, min(self.batch_size, self.n))
        if self.digest(*first) != self.digest(*first):
            raise InvalidInput(
                f"`{self.name}` must give the same rows at every pass, got other values at the "
                "second reading: switch off shuffling and random augmentation"
            )
        return super()._sampled()


class _Stream(Rows):
    """Data that can only be read from its beginning."""

    divisible = False

    def __init__(self, loader: DataLoader[Any], name: str) -> None:
        self._loader = loader
        n = sum(row_count(split(batch, name)[0]) for batch in loader)
        super().__init__(name, n, loader.batch_size or BATCH)

    def read(self, start: int, stop: int) -> Iterator[Batch]:
        return (split(batch, self.name) for batch in self._loader)

    def _sampled(self) -> Iterator[Batch]:
        """All: there is no way to some of them."""
        return self.batches()


class _Arrays(Rows):
    """Inputs in memory, with labels or without."""

    divisible = True

    def __init__(self, data: Any, name: str, batch_size: int) -> None:
        pair = isinstance(data, tuple | list) and len(data) == 2
        inputs, labels = data if pair else (data, None)
        if isinstance(data, Mapping):
            inputs, labels = _by_name(data)
        self._inputs = _map(lambda leaf: _array(leaf, name), _plain(inputs))
        self._labels = None if labels is None else _labels(labels, name)
        sizes = [len(leaf) for leaf in tree_leaves(self._inputs, is_leaf=is_words)]
        if len({*sizes}) != 1:
            raise InvalidInput(
                f"`{name}` must have as many rows in each of its inputs, got "
                f"{', '.join(map(str, sizes)) or 'no inputs'}: pass all from the same rows"
            )
        n = sizes[0]
        if self._labels is not None and len(self._labels) != n:
            raise InvalidInput(
                f"`{name}` must give one label per point, got {len(self._labels)} labels for "
                f"{n} points: pass both from the same rows"
            )
        super().__init__(name, n, batch_size)

    def read(self, start: int, stop: int) -> Iterator[Batch]:
        for low in range(start, stop, self.batch_size):
            part = slice(low, min(low + self.batch_size, stop))
            inputs = _map(_tensor, _map(itemgetter(part), self._inputs))
            yield inputs, None if self._labels is None else self._labels[part]

    def take(self, index: Ints) -> Any:
        def some(leaf: Any) -> Any:
            return [leaf[i] for i in index] if is_words(leaf) else leaf[index]

        return _map(_tensor, _map(some, self._inputs))


def split(batch: Any, name: str) -> Batch:
    """Take a batch apart into inputs and labels."""
    inputs: Any
    if isinstance(batch, Mapping):
        inputs, labels = _by_name(batch)
    elif isinstance(batch, Tensor):
        inputs, labels = batch, None
    elif isinstance(batch, Sequence) and len(batch) in (1, 2):
        inputs, labels = _plain(batch[0]), batch[1] if len(batch) == 2 else None
    else:
        raise InvalidInput(
            f"`{name}` must give batches of inputs, (inputs, labels) or a dict with 'labels' or "
            f"'y', got {type(batch).__name__}: write a collate_fn that does"
        )
    return inputs, None if labels is None else _labels(labels, name)


def _by_name(batch: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    inputs = dict(batch)
    named = next((known for known in LABELS if known in inputs), None)
    labels = None if named is None else inputs.pop(named)
    inputs.pop("label", None)  # data sets of Hugging Face's may have both
    return inputs, labels


def row_count(inputs: Any) -> int:
    """Rows of a batch of inputs."""
    if isinstance(inputs, Tensor):
        return inputs.shape[0]
    return len(tree_leaves(inputs, is_leaf=is_words)[0])


def first_rows(inputs: Any) -> Any:
    """Two rows of a batch: enough to see how a model works."""
    return _map(lambda leaf: leaf[:2], inputs)


def refuse_infinite(inputs: Any, name: str, start: int = 0) -> None:
    """Refuse a batch with NaN or infinity, naming the first such row; its first is row `start`."""
    for leaf in tree_leaves(inputs):
        if isinstance(leaf, Tensor) and leaf.is_floating_point():
            bad = ~leaf.isfinite().reshape(len(leaf), -1).all(dim=1)
            if bad.any():
                row = start + int(bad.nonzero()[0])
                raise InvalidInput(
                    f"`{name}` must be finite, got NaN or infinity in row {row}: drop or impute "
                    "such rows"
                )


def joined(parts: Sequence[Any]) -> Any:
    """Batches of inputs of the same form as one."""

    def together(*leaves: Any) -> Any:
        return [*chain(*leaves)] if is_words(leaves[0]) else torch.cat(leaves)

    try:
        first, *rest = parts
        return tree_map(together, first, *rest, is_leaf=is_words)
    except (RuntimeError, ValueError) as error:
        raise InvalidInput(
            f"`unlabelled` must have inputs of the same form and shape as `data`, got others "
            f"({error}): pad or prepare both alike"
        ) from None


def to_device(inputs: Any, device: torch.device) -> Any:
    """Inputs on a device."""
    if isinstance(inputs, Tensor):
        return inputs.to(device, non_blocking=True)
    return _map(
        lambda leaf: leaf.to(device, non_blocking=True) if isinstance(leaf, Tensor) else leaf,
        inputs,
    )


def _of_loader(loader: DataLoader[Any], name: str) -> Rows:
    if isinstance(loader.dataset, IterableDataset):
        return _Stream(loader, name)
    batches: Any = loader.batch_sampler
    plain = type(batches) is BatchSampler  # of the loader's own making, or handed to it
    if not plain or not isinstance(batches.sampler, SequentialSampler):
        raise InvalidInput(
            f"`{name}` must give its rows in a fixed order, got a DataLoader with "
            f"{type(batches.sampler if plain else batches or loader.sampler).__name__}: "
            "make it with shuffle=False and no sampler, or pass the data set itself"
        )
    if batches.drop_last:
        raise InvalidInput(
            f"`{name}` must keep every row, got a DataLoader with drop_last=True: leave it out"
        )
    return _Loaded(loader, name)


def _array(value: Any, name: str) -> Any:
    """A tensor as it is, or an array that stays where it lies, be it on a disk."""
    if is_words(value):
        return value
    array = value if isinstance(value, Tensor) else _validate.numbers(value, name)
    if not array.ndim:
        raise InvalidInput(
            f"`{name}` must have its points on the first axis, got a single number: pass an array "
            "(points, …)"
        )
    return array


def _tensor(value: Any) -> Any:
    """Some rows for PyTorch."""
    if not isinstance(value, np.ndarray):
        return value
    array = np.ascontiguousarray(value)
    if array.dtype.kind == "f" and array.dtype.itemsize >= 8:  # NumPy's ordinary type, and wider
        with np.errstate(over="ignore"):  # the network is asked whether it can tell infinity
            array = array.astype(np.float32)  # PyTorch's ordinary type
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def _labels(value: Any, name: str) -> Ints:
    labels = _validate.class_numbers(value, f"labels of {name}")
    if labels.ndim != 1:
        raise InvalidInput(
            f"`labels of {name}` must be one class number per point, got shape {labels.shape}: "
            "pass class ids"
        )
    return labels


def _plain(inputs: Any) -> Any:
    """Inputs by name as a dict: tokenizers give mappings that PyTorch's trees do not know."""
    return dict(inputs) if isinstance(inputs, Mapping) else inputs


def _map(function: Callable[[Any], Any], inputs: Any) -> Any:
    """Apply a function to every tensor or column in inputs."""
    return tree_map(function, inputs, is_leaf=is_words)


class Digest:
    """What tells rows from all others: type, shape and content of inputs and labels, by batch."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, inputs: Any, labels: Ints | None) -> None:
        """The next batch."""
        _update(self._hash, (inputs, labels))

    def hex(self) -> str:
        """The digest of all batches so far."""
        return self._hash.hexdigest()


def _update(digest: Any, part: Any) -> None:
    """Add names, types, shapes and contents."""
    if isinstance(part, Mapping):
        for key, below in part.items():
            digest.update(repr(key).encode())
            _update(digest, below)
    elif isinstance(part, tuple | list) and not is_words(part):
        for below in part:
            _update(digest, below)
    elif isinstance(part, Tensor):
        digest.update(f"{part.dtype}{tuple(part.shape)}".encode())
        digest.update(part.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    elif isinstance(part, np.ndarray) and not part.dtype.hasobject:
        digest.update(f"{part.dtype}{part.shape}".encode())
        digest.update(np.ascontiguousarray(part).data)
    else:
        digest.update(repr(part.tolist() if isinstance(part, np.ndarray) else part).encode())


def is_words(part: Any) -> bool:
    """Whether this is a column of strings, as the default collate leaves them."""
    return isinstance(part, tuple | list) and len(part) > 0 and isinstance(part[0], str)
