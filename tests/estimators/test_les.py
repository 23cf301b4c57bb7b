"""LES: against scikit-learn, at the edges, and never worse than Platt by more than noise."""

import re

import numpy as np
import pytest
from scipy.stats import wilcoxon
from sklearn.linear_model import LogisticRegression

from snapsure import LES, Platt, eaurc, nll
from snapsure.errors import CorruptFile, NotFitted
from snapsure.estimators._search import Search
from tests.support.tables import of


def table(seed, n=600, snapshots=25, signal=1.0):
    """Snapshots that each see an ease of the points through noise of their own."""
    rng = np.random.default_rng(seed)
    ease = rng.normal(size=n)
    noise = rng.normal(size=(snapshots, n)) * rng.uniform(0.3, 3, size=(snapshots, 1))
    kappa = 1 / (1 + np.exp(-(signal * ease + noise)))
    errors = rng.random(n) > 1 / (1 + np.exp(-(1 + 1.5 * ease)))
    return kappa, errors


def peer_of(scaled, right, final):
    """Scikit-learn's ridge (C = 0.1: a penalty of 10 on each weight), the final one's being 0.3.

    A column that is c times as wide has a weight c times as small, so that its penalty counts c²
    times less: 0.3 instead of 10.
    """
    wide = np.ones(scaled.shape[1])
    wide[final] = np.sqrt(10 / 0.3)
    peer = LogisticRegression(C=0.1, tol=1e-12, max_iter=10_000).fit(scaled * wide, right)
    return peer.coef_[0] * wide, lambda rows: peer.predict_proba(rows * wide)[:, 1]


def test_equals_scikit_learns_logistic_regression():
    kappa, errors = table(0)
    les = LES(k=20).fit(of(kappa, errors))
    assert not les.fallback_
    at = les.epochs_ - 1
    assert at[0] == 0
    assert at[-1] == 24
    assert len(at) == 20
    logits = np.log(kappa / (1 - kappa))[at].T
    scaled = (logits - logits.mean(axis=0)) / logits.std(axis=0)
    coefficients, probability = peer_of(scaled, ~errors, final=-1)
    np.testing.assert_allclose(les.coef_, coefficients, atol=1e-5)
    np.testing.assert_allclose(les.confidence(of(kappa)), probability(scaled), atol=1e-6)


@pytest.mark.parametrize(
    ("epochs", "used"),
    [(np.arange(1, 26), 20), (np.rint(np.linspace(40, 100, 25)), 20), (np.arange(101, 126), 20)],
)
def test_it_uses_k_of_the_snapshots_there_are(epochs, used):
    kappa, errors = table(0)
    chosen = LES(k=20).fit(of(kappa, errors, epochs)).epochs_
    assert len(chosen) == used
    assert (chosen[0], chosen[-1]) == (epochs[0], epochs[-1])
    assert len(LES(k=99).fit(of(kappa, errors, epochs)).epochs_) == 25


def test_few_errors_fall_back_to_platt_on_the_final_kappa():
    kappa, errors = table(1)
    errors[np.flatnonzero(errors)[29:]] = False
    les = LES().fit(of(kappa, errors))
    assert les.fallback_
    assert les.epochs_.tolist() == [25]
    expected = Platt().fit(kappa[-1], errors).predict_proba(kappa[-1])
    np.testing.assert_allclose(les.confidence(of(kappa)), expected, rtol=1e-12)


@pytest.mark.parametrize("few", ["wrong", "right"])
@pytest.mark.parametrize(("left", "fallback"), [(29, True), (30, False)])
def test_thirty_of_each_kind_are_enough(few, left, fallback):
    kappa, errors = table(1)
    if few == "right":
        errors = ~errors
    errors[np.flatnonzero(errors)[left:]] = False
    errors = errors if few == "wrong" else ~errors
    assert min(errors.sum(), (~errors).sum()) == left
    les = LES().fit(of(kappa, errors))
    assert les.fallback_ is fallback
    assert len(les.epochs_) == (1 if fallback else 20)


