"""LES: against a slow reference and scikit-learn, at the edges, and never far below Platt."""

from statistics import NormalDist

import numpy as np
import pytest
from scipy.stats import wilcoxon
from sklearn.linear_model import LogisticRegression

from snapsure import LES, Platt, ScoreTable, eaurc, nll
from snapsure.errors import CorruptFile, InvalidInput, NotFitted
from snapsure.estimators._les import make_features
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


def full_table(seed, n=600, snapshots=25):
    """The same with what networks have: labels, logits of the final one, and a worst class."""
    kappa, errors = table(seed, n, snapshots)
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, 4))
    y_hat = logits.argmax(axis=1)
    errors |= (y_hat == 0) & (rng.random(n) < 0.4)
    labels = np.where(rng.random(kappa.shape) < 1 - kappa, (y_hat + 1) % 4, y_hat)
    labels[-1] = y_hat
    y = np.where(errors, (y_hat + 1) % 4, y_hat)
    return ScoreTable({"softmax": kappa}, labels, y, logits=logits)


def normal_scores(values, points):
    """By the definition: mean ranks at 257 of the sorted values, a line between two, flat ends."""
    ordered, n = sorted(values), len(values)
    knots = sorted(
        {ordered[round(i * (n - 1) / 256)] for i in range(257)} if n > 257 else {*values}
    )
    scores = []
    for knot in knots:
        ranks = [i + 1 for i, value in enumerate(ordered) if value == knot]
        scores.append(NormalDist().inv_cdf(sum(ranks) / len(ranks) / (n + 1)))

    def score(x):
        if x <= knots[0] or x >= knots[-1]:
            return scores[0 if x <= knots[0] else -1]
        above = next(i for i, knot in enumerate(knots) if knot > x)
        part = (x - knots[above - 1]) / (knots[above] - knots[above - 1])
        return scores[above - 1] + (scores[above] - scores[above - 1]) * part

    return np.array([score(x) for x in points])


def slow_features(table, epochs):
    """Each feature in words of its own, for the snapshots of some epochs, the final one last."""
    at = [table.epochs.tolist().index(epoch) for epoch in epochs]
    kappa = table.kappa("softmax")
    *others, final = at
    late = [i for i in others if table.epochs[i] >= int(0.4 * table.epochs[final])]
    found = {f"epoch {table.epochs[i]}": np.log(kappa[i] / (1 - kappa[i])) for i in at}
    agrees = {i: table.labels[i] == table.y_hat for i in others}
    if others:
        found["agreement"] = np.mean([agrees[i] for i in others], axis=0)
        weights = range(1, len(others) + 1)
        found["weighted agreement"] = np.average(
            [agrees[i] for i in others], axis=0, weights=weights
        )
    if late:
        found["late agreement"] = np.mean([agrees[i] for i in late], axis=0)
        mean = np.mean([kappa[i] for i in [*late, final]], axis=0)
        found["late mean"] = np.log(mean / (1 - mean))
    if table.final is not None:
        names = ("entropy", "margin", "energy", "max_logit", "gen")
        found |= zip(names, np.log(table.final / (1 - table.final)).T, strict=True)
    return found


def peer_of(scaled, right, final, numbers, penalty):
    """Scikit-learn's ridge (C = 1 / penalty on each weight); 0.3 on the final, 5 times on numbers.

    A column that is c times as wide has a weight c times as small, so that its penalty counts c²
    times less: 0.3 instead of the penalty.
    """
    wide = np.ones(scaled.shape[1])
    wide[final], wide[numbers] = np.sqrt(penalty / 0.3), np.sqrt(1 / 5)
    peer = LogisticRegression(C=1 / penalty, tol=1e-12, max_iter=10_000).fit(scaled * wide, right)
    return peer.coef_[0] * wide, lambda rows: peer.predict_proba(rows * wide)[:, 1]


def penalty_of(errors):
    return 30 * max(1, np.sqrt(300 / min(errors.sum(), (~errors).sum())))


