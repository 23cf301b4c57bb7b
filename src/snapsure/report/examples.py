"""How an example is shown: as a picture, as text, or as a row of a table."""

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


@dataclass(frozen=True)
class Examples:
    """What a report shows of each example, checked against their number."""

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
    ) -> "Examples":
        """Check what a report was given for n examples."""
        if texts is not None and (isinstance(texts, str) or len(texts) != n):
            count = "one" if isinstance(texts, str) else len(texts)
            raise InvalidInput(
                f"`texts` must have one text for each of {n} examples, got {count}. Pass those of "
                "the scored examples in their order."
            )
        columns = {str(name): np.asarray(values) for name, values in (fields or {}).items()}
        for name, values in columns.items():
            if values.shape != (n,):
                raise InvalidInput(
                    f"`fields` must have one value for each of {n} examples, got shape "
                    f"{values.shape} in {name!r}. Pass the columns of the scored examples in their "
                    "order."
                )
        return cls(
            None if images is None else Pictures.of(images, n),
            None if texts is None else [str(text) for text in texts],
            columns or None,
        )

    def show(self, row: int) -> dict[str, Any]:
        """Return what the page shows of one example."""
        return {
            "picture": None if self.pictures is None else self.pictures.encode_png(row),
            "text": None if self.texts is None else shorten(self.texts[row], _LONGEST),
            "fields": [
                (shorten(name, 40), _write(values[row]))
                for name, values in list((self.fields or {}).items())[:_FIELDS]
            ],
        }


@dataclass(frozen=True)
class Pictures:
    """Examples as pictures; values outside [0, 1], such as normalised ones, are stretched to it."""

    pixels: Array  # (n, height, width), or with three channels at the end
    low: float
    high: float

    @classmethod
    def of(cls, images: ArrayLike, n: int) -> "Pictures":
        """Check images whose channels come first or last."""
        given = pixels = np.asarray(images)
        if pixels.ndim == 4 and pixels.shape[-1] not in (1, 3):
            pixels = np.moveaxis(pixels, 1, -1)
        if pixels.ndim == 4 and pixels.shape[-1] == 1:
            pixels = pixels[..., 0]
        is_picture = pixels.ndim == 3 or pixels.shape[3:] == (3,)
        if given.shape[:1] != (n,) or not is_picture or not given.size:
            raise InvalidInput(
                "`images` must have shape (n, height, width), (n, height, width, channels) or "
                f"(n, channels, height, width) with n = {n} and 1 or 3 channels, none of them 0, "
                f"got {given.shape}. Pass the scored examples in their order."
            )
        if pixels.dtype.kind not in "fuib":
            raise InvalidInput(
                f"`images` must be numbers, got {pixels.dtype}. Convert them to numbers first."
            )
        low, high = float(pixels.min()), float(pixels.max())
        if not np.isfinite([low, high]).all():
            raise InvalidInput(
                "`images` must be finite, got NaN or infinity. Replace these values first."
            )
        if pixels.dtype.kind in "ui" and low >= 0 and high <= 255:
            low, high = 0.0, 255.0
        elif low >= 0 and high <= 1:
            low, high = 0.0, 1.0
        return cls(pixels, low, high)

    def encode_png(self, row: int) -> str:
        """Return a picture as a data address."""
        from PIL import Image

        scaled = (self.pixels[row].astype(np.float64) - self.low) / (self.high - self.low)
        image = Image.fromarray(np.rint(255 * scaled).astype(np.uint8))
        scale = _SIDE / max(image.size)
        kind = Image.Resampling.NEAREST if scale > 1 else Image.Resampling.LANCZOS
        size = [max(1, round(side * scale)) for side in image.size]
        file = io.BytesIO()
        image.resize(size, kind).save(file, "png", optimize=True)
        return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def shorten(text: str, longest: int) -> str:
    """Return a text, or its beginning."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _write(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float | np.floating) else shorten(str(value), 40)