def slow_choice(kappa, errors, passes):
    """Greedy by the log-loss of points left out, scikit-learn fitting every time."""
    logits, n = np.log(kappa / (1 - kappa)), len(errors)
    order = sorted(range(n), key=lambda i: (errors[i], logits[-1, i]))
    fold = {point: rank % 5 for rank, point in enumerate(order)}

    def loss(snapshots):
        total = 0.0
        for number in range(5):
            seen = [i for i in range(n) if fold[i] != number]
            left = [i for i in range(n) if fold[i] == number]
            x = logits[snapshots]
            center, spread = x[:, seen].mean(axis=1), x[:, seen].std(axis=1)
            scaled = ((x.T - center) / spread).T
            final = snapshots.index(len(kappa) - 1)
            _, probability = peer_of(scaled[:, seen].T, ~errors[seen], final)
            p = probability(scaled[:, left].T)
            total -= np.log(np.where(errors[left], 1 - p, p)).sum()
        return total

    chosen = [len(kappa) - 1]
    while len(chosen) < passes:
        rest = [i for i in range(len(kappa)) if i not in chosen]
        best = min(rest, key=lambda i: loss([*chosen, i]))
        if loss([*chosen, best]) >= loss(chosen):
            break
        chosen.append(best)
    return sorted(chosen)


@pytest.mark.parametrize("passes", [1, 2, 3])
def test_few_passes_are_chosen_greedily(passes):
    kappa, errors = table(5, n=300, snapshots=7)
    les = LES(passes=passes).fit(of(kappa, errors))
    assert (les.epochs_ - 1).tolist() == slow_choice(kappa, errors, passes)
    assert les.snapshots(np.arange(1, 8)) == les.epochs_.tolist()
    alone = LES(k=99).fit(of(kappa[les.epochs_ - 1], errors, les.epochs_))
    assert les.confidence(of(kappa)).tolist() == alone.confidence(of(kappa)).tolist()


@pytest.mark.parametrize("budgets", [(4, 3, 2), (2, 4, 3), (1, 9)])
def test_a_shared_search_finds_what_each_finds_alone(budgets):
    search = Search()
    for seed in (5, 6):  # of other points, another search
        points = of(*table(seed))
        for passes in budgets:
            les = LES(passes=passes)
            les.search = search
            assert les.fit(points).fitted == LES(passes=passes).fit(points).fitted


def test_a_changed_table_is_searched_anew():
    kappa, errors = table(5)
    search = Search()
    logits = np.log(kappa / (1 - kappa))
    search.rows(logits, errors, 3)
    logits[-1] = np.random.default_rng(0).normal(size=errors.size)
    assert search.rows(logits, errors, 3) == Search().rows(logits, errors, 3)


def test_as_many_passes_as_snapshots_are_all():
    kappa, errors = table(6)
    all_of_them = LES(k=20).fit(of(kappa, errors))
    for passes in (20, 99):
        assert LES(20, passes).fit(of(kappa, errors)).fitted == all_of_them.fitted


def test_the_order_of_rows_changes_no_choice():
    kappa, errors = table(8)
    order = np.random.default_rng(0).permutation(len(errors))
    one, two = (
        LES(passes=4).fit(of(kappa, errors)),
        LES(passes=4).fit(of(kappa[:, order], errors[order])),
    )
    assert one.epochs_.tolist() == two.epochs_.tolist()
    np.testing.assert_allclose(one.coef_, two.coef_, rtol=1e-9)


@pytest.mark.parametrize("errors", [np.zeros(50), np.ones(50)])
def test_one_kind_only(errors):
    p = LES().fit(of(np.random.default_rng(2).random((3, 50)), errors)).confidence(of(np.eye(3)))
    assert ((p > 0) & (p < 1)).all()


def test_kappa_of_exactly_zero_and_one():
    kappa, errors = table(3)
    kappa = np.round(kappa)
    p = LES().fit(of(kappa, errors)).confidence(of(kappa))
    assert ((p > 0) & (p < 1)).all()
    assert p[~errors].mean() > p[errors].mean()


def test_snapshots_that_all_agree():
    kappa, errors = table(4)
    same = np.repeat(kappa[-1:], 25, axis=0)
    les = LES().fit(of(same, errors))
    # Of one feature in many places each takes its share by its own penalty: 1/10 each, 1/0.3.
    np.testing.assert_allclose(les.coef_[:-1], les.coef_[0], rtol=1e-6)
    assert les.coef_[-1] / les.coef_[0] == pytest.approx(10 / 0.3, rel=1e-6)
    assert np.corrcoef(les.confidence(of(same)), kappa[-1])[0, 1] > 0.9
    flat = of(np.full((25, 600), 0.7), errors)
    constant = LES().fit(flat).confidence(flat)
    np.testing.assert_allclose(constant, (~errors).mean(), rtol=1e-6)


