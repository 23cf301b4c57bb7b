"""The numbers of the other sections against the library's functions and definitions."""

import numpy as np
import pytest
from scipy.stats import binomtest

from snapsure import AES, PES, Platt, compare
from snapsure.evaluation import trajectories
from snapsure.report.advice import recommend, summarise
from snapsure.report.chapter import Cards, Chart, Folded, Row, Text
from snapsure.report.charts import to_plain
from snapsure.report.sections import (
    SECTIONS,
    count_bins,
    find_classes,
    find_mistakes,
    find_moved,
    follow_training,
    group_by_confidence,
    rank,
    show_contest,
    show_examples,
    state_probabilities,
)
from snapsure.report.tables import Table
from tests.support.report import chapter_of, early, scored


@pytest.fixture(scope="module")
def table():
    return early()


@pytest.fixture(scope="module")
def chapter(table):
    return chapter_of(table)


def test_along_training(table):
    groups, surer = group_by_confidence(table.kappa("softmax"), table.errors)
    expected = trajectories(table.kappa("softmax"), table.errors, 0.5)
    assert surer == 0.5
    assert np.array_equal(groups.green_eaurc, expected.green_eaurc)
    assert np.array_equal(groups.red_eaurc, expected.red_eaurc)


def test_the_surer_group_grows_until_it_has_errors():
    rng = np.random.default_rng(0)
    kappa = np.sort(rng.random((3, 1000)), axis=1)
    kappa[:-1] = kappa[:-1, ::-1]  # the final snapshot decides who is sure
    wrong = np.zeros(1000, bool)
    wrong[:300:10] = True  # none among the surest 70 %
    groups, surer = group_by_confidence(kappa, wrong)
    assert surer == 0.8
    assert np.allclose(groups.red_kappa, trajectories(kappa, wrong, 0.2).red_kappa)
    wrong[100:] = False  # too few anywhere
    assert group_by_confidence(kappa, wrong)[1] == 0.9


@pytest.mark.parametrize("table", [early(), scored(snapshots=1)], ids=["early", "one"])
def test_it_says_when_the_surest_were_ranked_best_and_what_is_averaged(table):
    text = follow_training(chapter_of(table))[0].text
    groups, _ = group_by_confidence(table.kappa("softmax"), table.errors)
    last, averaged = table.epochs[-1], AES().snapshots(table.epochs)
    is_last = table.epochs[groups.best] == last
    assert is_last == (table.epochs.size == 1)
    when = f"of epoch {last}" if is_last else f"at epoch {table.epochs[groups.best]} of {last}"
    assert when in text
    assert (f"risen by {1e3 * groups.lost:.2f}" in text) == (not is_last)
    assert f"{len(averaged)} snapshots, from epoch {averaged[0]} to {averaged[-1]}" in text


def test_tables_of_layers_and_epochs(table, chapter):
    (folded,) = [block for block in follow_training(chapter) if isinstance(block, Folded)]
    layers, epochs = [block for block in folded.blocks if isinstance(block, Table)]
    pes = PES().fit(table)
    expected = [(each.cut, each.edge, each.epoch) for each in pes.layers_]
    assert [tuple(row[1:4]) for row in layers.rows] == expected
    assert sum(row[4] for row in layers.rows) == table.y.size
    assert layers.rows[0][4] == (table.kappa("softmax")[-1] <= pes.layers_[0].edge).sum()
    assert [row[0] for row in epochs.rows] == table.epochs.tolist()
    accuracy = (table.labels == table.y).mean(axis=1)
    assert np.array_equal([row[1] for row in epochs.rows], accuracy)


def test_reliability_on_the_other_half(table, chapter):
    learn, rest = table.rows(chapter.choice.learn), chapter.rest
    stated = state_probabilities(chapter)
    assert list(stated) == ["final softmax, as it is", "final softmax, calibrated", "LES"]
    platt = Platt().fit(learn.kappa("softmax")[-1], learn.errors)
    p = platt.predict_proba(chapter.scores["final softmax"])
    assert np.array_equal(stated["final softmax, calibrated"], p)
    assert np.array_equal(stated["LES"], chapter.scores["LES"])

    bins = count_bins(p, rest.errors)
    assert bins.examples.sum() == rest.errors.size
    inside = (p >= 0.7) & (p < 0.8)
    assert inside.any()
    at = int(np.flatnonzero(np.isclose(bins.stated, p[inside].mean()))[0])
    right, n = int((~rest.errors[inside]).sum()), int(inside.sum())
    assert (bins.right[at], bins.examples[at]) == (right / n, n)
    exact = binomtest(right, n).proportion_ci(0.95, "exact")
    assert bins.low[at] == pytest.approx(exact.low, abs=1e-9)
    assert bins.high[at] == pytest.approx(exact.high, abs=1e-9)
    certain = count_bins(np.array([0.95, 1.0]), np.array([False, True]))
    assert (certain.examples.tolist(), certain.right.tolist()) == ([2], [0.5])


