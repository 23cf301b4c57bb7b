"""Losses that remember each training point, against slow references and in a training."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from snapsure.errors import InvalidInput
from snapsure.training import CorrectnessRanking, SelfAdaptive
from tests.support.refusals import refuses

POINTS, CLASSES = 12, 4


def visits(epochs, seed=0):
    """Batches as a training sees them: logits, labels, numbers of the points.

    Each epoch leaves out two points, so that some are new when others are not.
    """
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, POINTS)
    for _ in range(epochs):
        for index in np.array_split(rng.permutation(POINTS)[:-2], 3):
            logits = torch.tensor(2 * rng.standard_normal((len(index), CLASSES)))
            yield logits, torch.tensor(labels[index]), torch.tensor(index)


def slow_self_adaptive(batches, start, momentum):
    """One point after the other, in plain Python."""
    targets, seen = {}, {}
    for logits, labels, index in batches:
        total = weights = 0.0
        for row, label, point in zip(logits.tolist(), labels.tolist(), index.tolist(), strict=True):
            e = [math.exp(z) for z in row]
            p = [value / sum(e) for value in e]
            target = targets.setdefault(point, [float(c == label) for c in range(CLASSES)])
            if seen.get(point, 0) >= start:
                target = [momentum * t + (1 - momentum) * q for t, q in zip(target, p, strict=True)]
            targets[point], seen[point] = target, seen.get(point, 0) + 1
            weight = max(target)
            total -= weight * sum(t * math.log(q) for t, q in zip(target, p, strict=True))
            weights += weight
        yield total / weights


def slow_ranking(batches):
    """What the ranking adds to cross-entropy, pair by pair."""
    right, seen = dict.fromkeys(range(POINTS), 0), dict.fromkeys(range(POINTS), 0)
    for logits, labels, index in batches:
        kappa = [max(row) for row in logits.softmax(dim=1).tolist()]
        history = [right[i] / max(1, seen[i]) for i in index.tolist()]
        prices = []
        for i in range(len(kappa)):
            j = (i + 1) % len(kappa)
            apart = history[i] - history[j]
            known = seen[index[i].item()] and seen[index[j].item()]
            wanted = ((apart > 0) - (apart < 0)) if known else 0
            price = max(0.0, abs(apart) - wanted * (kappa[i] - kappa[j]))
            prices.append(price if wanted else 0.0)
        for point, row, label in zip(index.tolist(), logits, labels, strict=True):
            seen[point] += 1
            right[point] += int(row.argmax() == label)
        yield sum(prices) / len(prices)


@pytest.mark.parametrize(("start", "momentum"), [(0, 0.9), (2, 0.9), (3, 0.5), (1, 0.0)])
def test_self_adaptive_is_what_its_paper_says(start, momentum):
    loss = SelfAdaptive(POINTS, CLASSES, start=start, momentum=momentum)
    ours = [float(loss(*batch)) for batch in visits(6)]
    np.testing.assert_allclose(ours, [*slow_self_adaptive(visits(6), start, momentum)], rtol=1e-6)


def test_correctness_ranking_is_what_its_paper_says():
    loss = CorrectnessRanking(POINTS, weight=0.5)
    priced = 0
    for batch, price in zip(visits(6), slow_ranking(visits(6)), strict=True):
        plain = functional.cross_entropy(*batch[:2])
        assert float(loss(*batch)) == pytest.approx(float(plain) + 0.5 * price, rel=1e-6)
        priced += price > 0
    assert priced > 10


LOSSES = [lambda: SelfAdaptive(POINTS, CLASSES, start=1), lambda: CorrectnessRanking(POINTS)]


@pytest.mark.parametrize("make", LOSSES)
def test_saved_with_the_training_it_resumes(make, tmp_path):
    whole, first, second = make(), make(), make()
    batches = [*visits(6)]
    wanted = [float(whole(*batch)) for batch in batches]
    for batch in batches[:8]:
        first(*batch)
    torch.save(first.state_dict(), tmp_path / "loss.pt")
    second.load_state_dict(torch.load(tmp_path / "loss.pt", weights_only=True))
    assert [float(second(*batch)) for batch in batches[8:]] == wanted[8:]
    assert float(make()(*batches[8])) != wanted[8]  # one that forgets


@pytest.mark.parametrize("make", LOSSES)
def test_a_network_learns_by_it(make):
    """Gradients flow through the logits alone, and lead somewhere."""
    torch.manual_seed(0)
    network, loss = nn.Linear(5, CLASSES), make()
    x, index = torch.randn(POINTS, 5), torch.arange(POINTS)
    y = x[:, :CLASSES].argmax(dim=1)
    optimizer = torch.optim.SGD(network.parameters(), 0.5)
    for _ in range(60):
        optimizer.zero_grad()
        loss(network(x), y, index).backward()
        optimizer.step()
    assert (network(x).argmax(dim=1) == y).float().mean() > 0.9
    assert not any(buffer.requires_grad for buffer in loss.buffers())


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("make", LOSSES)
def test_networks_of_other_precisions(kind, make):
    loss, plain = make().to(kind), make()
    for logits, labels, index in visits(3):
        value = loss(logits.to(kind), labels.int(), index.int())
        assert float(value) == pytest.approx(float(plain(logits, labels, index)), rel=0.05)


def test_in_evaluation_it_remembers_nothing():
    loss = SelfAdaptive(POINTS, CLASSES, start=0).eval()
    for logits, labels, index in visits(2):
        assert loss(logits, labels, index) == functional.cross_entropy(logits, labels)
    assert not loss.visits.any()


def test_of_a_point_never_seen_nothing_is_known():
    loss = CorrectnessRanking(POINTS)
    logits, labels = torch.tensor([[3.0, 0.0], [3.0, 0.0]]), torch.tensor([0, 0])
    loss(logits, labels, torch.tensor([0, 1]))
    plain = functional.cross_entropy(logits, labels)
    assert loss(logits, labels, torch.tensor([0, 2])) == plain


def test_several_processes_are_refused(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    loss, batch = SelfAdaptive(POINTS, CLASSES, start=0), next(visits(1))
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 1)
    assert torch.isfinite(loss(*batch))
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    with refuses(InvalidInput, "SelfAdaptive must train in one process, got 2"):
        loss(*batch)


PAIR = torch.tensor([0, 1])


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        ({"index": torch.tensor([0, POINTS])}, ["`index` must be in 0 … 11, got 12"]),
        ({"index": torch.tensor([0, -1])}, ["`index` must be in 0 … 11, got -1"]),
        ({"labels": PAIR.float()}, ["`labels` must be one whole number for each of 2 rows"]),
        ({"labels": torch.tensor([0, -100])}, ["`labels` must be in 0 … 3, got -100"]),
        ({"labels": torch.tensor([0, 4])}, ["`labels` must be in 0 … 3, got 4"]),
        ({"logits": torch.zeros(4)}, ["`logits` must be (rows, classes), got shape (4,)"]),
        ({"logits": torch.zeros(2, 3)}, ["`logits` must have 4 columns", "got 3"]),
    ],
)
def test_batches_that_do_not_fit(changes, facts):
    batch = {"logits": torch.zeros(2, CLASSES), "labels": PAIR, "index": PAIR} | changes
    with refuses(InvalidInput, *facts):
        SelfAdaptive(POINTS, CLASSES, start=1)(**batch)


def test_bad_options():
    with refuses(InvalidInput, "`weight` must be ≥ 0"):
        CorrectnessRanking(POINTS, weight=-1)
    with refuses(InvalidInput, "`points` must be a whole number ≥ 1, got 0"):
        CorrectnessRanking(0)
