"""What every κ function must hold to; each one's test inherits this."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch
from torch import nn

from snapsure.scores._data import Rows
from snapsure.scores._network import Network, private_copy


def evaluate(kappa, model, inputs, y_hat, batch_size=256):
    """κ of a network for some rows, through the contract alone."""
    rows = Rows.of(inputs, "data")
    network = Network(private_copy(model), [kappa], inputs[:2])
    values = []
    with torch.inference_mode(), TemporaryDirectory() as folder:
        kappa.prepare([network], [Path(folder)])
        prepared = kappa.prepared(Path(folder), network.device)
        for low in range(0, rows.n, batch_size):
            part = slice(low, low + batch_size)
            values.append(kappa.score(network.run(inputs[part]), y_hat[part], prepared))
    return np.concatenate(values)


def small_network(classes=4, dtype=torch.float32):
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
    """Inherit, and give `make(inputs, labels)`."""

    tolerance = 1e-6  # between batch sizes: the float32 of the network itself

    def make(self, inputs, labels):
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
        return evaluate(kappa, small_network(classes, dtype), inputs, labels, **options)

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
            values = evaluate(
                self.make(inputs, labels), small_network(), inputs, np.full(60, answer)
            )
            assert np.isfinite(values).all()

    def test_one_class_is_certain(self, inputs):
        assert (self.run(inputs, np.zeros(60, int), classes=1) == 1).all()

    def test_one_sample(self, inputs, labels):
        kappa = self.make(inputs, labels)
        one = evaluate(kappa, small_network(), inputs[:1], labels[:1])
        many = evaluate(kappa, small_network(), inputs, labels)
        np.testing.assert_allclose(one, many[:1], atol=self.tolerance, rtol=0)

    def test_the_same_again_is_the_same_to_the_bit(self, inputs, labels):
        assert (self.run(inputs, labels) == self.run(inputs, labels)).all()

    def test_settings_are_json(self, inputs, labels):
        kappa = self.make(inputs, labels)
        assert json.loads(json.dumps(kappa.settings)) == kappa.settings
        assert kappa.name