@pytest.mark.parametrize("passes", [None, 3])
def test_a_kappa_that_parts_right_from_wrong_has_a_weight_that_ends(passes):
    rng = np.random.default_rng(0)
    errors = np.arange(400) % 5 == 0
    kappa = 1 / (1 + np.exp(-np.where(errors, -2, 2) + rng.uniform(-1, 1, (12, 400))))
    les = LES(passes=passes).fit(of(kappa, errors))
    assert not les.fallback_
    # What a weight saves, at most all of the log-loss at 0, is more than its penalty.
    assert 0.3 * les.coef_[-1] ** 2 / 2 < 400 * np.log(2)
    p = les.confidence(of(kappa))
    assert p[errors].max() < p[~errors].min()
    assert eaurc(p, errors) == 0


def test_where_labels_tell_nothing_it_is_the_final_order():
    """Noise in all but the final κ: what few labels leave ranks nearly as that does."""
    rng = np.random.default_rng(1)
    final = rng.normal(size=4000) * 2
    kappa = 1 / (1 + np.exp(-np.vstack((rng.normal(size=(19, 4000)), final))))
    errors = rng.random(4000) > 1 / (1 + np.exp(-1 - final))
    les = LES().fit(of(kappa[:, :200], errors[:200]))
    assert not les.fallback_
    rest = slice(200, None)
    lost = eaurc(les.confidence(of(kappa[:, rest])), errors[rest]) - eaurc(
        kappa[-1, rest], errors[rest]
    )
    average = eaurc(kappa[:, rest].mean(axis=0), errors[rest]) - eaurc(
        kappa[-1, rest], errors[rest]
    )
    assert 0 < lost < average / 4


@pytest.mark.slow
def test_never_worse_than_platt_by_more_than_noise_over_200_tables():
    # Half of the tables carry what LES can use; in the other half all snapshots are the final one
    # and a little noise, and there is nothing to learn.
    ranks, losses = [], []
    for seed in range(200):
        kappa, errors = table(100 + seed, n=1200, snapshots=12)
        if seed % 2:
            rng = np.random.default_rng(seed)
            logits = np.log(kappa[-1] / (1 - kappa[-1])) + 0.01 * rng.normal(size=kappa.shape)
            kappa = 1 / (1 + np.exp(-logits))
        fit, rest = slice(None, 800), slice(800, None)
        les = LES().fit(of(kappa[:, fit], errors[fit])).confidence(of(kappa[:, rest]))
        platt = Platt().fit(kappa[-1, fit], errors[fit]).predict_proba(kappa[-1, rest])
        ranks.append(eaurc(les, errors[rest]) - eaurc(platt, errors[rest]))
        losses.append(nll(les, errors[rest]) - nll(platt, errors[rest]))
    ranks, losses = np.array(ranks), np.array(losses)
    assert ranks[::2].mean() < 0  # it gains where there is something to gain
    # And loses next to nothing elsewhere: on average less than a hundredth of E-AURC's own scale.
    assert ranks[1::2].mean() < 5e-4
    assert losses[1::2].mean() < 0.01
    assert wilcoxon(ranks[::2], alternative="less").pvalue < 1e-6


def test_saved_and_loaded(tmp_path):
    kappa, errors = table(5)
    points = of(kappa, errors, epochs=np.arange(2, 52, 2))
    les = LES(k=7).fit(points)
    les.save(tmp_path / "les.json")
    again = LES.load(tmp_path / "les.json")
    assert (again.confidence(points) == les.confidence(points)).all()
    assert again.epochs_.tolist() == les.epochs_.tolist()
    assert again.k == 7


@pytest.mark.parametrize("name", ["epochs", "center", "spread", "weights"])
def test_a_saved_one_with_a_number_too_many(name):
    content = LES(k=3).fit(of(*table(5))).as_dict()
    held = content["fitted"]
    held[name] = [*held[name], 1.0]
    lengths = [len(held[each]) for each in ("epochs", "center", "spread", "weights")]
    words = f"{lengths[0]} snapshots, and one weight more, got {lengths[1:]}"
    with pytest.raises(CorruptFile, match=re.escape(words)):
        LES.from_dict(content)


@pytest.mark.parametrize("use", ["coef_", "epochs_", "fallback_"])
def test_unfitted(use):
    with pytest.raises(NotFitted, match=r"LES .* Call \.fit"):
        getattr(LES(), use)
