"""What a monitor tells."""

from typing import NamedTuple


class Alarm(NamedTuple):
    """What is no longer as it was promised. As text, one sentence.

    Attributes
    ----------
    kind : str
        "risk": more of the accepted answers are wrong than was promised. "shift": the confidences
        are not distributed as at fitting.
    since : int
        When the alarm was raised. For "risk" counted in accepted answers whose label came back, for
        "shift" in answers; the first is 1, and in a merged monitor the first of its own stream.
    evidence : float
        The greatest e-value so far.
    observed, expected : float
        When it was raised. For "risk", the error rate that the evidence speaks for, and the one
        promised. For "shift", shares of the confidences above `cut`: now, and until then.
    cut : float or None
        For "shift", the confidence where the difference is clearest.
    """

    kind: str
    since: int
    evidence: float
    observed: float
    expected: float
    cut: float | None = None

    def __str__(self) -> str:
        """Say it to a person."""
        proof = f"e-value {self.evidence:.3g}"
        if self.kind == "risk":
            return (
                f"risk above the promise: about {self.observed:.3g} of the accepted answers are "
                f"wrong, at most {self.expected:.3g} was promised; raised at labelled answer "
                f"{self.since:,} ({proof})"
            )
        return (
            f"confidences have shifted: about {self.observed:.3g} of them lie above "
            f"{self.cut:.4g}, {self.expected:.3g} did before; raised at answer {self.since:,} "
            f"({proof})"
        )
