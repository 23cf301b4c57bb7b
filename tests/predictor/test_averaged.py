"""Predictors that may answer by averaged weights."""

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn

from snapsure import Predictor, ScoreTable, SnapshotStore, score
from snapsure.errors import InvalidInput
from snapsure.evaluation import choose
from snapsure.scoring import average_weights
from tests.support.refusals import refuses

TRUTH = torch.tensor([[3.0, 0, 0], [0, 3, 0], [0, 0, 3]])
N = 1500


def network(norm=False):
    layers = [nn.BatchNorm1d(3, affine=False)] if norm else []
    return nn.Sequential(*layers, nn.Linear(3, 3, bias=False))


def make_store(folder, norm=False):
    """Snapshots around the right weights: their mean is close to these, none of them is."""
    torch.manual_seed(0)
    store = SnapshotStore(folder)
    for epoch in range(1, 21, 2):
        noise = 3 * torch.randn(3, 3)
        for i, shifted in enumerate((TRUTH + noise, TRUTH - noise)):
            model = network(norm)
            model[-1].weight.data = shifted
            store.save(model, epoch + i)
    return store


def make_inputs(seed=1, n=N):
    x = torch.randn(n, 3, generator=torch.Generator().manual_seed(seed))
    return x, x.argmax(dim=1)


@pytest.fixture
def scored(tmp_path):
    store = make_store(tmp_path / "run")
    return store, score(network(), store, make_inputs(), average=True, progress=False)


def test_averaged_weights_answer_where_they_are_better(scored, tmp_path):
    store, table = scored
    predictor = Predictor.fit(network(), store, table, risk=0.05, answers="any")
    assert predictor.passes == 1
    assert predictor.reason.startswith("averaged weights answer better than the final softmax")
    half = choose(table, answers="any").learn
    differ = (table.averaged.labels != table.y_hat)[half].mean()
    assert f"{differ:.1%} of the answers differ" in predictor.reason
    now, before = (
        (labels != table.y)[half].mean() for labels in (table.averaged.labels, table.y_hat)
    )
    assert f"{now:.1%} of all are wrong instead of {before:.1%}" in predictor.reason
    x, y = make_inputs(seed=2)
    answer = predictor(x)
    with torch.no_grad():
        p = average_weights(network(), store)(x).double().softmax(dim=1).numpy()
    assert (answer.label == p.argmax(axis=1)).all()
    order = np.argsort(p.max(axis=1))
    assert (np.diff(answer.confidence[order]) >= -1e-12).all()
    assert (answer.label != y.numpy())[answer.accepted].mean() <= 0.05
    predictor.save(tmp_path / "predictor")
    assert len([*(tmp_path / "predictor").glob("*.safetensors")]) == 1
    again = Predictor.load(tmp_path / "predictor", network())(x)
    assert all(np.array_equal(*pair) for pair in zip(again, answer, strict=True))


@pytest.mark.slow
def test_onnx_is_one_graph_of_one_pass(scored, tmp_path):
    store, table = scored
    predictor = Predictor.fit(network(), store, table, risk=0.05, answers="any")
    x, _ = make_inputs(seed=2, n=300)
    predictor.export(tmp_path / "averaged.onnx", x)
    nodes = onnx.load(tmp_path / "averaged.onnx").graph.node
    assert sum(node.op_type in ("MatMul", "Gemm") for node in nodes) == 1
    session = onnxruntime.InferenceSession(tmp_path / "averaged.onnx")
    label, confidence, accepted = session.run(None, {"input": x.numpy()})
    answer = predictor(x)
    assert (label == answer.label).all()
    np.testing.assert_allclose(confidence, answer.confidence, rtol=0, atol=1e-6)
    sure = abs(answer.confidence - predictor.threshold.theta) > 1e-6
    assert (accepted == answer.accepted)[sure].all()


def test_confidences_of_the_table_are_those_of_averaged_weights_too(scored, tmp_path):
    store, table = scored
    predictor = Predictor.fit(network(), store, table, answers="any")
    expected = predictor(make_inputs()[0]).confidence
    predictor.save(tmp_path / "predictor")
    for one in (predictor, Predictor.load(tmp_path / "predictor", network())):
        for some in (table, table.only_averaged()):
            np.testing.assert_allclose(one.confidence(some), expected, rtol=0, atol=1e-9)


def test_without_leave_the_final_network_answers(scored):
    store, table = scored
    predictor = Predictor.fit(network(), store, table)
    assert (predictor(make_inputs()[0]).label == table.y_hat).all()
    # Averaged weights that are no better are not chosen either.
    last = store.select(store.epochs[-1:])
    same = score(network(), last, make_inputs(), average=True, progress=False)
    assert choose(same, answers="any").method != "averaged weights"


def test_batch_normalisation_needs_the_same_training_examples(tmp_path):
    store, (train, _) = make_store(tmp_path / "run", norm=True), make_inputs(seed=3, n=512)
    options = {"average": True, "reference": train, "progress": False}
    table = score(network(norm=True), store, make_inputs(), **options)
    predictor = Predictor.fit(network(norm=True), store, table, answers="any", reference=train)
    assert (predictor(make_inputs()[0]).label == table.averaged.labels).all()
    for other, got in ((None, "got none"), (train + 1, "got others")):
        with refuses(InvalidInput, "`reference` must be the training examples that", got):
            Predictor.fit(network(norm=True), store, table, answers="any", reference=other)


def test_bad_input(scored):
    store, table = scored
    without = ScoreTable({"softmax": table.kappa("softmax")}, table.labels, table.y)
    with pytest.raises(InvalidInput, match="`table` must have scores of averaged weights"):
        choose(without, answers="any")
    with pytest.raises(InvalidInput, match='`answers` must be "final" or "any", got'):
        Predictor.fit(network(), store, table, answers="both")
