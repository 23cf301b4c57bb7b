"""How one classifier's answers differ from another's."""

from dataclasses import dataclass

from snapsure.table import ScoreTable


@dataclass(frozen=True)
class Difference:
    """How a student's answers differ from those of the network that it learnt from.

    Attributes
    ----------
    points : int
        How many were compared.
    error_before, error : float
        Error rates of the network and of the student.
    agreement : float
        Share of the points with the same answer.
    lost, won : int
        Answers that were right and are wrong now, and the other way round.
    """

    points: int
    error_before: float
    error: float
    agreement: float
    lost: int
    won: int

    def __str__(self) -> str:
        """In a sentence."""
        return (
            f"on {self.points:,} points the error is {self.error:.1%}, before "
            f"{self.error_before:.1%}; {self.agreement:.1%} of the answers are the same, "
            f"{self.lost:,} that were right are wrong now, {self.won:,} that were wrong are right"
        )

    @classmethod
    def between(cls, before: ScoreTable, now: ScoreTable) -> "Difference":
        """Of the final answers of two tables of the same labelled points."""
        return cls(
            points=now.y_hat.size,
            error_before=float(before.errors.mean()),
            error=float(now.errors.mean()),
            agreement=float((before.y_hat == now.y_hat).mean()),
            lost=int((now.errors & ~before.errors).sum()),
            won=int((before.errors & ~now.errors).sum()),
        )
