"""Results that people can hold: pictures, tables in a notebook, data frames.

What computes comes before what draws, so a result cannot import the report that draws it. It asks
for it here, by name, and the report is loaded when somebody looks: the one place that reaches
forward in the order of the rooms.
"""

import html
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from snapsure import _files
from snapsure.errors import InvalidInput

_SCALE = 1.6  # pixels of a PNG for each unit of a picture
_WORDS = "text-align: left; padding: 0.15em 0.6em"
_NUMBERS = "text-align: right; padding: 0.15em 0.6em; white-space: nowrap"


class Display:
    """A picture of a result: notebooks show it, `save` writes it to a file.

    Attributes
    ----------
    spec : dict
        What is drawn, as a Vega-Lite specification with its numbers.
    """

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec

    def __repr__(self) -> str:
        """What is seen on it."""
        return f"<Display: {self.spec.get('description', 'a picture')}>"

    def save(self, path: str | Path) -> Path:
        """Write it as the path's ending says: .png, .svg or .pdf."""
        target = Path(path)
        makers = self._makers()
        if target.suffix not in makers:
            raise InvalidInput(f"`path` must end in .png, .svg or .pdf, got {target}: name it so")
        _files.write_bytes(target, makers[target.suffix]())
        return target

    def _repr_mimebundle_(
        self, include: Any = None, exclude: Any = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """For notebooks: a PNG, shown so that its pixels are finer than the screen's units."""
        png = self._makers()[".png"]()
        width = int.from_bytes(png[16:20], "big")  # where the format has it
        shown = {"image/png": {"width": round(width / _SCALE)}}
        return {"image/png": png, "text/plain": repr(self)}, shown

    def _makers(self) -> Mapping[str, Callable[[], bytes]]:
        draw = needed("vl_convert", "a picture", "report")
        return {
            ".png": lambda: _smaller(draw.vegalite_to_png(self.spec, scale=_SCALE)),
            ".svg": lambda: draw.vegalite_to_svg(self.spec).encode(),
            ".pdf": lambda: draw.vegalite_to_pdf(self.spec),
        }


def _smaller(png: bytes) -> bytes:
    """The same pixels without transparency, in a fraction of the bytes."""
    image = needed("PIL.Image", "a picture", "report")
    file = io.BytesIO()
    with image.open(io.BytesIO(png)) as picture:
        picture.convert("RGB").save(file, "png", optimize=True)
    return file.getvalue()


def drawn(how: str, *results: Any) -> Display:
    """What a function of `report/pictures.py` makes of results."""
    needed("vl_convert", "a picture", "report")
    return Display(getattr(import_module("snapsure.report.pictures"), how)(*results))


def as_html(how: str, *results: Any) -> str:
    """What a function of `report/display.py` makes of results."""
    made: str = getattr(import_module("snapsure.report.display"), how)(*results)
    return made


def html_table(
    caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]], words: Sequence[str] = ()
) -> str:
    """A table for a notebook, every word escaped; `words` are the heads of columns of words."""
    looks = [_WORDS if head in words else _NUMBERS for head in heads]

    def line(tag: str, cells: Sequence[str]) -> str:
        each = (
            f'<{tag} style="{look}">{html.escape(cell)}</{tag}>'
            for cell, look in zip(cells, looks, strict=True)
        )
        return f"<tr>{''.join(each)}</tr>"

    body = "".join(line("td", row) for row in rows)
    return (
        f"<p>{html.escape(caption)}</p>"
        f"<table><thead>{line('th', heads)}</thead><tbody>{body}</tbody></table>"
    )


def frame(columns: Any, **more: Any) -> Any:
    """A pandas.DataFrame."""
    return needed("pandas", "a data frame", "pandas").DataFrame(columns, **more)


def needed(module: str, what: str, extra: str) -> Any:
    """A module that is not always installed; without it, what to install."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
        raise ModuleNotFoundError(
            f"{what} needs {error.name}, which is not installed: pip install 'snapsure[{extra}]'"
        ) from None
