"""Where names of points may stand in a picture, so that none lies on another or on a point."""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

FONT_SIZE = 11
_LETTER = 0.53 * FONT_SIZE  # the mean width of a letter, generously
_GAP = 7  # between a point's centre and its name


class Box(NamedTuple):
    """A rectangle in pixels, y downwards."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: "Box") -> bool:
        """Whether the two share more than an edge."""
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )

    def inside(self, other: "Box") -> bool:
        """Whether nothing of it is outside of the other."""
        return (
            other.left <= self.left
            and self.right <= other.right
            and other.top <= self.top
            and self.bottom <= other.bottom
        )


class Label(NamedTuple):
    """A name, the rectangle it fills, and from which side it is written."""

    name: str
    box: Box
    align: Literal["left", "right", "center"]

    @property
    def x(self) -> float:
        """Where it is held, by `align`."""
        middle = (self.box.left + self.box.right) / 2
        return {"left": self.box.left, "right": self.box.right, "center": middle}[self.align]

    @property
    def y(self) -> float:
        """Its middle."""
        return (self.box.top + self.box.bottom) / 2


def place(
    names: Sequence[tuple[str, float, float]],
    points: Sequence[Box],
    bars: Sequence[Box],
    frame: Box,
) -> list[Label]:
    """Put each name beside its point (x, y), the first ones first.

    None lies on another or on a point, nor on a bar if that can be; what finds no room is left out.
    """
    labels: list[Label] = []
    for name, x, y in names:
        taken = [*points, *(label.box for label in labels)]
        free = [
            label
            for label in _around(name, x, y)
            if label.box.inside(frame) and not any(label.box.meets(other) for other in taken)
        ]
        clear = [label for label in free if not any(label.box.meets(bar) for bar in bars)]
        labels += (clear or free)[:1]
    return labels


def _around(name: str, x: float, y: float) -> Iterator[Label]:
    """Right and left of a point, then a little above and below it, no further: whose is it?"""
    width, height = _LETTER * len(name), FONT_SIZE + 2
    starts: dict[Literal["left", "right", "center"], float] = {
        "left": x + _GAP,
        "right": x - _GAP - width,
        "center": x - width / 2,
    }
    for rise in (0.0, 0.6, -0.6, 1.0, -1.0):
        middle = y - rise * height
        for align, left in starts.items():
            box = Box(left, middle - height / 2, left + width, middle + height / 2)
            yield Label(name, box, align)