@pytest.mark.parametrize(("n", "passes"), [(200, None), (600, None), (600, 3), (600, 1)])
def test_equals_normal_scores_in_scikit_learns_logistic_regression(n, passes):
    """On other examples than those it learnt from, some of them outside of all it has seen."""
    learn, points = full_table(0, n), full_table(1, 40)
    learn = learn.rows(~learn.errors | (np.cumsum(learn.errors) <= 100))
    les = LES(passes=passes).fit(learn)
    assert not les.fallback_
    assert len(les.epochs_) == (passes or 20)
    features, new = (slow_features(one, les.epochs_.tolist()) for one in (learn, points))
    assert sorted(les.features_) == sorted(features)
    for name, values in make_features(learn, "softmax", les.epochs_.tolist()).items():
        np.testing.assert_allclose(values, features[name], rtol=1e-9)
    scaled, rows = [], []
    for name in les.features_:
        seen = features[name].tolist()
        values = normal_scores(seen, seen)
        scaled.append((values - values.mean()) / values.std())
        mapped = normal_scores(seen, new[name].tolist())
        rows.append((mapped - values.mean()) / values.std())
    final = les.features_.index("epoch 25")
    numbers = [
        les.features_.index(name) for name in ("entropy", "margin", "energy", "max_logit", "gen")
    ]
    coefficients, probability = peer_of(
        np.transpose(scaled), ~learn.errors, final, numbers, penalty_of(learn.errors)
    )
    np.testing.assert_allclose(les.coef_, coefficients, atol=1e-4)
    p, expected = probability(np.transpose(scaled)), probability(np.transpose(rows))
    odds = np.log(expected / (1 - expected))
    classes = [learn.y_hat == number for number in range(4)]
    g = np.array([(~learn.errors[own] - p[own]).sum() for own in classes])
    i = np.array([(p[own] * (1 - p[own])).sum() for own in classes])
    is_estimated = learn.errors.sum() == 100
    assert is_estimated == (n == 600)
    # Of an offset with variance v, the gradient has the variance i + v i².
    held = (i**2).sum() / (g**2 - i).sum() if is_estimated else penalty_of(learn.errors) / 3
    assert held > 0
    odds += (g / (held + i))[points.y_hat]
    np.testing.assert_allclose(les.confidence(points), 1 / (1 + np.exp(-odds)), atol=1e-5)


@pytest.mark.parametrize("unknown", [2, 3])
def test_a_class_that_no_example_had_has_no_offset(unknown):
    learn, points = full_table(0), full_table(1)
    les = LES(passes=1).fit(learn.rows(learn.y_hat != unknown))
    assert [number for number, _ in les.fitted["classes"]] == sorted({0, 1, 2, 3} - {unknown})
    confidence = les.confidence(points)
    les.fitted["classes"].clear()
    les._sum = None
    unseen = points.y_hat == unknown
    assert ((les.confidence(points) == confidence) == unseen).all()


def test_classes_that_do_not_differ_have_no_offsets():
    kappa, errors = table(0)
    kappa, errors, y_hat = np.tile(kappa, 2), np.tile(errors, 2), np.repeat([0, 1], errors.size)
    learn = ScoreTable({"softmax": kappa}, np.tile(y_hat, (25, 1)), np.where(errors, 2, y_hat))
    assert LES().fit(learn).fitted["classes"] == []


def test_nothing_extrapolates():
    learn, points = full_table(0), full_table(1)
    les = LES(k=3).fit(learn)
    beyond, at_the_end = points.kappa("softmax").copy(), points.kappa("softmax").copy()
    beyond[0], at_the_end[0] = 1 - 1e-9, learn.kappa("softmax")[0].max()
    one, other = (
        ScoreTable({"softmax": kappa}, points.labels, final=points.final)
        for kappa in (beyond, at_the_end)
    )
    assert (les.confidence(one) == les.confidence(other)).all()


def test_an_example_alone_has_the_same_number_to_the_last_bit():
    les, points = LES().fit(full_table(0)), full_table(1, n=5000)
    together = les.confidence(points)
    for i in (0, 17, 4999):
        assert les.confidence(points.rows([i]))[0] == together[i]


