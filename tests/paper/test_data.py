"""Each data set's loader, on small files in its true layout."""

import io
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits

from snapsure.errors import InvalidInput
from snapsure.paper import data
from tests.support.datasets import png, write_parquet
from tests.support.processes import forked
from tests.support.refusals import refuses
from tests.support.tiny import TEST, TRAIN

LAYOUTS = {
    "cifar10": ("img", "label", "train-00000-of-00001.parquet", "test-00000-of-00001.parquet"),
    "cifar100": ("img", "fine_label", "train.parquet", "test.parquet"),
    "svhn": (
        "image",
        "label",
        "cropped_digits/train-00000-of-00001.parquet",
        "cropped_digits/test-00000-of-00001.parquet",
    ),
    "imagenet-1k": (
        "image",
        "label",
        "data/train-00000-of-00294.parquet",
        "data/validation-00000-of-00014.parquet",
    ),
    "imagenet-tiny": ("image", "label", "data/train.parquet", "data/valid.parquet"),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_parquet_in_the_hubs_layout(name, tmp_path):
    image, label, train, test = LAYOUTS[name]
    write_parquet(tmp_path / train, 0, 12, image, label)
    write_parquet(tmp_path / test, 12, 20, image, label)
    digits = load_digits()
    for part, rows in (("train", slice(0, 12)), ("test", slice(12, 20))):
        images = data.load(name, part, tmp_path)
        side = data.find(name).side
        assert images.pixels.shape == (rows.stop - rows.start, side, side, 3)
        assert images.pixels.dtype == torch.uint8
        assert images.labels.tolist() == digits.target[rows].tolist()


def test_pixels_are_those_of_the_files(cifar):
    images = data.load("cifar10", "test", cifar)
    assert len(images) == TEST
    assert len(images.first(5)) == len(images.first(5).pixels) == 5
    assert len(images.first(None)) == TEST
    digits = load_digits()
    for row in (0, TEST - 1):
        file = io.BytesIO(png(digits.images[TRAIN + row]))
        assert np.array_equal(images.pixels[row].numpy(), np.asarray(Image.open(file)))


def test_images_in_folders_numbered_by_those_of_train(tmp_path, monkeypatch):
    monkeypatch.setitem(data.DATA_SETS, "imagenet-1k", replace(data.find("imagenet-1k"), classes=3))
    for part in ("train", "val"):
        for i, wnid in enumerate(("n02", "n01", "n03")):
            if (part, wnid) == ("val", "n01"):
                continue
            place = tmp_path / part / wnid
            place.mkdir(parents=True)
            pixels = np.full((300, 500, 3), 40 * i, dtype=np.uint8)
            pixels[:, :100] = 255  # outside of the middle square
            pixels = pixels.swapaxes(0, 1) if i == 2 else pixels  # one is higher than wide
            Image.fromarray(pixels).save(place / f"{wnid}_1.JPEG")
            (place / "notes.txt").write_text("not an image")
    images = data.load("imagenet-1k", "test", tmp_path)
    assert images.pixels.shape == (2, 256, 256, 3)
    assert images.labels.tolist() == [1, 2]  # n02 and n03 of n01, n02, n03
    assert images.pixels.float().mean(dim=(1, 2, 3)).round().tolist() == [0, 80]
    assert data.load("imagenet-1k", "train", tmp_path).labels.tolist() == [0, 1, 2]
    (tmp_path / "val" / "n04").mkdir()
    with pytest.raises(InvalidInput, match=r"/val must hold .* the 3 classes .*got 3 folders"):
        data.load("imagenet-1k", "test", tmp_path)


def test_decoded_once_and_after_a_stop_only_the_rest(tmp_path, monkeypatch):
    write_parquet(tmp_path / "train.parquet", 0, 25)
    monkeypatch.setattr(data, "_CHUNK", 10)
    monkeypatch.setenv("SNAPSURE_CACHE", str(tmp_path / "cache"))
    decoded = []
    whole = data._decode_image

    def counted(content, side):
        if len(decoded) == stop:
            raise KeyboardInterrupt
        decoded.append(content)
        return whole(content, side)

    monkeypatch.setattr(data, "_decode_image", counted)
    stop = 15
    with pytest.raises(KeyboardInterrupt):
        data.load("cifar10", "train", tmp_path)
    (partial,) = (tmp_path / "cache").glob("*/pixels.npy")
    with partial.open("ab") as file:  # the second chunk, but for its last bytes
        file.write(bytes(10 * 32 * 32 * 3 - 50))
    decoded.clear()
    stop = 100
    told = []
    images = data.load("cifar10", "train", tmp_path, lambda done, of: told.append((done, of)))
    assert len(decoded) == 15
    assert told == [(10, 25), (20, 25), (25, 25)]
    digits = load_digits()
    assert images.labels.tolist() == digits.target[:25].tolist()
    expected = [whole(png(digits.images[i]), 32) for i in range(25)]
    assert np.array_equal(images.pixels.numpy(), expected)
    decoded.clear()
    assert torch.equal(data.load("cifar10", "train", tmp_path).pixels, images.pixels)
    assert decoded == []


def test_what_is_missing_is_named(tmp_path, monkeypatch):
    with pytest.raises(InvalidInput, match=r"`dataset` must be .*cifar10.*, got 'mnist'"):
        data.load("mnist", "train")
    missing = r"--data must hold test\*\.parquet .* Download .*ufldl-stanford/svhn .*cropped_digits"
    with pytest.raises(InvalidInput, match=missing):
        data.load("svhn", "test", tmp_path)
    with pytest.raises(InvalidInput, match=r"--data must be a folder, got .*/nowhere"):
        data.load("svhn", "test", tmp_path / "nowhere")
    write_parquet(tmp_path / "train.parquet", 0, 2)
    columns = r"train\.parquet must have .* img and fine_label of cifar100, got img, label"
    with pytest.raises(InvalidInput, match=columns):
        data.load("cifar100", "train", tmp_path)


def test_the_whole_repository_of_svhn_may_be_there(tmp_path):
    write_parquet(tmp_path / "cropped_digits" / "train-0.parquet", 0, 5, "image", "label")
    write_parquet(tmp_path / "full_numbers" / "train-0.parquet", 0, 5, "image", "digits")
    assert len(data.load("svhn", "train", tmp_path)) == 5


@pytest.mark.slow
def test_two_processes_decode_one_after_the_other(cifar, tmp_path):
    """Both get whole images, whichever was first."""
    code = (
        "import sys; from pathlib import Path; from snapsure.paper import data; "
        "print(int(data.load('cifar10', 'train', Path(sys.argv[1])).pixels.sum()))"
    )
    with ExitStack() as running:
        env, loaded = {"SNAPSURE_CACHE": str(tmp_path)}, ("snapsure.paper.data",)
        both = [
            running.enter_context(forked(code, cifar, env=env, loaded=loaded)) for _ in range(2)
        ]
        assert [process.wait() for process in both] == [0, 0]
        sums = [int(process.stdout) for process in both]
    assert sums == [int(data.load("cifar10", "train", cifar).pixels.sum())] * 2


@pytest.mark.parametrize(
    ("labels", "got"), [([-1, 0, 1], "got -1 … 1"), ([0, 1, 10], "got 0 … 10")]
)
def test_labels_out_of_range(tmp_path, labels, got):
    write_parquet(tmp_path / "test.parquet", 0, 3)
    from pyarrow import parquet

    table = parquet.read_table(tmp_path / "test.parquet")
    parquet.write_table(table.set_column(1, "label", [labels]), tmp_path / "test.parquet")
    with refuses(InvalidInput, "labels of cifar10 must be 0 … 9", got):
        data.load("cifar10", "test", tmp_path)


def test_the_hubs_images_are_those_of_its_files(cifar, tmp_path, monkeypatch):
    """As bytes, or as a path."""
    import datasets

    digits = load_digits()
    (tmp_path / "0.png").write_bytes(png(digits.images[0]))
    images = [{"bytes": None, "path": str(tmp_path / "0.png")}]
    images += [{"bytes": png(digits.images[i]), "path": None} for i in range(1, 8)]
    table = datasets.Dataset.from_dict(
        {"img": images, "label": digits.target[:8].tolist()},
        datasets.Features({"img": datasets.Image(), "label": datasets.Value("int64")}),
    )
    asked = []

    def load(*args, split):
        asked.append((*args, split))
        return table

    monkeypatch.setattr(datasets, "load_dataset", load)
    found, wanted = data.load("cifar10", "train"), data.load("cifar10", "train", cifar).first(8)
    assert asked == [("uoft-cs/cifar10", None, "train")]
    assert torch.equal(found.pixels, wanted.pixels)
    assert torch.equal(found.labels, wanted.labels)


@pytest.mark.parametrize(
    ("error", "reason"),
    [(OSError("no route\nto it"), "no route"), (TimeoutError(), "TimeoutError")],
)
def test_an_error_of_the_hub_is_named(monkeypatch, error, reason):
    import datasets

    def fail(*args, **options):
        raise error

    monkeypatch.setattr(datasets, "load_dataset", fail)
    with refuses(InvalidInput, "`dataset` cifar10", f"({reason})", "--data"):
        data.load("cifar10", "train")


def test_offline_it_says_what_to_fetch_and_where_to_put_it(monkeypatch):
    import datasets

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    facts = r"`dataset` svhn must be .*Hugging Face hub.*ufldl-stanford/svhn.*digits.*--data"
    with pytest.raises(InvalidInput, match=facts):
        data.load("svhn", "train")
