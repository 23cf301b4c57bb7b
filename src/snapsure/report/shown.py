"""How a point is shown: as a picture, as text, or as a row of a table."""

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from snapsure._types import Array
from snapsure.errors import InvalidInput

_SIDE = 96  # pixels of a picture
_LONGEST = 300  # characters of a text
_FIELDS = 8  # columns of a row that are shown
_CHANNELS = (1, 3)


@dataclass(frozen=True)
class Shown:
    """Whatever was given to recognise points by, checked against their number."""

    pictures: "Pictures | None"
    texts: list[str] | None
    fields: dict[str, Array] | None

    @classmethod
    def of(
        cls,
        n: int,
        images: ArrayLike | None,
        texts: Sequence[str] | None,
        fields: Mapping[str, ArrayLike] | None,
    ) -> "Shown":
        """What a report was given for n points."""
        return cls(
            None if images is None else Pictures.of(images, n),
            None if texts is None else _texts(texts, n),
            None if fields is None else _fields(fields, n),
        )

    def of_row(self, row: int) -> dict[str, Any]:
        """What the page shows of one point."""
        return {
            "picture": None if self.pictures is None else self.pictures.png(row),
            "text": None if self.texts is None else shortened(self.texts[row], _LONGEST),
            "fields": [
                (shortened(name, 40), _cell(values[row]))
                for name, values in list((self.fields or {}).items())[:_FIELDS]
            ],
        }


@dataclass(frozen=True)
class Pictures:
    """Points as pictures; values outside [0, 1], as networks get them, are stretched to it."""

    pixels: Array  # (n, height, width), or with three channels at the end
    low: float
    high: float

    @classmethod
    def of(cls, images: ArrayLike, n: int) -> "Pictures":
        """Channels may come first or last, as in the file that was scored."""
        given = np.asarray(images)
        pixels = _channels_at_the_end(given)
        if pixels is None or len(pixels) != n:
            raise InvalidInput(
                "`images` must have shape (n, height, width), (n, height, width, channels) or "
                f"(n, channels, height, width) with n = {n} and 1 or 3 channels, got "
                f"{given.shape}: pass the scored points in their order"
            )
        if pixels.dtype.kind not in "fuib":
            raise InvalidInput(f"`images` must be numbers, got {pixels.dtype}: convert them first")
        low, high = float(pixels.min()), float(pixels.max())
        if not np.isfinite([low, high]).all():
            raise InvalidInput("`images` must be finite, got NaN or infinity: replace them first")
        if pixels.dtype.kind in "ui" and low >= 0 and high <= 255:
            return cls(pixels, 0.0, 255.0)
        if low >= 0 and high <= 1:
            return cls(pixels, 0.0, 1.0)
        return cls(pixels, low, high)

    def png(self, row: int) -> str:
        """A picture as a data address."""
        from PIL import Image

        scaled = (self.pixels[row].astype(np.float64) - self.low) / (self.high - self.low)
        image = Image.fromarray(np.rint(255 * scaled).astype(np.uint8))
        scale = _SIDE / max(image.size)
        kind = Image.Resampling.NEAREST if scale > 1 else Image.Resampling.LANCZOS
        image = image.resize(
            (max(1, round(image.width * scale)), max(1, round(image.height * scale))), kind
        )
        file = io.BytesIO()
        image.save(file, "png", optimize=True)
        return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def shortened(text: str, longest: int) -> str:
    """A text, or its beginning."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _channels_at_the_end(images: Array) -> Array | None:
    if images.ndim == 3:
        return images
    if images.ndim != 4:
        return None
    if images.shape[-1] in _CHANNELS:
        pixels = images
    elif images.shape[1] in _CHANNELS:
        pixels = np.moveaxis(images, 1, -1)
    else:
        return None
    return pixels[..., 0] if pixels.shape[-1] == 1 else pixels


def _texts(texts: Sequence[str], n: int) -> list[str]:
    said = [str(text) for text in texts]
    if isinstance(texts, str) or len(said) != n:
        raise InvalidInput(
            f"`texts` must be one text for each of {n} points, got "
            f"{'one' if isinstance(texts, str) else len(said)}: pass those of the scored "
            "points in their order"
        )
    return said


def _fields(fields: Mapping[str, ArrayLike], n: int) -> dict[str, Array]:
    columns = {str(name): np.asarray(fields[name]) for name in fields}
    for name, values in columns.items():
        if values.shape != (n,):
            raise InvalidInput(
                f"`fields` must have one value for each of {n} points, got shape {values.shape} "
                f"in {name!r}: pass the columns of the scored points in their order"
            )
    return columns


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float | np.floating) else shortened(str(value), 40)
