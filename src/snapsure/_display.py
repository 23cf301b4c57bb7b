"""How results show themselves: pictures, tables in a notebook, data frames.

A result comes before the report in the order of the rooms, so it cannot import what renders it.
`snapsure/__init__.py` hands the report's renderers over here, and they load on first use.
"""

import io
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from snapsure import _files
from snapsure.errors import InvalidInput

_SCALE = 1.6  # pixels of a PNG for each unit of a picture

_load_renderers: Callable[[], Mapping[str, Callable[..., Any]]]


class Display:
    """A picture of a result: notebooks show it, `save` writes it to a file.

    Attributes
    ----------
    spec : dict
        The picture as a Vega-Lite specification, numbers included.

    Examples
    --------
    >>> from snapsure import rc_curve
    >>> picture = rc_curve([0.9, 0.8, 0.4], [0, 0, 1]).plot()
    >>> isinstance(picture, Display)  # picture.save("curve.png") writes it
    True
    """

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec

    def __repr__(self) -> str:
        """Say what the picture shows."""
        return f"<Display: {self.spec.get('description', 'a picture')}>"

    def save(self, path: str | Path) -> Path:
        """Write the picture as .png, .svg or .pdf, whichever the path ends in."""
        target = _files.check_path(path, "path")
        encoders = self._encoders()
        if target.suffix not in encoders:
            raise InvalidInput(
                f"`path` must end in .png, .svg or .pdf, got {target}. Change its ending."
            )
        _files.write_bytes(target, encoders[target.suffix]())
        return target

    def _repr_mimebundle_(
        self, include: Any = None, exclude: Any = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Show a notebook a PNG with more pixels than the screen has units, so that it is sharp."""
        png = self._encoders()[".png"]()
        width = int.from_bytes(png[16:20], "big")  # its place in the format
        metadata = {"image/png": {"width": round(width / _SCALE)}}
        return {"image/png": png, "text/plain": repr(self)}, metadata

    def _encoders(self) -> Mapping[str, Callable[[], bytes]]:
        vega = load_extra("vl_convert", "a picture", "report")
        image = load_extra("PIL.Image", "a picture", "report")

        def encode_png() -> bytes:
            # Without transparency the same pixels take a fraction of the bytes.
            file = io.BytesIO()
            with image.open(io.BytesIO(vega.vegalite_to_png(self.spec, scale=_SCALE))) as picture:
                picture.convert("RGB").save(file, "png", optimize=True)
            return file.getvalue()

        return {
            ".png": encode_png,
            ".svg": lambda: vega.vegalite_to_svg(self.spec).encode(),
            ".pdf": lambda: vega.vegalite_to_pdf(self.spec),
        }


def set_renderers(load: Callable[[], Mapping[str, Callable[..., Any]]]) -> None:
    """Say where the renderers come from; `load` is called when a result is first shown."""
    global _load_renderers
    _load_renderers = load


def draw(renderer: str, *results: Any) -> Display:
    """Draw results with a renderer of the report."""
    load_extra("vl_convert", "a picture", "report")
    return Display(_load_renderers()[renderer](*results))


def to_html(renderer: str, *results: Any) -> str:
    """Render results for a notebook with a renderer of the report."""
    text: str = _load_renderers()[renderer](*results)
    return text


def to_frame(columns: Any) -> Any:
    """Return a `pandas.DataFrame` of columns."""
    return load_extra("pandas", "a data frame", "pandas").DataFrame(columns)


def load_extra(module: str, purpose: str, extra: str) -> Any:
    """Import an optional module, or say how to install it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name != package:
            raise
        raise ModuleNotFoundError(
            f"{purpose} needs {package}, which is not installed. "
            f"Run: pip install 'snapsure[{extra}]'"
        ) from None
