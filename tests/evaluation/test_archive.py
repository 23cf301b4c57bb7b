"""A packed contest: what comes back, what is cut off, and what is refused."""

import json

import numpy as np

from snapsure import ScoreTable
from snapsure.errors import CorruptFile, InvalidInput
from snapsure.evaluation import Run
from snapsure.evaluation._archive import (
    locate_run,
    open_contest,
    pack,
    write_manifest,
)
from snapsure.table._packed import shrink
from tests.support.refusals import refuses
from tests.support.runs import run_of, save_runs


def odds(kappa):
    return kappa / (1 - kappa)


def test_there_and_back(tmp_path):
    run, again = run_of(0), run_of(1)
    run.passes["softmax"] = 3
    run.others["coin"] = run.others["coin"]._replace(trainings=2.5)
    save_runs({"a": [run, again], "b": [again]}, {"note": "mine"}, tmp_path)
    told = json.loads((tmp_path / "contest.json").read_bytes())
    assert (told["runs"], told["note"]) == ({"a": 2, "b": 1}, "mine")
    opened = open_contest(tmp_path)
    assert {name: len(runs) for name, runs in opened.items()} == {"a": 2, "b": 1}
    for ours, theirs in ((opened["a"][0], run), (opened["b"][0], again)):
        assert ours.table.names == theirs.table.names
        for name in theirs.table.names:
            np.testing.assert_allclose(
                odds(ours.table.kappa(name)), odds(theirs.table.kappa(name)), rtol=1.1 / 1024
            )
        for field in ("labels", "y_hat", "epochs"):
            np.testing.assert_array_equal(getattr(ours.table, field), getattr(theirs.table, field))
        np.testing.assert_array_equal(ours.y, theirs.y)
        logits = theirs.table.logits - theirs.table.logits.mean(axis=1, keepdims=True)
        np.testing.assert_allclose(ours.table.logits, logits, atol=1 / 512, rtol=0)
        assert [*ours.others] == ["mean", "coin"]
        for name, (score, y_hat, *cost) in theirs.others.items():
            np.testing.assert_allclose(ours.others[name].kappa, score, rtol=1.1 / 1024)
            np.testing.assert_array_equal(ours.others[name].y_hat, y_hat)
            assert list(ours.others[name][2:]) == cost
        assert (ours.passes, ours.snapshot_bytes) == (theirs.passes, theirs.snapshot_bytes)


def test_older_archives_have_the_final_numbers_in_other_places(tmp_path):
    rng = np.random.default_rng(0)
    kappa, final = rng.random((3, 9)), rng.random((9, 5))
    final[:, 0] = kappa[-1]
    table = ScoreTable({"entropy": kappa}, np.zeros((3, 9), int), np.zeros(9, int))
    names = ("margin", "energy of centred logits", "max_logit", "gen")
    scores = dict(zip(names, final.T[1:], strict=True))
    pack(Run(table, others=scores), locate_run(tmp_path, "all", 0))
    del scores["gen"]
    pack(Run(table, others=scores), locate_run(tmp_path, "some", 0))
    known = run_of().table
    logits = known.logits - known.logits.mean(axis=1, keepdims=True)
    plain = ScoreTable({"softmax": known.kappa("softmax")}, known.labels, known.y, logits=logits)
    by_logits, plain.final = plain.final, None
    pack(Run(plain), locate_run(tmp_path, "logits", 0))
    write_manifest({"all": 1, "some": 1, "logits": 1}, {}, tmp_path)
    runs = open_contest(tmp_path)
    np.testing.assert_allclose(runs["all"][0].table.final, final, atol=1e-3)
    assert runs["some"][0].table.final is None
    np.testing.assert_allclose(runs["logits"][0].table.final, by_logits, atol=1e-2)


def test_logits_have_two_bytes_and_steps_of_a_256th(tmp_path):
    logits = [[1000.0, 0.0, 0.0, 0.0], [0.25, 0.0, 0.0, 0.25]]
    kappa, labels = {"softmax": [[0.9, 0.6]]}, [[0, 0]]
    pack(Run(ScoreTable(kappa, labels, [0, 1], logits=logits)), locate_run(tmp_path, "a", 0))
    write_manifest({"a": 1}, {}, tmp_path)
    assert open_contest(tmp_path)["a"][0].table.logits.tolist() == [
        [(2**15 - 1) / 256, *[-(2**15) / 256] * 3],
        [0.125, -0.125, -0.125, 0.125],
    ]


def test_names_that_have_changed(tmp_path):
    save_runs(
        {"a": [run_of()]}, {"renamed": {"entropy": "negentropy", "mean": "average"}}, tmp_path
    )
    (run,) = open_contest(tmp_path)["a"]
    assert run.table.names == ["softmax", "negentropy"]
    assert run.passes == {"softmax": 1, "negentropy": 1}
    costs = {name: (rival.passes, rival.kept) for name, rival in run.others.items()}
    assert costs == {"average": (8, 8), "coin": (1, 1)}


def test_a_data_set_may_be_another_without_points_of_no_class(tmp_path):
    table = run_of().table
    strange = np.arange(600) % 3 == 0
    mixed = ScoreTable(
        {"softmax": table.kappa("softmax")},
        table.labels,
        np.where(strange, -1, table.y),
        logits=table.logits,
    )
    others = {"coin": np.full(600, 0.25), "coin, known classes": np.full(600, 0.5)}
    pack(Run(mixed, others=others), locate_run(tmp_path, "all", 0))
    write_manifest({"known": 1, "all": 1}, {"known": {"known": "all"}}, tmp_path)
    opened = open_contest(tmp_path)
    assert [*opened] == ["known", "all"]
    assert opened["all"][0].y.size == 600
    np.testing.assert_array_equal(opened["known"][0].y, table.y[~strange])
    for name, coin in (("all", 0.25), ("known", 0.5)):  # a data set's own score of each name
        (run,) = opened[name]
        assert [*run.others] == ["coin"]
        np.testing.assert_allclose(run.others["coin"].kappa, coin, rtol=1e-2)


def test_labels_take_as_few_bytes_as_they_need():
    for ends, dtype in (
        ((-1, 127), np.int8),
        ((0, 255), np.int16),
        ((-1, 40_000), np.int32),
        ((-1, 2**63 - 1), np.int64),
    ):
        packed = shrink(np.array(ends))
        assert packed.tolist() == [*ends]
        assert packed.dtype == dtype


def test_refusals(tmp_path):
    with refuses(InvalidInput, "--from", f"got none in {tmp_path}"):
        open_contest(tmp_path)
    save_runs({"a": [run_of()]}, {}, tmp_path)
    path = locate_run(tmp_path, "a", 0)
    content = path.read_bytes()
    path.write_bytes(content[:100] + bytes([content[100] ^ 1]) + content[101:])
    with refuses(CorruptFile, path, "SHA-256 differs"):
        open_contest(tmp_path)
    path.unlink()
    with refuses(CorruptFile, path, "cannot be read"):
        open_contest(tmp_path)
