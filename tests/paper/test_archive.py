"""Packed score tables: what is kept, what is lost, and how small they are."""

import numpy as np
import pytest

from snapsure import ScoreTable, eaurc
from snapsure.errors import CorruptFile, InvalidInput
from snapsure.paper.archive import Experiment, pack, unpack
from snapsure.paper.tables import tabulate_motivation, tabulate_networks, tabulate_table1
from tests.support.refusals import refuses
from tests.support.runs import simulated


def about(count=2, **more):
    return {"dataset": "d", "scale": "s", "networks": [[]] * count, **more}


def packed(kappa, tmp_path):
    kappa = np.atleast_2d(kappa)
    table = ScoreTable({"softmax": kappa}, np.zeros(kappa.shape, int), np.zeros(kappa.shape[1]))
    pack(table, tmp_path / "table.npz")
    return unpack(tmp_path / "table.npz").kappa("softmax")


def test_precise_near_both_ends(tmp_path):
    """Odds to 1/1024: 1 − 10⁻¹² is not 1, as in float32 it would be."""
    rng = np.random.default_rng(0)
    kappa = np.concatenate(
        [10.0 ** rng.uniform(-14, 0, 4000), 1 - 10.0 ** rng.uniform(-12, 0, 4000)]
    )
    result = packed(kappa, tmp_path)[0]
    odds, theirs = (k / (1 - k) for k in (result, kappa))
    assert np.all(np.abs(odds / theirs - 1) <= 1 / 1024 + 1e-3 * (kappa > 1 - 1e-11) + 1e-5)
    assert np.unique(result).size > 5000


def test_ends_stay_ends(tmp_path):
    kappa = np.array([0.0, 1.0, 0.5, np.nextafter(1, 0), 1e-300])
    result = packed(kappa, tmp_path)[0]
    assert result[:3].tolist() == [0.0, 1.0, 0.5]
    assert 1 - 1e-15 < result[3] < 1
    assert 0 < result[4] < 1e-27


def test_snapshots_that_jump_from_end_to_end(tmp_path):
    """Differences overflow two bytes there, and come back."""
    kappa = np.array([[0.0, 1.0, 0.3], [1.0, 0.0, 1.0], [0.0, 1.0, 1e-9], [1.0, 1e-27, 0.0]])
    result = packed(kappa, tmp_path)
    assert np.allclose(result, kappa, rtol=1e-3, atol=1e-30)
    assert np.array_equal(result == 1, kappa == 1)


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


def test_large_numbers_there_and_back(tmp_path):
    epochs, labels = [3, 2**63 - 1], np.array([[0, 40_000], [40_000, 1]])
    pack(ScoreTable({"softmax": labels % 2}, labels, [-1, 1], epochs=epochs), tmp_path / "t.npz")
    read = unpack(tmp_path / "t.npz")
    assert read.epochs.tolist() == epochs
    assert read.y_hat.tolist() == [40_000, 1]
    assert read.y.tolist() == [-1, 1]


def test_experiment_there_and_back(tmp_path):
    table = simulated()
    facts = about(networks=[[{"epoch": 1}], [{"epoch": 1}]])
    Experiment(facts, [table, table], {(0, 1): table}).save(tmp_path)
    ((seeds, ensemble),) = Experiment.open(tmp_path).ensembles.items()
    assert seeds == (0, 1)
    assert np.array_equal(ensemble.errors, table.errors)
    Experiment(facts, [table, table]).save(tmp_path)
    read = Experiment.open(tmp_path)
    assert (read.about, read.ensembles) == (facts, {})
    assert len(read.tables) == 2
    assert not [*tmp_path.glob("ensemble*")]


def test_an_experiment_that_is_not_yet_written_whole_is_none(tmp_path):
    Experiment(about(1), [simulated()]).save(tmp_path)
    with pytest.raises(AttributeError):
        Experiment(about(1), [None]).save(tmp_path)  # it stops at this table
    with refuses(InvalidInput, "--from", f"got none in {tmp_path}"):
        Experiment.open(tmp_path)


def test_a_score_of_fewer_snapshots_has_tables_of_its_own(tmp_path):
    table = simulated()
    kappa, some = {"nn_distance": table.kappa("softmax")[1::2]}, table.epochs[1::2]
    near = ScoreTable(kappa, table.labels[1::2], table.y, epochs=some)
    Experiment(about(), [table, table], costly={0: near, 1: near}).save(tmp_path)
    read = Experiment.open(tmp_path)
    assert {seed: part.epochs.tolist() for seed, part in read.of("nn_distance").items()} == {
        0: some.tolist(),
        1: some.tolist(),
    }
    assert read.of("softmax") == dict(enumerate(read.tables))
    assert read.of("margin") == {}
    assert tabulate_table1(read).content["nn_distance"]["networks"] == 2
    Experiment(about(), [table, table]).save(tmp_path)
    assert Experiment.open(tmp_path).of("nn_distance") == {}


