"""Data as rows in a fixed order, read in batches, so that rows line up between snapshots."""

import copy
import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from pathlib import Path
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

# Names under which batches hold the classes. The first that is there counts.
LABELS = ("labels", "label", "y", "targets", "target")

BATCH = 256
_SAMPLED = 8


class Rows(ABC):
    """Examples in a fixed order. A range of them can be read again and gives the same."""

    def __init__(self, name: str, n: int, batch_size: int) -> None:
        if not n:
            raise InvalidInput(
                f"`{name}` must hold at least one example, got none. Pass some data."
            )
        self.name, self.n, self.batch_size = name, n, batch_size
        self._identity: dict[str, Any] | None = None

    @staticmethod
    def of(data: Any, name: str, batch_size: int | None = None) -> "Rows":
        """Read a DataLoader, a Dataset, an (inputs, labels) pair, or inputs alone."""
        if batch_size is not None and isinstance(data, Rows | DataLoader):
            raise InvalidInput(
                f"`batch_size` must be left out where `{name}` has one, got {batch_size} and a "
                "DataLoader. Set it there."
            )
        size = BATCH if batch_size is None else _validate.count(batch_size, "batch_size")
        if isinstance(data, Rows):
            return data
        if isinstance(data, Dataset):
            data = DataLoader(data, batch_size=size)
        if isinstance(data, DataLoader):
            streams = isinstance(data.dataset, IterableDataset)
            return _Stream(data, name) if streams else _Loaded(data, name)
        if type(data).__module__.startswith("datasets."):
            raise InvalidInput(
                f"`{name}` must define how examples become batches, got a data set of Hugging "
                "Face. Pass trainer.get_eval_dataloader(), or a DataLoader of it with a collate_fn."
            )
        if isinstance(data, str | Path | Iterator):
            raise InvalidInput(
                f"`{name}` must be read once for each group of snapshots, got "
                f"{type(data).__name__}. Pass arrays, (inputs, labels), a Dataset or a DataLoader."
            )
        return _Arrays(data, name, size)

    @property
    def divisible(self) -> bool:
        """Whether a range can be read without reading all before it."""
        return True

    @abstractmethod
    def read(self, start: int, stop: int) -> Iterator[Batch]:
        """Yield the batches of a range that `cut` gave."""

    def cut(self, rows: int) -> list[tuple[int, int]]:
        """Cut all rows into ranges of whole batches, of at most so many rows where possible."""
        size = max(1, rows // self.batch_size) * self.batch_size if self.divisible else self.n
        return [(low, min(low + size, self.n)) for low in range(0, self.n, size)]

    def take(self, index: Ints) -> Batch:
        """Return some rows, in this order, as a batch."""
        raise InvalidInput(
            f"`{self.name}` must give any of its rows when asked, got an iterable data set. Pass a "
            "map-style one, or arrays."
        )

    def batches(self, start: int = 0, stop: int | None = None) -> Iterator[Batch]:
        """Yield the batches of a range, by default of all rows; refuse another number of rows."""
        stop = self.n if stop is None else stop
        rows = 0
        for inputs, labels in self.read(start, stop):
            rows += row_count(inputs)
            if labels is not None and len(labels) != row_count(inputs):
                raise InvalidInput(
                    f"`{self.name}` must give one label per example, got {len(labels)} labels for "
                    f"{row_count(inputs)} examples in a batch. Give each example its class."
                )
            yield inputs, labels
        if rows != stop - start:
            raise InvalidInput(
                f"`{self.name}` must keep its length, got {rows} rows where there were "
                f"{stop - start}. Use a data set that gives the same rows at every pass."
            )

    def identity(self) -> dict[str, Any]:
        """Return what identifies these rows, by some of their batches."""
        if self._identity is None:
            digest, labelled = Digest(), False
            for inputs, labels in self._sample_batches():
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
        """Return what identifies these rows, by all of them, which are read every time."""
        return {**self.identity(), "content": self.digest(0, self.n)}

    def digest(
        self, start: int, stop: int, advance: Callable[[int], None] = lambda rows: None
    ) -> str:
        """Return the digest of all inputs and labels of a range; `advance` counts rows."""
        digest = Digest()
        for inputs, labels in self.batches(start, stop):
            digest.add(inputs, labels)
            advance(row_count(inputs))
        return digest.hex()

    def _sample_batches(self) -> Iterator[Batch]:
        """Yield eight batches, the first and the last among them."""
        last = (self.n - 1) // self.batch_size
        chosen = np.unique(np.linspace(0, last, _SAMPLED).astype(int)) * self.batch_size
        for start in chosen.tolist():
            yield from self.batches(start, min(start + self.batch_size, self.n))


class _Loaded(Rows):
    """A map-style data set behind a DataLoader, which must neither shuffle nor drop rows."""

    def __init__(self, loader: DataLoader[Any], name: str) -> None:
        batches: Any = loader.batch_sampler
        if batches is None:
            raise InvalidInput(
                f"`{name}` must be cut into batches by its DataLoader, got one with "
                "batch_size=None. Give it a batch size, or pass the data set itself."
            )
        plain = type(batches) is BatchSampler  # not a sampler of the user's own
        if not plain or not isinstance(batches.sampler, SequentialSampler):
            raise InvalidInput(
                f"`{name}` must give its examples in a fixed order, got a DataLoader with "
                f"{type(batches.sampler if plain else batches).__name__}. "
                "Make it with shuffle=False and no sampler, or pass the data set itself."
            )
        if batches.drop_last:
            raise InvalidInput(
                f"`{name}` must keep every example, got a DataLoader with drop_last=True. Leave "
                "it out."
            )
        self._loader = loader
        super().__init__(name, len(loader.dataset), batches.batch_size)  # type: ignore[arg-type]

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the workers of the loader, which other processes cannot use."""
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

    def take(self, index: Ints) -> Batch:
        rows = [self._loader.dataset[int(i)] for i in index]
        return split(self._loader.collate_fn(rows), self.name)

    def _sample_batches(self) -> Iterator[Batch]:
        """Read the first batch twice, because a data set may augment at random."""
        first = (0, min(self.batch_size, self.n))
        if self.digest(*first) != self.digest(*first):
            raise InvalidInput(
                f"`{self.name}` must give the same rows at every pass, got other values at the "
                "second reading. Switch off shuffling and random augmentation."
            )
        return super()._sample_batches()


class _Stream(Rows):
    """Data that can only be read from its beginning, in batches of any size.

    A range that begins where the last one ended is read on from there.
    """

    def __init__(self, loader: DataLoader[Any], name: str) -> None:
        self._loader = loader
        self._sizes = [row_count(split(batch, name)[0]) for batch in loader]
        self._open: tuple[int, Iterator[Any]] | None = None  # the next row, and its batches
        super().__init__(name, sum(self._sizes), loader.batch_size or BATCH)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out an iterator that is open, which other processes cannot use."""
        return {**self.__dict__, "_open": None}

    @property
    def divisible(self) -> bool:
        return False

    def cut(self, rows: int) -> list[tuple[int, int]]:
        ranges, low, high = [], 0, 0
        for i, size in enumerate(self._sizes, 1):
            high += size
            if i == len(self._sizes) or high + self._sizes[i] - low > rows:
                ranges.append((low, high))
                low = high
        return ranges

    def read(self, start: int, stop: int) -> Iterator[Batch]:
        if self._open is None or self._open[0] != start:
            self._open = (0, iter(self._loader))
        at, batches = self._open
        for batch in batches:
            inputs, labels = split(batch, self.name)
            at += row_count(inputs)
            self._open = None if at >= self.n else (at, batches)
            if at > start:
                yield inputs, labels
            if start < at >= stop < self.n:
                return

    def _sample_batches(self) -> Iterator[Batch]:
        """Yield all batches, because none can be read alone."""
        return self.batches()


class _Arrays(Rows):
    """Inputs in memory, with labels or without."""

    def __init__(self, data: Any, name: str, batch_size: int) -> None:
        pair = isinstance(data, tuple | list) and len(data) == 2
        inputs, labels = data if pair else (data, None)
        if isinstance(data, Mapping):
            inputs, labels = _pop_labels(data)
        refuse_unusual(inputs, name)
        self._inputs = _map(lambda leaf: _read_array(leaf, name), _to_dict(inputs))
        self._labels = None if labels is None else _read_labels(labels, name)
        sizes = [len(leaf) for leaf in tree_leaves(self._inputs, is_leaf=is_words)]
        if len({*sizes}) != 1:
            raise InvalidInput(
                f"`{name}` must have as many examples in each of its inputs, got "
                f"{', '.join(map(str, sizes)) or 'no inputs'}. Pass all for the same examples."
            )
        n = sizes[0]
        if self._labels is not None and len(self._labels) != n:
            raise InvalidInput(
                f"`{name}` must give one label per example, got {len(self._labels)} labels for "
                f"{n} examples. Pass both for the same examples."
            )
        super().__init__(name, n, batch_size)

    def read(self, start: int, stop: int) -> Iterator[Batch]:
        for low in range(start, stop, self.batch_size):
            part = slice(low, min(low + self.batch_size, stop))
            inputs = _map(_to_tensor, _map(itemgetter(part), self._inputs))
            yield inputs, None if self._labels is None else self._labels[part]

    def take(self, index: Ints) -> Batch:
        def some(leaf: Any) -> Any:
            return [leaf[i] for i in index] if is_words(leaf) else leaf[index]

        inputs = _map(_to_tensor, _map(some, self._inputs))
        return inputs, None if self._labels is None else self._labels[index]


def split(batch: Any, name: str) -> Batch:
    """Split a batch into inputs and labels."""
    inputs: Any
    if isinstance(batch, Mapping):
        inputs, labels = _pop_labels(batch)
    elif isinstance(batch, Tensor):
        inputs, labels = batch, None
    elif isinstance(batch, Sequence) and len(batch) in (1, 2):
        inputs, labels = _to_dict(batch[0]), batch[1] if len(batch) == 2 else None
    else:
        raise InvalidInput(
            f"`{name}` must give batches of inputs, (inputs, labels) or a dict with 'labels' or "
            f"'y', got {type(batch).__name__}. Write a collate_fn that does."
        )
    refuse_unusual(inputs, name)
    return inputs, None if labels is None else _read_labels(labels, name)


def _pop_labels(batch: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    inputs = dict(batch)
    named = next((known for known in LABELS if known in inputs), None)
    labels = None if named is None else inputs.pop(named)
    inputs.pop("label", None)  # data sets of Hugging Face may have both
    return inputs, labels


def row_count(inputs: Any) -> int:
    """Return the number of rows of a batch."""
    if isinstance(inputs, Tensor):
        return inputs.shape[0]
    return len(tree_leaves(inputs, is_leaf=is_words)[0])


def count_bytes(inputs: Any) -> int:
    """Return the bytes of a batch's tensors."""
    return sum(leaf.nbytes for leaf in tree_leaves(inputs) if isinstance(leaf, Tensor))


def first_rows(inputs: Any, count: int = 2) -> Any:
    """Return some rows of a batch; two are enough to see how a model works."""
    return _map(lambda leaf: leaf[:count], inputs)


def refuse_infinite(inputs: Any, name: str, start: int = 0) -> None:
    """Refuse a batch with NaN or infinity, naming the first such row; its first is row `start`."""
    for leaf in [inputs] if isinstance(inputs, Tensor) else tree_leaves(inputs):
        # The sum is infinite or NaN where any number is, and takes less time than to look at each.
        floats = isinstance(leaf, Tensor) and leaf.is_floating_point()
        if floats and not math.isfinite(leaf.detach().sum()):
            bad = ~leaf.isfinite().reshape(len(leaf), -1).all(dim=1)
            if bad.any():
                row = start + int(bad.nonzero()[0])
                raise InvalidInput(
                    f"`{name}` must be finite, got NaN or infinity in row {row}. Drop or impute "
                    "such examples."
                )


def refuse_unusual(inputs: Any, name: str) -> None:
    """Refuse sparse, nested and meta tensors, whose rows cannot be read like others."""
    for leaf in tree_leaves(inputs):
        if isinstance(leaf, Tensor) and (
            leaf.is_nested or leaf.is_meta or leaf.layout != torch.strided
        ):
            kind = "nested" if leaf.is_nested else "meta" if leaf.is_meta else str(leaf.layout)[6:]
            raise InvalidInput(
                f"`{name}` must hold dense tensors, got a {kind} one. Convert it: x.to_dense(), "
                "x.to_padded_tensor(0.0); a meta tensor has no numbers."
            )


def concatenate(parts: Sequence[Any]) -> Any:
    """Make one batch of several of the same form."""

    def join(*leaves: Any) -> Any:
        return [*chain(*leaves)] if is_words(leaves[0]) else torch.cat(leaves)

    try:
        first, *rest = parts
        return tree_map(join, first, *rest, is_leaf=is_words)
    except (RuntimeError, ValueError) as error:
        raise InvalidInput(
            f"`unlabelled` must have inputs of the same form and shape as `data`, got others "
            f"({error}). Pad or prepare both alike."
        ) from None


def to_device(inputs: Any, device: torch.device) -> Any:
    """Return inputs on a device."""

    def move(leaf: Any) -> Any:
        return leaf.to(device, non_blocking=True) if isinstance(leaf, Tensor) else leaf

    return move(inputs) if isinstance(inputs, Tensor) else _map(move, inputs)


def _read_array(value: Any, name: str) -> Any:
    """Return a tensor as it is, or an array that stays where it is, even on a disk."""
    if is_words(value):
        return value
    array = value if isinstance(value, Tensor) else _validate.numbers(value, name)
    if not array.ndim:
        raise InvalidInput(
            f"`{name}` must have its examples on the first axis, got a single number. Pass an "
            "array (examples, …): np.array(x), or a DataLoader of examples one by one."
        )
    return array


def _to_tensor(value: Any) -> Any:
    """Convert rows of NumPy for PyTorch."""
    if not isinstance(value, np.ndarray):
        return value
    array = np.ascontiguousarray(value)
    if array.dtype.kind == "f" and array.dtype.itemsize >= 8:  # NumPy's default, and wider
        with np.errstate(over="ignore"):  # infinity is refused after the pass
            array = array.astype(np.float32)  # PyTorch's default
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def _read_labels(value: Any, name: str) -> Ints:
    labels = _validate.class_numbers(value, f"labels` of `{name}")
    if labels.ndim == 1:
        return labels
    remedy = "Pass class numbers."
    if not labels.ndim:
        remedy = "Pass a batch of one, (x[None], [y])."
    elif labels.ndim > 2:
        remedy = "A class for each pixel or word (segmentation, tagging) is not supported."
    elif labels.shape[1] == 1:
        remedy = "Pass y[:, 0]."
    elif np.isin(labels, (0, 1)).all():
        remedy = "Pass y.argmax(1)."
        if (labels.sum(axis=1) != 1).any():
            remedy = (
                "Several classes for an example (multi-label) are not supported. Score one class "
                "at a time, as yes or no: two logits, and its column as labels."
            )
    raise InvalidInput(
        f"`labels` of `{name}` must be one class number per example, got shape {labels.shape}. "
        f"{remedy}"
    )


def _to_dict(inputs: Any) -> Any:
    """Return inputs by name as a dict: PyTorch does not know the mappings of tokenizers."""
    return dict(inputs) if isinstance(inputs, Mapping) else inputs


def _map(function: Callable[[Any], Any], inputs: Any) -> Any:
    """Apply a function to every tensor or column in inputs."""
    return tree_map(function, inputs, is_leaf=is_words)


class Digest:
    """A hash of rows: type, shape and content of inputs and labels, batch by batch."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, inputs: Any, labels: Ints | None) -> None:
        """Add the next batch."""
        _update(self._hash, (inputs, labels))

    def hex(self) -> str:
        """Return the digest of all batches so far."""
        return self._hash.hexdigest()


def _update(digest: Any, part: Any) -> None:
    """Add names, types, shapes and contents to a hash."""
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
