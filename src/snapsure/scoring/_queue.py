"""What may be done when: the order of a plan's pieces, whoever does them."""

from collections import Counter
from collections.abc import Sequence

from snapsure.errors import ScoringFailed
from snapsure.scoring._plan import Piece, Plan

_NAMED = 8


class Queue:
    """Hands out pieces that can be done now, and hears what became of them.

    A piece needs y_hat of its shard, which the final snapshot gives, and what its snapshots'
    preparations leave. These can be large: at most `width` groups of snapshots are prepared
    before they are scored, and they go when they are.

    A group that fails is done again snapshot by snapshot, so that one which is damaged does not
    take the others with it, and one which is too large for the memory does not stay so.
    """

    def __init__(self, plan: Plan, todo: Sequence[Piece], width: int = 1) -> None:
        self.width = width
        self._plan = plan
        self._waiting = list(todo)
        self._running = 0
        self._unprepared = {e for piece in todo if piece.shard is None for e in piece.epochs}
        self._unanswered = {piece.shard for piece in todo if plan.final in piece.epochs}
        self._left = _scorings(todo)
        self._held: set[int] = set()
        self._failed: dict[str, list[Piece]] = {}

    def next(self) -> Piece | None:
        """A piece to start; preparations only where nothing can be scored."""
        scoring = (piece for piece in self._waiting if self._can_be_scored(piece))
        preparing = (piece for piece in self._waiting if self._can_be_prepared(piece))
        piece = next(scoring, None) or next(preparing, None)
        if piece is not None:
            self._waiting.remove(piece)
            self._running += 1
            self._held.update(piece.epochs if piece.shard is None else ())
        return piece

    def done(self, piece: Piece) -> None:
        """Let those start that waited for it."""
        self._running -= 1
        if piece.shard is None:
            self._unprepared.difference_update(piece.epochs)
            return
        if self._plan.final in piece.epochs:
            self._unanswered.discard(piece.shard)
        self._let_go(_scorings([piece]))

    def failed(self, piece: Piece, cause: str) -> None:
        """Do it again in parts; or let go of it, and of what cannot be done without it."""
        self._running -= 1
        if len(piece.epochs) > 1:
            self._waiting[:0] = piece.singles()
            return
        self._failed.setdefault(cause, []).append(piece)
        (epoch,) = piece.epochs
        rest = self._waiting
        if epoch == self._plan.final:
            rest = [] if piece.shard is None else [p for p in rest if p.shard != piece.shard]
        elif piece.shard is None:
            rest = [other.without(epoch) for other in rest]
        lost = _scorings([*self._waiting, piece]) - _scorings(rest)
        self._waiting = [other for other in rest if other.epochs]
        self._let_go(lost)

    def close(self) -> None:
        """Name what has failed, if anything has."""
        if not self._failed:
            return
        causes = []
        for cause, pieces in list(self._failed.items())[:_NAMED]:
            named = [self._plan.described(piece) for piece in pieces[:_NAMED]]
            more = [f"{len(pieces) - _NAMED} more"] if len(pieces) > _NAMED else []
            causes.append(f"{'; '.join(named + more)} ({cause})")
        if len(self._failed) > _NAMED:
            causes.append(f"{len(self._failed) - _NAMED} other causes")
        raise ScoringFailed(
            f"every piece must be scored, got {sum(map(len, self._failed.values()))} that failed "
            f"at every try: {'; '.join(causes)}: fix the cause and score again, the rest is kept"
        )

    def _let_go(self, scorings: Counter[int]) -> None:
        """Remove what was prepared for snapshots that wait for nothing more."""
        self._left.subtract(scorings)
        for epoch in scorings:
            if not self._left[epoch]:
                self._held.discard(epoch)
                self._plan.forget_prepared(epoch)

    def _can_be_scored(self, piece: Piece) -> bool:
        answered = self._plan.final in piece.epochs or piece.shard not in self._unanswered
        return piece.shard is not None and answered and self._unprepared.isdisjoint(piece.epochs)

    def _can_be_prepared(self, piece: Piece) -> bool:
        room = self.width * max(map(len, self._plan.groups))
        return piece.shard is None and (not self._running or len(self._held) < room)


def _scorings(pieces: Sequence[Piece]) -> Counter[int]:
    """How many pieces score each snapshot."""
    return Counter(epoch for p in pieces if p.shard is not None for epoch in p.epochs)
