"""Packed score tables: what is kept, what is lost, and how small they are."""

import numpy as np
import pytest

from snapsure import ScoreTable, eaurc
from snapsure.errors import CorruptFile, InvalidInput
from snapsure.reproduce.archive import Experiment, pack, unpack
from tests.report.test_build import simulated


def packed(kappa, tmp_path):
    kappa = np.atleast_2d(kappa)
    table = ScoreTable({"softmax": kappa}, np.zeros(kappa.shape, int), np.zeros(kappa.shape[1]))
    pack(table, tmp_path / "table.npz")
    return unpack(tmp_path / "table.npz").kappa("softmax")


def test_precise_near_both_ends(tmp_path):
    """Twelve bits of the distance to the nearer end: 1 − 10⁻¹² is not 1, as in float32 it would."""
    rng = np.random.default_rng(0)
    tiny = 10.0 ** rng.uniform(-12, -0.4, 5000)
    for kappa, distance in ((tiny, tiny), (1 - tiny, 1 - (1 - tiny))):
        result = packed(kappa, tmp_path)[0]
        assert np.all(np.abs(result - kappa) <= distance * 2.0**-12 + 1e-16)
        assert np.unique(result).size > 4000


def test_ends_stay_ends(tmp_path):
    kappa = np.array([0.0, 1.0, 0.5, np.nextafter(1, 0), 1e-40, np.nextafter(0.5, 0)])
    result = packed(kappa, tmp_path)[0]
    assert result[:3].tolist() == [0.0, 1.0, 0.5]
    assert result[3] == np.nextafter(1, 0)
    assert 0 < result[4] < 1.01e-40
    assert abs(result[5] - 0.5) < 2e-4


def test_order_never_turns_around(tmp_path):
    """Rounding is monotone: points may tie, none may change places."""
    rng = np.random.default_rng(1)
    kappa = np.sort(np.concatenate([rng.random(3000), 10.0 ** rng.uniform(-15, 0, 3000)]))
    assert np.all(np.diff(packed(kappa, tmp_path)[0]) >= 0)


def test_a_table_keeps_its_areas_in_a_fraction_of_the_room(tmp_path):
    table = simulated()
    pack(table, tmp_path / "table.npz")
    read = unpack(tmp_path / "table.npz")
    assert read.names == table.names
    assert np.array_equal(read.errors, table.errors)
    assert np.array_equal(read.epochs, table.epochs)
    for name in table.names:
        ours, theirs = (eaurc(t.kappa(name), t.errors) for t in (read, table))
        assert np.allclose(ours, theirs, rtol=1e-3)
    size = sum(table.kappa(name).nbytes for name in table.names)
    assert (tmp_path / "table.npz").stat().st_size < size / 3


def test_experiment_there_and_back(tmp_path):
    table = simulated()
    about = {"dataset": "cifar100", "scale": "cpu", "networks": [[{"epoch": 1}], [{"epoch": 1}]]}
    Experiment(about, [table, table], None).save(tmp_path)
    read = Experiment.open(tmp_path)
    assert read.about == about
    assert len(read.tables) == 2
    assert read.ensemble is None
    Experiment(about, [table, table], table).save(tmp_path)
    assert Experiment.open(tmp_path).ensemble is not None


def test_refusals(tmp_path):
    with pytest.raises(InvalidInput) as refusal:
        Experiment.open(tmp_path)
    assert str(refusal.value) == (
        f"--from must be a folder with experiment.json, got none in {tmp_path}: check the path, or "
        "let the experiment finish"
    )
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 no zip")
    with pytest.raises(CorruptFile) as corrupt:
        unpack(tmp_path / "broken.npz")
    assert str(corrupt.value).startswith(
        f"{tmp_path}/broken.npz must be a packed score table, got one that cannot be read ("
    )
