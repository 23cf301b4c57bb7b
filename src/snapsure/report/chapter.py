"""What the page is made of: blocks, and the chapters that sections turn into blocks."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from snapsure import _validate
from snapsure._types import Bools, Floats
from snapsure.decisions import Threshold
from snapsure.estimators import AES
from snapsure.estimators.registry import FINAL
from snapsure.evaluation import Choice
from snapsure.report.charts import Spec
from snapsure.report.examples import Examples, shorten
from snapsure.report.tables import Table
from snapsure.table import ScoreTable

_START = 0.8  # coverage where the slider begins if nothing can be promised
_LONGEST = 80  # characters of a class name that are shown


class Text(NamedTuple):
    """A paragraph and, after it, code; a note is set smaller."""

    text: str
    is_note: bool = False
    code: str = ""


class Heading(NamedTuple):
    """A heading within a section."""

    text: str


class Chart(NamedTuple):
    """A Vega-Lite chart with its caption."""

    name: str
    spec: Spec
    caption: str


class Bar(NamedTuple):
    """A share of the whole, as a horizontal bar."""

    name: str
    share: float
    label: str
    colour: str


class Row(NamedTuple):
    """Blocks beside each other, where the screen is wide enough."""

    blocks: "Sequence[Block]"


class Folded(NamedTuple):
    """Blocks that a reader unfolds."""

    summary: str
    blocks: "Sequence[Block]"


class Cards(NamedTuple):
    """Examples; the first `visible` at once, the others folded."""

    title: str
    cards: Sequence[dict[str, Any]]
    visible: int


class Slider(NamedTuple):
    """The form that chooses a coverage and shows what it does."""

    labels: dict[str, str]  # by confidence
    data: dict[str, Any]  # of every position, by confidence
    start: int
    limit: str
    is_promised: bool
    has_strangers: bool
    examples: int
    chapters: int
    deltas: Sequence[float]
    positions: int


Block = Text | Heading | Chart | Bar | Table | Row | Folded | Cards | Slider


@dataclass(frozen=True)
class Chapter:
    """What a section may use: one table, what was chosen for it, and how its examples look."""

    name: str
    table: ScoreTable
    choice: Choice
    risk: float  # the error limit
    examples: Examples
    classes: Sequence[str] | None = None
    chapters: int = 1  # of the page
    seed: int = 0

    @property
    def final(self) -> str:
        """What the page calls the final snapshot's κ: "final softmax"."""
        return name_final(self.choice.kappa)

    @property
    def deployed(self) -> str:
        """The name of the confidence that is deployed."""
        return self.final if self.choice.method == FINAL else self.choice.method

    @property
    def method(self) -> str:
        """What the final softmax is compared with: the method that is deployed, or else AES."""
        return "AES" if self.choice.method == FINAL else self.choice.method

    @cached_property
    def rest(self) -> ScoreTable:
        """The examples that nothing was fitted on."""
        return self.table.rows(self.choice.rest)

    @cached_property
    def scores(self) -> dict[str, Floats]:
        """The confidences in these examples, by name, the deployed one first."""
        scores = {self.deployed: self.choice.confidence(self.rest)}
        scores.setdefault("AES", AES().fit(self.table, self.choice.kappa).confidence(self.rest))
        scores.setdefault(self.final, self.rest.kappa(self.choice.kappa)[-1])
        return scores

    @cached_property
    def threshold(self) -> Threshold:
        """The recommended threshold, or one of 80 % coverage if nothing can be promised."""
        deployed = self.scores[self.deployed]
        return self.choice.threshold or Threshold.at_coverage(deployed, _START)

    @cached_property
    def accepted(self) -> Bools:
        """Which of these examples the threshold accepts."""
        return self.threshold.accepts(self.scores[self.deployed])

    def name_class(self, label: int) -> str:
        """Return the name of a class."""
        if label == _validate.NO_CLASS:
            return "none of the classes"
        if self.classes is None or label >= len(self.classes):
            return f"class {label}"
        return shorten(str(self.classes[label]), _LONGEST)


def name_final(kappa: str) -> str:
    """Return what the page calls the final snapshot's κ: "final softmax"."""
    return f"final {kappa}"
