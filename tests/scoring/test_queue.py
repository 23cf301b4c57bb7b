"""What may be done when, told by what was done and what failed; nothing is scored here."""

import random

import pytest

from snapsure import NNDistance, SoftmaxResponse
from snapsure.errors import ScoringFailed
from snapsure.scoring import _plan
from snapsure.scoring._executor import Queue
from snapsure.scoring._plan import Done, Piece, make_plan


@pytest.fixture
def plan(digits, tmp_path, monkeypatch):
    """Three groups of two snapshots, four shards, embeddings to be made first."""
    monkeypatch.setattr(_plan, "_SHARD", 300)
    kappas = [SoftmaxResponse(), NNDistance(digits.train)]
    return make_plan(digits.model(), digits.store, digits.test, kappas, tmp_path, 2)


def run(plan, fails, width=1, at_once=1, seed=0):
    """Go through a plan; pieces arrive in any order, and fail where `fails` says so."""
    queue = Queue(plan, plan.todo(), width)
    rng, flying, log = random.Random(seed), [], []
    while True:
        while len(flying) < at_once and (piece := queue.next()):
            flying.append(piece)
        if not flying:
            return queue, log
        piece = flying.pop(rng.randrange(len(flying)))
        log.append(piece)
        if fails(piece):
            queue.failed(piece, "it did")
        else:
            queue.done(piece, Done({}, {}))


def singles(log):
    """All that was done, snapshot by snapshot."""
    return sorted((e, -1 if p.shard is None else p.shard) for p in log for e in p.epochs)


@pytest.mark.parametrize("seed", range(20))
def test_any_order_does_each_once_after_what_it_needs(plan, seed):
    queue, log = run(plan, lambda piece: False, width=1 + seed % 4, at_once=5, seed=seed)
    queue.close()
    assert singles(log) == [(e, s) for e in range(1, 7) for s in (-1, 0, 1, 2, 3)]
    for i, piece in enumerate(log):
        if piece.shard is None:
            continue
        assert Piece(piece.epochs, None) in log[:i]
        assert 6 in piece.epochs or Piece((6, 5), piece.shard) in log[:i]


@pytest.mark.parametrize("width", [1, 2])
def test_no_more_than_so_many_groups_are_prepared_before_they_are_scored(plan, width):
    queue, held = Queue(plan, plan.todo(), width), []
    piece = queue.next()
    assert piece == Piece((6, 5), None)
    while piece := queue.next():
        held.append(piece)
    assert held == [Piece((4, 3), None)][: width - 1]


def test_embeddings_left_by_another_run_cannot_block_this_one(plan):
    plan.begin()
    for epoch in (4, 3, 2, 1):
        (plan.folder / "prepared" / str(epoch)).mkdir(parents=True)
        plan.note_prepared(epoch)
    queue, log = run(plan, lambda piece: False)
    queue.close()
    assert [piece for piece in log if piece.shard is None] == [Piece((6, 5), None)]
    assert len(log) == 1 + 3 * 4


def test_a_group_that_fails_is_tried_snapshot_by_snapshot(plan):
    queue, log = run(plan, lambda piece: len(piece.epochs) > 1)
    queue.close()
    done = [piece for piece in log if len(piece.epochs) == 1]
    assert singles(done) == [(e, s) for e in range(1, 7) for s in (-1, 0, 1, 2, 3)]


def test_a_snapshot_that_fails_is_named_and_the_others_finish(plan):
    queue, log = run(plan, lambda piece: 3 in piece.epochs and piece.shard == 2)
    failures = [piece for piece in log if 3 in piece.epochs and piece.shard == 2]
    assert failures == [Piece((4, 3), 2), Piece((3,), 2)]
    assert Piece((4,), 2) in log
    with pytest.raises(ScoringFailed) as caught:
        queue.close()
    assert str(caught.value).startswith(
        "Every piece must be scored, got 1 that failed at every try: epoch 3, rows 512…767 (it did)"
    )


def test_a_reference_that_fails_takes_its_snapshot_with_it(plan):
    queue, log = run(plan, lambda piece: 3 in piece.epochs and piece.shard is None)
    assert all(Piece((4,), shard) in log for shard in range(4))
    assert not any(3 in piece.epochs for piece in log if piece.shard is not None)
    with pytest.raises(ScoringFailed) as caught:
        queue.close()
    assert str(caught.value).startswith(
        "Every piece must be scored, got 1 that failed at every try: epoch 3, the reference "
        "(it did)"
    )


def test_without_the_final_snapshot_nothing_of_its_rows_can_be_scored(plan):
    _, log = run(plan, lambda piece: 6 in piece.epochs and piece.shard == 1)
    assert [piece for piece in log if piece.shard == 1] == [Piece((6, 5), 1), Piece((6,), 1)]
    assert len([piece for piece in log if piece.shard == 0]) == 3
    _, log = run(plan, lambda piece: 6 in piece.epochs and piece.shard is None)
    assert log == [Piece((6, 5), None), Piece((6,), None)]


def test_of_many_failures_some_are_named(plan):
    queue, _ = run(plan, lambda piece: piece.shard is not None and 6 not in piece.epochs)
    with pytest.raises(ScoringFailed) as caught:
        queue.close()
    message = str(caught.value)
    assert message.startswith("Every piece must be scored, got 16 that failed at every try: epoch ")
    assert message.count("rows") == 8
    assert "; 8 more (it did). Fix" in message


@pytest.mark.parametrize(
    "fails",
    [
        lambda piece: 6 in piece.epochs and piece.shard == 1,
        lambda piece: 3 in piece.epochs and piece.shard == 2,
        lambda piece: 3 in piece.epochs and piece.shard is None,
    ],
)
def test_what_was_prepared_for_lost_pieces_goes_too(plan, fails):
    """Otherwise embeddings pile up on the disk, and no room is left to prepare others."""
    queue, _ = run(plan, fails, at_once=3)
    assert queue._prepared == set()
    assert not any(queue._left.values())


def test_of_many_causes_a_few_are_told(plan):
    def message(causes, pieces):
        queue = Queue(plan, plan.todo())
        for i in range(causes * pieces):
            queue._running += 1
            queue.failed(Piece((3,), i % 4), f"cause {i % causes}")
        with pytest.raises(ScoringFailed) as caught:
            queue.close()
        return str(caught.value)

    said = message(50, 1)
    assert len(said) < 600
    assert "got 50 that failed" in said
    assert "; 42 other causes. Fix" in said
    every = message(8, 8)  # as many of each as are named
    assert (every.count("rows"), every.count("(cause "), every.count(" more")) == (64, 8, 0)
    assert "other causes" not in every


def test_preparations_that_are_half_removed_are_made_again(plan, monkeypatch):
    plan.begin()
    plan.note_prepared(6)
    monkeypatch.setattr("shutil.rmtree", lambda *given, **options: None)  # as if it were killed
    plan.forget_prepared(6)
    assert plan.todo()[0] == Piece((6, 5), None)