def test_a_score_may_be_of_some_networks(tmp_path):
    table, other = simulated(), simulated(1)
    alone = ScoreTable({"softmax": other.kappa("softmax")}, other.labels, other.y)
    near = ScoreTable({"nn_distance": table.kappa("softmax")}, table.labels, table.y)
    Experiment(about(seeds=[3, 5]), [alone, table], costly={1: near}).save(tmp_path)
    read = Experiment.open(tmp_path)
    assert {name: [*read.of(name)] for name in ("softmax", "mc_dropout", "nn_distance")} == {
        "softmax": [3, 5],
        "mc_dropout": [5],
        "nn_distance": [5],
    }
    assert {name: row["networks"] for name, row in tabulate_table1(read).content.items()} == {
        "softmax": 2,
        "nn_distance": 1,
        "mc_dropout": 1,
    }
    seeds = {
        name: [row["seeds"] for row in rows]
        for name, rows in tabulate_motivation(read).content.items()
    }
    assert seeds == {"softmax": [[3], [5]], "nn_distance": [[5]], "mc_dropout": [[5]]}
    third = Experiment(about(1, seeds=[1]), [table], costly={0: near})
    assert [*third.beside(read).of("nn_distance")] == [5, 1]
    assert [*read.beside(third).of("nn_distance")] == [1, 5]


def test_networks_of_two_machines_become_one_experiment(tmp_path):
    table, other = simulated(), simulated(1)
    recipe = {"drop": (1, 2), "batch": 3}
    facts = about(recipe=recipe, networks=[["a"], ["b"]])
    Experiment(facts, [table, table], {(0, 1): table}).save(tmp_path)
    earlier = Experiment.open(tmp_path)
    # What was trained before archives had a precision was trained in full.
    same = {"batch": 3, "drop": (1, 2)}
    mine = about(recipe=same, seeds=[4], networks=[["c"]], precision="32-true")
    ours = Experiment(mine, [other])
    both = ours.beside(earlier)
    both.save(tmp_path)
    read = Experiment.open(tmp_path)
    assert (read.seeds, read.about["networks"]) == ([0, 1, 4], [["a"], ["b"], ["c"]])
    assert np.array_equal(read.tables[2].errors, other.errors)
    assert [*read.ensembles] == [(0, 1)]
    Experiment({**both.about, "seeds": [0, 1, 1]}, both.tables).save(tmp_path)
    with refuses(CorruptFile, tmp_path / "experiment.json", "3 networks, got 2"):
        Experiment.open(tmp_path)
    for wrong in (
        Experiment({**mine, "seeds": [1]}, [table]),
        Experiment({**mine, "recipe": {**recipe, "drop": (1, 3)}}, [table]),
        Experiment({**mine, "precision": "bf16-mixed"}, [table]),
    ):
        other = f"d at scale s in {wrong.about['precision']}, seeds {wrong.seeds[0]}"
        got = f"got d at scale s in 32-true, seeds 0, 1 for {other}"
        with pytest.raises(InvalidInput, match=f"--beside must be .*{got}"):
            wrong.beside(earlier)


def test_ensembles_of_two_machines_stand_beside_each_other_the_largest_alone():
    table, other = simulated(), simulated(1)

    def trained(*seeds, ensemble, table=other):
        networks = [[{"training_accuracy": 1.0}]] * len(seeds)
        ensembles = {ensemble: table} if ensemble else {}
        facts = about(seeds=[*seeds], networks=networks)
        return Experiment(facts, [table] * len(seeds), ensembles)

    two = trained(0, 1, ensemble=(0, 1), table=table)
    both = trained(10, 2, 3, ensemble=(2, 10)).beside(two)
    assert [*both.ensembles] == [(0, 1), (2, 10)]
    assert both.ensembles[0, 1] is table
    assert both.ensembles[2, 10] is other
    assert tabulate_table1(both).content["ensemble"]["networks"] == 2
    assert [row["seeds"] for row in tabulate_motivation(both).content["ensemble"]] == [
        [0, 1],
        [2, 10],
    ]
    assert [row["test_error"] for row in tabulate_networks(both).content["ensembles"]] == [
        table.errors.mean(),
        other.errors.mean(),
    ]
    names = [row[0] for row in tabulate_networks(both).table.rows]
    assert names[-2:] == ["ensemble of 0, 1", "ensemble of 2, 10"]
    assert [*trained(4, 5, 6, ensemble=(4, 5, 6)).beside(both).ensembles] == [(4, 5, 6)]
    assert [*two.beside(trained(4, 5, 6, ensemble=(4, 5, 6))).ensembles] == [(4, 5, 6)]
    assert [*trained(4, ensemble=None).beside(both).ensembles] == [(0, 1), (2, 10)]
