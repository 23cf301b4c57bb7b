"""The score table: made, cut, saved, opened, refused."""

import numpy as np
import pytest

from snapsure import ScoreTable
from snapsure.errors import CorruptFile, InvalidInput
from snapsure.table import TableWriter

RNG = np.random.default_rng(0)
PROBS = RNG.dirichlet(np.ones(4), size=(5, 30))
Y = RNG.integers(0, 4, 30)


@pytest.fixture
def table():
    return ScoreTable(
        {"softmax": RNG.random((5, 30)), "mc_dropout": RNG.random((5, 30))},
        RNG.integers(0, 4, (5, 30)),
        Y,
        epochs=[2, 4, 6, 8, 10],
    )


def same(a, b):
    return (
        a.names == b.names
        and all((a.kappa(name) == b.kappa(name)).all() for name in a.names)
        and (a.labels == b.labels).all()
        and (a.y_hat == b.y_hat).all()
        and (a.epochs == b.epochs).all()
        and (a.y is b.y is None or (a.y == b.y).all())
    )


def test_from_probabilities():
    table = ScoreTable.from_probabilities(PROBS, Y, epochs=[1, 2, 3, 5, 8])
    final = PROBS[-1].argmax(axis=1)
    assert table.names == ["softmax"]
    assert (table.y_hat == final).all()
    assert (table.errors == (final != Y)).all()
    assert (table.labels == PROBS.argmax(axis=2)).all()
    for t in range(5):
        for i in range(30):
            assert table.kappa("softmax")[t, i] == PROBS[t, i, final[i]]
    assert ScoreTable.from_probabilities(PROBS).epochs.tolist() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("labelled", [True, False])
def test_saved_and_opened(tmp_path, table, labelled):
    if not labelled:
        table = ScoreTable({"softmax": table.kappa("softmax")}, table.labels)
    table.save(tmp_path / "scores")
    assert same(ScoreTable.open(tmp_path / "scores"), table)


def test_the_same_table_gives_the_same_bytes(tmp_path, table):
    for name in ("a", "b"):
        table.save(tmp_path / name)
    files = sorted(p.relative_to(tmp_path / "a") for p in (tmp_path / "a").rglob("*.*"))
    assert len(files) == 5 * 3 + 3
    for file in files:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_split_parts_are_disjoint_and_whole(table):
    held_out, rest = table.split(0.7, seed=3)
    assert held_out.y_hat.size == 21
    together = np.sort(np.concatenate([held_out.kappa("softmax")[0], rest.kappa("softmax")[0]]))
    assert (together == np.sort(table.kappa("softmax")[0])).all()
    assert same(table.split(0.7, seed=3)[0], held_out)
    assert not same(table.split(0.7, seed=4)[0], held_out)
    at = int(np.flatnonzero(table.kappa("softmax")[0] == rest.kappa("softmax")[0, 4])[0])
    assert rest.y[4] == table.y[at]
    assert (rest.labels[:, 4] == table.labels[:, at]).all()
    assert (rest.epochs == table.epochs).all()


def sentence(kind, call, *arguments, **options):
    with pytest.raises(kind) as caught:
        call(*arguments, **options)
    return str(caught.value)


def test_what_it_does_not_have(table):
    assert sentence(InvalidInput, table.kappa, "entropy") == (
        "`name` must be one of softmax, mc_dropout, got 'entropy': "
        "score that κ first, or choose one of these"
    )
    unlabelled = ScoreTable.from_probabilities(PROBS)
    assert sentence(InvalidInput, lambda: unlabelled.errors) == (
        "`y` must be known to tell errors, got a table without labels: score data that has labels"
    )


