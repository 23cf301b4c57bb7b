"""One colour for each kind of score, wherever it is drawn: page, figures, leaderboard."""

from snapsure.estimators import registry

# Mid-tones, told apart by colour-blind readers and on light and dark ground. Where two meet, lines
# differ in dash and points in shape as well.
COLOURS = {name: registry.get(name).colour for name in ("AES", "PES", "LES", "final")} | {
    "κ*": "#8a8a8a",
    "other": "#8a8a8a",
}
GREEN, RED = "#2e933c", "#d1495b"  # the surest points and the least sure ones
ACCURACY = "#8a6fb0"
GUIDE = "#8a8a8a"  # lines that help to read the others


def kind_of(name: str) -> str:
    """The kind of a method or a curve by its first word: AES for "AES of softmax"."""
    first = name.partition(" ")[0]
    return first if first in COLOURS else "other"
