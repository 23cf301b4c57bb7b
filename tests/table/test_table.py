"""The score table: made, cut, saved, opened, refused."""

import hashlib
import os
import subprocess
import sys
import textwrap
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from snapsure import ScoreTable
from snapsure.errors import CorruptFile, InvalidInput
from snapsure.table import Averaged
from snapsure.table._packed import pack, shrink, unpack
from snapsure.table._pieces import Pieces, read_layout, write_layout
from snapsure.table._table import name_classes
from tests.support.refusals import refuses

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
        final=RNG.random((30, 5)),
    )


def same(a, b):
    columns = [(t.labels, t.y_hat, t.epochs, t.y, t.logits, t.final) for t in (a, b)]
    return (
        a.names == b.names
        and all(np.array_equal(a.kappa(name), b.kappa(name)) for name in a.names)
        and all(map(np.array_equal, *columns))
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


def test_five_numbers_of_the_final_logits():
    """Entropy, margin, energy, largest logit and GEN, written down from their definitions."""
    logits = RNG.normal(size=(30, 4)) * 3
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    two = np.sort(p, axis=1)[:, -2:]
    unbounded = np.log(np.exp(logits).sum(axis=1)), logits.max(axis=1)
    energy, largest = (0.5 + x / (2 * (1 + np.abs(x))) for x in unbounded)
    expected = np.stack(
        [
            1 + (p * np.log(p)).sum(axis=1) / np.log(4),
            (1 + two[:, 1] - two[:, 0]) / 2,
            energy,
            largest,
            1 - ((p * (1 - p)) ** 0.1).sum(axis=1) / (4 * 0.25**0.1),
        ],
        axis=1,
    )
    by_logits = ScoreTable({"softmax": p.max(axis=1)[None]}, p.argmax(axis=1)[None], logits=logits)
    np.testing.assert_allclose(by_logits.final, expected, rtol=1e-9)
    by_probabilities = ScoreTable.from_probabilities(p[None])
    of_softmax = [0, 1, 4]  # the others depend on a constant that probabilities lack
    np.testing.assert_allclose(
        by_probabilities.final[:, of_softmax], expected[:, of_softmax], rtol=1e-9
    )
    np.testing.assert_allclose(by_probabilities.final[:, 2], 0.5, rtol=1e-12)  # ln 1 = 0
    certain = ScoreTable.from_probabilities([[[1.0, 0.0, 0.0]]])
    assert certain.final[0, [0, 1, 4]].tolist() == [1, 1, 1]
    assert ScoreTable.from_kappa([[0.5]]).final is None


def test_a_packed_table_has_them_to_a_thousandth(tmp_path, table):
    pack(table, tmp_path / "table.npz")
    np.testing.assert_allclose(unpack(tmp_path / "table.npz").final, table.final, atol=1e-3)
    ends = ScoreTable.from_kappa([[0, 1e-300, 1e-9, 1 - 1e-9, 1]], epochs=[40_000])
    pack(ends, tmp_path / "ends.npz")
    found = unpack(tmp_path / "ends.npz")
    assert found.epochs.tolist() == [40_000]
    kappa = found.kappa("softmax")[0]
    assert kappa[[0, 4]].tolist() == [0, 1]
    assert 0 < kappa[1] < 1e-27  # the least odds that are told from none, e⁻⁶⁴
    np.testing.assert_allclose([kappa[2], 1 - kappa[3]], 1e-9, rtol=2e-3)


@pytest.mark.parametrize(
    ("numbers", "kind"),
    [
        ([-128, 127], "int8"),
        ([-129, 127], "int16"),
        ([-128, 128], "int16"),
        ([0, 2**31 - 1], "int32"),
        ([0, 2**31], "int64"),
    ],
)
def test_whole_numbers_take_as_few_bytes_as_they_need(numbers, kind):
    found = shrink(np.array(numbers))
    assert found.dtype == kind
    assert found.tolist() == numbers


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
    assert len(files) == 5 * 3 + 4
    for file in files:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_split_parts_are_disjoint_and_whole(table):
    held_out, rest = table.split(0.7, seed=3)
    assert held_out.y_hat.size == 21
    together = np.sort(np.concatenate([held_out.kappa("softmax")[0], rest.kappa("softmax")[0]]))
    assert (together == np.sort(table.kappa("softmax")[0])).all()
    assert same(table.split(0.7, seed=3)[0], held_out)
    assert not same(table.split(0.7, seed=4)[0], held_out)
    for part in ScoreTable.from_kappa([np.linspace(0, 1, 50)]).split(0.5, seed=3):
        assert (np.diff(part.kappa("softmax")[0]) > 0).all()  # in the order of the examples
    at = int(np.flatnonzero(table.kappa("softmax")[0] == rest.kappa("softmax")[0, 4])[0])
    assert rest.y[4] == table.y[at]
    assert (rest.labels[:, 4] == table.labels[:, at]).all()
    assert (rest.final[4] == table.final[at]).all()
    assert (rest.epochs == table.epochs).all()


ZEROS, LABELS = np.zeros((2, 3)), np.zeros((2, 3), int)
FOREIGN = np.where(Y == 3, 4, Y)


@pytest.mark.parametrize(
    ("make", "facts"),
    [
        (lambda: ScoreTable({}, LABELS), ["`kappas`", "got none", "{name: (T, n)}"]),
        (lambda: ScoreTable({"a": ZEROS + 5}, LABELS), ["`kappas['a']`", "got 5 … 5"]),
        (lambda: ScoreTable({"labels": ZEROS}, LABELS), ["`kappas`", "y_hat", "got 'labels'"]),
        (lambda: ScoreTable({"a": ZEROS}, LABELS, y_hat=[0]), ["`y_hat`", "got (1,)"]),
        (lambda: ScoreTable({"a": ZEROS}, LABELS.T), ["`labels`", "(2, 3)", "(3, 2)"]),
        (lambda: ScoreTable({"a": ZEROS}, LABELS, final=ZEROS), ["`final`", "(3, 5)", "(2, 3)"]),
        (
            lambda: ScoreTable({"a": ZEROS}, LABELS, final=np.full((3, 5), 2.0)),
            ["`final`", "got 2 … 2", "entropy"],
        ),
        (
            lambda: ScoreTable({"a": ZEROS, "b": ZEROS[:1]}, LABELS),
            ["`kappas['b']`", "(2, 3)", "(1, 3)"],
        ),
        (lambda: ScoreTable({"a": ZEROS}, LABELS, [0, 1]), ["`y`", "(3,)", "(2,)"]),
        *(
            (lambda e=e: ScoreTable({"a": ZEROS}, LABELS, epochs=e), ["`epochs`", f"got {e}"])
            for e in ([2, 1], [2, 2])
        ),
        (
            lambda: ScoreTable({"a": ZEROS}, LABELS, epochs=[1, 2, 3]),
            ["`epochs`", "(2,)", "got (3,)"],
        ),
        (
            lambda: ScoreTable({"a": ZEROS}, LABELS, averaged=Averaged([0], [0.5], [0.5])),
            ["`averaged.labels`", "(3,)", "got (1,)"],
        ),
        (lambda: ScoreTable({"a": ZEROS}, LABELS + 0.5), ["`labels`", "got 0.5"]),
        (lambda: ScoreTable.from_kappa([0.5, 0.6]), ["`kappa`", "2-D", "(2,)"]),
        (lambda: ScoreTable.from_probabilities(PROBS[0]), ["`probs`", "(30, 4)"]),
        (
            lambda: ScoreTable.from_probabilities(spoilt(3)),
            ["`probs`", "sum of 3 at snapshot 2, row 7", "softmax"],
        ),
        (
            lambda: ScoreTable.from_probabilities(spoilt(np.nan)),
            ["`probs`", "sum of nan at snapshot 2, row 7"],
        ),
        (
            lambda: ScoreTable.from_probabilities(PROBS, FOREIGN),
            ["`y`", "0…3", f"got 4 at row {np.flatnonzero(Y == 3)[0]}"],
        ),
        (lambda: ScoreTable.from_probabilities(PROBS).errors, ["`y`", "without labels"]),
        (lambda: ScoreTable.from_probabilities(PROBS).kappa("x"), ["`kappa`", "softmax", "'x'"]),
        *(
            (
                lambda f=f: ScoreTable.from_probabilities(PROBS).split(f),
                ["`fraction`", f"{f} of 30"],
            )
            for f in (0.001, 0.999)
        ),
    ],
)
def test_what_is_refused(make, facts):
    with refuses(InvalidInput, *facts):
        make()


def spoilt(factor):
    probs = PROBS.copy()
    probs[2, 7] *= factor
    return probs


@pytest.mark.parametrize(("classes", "least"), [(None, "4 or more"), (5, "5")])
def test_each_class_has_a_name(table, classes, least):
    """As many as there are, or, where that is not known, as labels and answers show."""
    table.provenance = {} if classes is None else {"classes": classes}
    assert name_classes(table, ["a", "b", "c", "d", "e"]) == ["a", "b", "c", "d", "e"]
    with refuses(InvalidInput, "`classes`", f"table, {least}, got 3 names"):
        name_classes(table, ["a", "b", "c"])


def test_every_answer_to_an_example_of_no_class_is_wrong(tmp_path):
    y = np.where(Y == 3, -1, Y)
    table = ScoreTable.from_probabilities(PROBS, y)
    assert table.errors[y == -1].all()
    assert (table.errors == ScoreTable.from_probabilities(PROBS, Y).errors)[y >= 0].all()
    table.save(tmp_path / "table")
    assert (ScoreTable.open(tmp_path / "table").y == y).all()
    pack(table, tmp_path / "table.npz")
    assert (unpack(tmp_path / "table.npz").y == y).all()


def test_folders_that_are_no_table(tmp_path, table):
    with refuses(InvalidInput, tmp_path, "finished score table", "table.json"):
        ScoreTable.open(tmp_path)
    table.save(tmp_path)
    piece = tmp_path / "softmax" / "epoch-000004.00000.npy"
    piece.write_bytes(piece.read_bytes()[:-8])
    with refuses(CorruptFile, piece, "SHA-256"):
        ScoreTable.open(tmp_path)
    layout, name = read_layout(tmp_path), str(piece.relative_to(tmp_path))
    np.save(piece, np.zeros(30, np.float32))
    single = piece.read_bytes()
    np.save(piece, np.zeros(3))
    for content, facts in (
        (piece.read_bytes(), ("30", "(3,)")),
        (single, ("float64", "got float32")),
        (piece.read_bytes()[:-8], ("cannot be read",)),
    ):
        piece.write_bytes(content)
        hashes = layout["hashes"] | {name: hashlib.sha256(content).hexdigest()}
        write_layout(tmp_path, layout | {"hashes": hashes})
        with refuses(CorruptFile, piece, *facts):
            ScoreTable.open(tmp_path)
    write_layout(tmp_path, layout | {"hashes": {}})
    with refuses(CorruptFile, "table.json", "got no hash"):
        ScoreTable.open(tmp_path)
    (tmp_path / "table.json").write_text("{")
    with refuses(CorruptFile, "table.json", "no JSON", "core again"):
        ScoreTable.open(tmp_path)


KILLED = """
    import os, shutil, sys
    import numpy as np
    from pathlib import Path
    from snapsure.table import ScoreTable

    os.fsync = lambda _: None  # a kill loses nothing that was written

    def table(value, epochs, name):
        kappa = np.full((len(epochs), 3), value)
        return ScoreTable({"softmax": kappa, name: kappa}, np.full(kappa.shape, 1), [0, 1, 2],
                          epochs=epochs)

    def files(folder):
        names = (str(p.relative_to(folder)) for p in folder.rglob("*"))
        return sorted(n.removeprefix("pieces-2/") for n in names if n != "pieces-2")

    old, new = table(0.25, [1, 2, 3], "energy"), table(0.5, [2, 4], "margin")
    home = Path(sys.argv[1])
    for replaced in (0, 1):  # a table's pieces lie in one of two places by turns
        begin = home / f"begin-{replaced}"
        for _ in range(replaced + 1):
            old.save(begin)
        whole = home / f"whole-{replaced}"
        shutil.copytree(begin, whole)
        new.save(whole)
        for step in range(10_000):
            folder = home / f"{replaced}-{step}"
            shutil.copytree(begin, folder)
            child = os.fork()
            if not child:
                left = [step]
                def kill(event, arguments):
                    if event in ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir"):
                        if not left[0]:
                            os._exit(9)
                        left[0] -= 1
                sys.addaudithook(kill)
                new.save(folder)
                os._exit(0)
            ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            found = ScoreTable.open(folder)
            assert found.names in (old.names, new.names), found.names
            kept = old if found.names == old.names else new
            for name in kept.names:
                assert (found.kappa(name) == kept.kappa(name)).all()
            assert (found.epochs == kept.epochs).all() and (found.labels == 1).all()
            new.save(folder)
            assert files(folder) == files(whole), (files(folder), files(whole))
            assert ScoreTable.open(folder).names == new.names
            shutil.rmtree(folder)
            if not ended:
                break
        print(step)
"""


@pytest.mark.slow
def test_a_killed_save_leaves_the_old_table_or_the_new_one(tmp_path):
    command = [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    pieces = 2 * 3 + 2
    # At least: each piece opened, renamed and its folder flushed.
    assert all(int(steps) >= 3 * pieces for steps in run.stdout.split())


def test_a_table_is_replaced_again_and_again(tmp_path, table):
    for i in range(1, 6):
        rows = table.rows(np.arange(i))
        rows.save(tmp_path)
        assert same(ScoreTable.open(tmp_path), rows)
        assert len(list(tmp_path.rglob("*.npy"))) == 5 * 3 + 3
        assert all(any(path.iterdir()) for path in tmp_path.rglob("*") if path.is_dir())
    fresh = tmp_path / "fresh"
    rows.save(fresh)
    (tmp_path / "notes.txt").write_text("mine")
    rows.save(tmp_path)
    table.save(tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert same(ScoreTable.open(fresh), rows)


@pytest.mark.parametrize("saved", [1, 2])
@pytest.mark.parametrize("pieces", range(4))
def test_a_save_that_is_interrupted_leaves_nothing_for_the_next(
    tmp_path, monkeypatch, saved, pieces
):
    first, cut, last = (
        ScoreTable.from_kappa([[0.5, 0.6]], epochs=[epoch], name=name)
        for epoch, name in enumerate("abc", 1)
    )
    for folder in ("cut", "whole"):
        for _ in range(saved):  # its pieces lie in one of two places by turns
            first.save(tmp_path / folder)
    write, written = Pieces.write, []

    def killed(self, *piece):
        if len(written) == pieces:
            raise KeyboardInterrupt
        written.append(piece)
        write(self, *piece)

    with monkeypatch.context() as patched, suppress(KeyboardInterrupt):
        patched.setattr(Pieces, "write", killed)
        cut.save(tmp_path / "cut")
    assert len(written) == min(pieces, 3)
    found = []
    for folder in ("cut", "whole"):
        last.save(tmp_path / folder)
        paths = [
            str(path.relative_to(tmp_path / folder)) for path in (tmp_path / folder).rglob("*")
        ]
        found.append(sorted(path.removeprefix("pieces-2").strip("/") for path in paths))
    assert {*found[0]} - {""} == {*found[1]} - {""}


@pytest.mark.parametrize("saves", [1, 2])
def test_all_pieces_are_on_the_disk_before_the_manifest_names_them(
    tmp_path, monkeypatch, table, saves
):
    """A power cut loses what is not flushed: files, and the folders that name them."""
    flushed, before, replace = set(), set(), Path.replace

    def note_flush(handle):
        flushed.add(os.fstat(handle).st_ino)

    def note_rename(path, target):
        if target.name == "table.json":
            before.clear()
            before.update(flushed)
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", note_flush)
    monkeypatch.setattr(Path, "replace", note_rename)
    for _ in range(saves):
        table.save(tmp_path / "scores")
    paths = [tmp_path / "scores", *(tmp_path / "scores").rglob("*")]
    assert {path.stat().st_ino for path in paths} <= before


def test_a_reader_beside_a_save_sees_a_whole_table(tmp_path, table):
    tables = [table, table.rows(np.arange(7))]
    tables[0].save(tmp_path)
    stop, problems = threading.Event(), []

    def read():
        while not stop.is_set():
            try:
                found = ScoreTable.open(tmp_path)
                assert any(same(found, one) for one in tables if one.y.size == found.y.size)
            except Exception as error:
                problems.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        for i in range(10):
            tables[i % 2].save(tmp_path)
    finally:
        stop.set()
        thread.join()
    assert problems == []


def test_a_table_is_not_saved_among_scores_that_are_not_finished(tmp_path, table):
    table.save(tmp_path)
    layout = read_layout(tmp_path) | {"finished": False}
    write_layout(tmp_path, layout)
    with refuses(InvalidInput, "`path`", tmp_path):
        table.save(tmp_path)
    assert read_layout(tmp_path) == layout


def test_from_bare_kappa():
    kappa = np.random.default_rng(0).random((3, 5))
    table = ScoreTable.from_kappa(kappa, [0, 1, 0, 0, 1], epochs=[4, 6, 9], name="mine")
    assert (table.names, table.epochs.tolist()) == (["mine"], [4, 6, 9])
    assert table.errors.tolist() == [False, True, False, False, True]
    np.testing.assert_array_equal(table.kappa("mine"), kappa)
    plain = ScoreTable.from_kappa(kappa)
    assert (plain.names, plain.epochs.tolist()) == (["softmax"], [1, 2, 3])


def test_some_of_the_snapshots():
    rng = np.random.default_rng(1)
    logits = rng.random((6, 3))
    y_hat = logits.argmax(axis=1)
    table = ScoreTable(
        {"softmax": rng.random((4, 6))},
        np.tile(y_hat, (4, 1)),
        np.zeros(6),
        epochs=[2, 4, 6, 8],
        logits=logits,
        provenance={"model": "mine"},
    )
    some = table.select([8, 4])
    assert some.epochs.tolist() == [4, 8]
    np.testing.assert_array_equal(some.kappa("softmax"), table.kappa("softmax")[[1, 3]])
    assert some.provenance == {"model": "mine"}
    np.testing.assert_array_equal(some.logits, logits)
    for wanted in ([2, 4], [3, 8]):
        with refuses(InvalidInput, "`epochs`", "4", "(8)", wanted):
            table.select(wanted)


def test_logits_and_provenance_are_kept(tmp_path):
    logits = np.random.default_rng(2).random((5, 3))
    labels = logits.argmax(axis=1)[None]
    table = ScoreTable({"softmax": np.full((1, 5), 0.5)}, labels, provenance={"model": "mine"})
    table.with_logits(logits).save(tmp_path / "table")
    again = ScoreTable.open(tmp_path / "table")
    np.testing.assert_array_equal(again.logits, logits)
    assert again.provenance == {"model": "mine"}
    np.testing.assert_array_equal(again.rows([3, 1]).logits, logits[[3, 1]])
    table.save(tmp_path / "table")
    assert ScoreTable.open(tmp_path / "table").logits is None


def test_a_table_that_was_checked_is_not_checked_again_in_parts(tmp_path):
    """Rounded logits may name another class in 1 % of the examples: all of them may be chosen."""
    logits = np.random.default_rng(2).random((1000, 3))
    y_hat = logits.argmax(axis=1)
    rounded = np.arange(3, 1000, 100)
    logits[rounded] = logits[rounded][:, [1, 2, 0]]
    kappa = np.random.default_rng(3).random((2, 1000))
    table = ScoreTable({"softmax": kappa}, np.tile(y_hat, (2, 1)), y_hat, logits=logits)
    mask = np.isin(np.arange(1000), rounded)
    for some in (table.rows(rounded), table.rows(mask), table.rows(mask).select([2])):
        np.testing.assert_array_equal(some.logits, logits[rounded])
        np.testing.assert_array_equal(some.final, table.final[rounded])
        np.testing.assert_array_equal(some.kappa("softmax")[-1], kappa[-1, rounded])
        assert some.kappa("softmax").flags.c_contiguous
        some.save(tmp_path)
        assert same(ScoreTable.open(tmp_path), some)
    with refuses(InvalidInput, "`logits`", "1%"):
        table.rows(rounded).with_logits(logits[rounded])


@pytest.mark.parametrize("index", [np.zeros(30, bool), np.array([], int), [[0, 1]], 3])
def test_rows_that_are_none(table, index):
    with refuses(InvalidInput, "`index`", "shape", "mask"):
        table.rows(index)