def test_what_does_not_fit():
    kappa, labels = np.zeros((2, 3)), np.zeros((2, 3), int)
    assert sentence(InvalidInput, ScoreTable, {}, labels) == (
        "`kappas` must name at least one κ, got none: pass {name: (T, n)}"
    )
    assert sentence(InvalidInput, ScoreTable, {"a": kappa + 5}, labels) == (
        "`kappas['a']` must lie in [0, 1], got 5 … 5: map the score to [0, 1] first"
    )
    assert sentence(InvalidInput, ScoreTable, {"labels": kappa}, labels) == (
        "`kappas` must have names of letters, digits and _, and none of labels, y, y_hat, got "
        "'labels': name it otherwise"
    )
    assert sentence(InvalidInput, ScoreTable, {"a": kappa}, labels.T) == (
        "`labels` must have shape (2, 3), got (3, 2): pass the same points"
    )
    assert sentence(InvalidInput, ScoreTable, {"a": kappa, "b": kappa[:1]}, labels) == (
        "`kappas['b']` must have shape (2, 3), got (1, 3): pass the same points"
    )
    assert sentence(InvalidInput, ScoreTable, {"a": kappa}, labels, [0, 1]) == (
        "`y` must have shape (3,), got (2,): pass the same points"
    )
    assert sentence(InvalidInput, ScoreTable, {"a": kappa}, labels, epochs=[2, 1]) == (
        "`epochs` must rise, got [2, 1]: sort the snapshots by epoch"
    )
    assert sentence(InvalidInput, ScoreTable, {"a": kappa}, labels + 0.5) == (
        "`labels` must hold whole numbers, got dtype float64: pass class ids"
    )


def test_probabilities_that_are_none():
    assert sentence(InvalidInput, ScoreTable.from_probabilities, PROBS[0]) == (
        "`probs` must be (snapshots, points, classes), got shape (30, 4): "
        "stack one array of class probabilities per snapshot"
    )
    logits = PROBS.copy()
    logits[2, 7] *= 3
    assert sentence(InvalidInput, ScoreTable.from_probabilities, logits) == (
        "`probs` must be ≥ 0 and sum to 1 over the classes, got a sum of 3 at snapshot 2, row 7: "
        "apply softmax first"
    )
    logits[2, 7] = np.nan
    assert "got a sum of nan at snapshot 2, row 7" in sentence(
        InvalidInput, ScoreTable.from_probabilities, logits
    )
    assert sentence(InvalidInput, ScoreTable.from_probabilities, PROBS, np.where(Y == 3, 4, Y)) == (
        f"`y` must lie in 0…3, got 4 at row {np.flatnonzero(Y == 3)[0]}: "
        "number the classes as the model does"
    )


@pytest.mark.parametrize("fraction", [0.001, 0.999])
def test_a_split_that_leaves_nothing(table, fraction):
    assert sentence(InvalidInput, table.split, fraction) == (
        f"`fraction` must leave points on both sides, got {fraction} of 30: "
        "choose another, or score more points"
    )


def test_folders_that_are_no_table(tmp_path, table):
    assert sentence(InvalidInput, ScoreTable.open, tmp_path) == (
        f"{tmp_path} must hold a finished score table, got no table.json: "
        "check the path, or let scoring finish"
    )
    table.save(tmp_path)
    piece = tmp_path / "softmax" / "epoch-000004.00000.npy"
    piece.write_bytes(piece.read_bytes()[:-8])
    assert sentence(CorruptFile, ScoreTable.open, tmp_path).startswith(
        f"{piece} must be a whole piece of a score table, got one that cannot be read ("
    )
    np.save(piece, np.zeros(3))
    assert sentence(CorruptFile, ScoreTable.open, tmp_path) == (
        f"{piece} must hold 30 values, got shape (3,): delete it and score again, the rest is kept"
    )
    (tmp_path / "table.json").write_text("{")
    assert sentence(CorruptFile, ScoreTable.open, tmp_path) == (
        f"{tmp_path / 'table.json'} must name a score table, got something else"
    )


def test_a_table_that_was_replaced_half_way_does_not_open(tmp_path, table, monkeypatch):
    table.save(tmp_path)
    write, written = TableWriter.write, []

    def tiring(self, *arguments):
        written.append(arguments)
        if len(written) > 5:
            raise KeyboardInterrupt
        write(self, *arguments)

    monkeypatch.setattr(TableWriter, "write", tiring)
    with pytest.raises(KeyboardInterrupt):
        table.save(tmp_path)
    assert "must hold a finished score table" in sentence(InvalidInput, ScoreTable.open, tmp_path)
