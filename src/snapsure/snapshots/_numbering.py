"""Which epoch a checkpoint is of, told from its name or from what lies inside."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from snapsure.errors import InvalidInput

_DECIMAL = re.compile(r"\d+\.\d+")
_EPOCH = re.compile(r"(?:epoch|params)[\s=_.-]*(\d+)", re.IGNORECASE)  # skorch: params_3.pt
_STEP = re.compile(r"(?:step|checkpoint)[\s=_.-]*(\d+)", re.IGNORECASE)


class Times(NamedTuple):
    """When a checkpoint was taken, as far as it is known."""

    epoch: int | None
    step: int | None


Inside = Callable[[int], Times]


def in_name(name: str) -> Times:
    """What a name says. Decimals are measurements (`loss=0.31`), whatever word is before them."""
    plain = _DECIMAL.sub("#", name)
    return Times(_last(_EPOCH, plain), _last(_STEP, plain))


def numbered(names: Sequence[str], inside: Inside, folder: Path) -> dict[int, int]:
    """The place of each checkpoint by its number: epochs, else steps, else a number in the names.

    `inside(i)` looks into the i-th file, and is asked only where its name does not tell. A file
    like `last.ckpt`, known from inside to be of the same time as one whose name tells it, is left
    out: it is a copy.
    """
    said = [in_name(name) for name in names]
    told = [time.epoch is not None for time in said]
    places = list(range(len(names)))
    if not all(told) or _twice([time.epoch for time in said]):
        said = [
            _completed(time, inside(i)) if None in time else time for i, time in enumerate(said)
        ]
        known = {time for time, by_name in zip(said, told, strict=True) if by_name}
        places = [i for i in places if told[i] or said[i] not in known]
    for numbers in ([said[i].epoch for i in places], [said[i].step for i in places]):
        if None not in numbers and not _twice(numbers):
            return dict(zip([n for n in numbers if n is not None], places, strict=True))
    return dict(zip(_differing(names, folder), range(len(names)), strict=True))


def _last(pattern: re.Pattern[str], name: str) -> int | None:
    found = pattern.findall(name)
    return int(found[-1]) if found else None


def _completed(name: Times, inside: Times) -> Times:
    return Times(
        inside.epoch if name.epoch is None else name.epoch,
        inside.step if name.step is None else name.step,
    )


def _twice(numbers: Sequence[int | None]) -> bool:
    return len({*numbers}) < len(numbers)


def _differing(names: Sequence[str], folder: Path) -> list[int]:
    """The first number that differs from name to name, where they are otherwise alike."""
    parts = [re.split(r"(\d+)", _DECIMAL.sub("#", name)) for name in names]
    words = [part[::2] for part in parts]
    columns = list(zip(*(map(int, part[1::2]) for part in parts), strict=False))
    differing = [list(column) for column in columns if not _twice(column)]
    alike = all(other == words[0] for other in words)
    if not differing or not alike:
        odd = [name for name, own in zip(names, words, strict=True) if own != words[0]]
        same = [name for name, count in Counter(names).items() if count > 1]
        got = f"two of {same[0]}" if same else " beside ".join([names[0], *odd[:1]])
        raise InvalidInput(
            f"`folder` must hold checkpoints whose epochs show in their names or inside, each "
            f"once, got {got} in {folder}: name them epoch-1, epoch-2 …, and move others away"
        )
    # Of a single name it is the last: `resnet18-7` is of epoch 7.
    return differing[-1] if len(names) == 1 else differing[0]