def test_what_all_examples_share_is_no_feature():
    kappa, errors = table(0)
    bare = LES().fit(of(kappa, errors))  # no labels of snapshots, no logits
    assert set(bare.features_) == {*(f"epoch {e}" for e in bare.epochs_), "late mean"}
    assert bare.needs == set()
    assert LES().fit(full_table(0)).needs == {"labels", "final"}
    assert LES(passes=1).fit(full_table(0)).needs == {"final"}


def test_a_table_without_the_final_numbers_is_refused():
    les, points = LES().fit(full_table(0)), full_table(1)
    bare = ScoreTable({"softmax": points.kappa("softmax")}, points.labels)
    with pytest.raises(InvalidInput, match=r"`table` must have the final numbers.*no entropy\."):
        les.confidence(bare)


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
    """Greedy by the log-loss of examples left out, scikit-learn fitting every time."""
    logits, n = np.log(kappa / (1 - kappa)), len(errors)
    x = np.array([normal_scores(row.tolist(), row.tolist()) for row in logits])
    x = (x - x.mean(axis=1, keepdims=True)) / x.std(axis=1, keepdims=True)
    order = sorted(range(n), key=lambda i: (errors[i], logits[-1, i]))
    fold = {point: rank % 5 for rank, point in enumerate(order)}

    def loss(snapshots):
        total = 0.0
        for number in range(5):
            seen = [i for i in range(n) if fold[i] != number]
            left = [i for i in range(n) if fold[i] == number]
            final = snapshots.index(len(kappa) - 1)
            rows = x[snapshots].T
            _, probability = peer_of(rows[seen], ~errors[seen], final, [], penalty_of(errors))
            p = probability(rows[left])
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


def test_a_changed_table_is_searched_again():
    kappa, errors = table(5)
    search = Search()
    logits = np.log(kappa / (1 - kappa))
    search.rows(logits, errors, 3)
    logits[-1] = np.random.default_rng(0).normal(size=errors.size)
    assert search.rows(logits, errors, 3) == Search().rows(logits, errors, 3)


def test_a_snapshot_that_lowers_no_loss_is_not_chosen():
    kappa, errors = table(5)
    kappa[:-1] = 0.5
    assert LES(passes=3).fit(of(kappa, errors)).epochs_.tolist() == [25]


def test_fitted_again_it_answers_by_the_new_fit():
    one, other = (of(*table(seed)) for seed in (5, 6))
    les = LES(k=3)
    for points in (one, other):
        expected = LES(k=3).fit(points).confidence(one)
        assert les.fit(points).confidence(one).tolist() == expected.tolist()


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
    # Of one feature in many places each takes its share by its own penalty.
    final = les.features_.index("epoch 25")
    others = np.delete(les.coef_, final)
    np.testing.assert_allclose(others, others[0], rtol=1e-6)
    assert les.coef_[final] / others[0] == pytest.approx(penalty_of(errors) / 0.3, rel=1e-6)
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
    final = les.features_.index("epoch 12")
    assert 0.3 * les.coef_[final] ** 2 / 2 < 400 * np.log(2)
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


@pytest.mark.parametrize(
    ("change", "got"),
    [
        (lambda held: held["weights"].append(1.0), r"7 features, got 8"),
        (lambda held: held["features"][0]["knots"].pop(), r"rising knots .*'epoch 1'"),
        (lambda held: held["features"][0]["knots"].reverse(), r"rising knots .*'epoch 1'"),
        (lambda held: held["features"][0].update(knots=[0, 1e-320], scores=[0, 1]), "rising knots"),
        (lambda held: held["features"][0].update(name="epoch 2"), r"1, 13, 25, got 'epoch 2'"),
    ],
)
def test_a_saved_one_that_is_not_whole(change, got):
    content = LES(k=3).fit(of(*table(5))).as_dict()
    content["fitted"]["features"] += LES(k=3).fit(full_table(5)).fitted["features"][-3:]
    content["fitted"]["weights"] += [0.0] * 3
    change(content["fitted"])
    with pytest.raises(CorruptFile, match=f"A saved LES must have .*{got}.* Save it again"):
        LES.from_dict(content)


@pytest.mark.parametrize("use", ["coef_", "epochs_", "fallback_", "features_"])
def test_unfitted(use):
    with pytest.raises(NotFitted, match=r"LES .* Call \.fit"):
        getattr(LES(), use)
