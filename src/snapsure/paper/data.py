"""The paper's data sets: from the Hugging Face hub by name, or from a folder in the same layout.

Images are decoded once and kept as uint8 in a cache on the disk, which is mapped into memory:
CIFAR and SVHN take seconds and some 200 MB, ImageNet an hour and 260 GB (the middle square of each
image at 256 pixels). From then on every data set is the same thing, `Images`.
"""

import hashlib
import io
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, TypedDict

import numpy as np
import torch
from filelock import FileLock
from numpy.typing import NDArray
from torch import Tensor

from snapsure import _arrays, _json, _validate
from snapsure.errors import InvalidInput

Encoded = tuple[bytes, int]  # a file's bytes, and the class
Progress = Callable[[int, int], None]  # images decoded, of how many

_CHUNK = 1000
_MANIFEST, _LABELS = "images.json", "labels.npy"
_IMAGE_FILES = {".jpeg", ".jpg", ".png"}


class _Manifest(TypedDict):
    files: dict[str, str]


@dataclass(frozen=True)
class DataSet:
    """Where a data set is found, and how its columns are called there."""

    name: str
    hub: str
    config: str | None
    image: str
    label: str
    classes: int
    side: int
    test: str = "test"

    @property
    def where(self) -> str:
        """Where it is on the hub, in words."""
        return f"{self.hub} (configuration {self.config})" if self.config else self.hub


DATA_SETS = {
    data.name: data
    for data in (
        DataSet("cifar10", "uoft-cs/cifar10", None, "img", "label", 10, 32),
        DataSet("cifar100", "uoft-cs/cifar100", None, "img", "fine_label", 100, 32),
        DataSet("svhn", "ufldl-stanford/svhn", "cropped_digits", "image", "label", 10, 32),
        DataSet(
            "imagenet-1k", "ILSVRC/imagenet-1k", None, "image", "label", 1000, 256, "validation"
        ),
        # 50 classes of ImageNet at 64 pixels (Le & Yang 2015), a size that two cores carry.
        DataSet("imagenet-tiny", "zh-plus/tiny-imagenet", None, "image", "label", 50, 64, "valid"),
    )
}


@dataclass(frozen=True)
class Images:
    """Pixels (n, side, side, 3) as uint8 and labels (n,), mapped from the disk."""

    pixels: Tensor
    labels: Tensor

    def __len__(self) -> int:
        """Return how many images there are."""
        return len(self.labels)

    def first(self, n: int | None) -> "Images":
        """Return the first `n`, or all."""
        return self if n is None else Images(self.pixels[:n], self.labels[:n])


def load(
    name: str, part: str, folder: Path | None = None, progress: Progress | None = None
) -> Images:
    """Read the "train" or "test" part of a data set; the first time, decode it.

    ImageNet's "test" is its validation set: the labels of its test set are not public. `folder` has
    parquet files as the hub has them (`train*.parquet`, in it or below), or images in files,
    `train/<class>/<image>`. Without a folder, the data set comes from the hub.
    """
    data = find(name)
    split = data.test if part == "test" else "train"
    source = _read_hub(data, split) if folder is None else _read_folder(data, split, Path(folder))
    cached = _cache_folder() / f"{name}-{part}-{data.side}-{source.identity}"
    cached.mkdir(parents=True, exist_ok=True)
    with FileLock(cached / ".lock"):  # two writers would leave holes
        if not (cached / _MANIFEST).exists():
            _decode(data, source, cached, progress or (lambda done, total: None))
    files = _json.read(cached / _MANIFEST, "images", _Manifest)["files"]
    again = f"delete {cached} and run again"
    # Private maps: torch may own them.
    labels = _arrays.map_file(cached / _LABELS, files.get(_LABELS, ""), again, "c")
    pixels = np.load(cached / "pixels.npy", mmap_mode="c")
    return Images(torch.from_numpy(pixels), torch.from_numpy(labels))


def find(name: str) -> DataSet:
    """Return a data set of the paper."""
    _validate.choice(name, tuple(DATA_SETS), "dataset")
    return DATA_SETS[name]


@dataclass(frozen=True)
class _Source:
    """Encoded images in a fixed order, and a hash of where they come from."""

    count: int
    identity: str
    read: Callable[[], Iterator[Encoded]]


def _read_hub(data: DataSet, split: str) -> _Source:
    import datasets  # type: ignore[import-untyped]

    try:
        table = datasets.load_dataset(data.hub, data.config, split=split)
    except Exception as error:  # offline, not found, gated: each has another class
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InvalidInput(
            f"`dataset` {data.name} must be on this machine or within reach, got an error from the "
            f"Hugging Face hub ({reason}). Where there is a network, download the parquet files of "
            f"{data.where}, and pass their folder as --data."
        ) from None
    table = table.cast_column(data.image, datasets.Image(decode=False))

    def read() -> Iterator[Encoded]:
        for row in table:
            yield _read_bytes(row[data.image]), row[data.label]

    return _Source(len(table), _hash(table._fingerprint), read)


def _read_folder(data: DataSet, split: str, folder: Path) -> _Source:
    if not folder.is_dir():
        raise InvalidInput(f"--data must be a folder, got {folder}. Check the path.")
    configured = folder / (data.config or "")
    files = sorted((configured if configured.is_dir() else folder).rglob(f"{split}*.parquet"))
    if files:
        return _read_parquet(data, files)
    for place in (folder / split, folder / split[:3]):  # ImageNet's is called validation, or val
        if place.is_dir():
            return _read_image_folder(data, place, folder / "train")
    raise InvalidInput(
        f"--data must hold {split}*.parquet or {split}/<class>/<image>, got neither in {folder}. "
        f"Download the parquet files of {data.where} from the Hugging Face hub into it."
    )


