"""Files are written whole or not at all, and only what is ours is removed."""

import errno
import re
import resource

import numpy as np
import pytest

from snapsure import ScoreTable, _files
from snapsure.errors import StorageError


@pytest.fixture
def no_room():
    """No file may grow beyond a page: the system itself refuses, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("n", [500, 5000, 500_000])
def test_an_array_that_does_not_fit_is_told_of(tmp_path, no_room, n):
    # 500 values: all but the last 32 bytes fit, and it is the last flush that fails.
    path = tmp_path / "values.npy"
    with pytest.raises(StorageError) as caught:
        _files.write_array(path, np.arange(float(n)))
    assert caught.value.errno == errno.EFBIG
    assert caught.value.strerror == (
        f"cannot write values.npy in {tmp_path} (File too large): choose a folder that can be "
        "written to; what was there before is whole"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_table_that_does_not_fit_is_told_of(tmp_path, no_room):
    table = ScoreTable({"softmax": np.zeros((1, 500))}, np.zeros((1, 500), int))
    with pytest.raises(StorageError):
        table.save(tmp_path)
    assert not (tmp_path / "table.json").exists()


@pytest.mark.parametrize(
    "values",
    [
        np.arange(7),
        np.zeros((3, 4), np.float32),
        np.zeros((4, 3), order="F"),
        np.arange(20)[::3],
        np.zeros(0),
        np.array([True, False]),
    ],
)
def test_the_bytes_are_those_of_numpy(tmp_path, values):
    _files.write_array(tmp_path / "ours.npy", values)
    np.save(tmp_path / "theirs.npy", np.ascontiguousarray(values))
    assert (tmp_path / "ours.npy").read_bytes() == (tmp_path / "theirs.npy").read_bytes()


def test_only_our_own_temporaries_are_removed(tmp_path):
    names = re.compile(r"epoch-\d{6}\.npy")
    ours = tmp_path / ".partial-0123456789ab-epoch-000001.npy"
    others = [
        tmp_path / name
        for name in (
            ".partial-download",
            ".partial-0123456789ab-thesis.tex",
            ".partial-0123456789ab-epoch-000001.npy.bak",
            ".partial-0123456789-epoch-000001.npy",
            ".partial-0123456789AB-epoch-000001.npy",
            "epoch-000001.npy",
            "below/.partial-0123456789ab-epoch-000001.npy",
        )
    ]
    (tmp_path / "below").mkdir()
    (tmp_path / ".partial-0123456789ab-epoch-000002.npy").mkdir()
    for path in (ours, *others):
        path.write_text("mine")
    _files.remove_partial(tmp_path, names)
    assert not ours.exists()
    assert all(path.read_text() == "mine" for path in others)
    assert (tmp_path / ".partial-0123456789ab-epoch-000002.npy").is_dir()
