"""Choosing what to deploy: by points that the promise is not made on."""

import numpy as np
import pytest

from snapsure import LES, Predictor, ScoreTable, SnapshotStore, SoftmaxResponse, Threshold, score
from snapsure.errors import Infeasible, InvalidInput
from snapsure.estimators import Final
from snapsure.evaluation import choose
from snapsure.evaluation._choose import choose_estimator
from snapsure.kappas import Entropy
from tests.support.refusals import refuses

pytestmark = pytest.mark.slow


def table_of(n, *, noise_at_end, snapshots=12, seed=0):
    """Snapshots that see the ease of a point through noise, more of it in the last."""
    rng = np.random.default_rng(seed)
    ease = rng.random(n)
    errors = rng.random(n) > ease
    spread = np.where(np.arange(snapshots) == snapshots - 1, noise_at_end, 0.3)[:, None]
    kappa = np.clip(ease + spread * rng.normal(size=(snapshots, n)), 0.001, 0.999)
    return ScoreTable.from_kappa(kappa, errors)


def test_several_snapshots_where_they_help():
    choice = choose_estimator(table_of(3000, noise_at_end=1.5), "softmax", None, 0)
    assert isinstance(choice.estimator, LES)
    assert choice.reason.startswith("LES ranks right above wrong better than the final softmax")
    assert choice.candidates[0].method == "LES"
    assert len(choice.candidates) == 6


@pytest.mark.parametrize("passes", [1, 2, 5])
def test_no_more_passes_than_allowed(passes):
    choice = choose_estimator(table_of(2000, noise_at_end=1.5), "softmax", passes, 0)
    assert all(result.passes <= passes for result in choice.candidates)
    needed = choice.estimator.snapshots(np.arange(1, 13))
    assert len(needed) <= passes
    assert isinstance(choice.estimator, Final) == (passes == 1)


def test_what_asks_for_more_on_all_points_is_not_taken(monkeypatch):
    table = table_of(2000, noise_at_end=1.5)
    learn = LES._learn

    def greedy(self, part, kappa):
        state = learn(self, part, kappa)
        whole = part.y_hat.size == table.y_hat.size
        return {**state, "epochs": part.epochs.tolist()} if whole else state

    assert isinstance(choose_estimator(table, "softmax", 3, 0).estimator, LES)
    monkeypatch.setattr(LES, "_learn", greedy)
    choice = choose_estimator(table, "softmax", 3, 0)
    assert len(choice.estimator.snapshots(table.epochs)) <= 3


def test_it_deploys_what_was_chosen_with_its_promise(deployed):
    digits = deployed.digits
    predictor = Predictor.fit(digits.model(), digits.store, deployed.table, risk=0.5, seed=3)
    choice = choose(deployed.table, risk=0.5, seed=3)
    assert predictor.threshold.as_dict() == choice.threshold.as_dict()
    assert predictor.reason == choice.reason
    counts = {"chosen by": 398, "promised by": choice.threshold.n}
    assert predictor.provenance["examples"] == counts
    np.testing.assert_array_equal(
        predictor.confidence(deployed.table), choice.confidence(deployed.table)
    )
    answer = predictor(deployed.x)
    assert answer.confidence.tolist() == predictor.confidence(deployed.table).tolist()


def test_one_of_several_kappas_is_deployed(deployed):
    digits, both = deployed.digits, [SoftmaxResponse(), Entropy()]
    table = score(digits.model(), digits.store, (deployed.x, deployed.y), both, progress=False)
    names = ["entropy", "softmax"]
    predictor = Predictor.fit(digits.model(), digits.store, table, kappa=names, risk=0.5)
    choice = choose(table, kappa=names, risk=0.5)
    assert predictor.kappa.name == choice.kappa
    assert {row["kappa"] for row in predictor.provenance["candidates"]} == {*names}
    answer = predictor(deployed.x)
    np.testing.assert_allclose(answer.confidence, choice.confidence(table), rtol=0, atol=1e-9)
    referring = ScoreTable(
        {"softmax": table.kappa("softmax"), "nn_distance": table.kappa("entropy")},
        *(table.labels, table.y),
        epochs=table.epochs,
    )
    with pytest.raises(InvalidInput, match="got nn_distance, which refers to training data"):
        Predictor.fit(*(digits.model(), digits.store, referring), kappa=["softmax", "nn_distance"])


def test_a_monitor_watches_the_threshold_that_answers(deployed):
    digits = deployed.digits
    predictor = Predictor.fit(digits.model(), digits.store, deployed.table, risk=0.5)
    first = predictor.threshold
    assert (
        f"theta {first.theta} at coverage {first.coverage}, risk 0.5" in predictor.monitor().terms
    )
    predictor.threshold = Threshold(0.9, 0.25, risk=0.3, delta=0.05)
    terms = predictor.monitor().terms
    assert "theta 0.9 at coverage 0.25, risk 0.3" in terms
    assert "on risk and shift" in terms
    monitor = predictor.monitor()
    monitor.update(predictor(deployed.x).confidence)
    accepted = predictor(deployed.x).confidence >= 0.9
    assert monitor.coverage == accepted.mean()
    predictor.threshold = Threshold(0.9, 0.25)  # which promises nothing
    assert [*predictor.monitor().evidence] == ["shift"]
    for threshold in (None, Threshold(0.9, 0.25, groups={0: 0.9})):
        predictor.threshold = threshold
        with pytest.raises(InvalidInput, match="one threshold, to be monitored"):
            predictor.monitor()


def test_refusals(deployed, tmp_path):
    digits, table = deployed.digits, deployed.table
    other = SnapshotStore(tmp_path)
    for epoch in digits.store.epochs:
        other.save(digits.model(), epoch)
    with pytest.raises(InvalidInput, match="must be those that the table was scored with"):
        Predictor.fit(digits.model(), other, table)
    with pytest.raises(InvalidInput, match=r"`kappa` must be .* has, softmax, got 'margin'"):
        Predictor.fit(digits.model(), digits.store, table, kappa="margin")
    with pytest.raises(InvalidInput, match="`passes` must be a whole number ≥ 1"):
        Predictor.fit(digits.model(), digits.store, table, passes=0)
    for names in ("abcdefghi", "abcdefghijk"):
        with refuses(InvalidInput, "`classes`", "10, got", len(names), "Give all of them"):
            Predictor.fit(digits.model(), digits.store, table, classes=[*names])
    with pytest.raises(Infeasible):
        Predictor.fit(digits.model(), digits.store, table, risk=1e-4)
    right = ScoreTable.from_kappa(np.full((2, 50), 0.5), np.zeros(50))
    with pytest.raises(InvalidInput, match="got 0 wrong"):
        choose_estimator(right, "softmax", None, 0)
