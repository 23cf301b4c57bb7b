"""What users may write outside the package: κ, estimator, executor, schedule, report section.

Against public names alone, and held to the same contract suites as the package's own.
"""

import ast
from pathlib import Path

import numpy as np
import pytest
import torch

import snapsure
from snapsure import Predictor, Recorder, Report, SnapshotStore, evaluate, score
from snapsure.errors import InvalidInput
from snapsure.estimators import Estimator
from snapsure.kappas import Kappa
from snapsure.report import register_section
from snapsure.report.sections import SECTIONS, Text
from snapsure.scoring import Executor
from snapsure.snapshots import Schedule
from snapsure.testing import EstimatorContract, ExecutorContract, KappaContract, small_network


class Gap(Kappa):
    """κ = the sigmoid of how far the answer's logit stands above the largest of the others."""

    name = "gap"

    @property
    def settings(self):
        return {}

    def score(self, forward, y_hat, prepared):
        logits = forward.logits.double().cpu().numpy()
        rows = np.arange(len(logits))
        own = logits[rows, y_hat]
        others = logits.copy()
        others[rows, y_hat] = -np.inf
        with np.errstate(over="ignore"):
            return 1 / (1 + np.exp(others.max(axis=1) - own))


class TestGap(KappaContract):
    def make(self, inputs, labels):
        return Gap()


class Median(Estimator):
    """The median of κ over the last snapshots."""

    learns = False

    def __init__(self, last=5):
        super().__init__()
        self.last = last

    @property
    def settings(self):
        return {"last": self.last}

    def snapshots(self, epochs):
        return [int(epoch) for epoch in epochs[-self.last :]]

    def _learn(self, table, kappa):
        return {"epochs": self.snapshots(table.epochs)}

    def _answer(self, table, kappa, state):
        return np.median(table.select(state["epochs"]).kappa(kappa), axis=0)


class TestMedian(EstimatorContract):
    make = Median


@pytest.fixture
def trained(tmp_path):
    """A network, twelve snapshots of it, and examples of which a quarter is answered wrong."""
    model, store = small_network(), SnapshotStore(tmp_path / "run")
    for epoch in range(1, 13):
        with torch.no_grad():
            model[0].weight.mul_(1.02)
        store.save(model, epoch)
    inputs = torch.randn(400, 5, generator=torch.Generator().manual_seed(1))
    labels = model.eval()(inputs).argmax(dim=1)
    labels[::4] = (labels[::4] + 1) % 4
    return model, store, (inputs, labels)


def test_one_line_each_registers_them_for_evaluation_and_deployment(trained, tmp_path):
    snapsure.estimators.register(Median)
    snapsure.kappas.register(Gap)
    model, store, data = trained
    table = score(model, store, data, Gap(), progress=False)
    assert evaluate(table, kappa="gap")["Median"].aurc

    predictor = Predictor(model, store, Median(3).fit(table, "gap"))
    predictor.save(tmp_path / "predictor")
    again = Predictor.load(tmp_path / "predictor", model)
    assert again.estimator.settings == {"last": 3}
    assert again(data[0]).confidence.tolist() == predictor(data[0]).confidence.tolist()


def test_classes_that_are_not_registered_are_passed_to_load(trained, tmp_path):
    model, store, data = trained
    table = score(model, store, data, Gap(), progress=False)
    predictor = Predictor(model, store, Median(3).fit(table, "gap"), kappa=Gap())
    predictor.save(tmp_path / "predictor")
    with pytest.raises(InvalidInput, match="register"):
        Predictor.load(tmp_path / "predictor", model)
    again = Predictor.load(tmp_path / "predictor", model, custom=[Gap, Median])
    assert again(data[0]).confidence.tolist() == predictor(data[0]).confidence.tolist()


class Backwards(Executor):
    """Does what may be done, always the last of it first."""

    @property
    def group(self):
        return 1

    def run(self, plan, model, todo, advance):
        worker, queue = self.worker(plan, model), self.queue(plan, todo[::-1])
        while piece := queue.next():
            queue.done(piece, worker.do(piece, advance))


class TestBackwards(ExecutorContract):
    make = Backwards


class Primes(Schedule):
    """Epochs that are prime."""

    def wants(self, epoch):
        return epoch > 1 and all(epoch % i for i in range(2, epoch))


def test_a_schedule(tmp_path):
    recorder = Recorder(SnapshotStore(tmp_path), Primes())
    for epoch in range(1, 12):
        recorder.record(small_network(), epoch)
    assert recorder.store.epochs == [2, 3, 5, 7, 11]


def test_a_section_of_the_report(trained):
    model, store, data = trained
    table = score(model, store, data, progress=False)
    register_section("My own", lambda chapter: [Text(f"<{chapter.table.y.size} examples>")])
    try:
        html = Report(table).html()
    finally:
        SECTIONS.pop()
    assert ">My own</h2>" in html
    assert "&lt;400 examples&gt;" in html


def test_only_public_names_were_used():
    imported = [
        node.module
        for node in ast.walk(ast.parse(Path(__file__).read_text()))
        if isinstance(node, ast.ImportFrom) and node.module.startswith("snapsure")
    ]
    assert imported
    assert not [module for module in imported if "._" in module]