def _read_parquet(data: DataSet, files: list[Path]) -> _Source:
    from pyarrow import parquet  # type: ignore[import-untyped]

    opened = [parquet.ParquetFile(file) for file in files]
    for file, content in zip(files, opened, strict=True):
        missing = {data.image, data.label} - set(content.schema_arrow.names)
        if missing:
            raise InvalidInput(
                f"{file.name} must have the columns {data.image} and {data.label} of {data.name}, "
                f"got {', '.join(content.schema_arrow.names)}. Check which data set this is."
            )

    def read() -> Iterator[Encoded]:
        for content in opened:
            for batch in content.iter_batches(1000, columns=[data.image, data.label]):
                images, labels = batch[data.image].to_pylist(), batch[data.label].to_pylist()
                for image, label in zip(images, labels, strict=True):
                    yield _read_bytes(image), label

    return _Source(sum(one.metadata.num_rows for one in opened), _hash_files(files), read)


def _read_image_folder(data: DataSet, folder: Path, train: Path) -> _Source:
    """Classes are numbered by the training set's folders, in the order of their names."""
    classes, own = (
        {path.name for path in place.glob("*") if path.is_dir()} for place in (train, folder)
    )
    if len(classes) != data.classes or not own <= classes:
        raise InvalidInput(
            f"{folder} must hold images in folders of the {data.classes} classes that {train} has, "
            f"got {len(own)} folders there and {len(classes)} in {train.name}. Check which data "
            "set this is."
        )
    number = {name: label for label, name in enumerate(sorted(classes))}
    files = [
        (path, number[name])
        for name in sorted(own)
        for path in sorted((folder / name).iterdir())
        if path.suffix.lower() in _IMAGE_FILES
    ]

    def read() -> Iterator[Encoded]:
        for path, label in files:
            yield path.read_bytes(), label

    return _Source(len(files), _hash_files([path for path, _ in files], str(number)), read)


def _decode(data: DataSet, source: _Source, folder: Path, progress: Progress) -> None:
    """Write pixels and labels, then the manifest. An interrupted decoding resumes."""
    labels = np.empty(source.count, dtype=np.int64)
    rows, at = source.read(), 0
    with _append_to(folder / "pixels.npy", (source.count, data.side, data.side, 3)) as (file, done):
        with ThreadPoolExecutor() as pool:  # Pillow decodes without Python's lock
            while chunk := list(islice(rows, _CHUNK)):
                labels[at : at + len(chunk)] = [label for _, label in chunk]
                if at >= done:
                    images = pool.map(lambda row: _decode_image(row[0], data.side), chunk)
                    file.write(np.stack(list(images)).data)
                at += len(chunk)
                progress(at, source.count)
        file.flush()
        os.fsync(file.fileno())
    if labels.min() < 0 or labels.max() >= data.classes:
        raise InvalidInput(
            f"labels of {data.name} must be 0 … {data.classes - 1}, got {labels.min()} … "
            f"{labels.max()}. Take a part with public labels of these classes."
        )
    files = {_LABELS: _arrays.write(folder / _LABELS, labels)}
    _json.write(folder / _MANIFEST, "images", {"files": files})


@contextmanager
def _append_to(path: Path, shape: tuple[int, ...]) -> Iterator[tuple[BinaryIO, int]]:
    """Open a .npy file of bytes after its complete chunks, and count the images in them."""
    header = io.BytesIO()
    descr = {"descr": "|u1", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, descr)
    begin, image = len(header.getvalue()), int(np.prod(shape[1:]))
    size = path.stat().st_size if path.exists() else 0
    done = max(0, size - begin) // image // _CHUNK * _CHUNK
    with path.open("r+b" if size else "wb") as file:
        file.write(header.getvalue())
        file.seek(begin + done * image)
        file.truncate()
        yield file, done


def _decode_image(content: bytes, side: int) -> NDArray[np.uint8]:
    """Decode the middle square of an image, its short side scaled to `side`."""
    from PIL import Image

    image = Image.open(io.BytesIO(content)).convert("RGB")
    if image.size != (side, side):
        scale = side / min(image.size)
        wide, high = (max(side, round(length * scale)) for length in image.size)
        image = image.resize((wide, high), Image.Resampling.BILINEAR)
        left, top = (wide - side) // 2, (high - side) // 2
        image = image.crop((left, top, left + side, top + side))
    return np.asarray(image)


def _read_bytes(image: dict[str, Any]) -> bytes:
    """Return the file of an image, which the hub stores as bytes or as a path."""
    content: bytes | None = image["bytes"]
    return Path(image["path"]).read_bytes() if content is None else content


def _cache_folder() -> Path:
    """Return SNAPSURE_CACHE, or snapsure in the user's cache folder."""
    user = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    return Path(os.environ.get("SNAPSURE_CACHE", user / "snapsure"))


def _hash_files(files: list[Path], more: str = "") -> str:
    """Hash the names, sizes and times of files."""
    stats = [
        (file.parent.name, file.name, file.stat().st_size, file.stat().st_mtime_ns)
        for file in files
    ]
    return _hash(repr(stats) + more)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
