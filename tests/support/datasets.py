"""Data sets in their true layouts, small: scikit-learn's digits, as 32 × 32 PNG files."""

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet
from sklearn.datasets import load_digits

from tests.support.tiny import TEST, TRAIN


def png(pixels):
    """A picture's file, of 8 × 8 numbers up to 16."""
    image = Image.fromarray((pixels * 15).astype(np.uint8)).resize((32, 32)).convert("RGB")
    file = io.BytesIO()
    image.save(file, "png")
    return file.getvalue()


def write_parquet(path, start, stop, image="img", label="label"):
    """A file as the hub has them: images as a struct of bytes and path."""
    digits = load_digits()
    images = [{"bytes": png(digits.images[i]), "path": f"{i}.png"} for i in range(start, stop)]
    table = pa.table({image: images, label: digits.target[start:stop]})
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(table, path)


@pytest.fixture(scope="session")
def cifar(tmp_path_factory):
    """A folder in CIFAR-10's layout."""
    folder = tmp_path_factory.mktemp("cifar10")
    write_parquet(folder / "plain_text" / "train-00000-of-00002.parquet", 0, 100)
    write_parquet(folder / "plain_text" / "train-00001-of-00002.parquet", 100, TRAIN)
    write_parquet(folder / "plain_text" / "test-00000-of-00001.parquet", TRAIN, TRAIN + TEST)
    return folder


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    """What is decoded stays among the tests."""
    folder: Path = tmp_path_factory.getbasetemp() / "cache"
    monkeypatch.setenv("SNAPSURE_CACHE", str(folder))
