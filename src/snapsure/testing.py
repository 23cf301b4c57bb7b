"""Contract suites for your own κ functions, estimators and executors.

Each is a class of tests for pytest: inherit it in a test file and define `make`.
"""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch
from torch import nn

from snapsure.errors import InvalidInput, NotFitted
from snapsure.kappas import SoftmaxResponse
from snapsure.networks._data import Rows
from snapsure.networks._network import Network, copy_network
from snapsure.scoring import LocalExecutor, score
from snapsure.snapshots import SnapshotStore
from snapsure.table import ScoreTable


def kappa_of(kappa, model, inputs, y_hat, batch_size=256):
    """Compute κ of a network for some inputs, through the contract alone."""
    rows = Rows.of(inputs, "data")
    network = Network(copy_network(model), [kappa])
    values = []
    with torch.inference_mode(), TemporaryDirectory() as folder:
        kappa.prepare([network], [Path(folder)])
        prepared = kappa.prepared(Path(folder), network.device)
        for low in range(0, rows.n, batch_size):
            part = slice(low, low + batch_size)
            values.append(kappa.score(network.run(inputs[part]), y_hat[part], prepared))
    return np.concatenate(values)


def small_network(classes=4, dtype=torch.float32):
    """Make two linear layers with dropout between them, and a linear head, from a fixed seed."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(5, 16),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(16, 8),
        nn.ReLU(),
        nn.Linear(8, classes),
    ).to(dtype)


class KappaContract:
    """What every κ function must do: inherit, and define `make(inputs, labels)`.

    Examples
    --------
    In a test file:

        class TestMine(KappaContract):
            def make(self, inputs, labels):
                return MyKappa()
    """

    tolerance = 1e-6  # between batch sizes: the float32 of the network itself

    def make(self, inputs, labels):
        """Return the κ function; inputs (n, 5) and labels (n,) may be its training data."""
        raise NotImplementedError

    @pytest.fixture
    def inputs(self):
        return torch.randn(60, 5, generator=torch.Generator().manual_seed(1))

    @pytest.fixture
    def labels(self):
        return np.arange(60) % 4

    def run(self, inputs, labels, classes=4, dtype=torch.float32, **options):
        inputs = inputs.to(dtype)
        kappa = self.make(inputs, labels)
        return kappa_of(kappa, small_network(classes, dtype), inputs, labels, **options)

    def test_shape_range_and_type(self, inputs, labels):
        values = self.run(inputs, labels)
        assert values.shape == (60,)
        assert values.dtype == np.float64
        assert (values >= 0).all()
        assert (values <= 1).all()
        assert len(np.unique(values)) > 30

    @pytest.mark.parametrize("batch_size", [1, 7, 60])
    def test_batch_size_changes_nothing(self, inputs, labels, batch_size):
        np.testing.assert_allclose(
            self.run(inputs, labels, batch_size=batch_size),
            self.run(inputs, labels),
            atol=self.tolerance,
            rtol=0,
        )

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
    def test_networks_of_other_precision(self, inputs, labels, dtype):
        np.testing.assert_allclose(
            self.run(inputs, labels, dtype=dtype), self.run(inputs, labels), atol=0.15
        )

    def test_every_class_can_be_the_answer(self, inputs, labels):
        for answer in range(4):
            kappa = self.make(inputs, labels)  # a new one: some compare what they have scored
            values = kappa_of(kappa, small_network(), inputs, np.full(60, answer))
            assert np.isfinite(values).all()

    def test_one_class_is_certain(self, inputs):
        assert (self.run(inputs, np.zeros(60, int), classes=1) == 1).all()

    def test_one_sample(self, inputs, labels):
        kappa = self.make(inputs, labels)
        one = kappa_of(kappa, small_network(), inputs[:1], labels[:1])
        many = kappa_of(kappa, small_network(), inputs, labels)
        np.testing.assert_allclose(one, many[:1], atol=self.tolerance, rtol=0)

    def test_the_same_again_is_the_same_to_the_bit(self, inputs, labels):
        assert (self.run(inputs, labels) == self.run(inputs, labels)).all()

    def test_settings_are_json(self, inputs, labels):
        kappa = self.make(inputs, labels)
        assert json.loads(json.dumps(kappa.settings)) == kappa.settings
        assert kappa.name


class EstimatorContract:
    """What every estimator must do: inherit, and define `make()`."""

    def make(self):
        """Return the estimator, not fitted."""
        raise NotImplementedError

    def table(self, seed=0, n=400):
        """Make a table of twelve snapshots, every fifth epoch, whose κ is noisy."""
        rng = np.random.default_rng(seed)
        ease = rng.normal(size=n)
        kappa = 1 / (1 + np.exp(-(ease + rng.normal(size=(12, n)))))
        y = (rng.random(n) > 1 / (1 + np.exp(-(1 + ease)))).astype(int)
        labels = np.where(rng.random((12, n)) < 0.1, 1, 0)
        labels[-1] = 0
        logits = np.column_stack([2 * ease + 3, rng.normal(size=n), rng.normal(size=n)])
        logits[:, 0] = logits.max(axis=1) + 0.1
        return ScoreTable(
            {"softmax": kappa, "other": kappa[:, ::-1]},
            labels,
            y,
            epochs=np.arange(5, 65, 5),
            logits=logits,
        )

    def test_one_finite_confidence_per_example(self):
        table = self.table()
        confidence = self.make().fit(table).confidence(self.table(1, n=50))
        assert confidence.shape == (50,)
        assert confidence.dtype == np.float64
        assert np.isfinite(confidence).all()

    def test_a_probability_is_one(self):
        estimator = self.make().fit(self.table())
        if estimator.calibrated:
            confidence = estimator.confidence(self.table(1))
            assert ((confidence >= 0) & (confidence <= 1)).all()

    def test_an_example_is_scored_by_itself(self):
        estimator, examples = self.make().fit(self.table()), self.table(1)
        some = np.array([7, 3, 200])
        np.testing.assert_allclose(
            estimator.confidence(examples.rows(some)),
            estimator.confidence(examples)[some],
            rtol=1e-12,
        )

    def test_the_order_of_rows_changes_nothing(self):
        table, examples = self.table(), self.table(1)
        order = np.random.default_rng(2).permutation(400)
        np.testing.assert_allclose(
            self.make().fit(table.rows(order)).confidence(examples),
            self.make().fit(table).confidence(examples),
            rtol=1e-7,
        )

    def test_a_table_of_the_snapshots_it_names_is_enough(self):
        estimator, examples = self.make().fit(self.table()), self.table(1)
        needed = estimator.snapshots(examples.epochs)
        assert needed[-1] == examples.epochs[-1]
        part = examples.select(needed)
        assert (estimator.confidence(part) == estimator.confidence(examples)).all()

    def test_fitted_on_another_kappa_it_answers_by_that(self):
        estimator = self.make()
        if not estimator.of_kappa:
            return
        table = self.table()
        same = ScoreTable({"softmax": table.kappa("other")}, table.labels, table.y)
        renamed = ScoreTable({"other": table.kappa("other")}, table.labels, table.y)
        np.testing.assert_array_equal(
            self.make().fit(renamed, "other").confidence(renamed),
            self.make().fit(same).confidence(same),
        )

    def test_saved_and_loaded_it_answers_to_the_bit(self, tmp_path):
        estimator, examples = self.make().fit(self.table()), self.table(1)
        estimator.save(tmp_path / "saved.json")
        again = type(estimator).load(tmp_path / "saved.json")
        assert again.settings == estimator.settings
        assert (again.confidence(examples) == estimator.confidence(examples)).all()

    def test_unfitted_it_says_so_or_needs_no_fit(self, tmp_path):
        estimator, table = self.make(), self.table()
        if estimator.learns:
            with pytest.raises(NotFitted, match=type(estimator).__name__):
                estimator.confidence(table)
        else:
            fitted = self.make().fit(table).confidence(table)
            assert (estimator.confidence(table) == fitted).all()

    def test_a_table_without_labels_is_refused_or_enough(self):
        estimator, table = self.make(), self.table()
        unlabelled = ScoreTable(
            {"softmax": table.kappa("softmax")},
            table.labels,
            epochs=table.epochs,
            logits=table.logits,
        )
        if estimator.learns:
            with pytest.raises(InvalidInput, match="`y`"):
                estimator.fit(unlabelled)
        else:
            assert estimator.fit(unlabelled).confidence(unlabelled).shape == (400,)

    def test_settings_are_json_and_make_it_again(self):
        estimator = self.make()
        assert json.loads(json.dumps(estimator.settings)) == estimator.settings
        assert type(estimator)(**estimator.settings).settings == estimator.settings


class ExecutorContract:
    """What every executor must do: inherit, and define `make()`."""

    def make(self):
        """Return the executor."""
        raise NotImplementedError

    def scored(self, folder, executor, model, store, data):
        """Score, and return the files of the table by their paths in its folder."""
        score(model, store, data, SoftmaxResponse(), out=folder, executor=executor, progress=False)
        return {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in sorted(folder.rglob("*.npy"))
        }

    @pytest.fixture
    def trained(self, tmp_path):
        """Make a network, three snapshots of it, and inputs."""
        model, store = small_network(), SnapshotStore(tmp_path / "snapshots")
        for epoch in (1, 2, 3):
            with torch.no_grad():
                model[0].weight.mul_(1.1)
            store.save(model, epoch)
        return model, store, torch.randn(300, 5, generator=torch.Generator().manual_seed(1))

    def test_the_table_is_that_of_this_process_to_the_byte(self, trained, tmp_path):
        ours = self.scored(tmp_path / "theirs", self.make(), *trained)
        assert ours == self.scored(tmp_path / "local", LocalExecutor(), *trained)
        assert any(name.startswith("softmax/") for name in ours)

    def test_what_is_done_is_not_done_again(self, trained, tmp_path):
        first = self.scored(tmp_path / "scores", self.make(), *trained)
        written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("scores/**/*.npy")}
        assert self.scored(tmp_path / "scores", self.make(), *trained) == first
        assert all(path.stat().st_mtime_ns == time for path, time in written.items())
