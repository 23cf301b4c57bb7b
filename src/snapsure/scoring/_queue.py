"""Which pieces of a plan can be done when, whoever does them."""

from collections import Counter
from collections.abc import Sequence

from snapsure.errors import ScoringFailed
from snapsure.scoring._plan import Done, Piece, Plan

_NAMED = 8  # failures and causes that an error message names


class Queue:
    """Hand out pieces that can be done now, and take their results.

    A piece needs y_hat of its shard, which the final snapshot gives, and the preparations of its
    snapshots. These can be large: at most `width` groups of snapshots are prepared before they are
    scored, and their preparations are removed afterwards.

    A group that fails is done again snapshot by snapshot, so that a damaged snapshot does not take
    the others with it, and a group that is too large for the memory can still be done.
    """

    def __init__(self, plan: Plan, todo: Sequence[Piece], width: int = 1) -> None:
        self.width = width
        self._plan, self._waiting, self._running = plan, list(todo), 0
        self._unprepared = {e for piece in todo if piece.shard is None for e in piece.epochs}
        self._unanswered = {piece.shard for piece in todo if plan.final in piece.epochs}
        self._left = _count_scorings(todo)
        self._prepared: set[int] = set()  # snapshots whose preparations this queue has started
        self._failed: dict[str, list[Piece]] = {}

    def next(self) -> Piece | None:
        """Return a piece to start, or None; preparations only where nothing can be scored."""
        scoring = (piece for piece in self._waiting if self._can_score(piece))
        preparing = (piece for piece in self._waiting if self._can_prepare(piece))
        piece = next(scoring, None) or next(preparing, None)
        if piece is not None:
            self._waiting.remove(piece)
            self._running += 1
            self._prepared.update(piece.epochs if piece.shard is None else ())
        return piece

    def _can_score(self, piece: Piece) -> bool:
        answered = self._plan.final in piece.epochs or piece.shard not in self._unanswered
        return piece.shard is not None and answered and self._unprepared.isdisjoint(piece.epochs)

    def _can_prepare(self, piece: Piece) -> bool:
        room = self.width * max(map(len, self._plan.groups))
        return piece.shard is None and (not self._running or len(self._prepared) < room)

    def done(self, piece: Piece, done: Done) -> None:
        """Record what a worker has done, so that pieces can start that waited for it."""
        self._running -= 1
        self._plan.record(done)
        if piece.shard is None:
            self._unprepared.difference_update(piece.epochs)
            return
        if self._plan.final in piece.epochs:
            self._unanswered.discard(piece.shard)
        self._release(_count_scorings([piece]))

    def failed(self, piece: Piece, cause: str) -> None:
        """Do a piece again in parts, or drop it and what cannot be done without it."""
        self._running -= 1
        if len(piece.epochs) > 1:
            self._waiting[:0] = [Piece((epoch,), piece.shard) for epoch in piece.epochs]
            return
        self._failed.setdefault(cause, []).append(piece)
        (epoch,) = piece.epochs
        rest = self._waiting
        if epoch == self._plan.final:
            rest = [] if piece.shard is None else [p for p in rest if p.shard != piece.shard]
        elif piece.shard is None:
            rest = [Piece(tuple(e for e in p.epochs if e != epoch), p.shard) for p in rest]
        lost = _count_scorings([*self._waiting, piece]) - _count_scorings(rest)
        self._waiting = [other for other in rest if other.epochs]
        self._release(lost)

    def _release(self, scorings: Counter[int]) -> None:
        """Remove the preparations of snapshots that no other piece needs."""
        self._left.subtract(scorings)
        for epoch in scorings:
            if not self._left[epoch]:
                self._prepared.discard(epoch)
                self._plan.forget_prepared(epoch)

    def close(self) -> None:
        """Raise an error that names what has failed, if anything has."""
        if not self._failed:
            return
        causes = []
        for cause, pieces in list(self._failed.items())[:_NAMED]:
            named = [self._plan.describe(piece) for piece in pieces[:_NAMED]]
            more = [f"{len(pieces) - _NAMED} more"] if len(pieces) > _NAMED else []
            causes.append(f"{'; '.join(named + more)} ({cause})")
        if len(self._failed) > _NAMED:
            causes.append(f"{len(self._failed) - _NAMED} other causes")
        raise ScoringFailed(
            f"Every piece must be scored, got {sum(map(len, self._failed.values()))} that failed "
            f"at every try: {'; '.join(causes)}. Fix the cause and score again; the rest is kept."
        )


def _count_scorings(pieces: Sequence[Piece]) -> Counter[int]:
    """Count the pieces that score each snapshot."""
    return Counter(epoch for p in pieces if p.shard is not None for epoch in p.epochs)