def test_mistakes_and_moved(chapter):
    wrong, score = chapter.rest.errors, chapter.scores["LES"]
    final, now = (rank(chapter.scores[name]) for name in ("final softmax", "LES"))
    rows = np.flatnonzero(wrong)
    surest = rows[np.argsort(-score[rows], kind="stable")][:12]
    assert find_mistakes(wrong, now).tolist() == surest.tolist()
    moved = find_moved(wrong, final, now)
    right, rise = np.flatnonzero(~wrong), final - now
    assert moved["Right, moved up"][0] == right[np.argmax(rise[right])]
    assert moved["Right, moved down"][0] == right[np.argmin(rise[right])]
    for title, some in moved.items():
        assert (rise[some] > 0).all() if title.endswith("up") else (rise[some] < 0).all()
    assert not any(some.size for some in find_moved(wrong, now, now).values())


def test_classes_are_judged_at_the_recommended_threshold():
    chapter = chapter_of(scored(), 0.3)
    rest = chapter.rest
    accepted = chapter.choice.threshold.accepts(chapter.choice.confidence(rest))
    assert np.array_equal(chapter.accepted, accepted)
    classes = find_classes(accepted, rest.y_hat, rest.errors)
    risks = [wrong / number for _, number, wrong, _, _ in classes]
    assert risks == sorted(risks, reverse=True)
    for label, number, wrong, _, _ in classes:
        those = accepted & (rest.y_hat == label)
        assert (number, wrong) == (those.sum(), rest.errors[those].sum())
    shown = show_examples(chapter)[-1]
    assert [tuple(row[1:4]) for row in shown.rows] == [
        (number, wrong, wrong / number) for _, number, wrong, _, _ in classes
    ]
    assert "80 %" not in shown.title


def test_without_a_promise_the_surest_four_fifths_are_judged(table):
    chapter = chapter_of(table, 0.001)
    assert chapter.choice.threshold is None
    assert chapter.accepted.mean() == pytest.approx(0.8, abs=0.01)
    assert "80 %" in show_examples(chapter)[-1].title


def test_equals_share_the_middle_of_their_ranks():
    assert rank(np.array([0.9, 0.5, 0.5, 0.1])).tolist() == [1, 2.5, 2.5, 4]


def test_one_snapshot_moves_nothing():
    chapter = chapter_of(scored(snapshots=1))
    ranks = [rank(score) for score in chapter.scores.values()]
    assert all(np.array_equal(ranks[0], each) for each in ranks)


def tables_of(blocks):
    """Every table, also of those that are folded or beside each other."""
    for block in blocks:
        if isinstance(block, Table):
            yield block
        yield from tables_of(getattr(block, "blocks", ()))


def test_words_are_aligned_left_and_numbers_right():
    chapters = [chapter_of(scored(seed=seed), 0.3) for seed in (0, 1)]
    advice = recommend([each.table for each in chapters], [each.choice for each in chapters], 0.3)
    blocks = [block for section in SECTIONS for block in section.make(chapters[0])]
    contest = compare({"a": [chapters[0].table]}, resamples=400)
    kinds = [type(block) for block in show_contest(contest)]
    assert kinds == [Text, Chart, Table]  # one board needs no heading
    sides = {
        (column.head, column.text)
        for table in tables_of([*blocks, *summarise(advice, chapters, ""), *show_contest(contest)])
        for column in table.columns
    }
    words = {head for head, is_text in sides if is_text}
    assert words == {"class", "method", "probability", "recommended", "table", "verdict"}
    assert not words & {head for head, is_text in sides if not is_text}


def test_a_page_begins_with_few_examples_and_folds_the_rest(chapter):
    blocks = show_examples(chapter)
    surest = next(block for block in blocks if isinstance(block, Cards))
    moved = next(block for block in blocks if isinstance(block, Row))
    assert (surest.visible, len(surest.cards)) == (6, 12)
    assert [(cards.visible, len(cards.cards)) for cards in moved.blocks] == [(2, 6)] * 4
    assert blocks[0].is_note


def test_plain_numbers():
    assert to_plain({0.1: np.array([1 / 3]), "n": np.int64(3)}) == {"0.1": [0.333333], "n": 3}
