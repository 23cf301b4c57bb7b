"""One self-contained HTML page about score tables: words, charts, a slider, pictures."""

import base64
import io
import json
import platform
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from snapsure import _files, _validate
from snapsure._types import Array, Floats
from snapsure.errors import InvalidInput
from snapsure.evaluation import Comparison
from snapsure.evaluation._result import Result
from snapsure.report import charts
from snapsure.report.findings import (
    BINS,
    CLASS_COVERAGE,
    DELTAS,
    METHODS,
    POSITIONS,
    Curve,
    Findings,
    Positions,
    find,
    plain,
)
from snapsure.report.leaderboard import boards_of
from snapsure.table import ScoreTable

_START = 0.8  # where the slider begins
_SIDE = 96  # pixels of a picture
_TABLE_STEP = POSITIONS // 20
_LONGEST = 80  # characters of a class name that are shown
_LONGEST_TEXT = 300  # and of a text
_INDEX = ("epochs", "kappas", "data", "model")


class Report:
    """What score tables say, as a page that needs nothing else.

    Parameters
    ----------
    tables : ScoreTable or mapping of name to ScoreTable
        With labels. Several, such as seeds, get a chapter each.
    kappa : str, optional
        Which κ the page is about; the table's first if not given.
    images : (n, height, width) or (n, height, width, 3), optional
        The points as pictures, uint8, or floats in [0, 1].
    texts : sequence of str, optional
        The points as text, or as whatever says in a few words which point it is.
    classes : sequence of str, optional
        Names of the classes.
    origin : mapping, optional
        Where the scores come from: what is in it is listed at the end.
    contest : Comparison, optional
        What `compare` found: it gets a section of its own.
    title : str
        The page's heading.
    seed : int
        Of splits and resamples.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> probabilities = rng.dirichlet(np.ones(3), size=(5, 100))
    >>> table = ScoreTable.from_probabilities(probabilities, rng.integers(0, 3, 100))
    >>> "did it help" in Report(table).html().lower()
    True
    """

    def __init__(
        self,
        tables: ScoreTable | Mapping[str, ScoreTable],
        *,
        kappa: str | None = None,
        images: ArrayLike | None = None,
        texts: Sequence[str] | None = None,
        classes: Sequence[str] | None = None,
        origin: Mapping[str, Any] | None = None,
        contest: Comparison | None = None,
        title: str = "Which predictions can be trusted?",
        seed: int = 0,
    ) -> None:
        named = {"": tables} if isinstance(tables, ScoreTable) else dict(tables)
        if not named:
            raise InvalidInput("`tables` must hold at least one table, got none: pass a ScoreTable")
        self._tables, self._title, self._seed = named, title, _validate.count(seed, "seed", least=0)
        self._classes, self._origin = classes, dict(origin or {})
        self._contest = contest
        self._images = None if images is None else _pictures(images, named.values())
        self._texts = None if texts is None else _texts(texts, named.values())
        self._found = {name: find(table, kappa, seed, len(named)) for name, table in named.items()}

    def html(self) -> str:
        """The page."""
        from jinja2 import Environment, StrictUndefined

        environment = Environment(
            autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
        )
        environment.filters |= {"percent": _percent, "area": _area, "signed": _signed}
        template = environment.from_string(_text("page.html"))
        chapters = [self._chapter(name, found) for name, found in self._found.items()]
        data = {chapter["id"]: chapter.pop("data") for chapter in chapters}
        boards = [] if self._contest is None else boards_of(self._contest)
        specs = {f"board-{i}": charts.board_chart(board) for i, board in enumerate(boards)}
        data["contest"] = {"charts": specs}
        return template.render(
            title=self._title,
            chapters=chapters,
            data=_inline(data),
            style=_text("page.css"),
            library=_library(),
            script=_text("page.js"),
            deltas=DELTAS,
            positions=POSITIONS,
            start=_START,
            bins=BINS,
            class_coverage=CLASS_COVERAGE,
            boards=boards,
            level=self._contest.level if self._contest else None,
            made=self._made(),
        )

    def save(self, path: str | Path) -> Path:
        """Write the page; what is there is replaced."""
        target = Path(path)
        if target.is_dir():
            raise InvalidInput(f"`path` must be a file, got the folder {target}: add a name")
        target.parent.mkdir(parents=True, exist_ok=True)
        _files.write_bytes(target, self.html().encode())
        return target

    def _chapter(self, name: str, found: Findings) -> dict[str, Any]:
        table = self._tables[name]
        identity = f"chapter-{list(self._tables).index(name)}"
        training = charts.training_charts(found)
        specs = {
            "rc": charts.rc_chart(found.curves, _START),
            "reliability": charts.reliability_chart(found),
            **{f"training-{i}": spec for i, (_, spec) in enumerate(training)},
        }
        positions = {
            score: {
                "coverage": plain(each.coverage),
                "theta": each.theta.tolist(),  # whole: it is copied
                "risk": each.risk.tolist(),
                "low": plain(each.low),
                "high": plain(each.high),
                "handed": plain(each.handed),
                "strange": plain(each.strange),
                "bounds": {f"{delta:g}": _up(values) for delta, values in each.bounds.items()},
            }
            for score, each in found.positions.items()
        }
        return {
            "id": identity,
            "name": name,
            "found": found,
            "verdicts": [_verdict(found.results[method], found.kappa) for method in METHODS[1:]],
            "training": [title for title, _ in training],
            "scores": {
                "AES": f"AES (mean {found.kappa} of {len(found.averaged)} snapshots)",
                "final": f"final {found.kappa}",
            },
            "rows": {
                score: _rows(each, found.curves["κ*"]) for score, each in found.positions.items()
            },
            "mistakes": [self._point(table, found, row) for row in found.mistakes],
            "moved": {
                kind: [self._point(table, found, row) for row in rows]
                for kind, rows in found.moved.items()
            },
            "classes": [(self._class(each.label), each) for each in found.classes],
            "data": {"charts": specs, "positions": positions},
        }

    def _point(self, table: ScoreTable, found: Findings, row: int) -> dict[str, Any]:
        assert table.y is not None  # without labels there are no findings
        return {
            "row": int(row),
            "y_hat": self._class(int(table.y_hat[row])),
            "y": self._class(int(table.y[row])),
            "final": float(found.final[row]),
            "aes": float(found.aes[row]),
            "text": None if self._texts is None else _shortened(self._texts[row], _LONGEST_TEXT),
            "picture": None if self._images is None else _png(self._images[row]),
        }

    def _class(self, label: int) -> str:
        if label == _validate.NO_CLASS:
            return "none of the classes"
        if self._classes is None or label >= len(self._classes):
            return f"class {label}"
        return _shortened(str(self._classes[label]), _LONGEST)

    def _made(self) -> dict[str, str]:
        versions = {"snapsure": metadata.version("snapsure"), "numpy": np.__version__}
        about = {
            "versions": ", ".join(f"{name} {version}" for name, version in versions.items())
            + f", Python {platform.python_version()}",
            "seed of splits and resamples": str(self._seed),
            "resamples": ", ".join(
                sorted({str(found.resamples) for found in self._found.values()})
            ),
        }
        return {**about, **{key: _words(value) for key, value in self._origin.items()}}


def origin_of(table: ScoreTable, name: str) -> dict[str, Any]:
    """What a table says about how it was made; `name` is its chapter's."""
    made = table.provenance
    origin = {f"{name}: {key}": made[key] for key in _INDEX if key in made}
    for i, hashes in enumerate(made.get("snapshots", [])):
        which = f" of member {i}" if len(made["snapshots"]) > 1 else ""
        short = " ".join(digest[:12] for digest in hashes)
        origin[f"{name}: SHA-256 of the snapshots{which}"] = short
    return origin


def _rows(each: Positions, best: Curve) -> list[list[str]]:
    """The table behind the chart: every tenth position, the guarantee at 0.05, κ* beside it."""
    rows = []
    for i in range(_TABLE_STEP - 1, POSITIONS, _TABLE_STEP):
        at = min(int(np.searchsorted(best.coverage, each.coverage[i])), len(best.coverage) - 1)
        rows.append(
            [
                _percent(each.coverage[i]),
                f"{each.theta[i]:.6g}",
                _percent(each.risk[i], 2),
                f"{_percent(each.low[i], 2)} … {_percent(each.high[i], 2)}",
                _percent(_up(each.bounds[0.05])[i], 2),
                str(each.handed[i]),
                _percent(best.risk[at], 2),
            ]
        )
    return rows


def _verdict(result: Result, kappa: str) -> dict[str, Any]:
    """Yes, no, or cannot tell: by whether the interval of the difference leaves out 0."""
    if result.difference.high < 0:
        answer, words = "yes", f"ranks right from wrong better than the final {kappa}"
    elif result.difference.low > 0:
        answer, words = "no", f"ranks right from wrong worse than the final {kappa}"
    else:
        answer = "cannot tell"
        words = f"shows no significant difference from the final {kappa} on these points"
    return {"answer": answer, "words": words, "result": result}


def _pictures(images: ArrayLike, tables: Iterable[ScoreTable]) -> Array:
    pixels = np.asarray(images)
    colours = pixels.ndim == 4 and pixels.shape[-1] == 3
    for table in tables:
        if not (pixels.ndim == 3 or colours) or len(pixels) != table.y_hat.size:
            raise InvalidInput(
                f"`images` must have shape (n, height, width) or (n, height, width, 3) with n = "
                f"{table.y_hat.size}, got {pixels.shape}: pass the scored points in their order"
            )
    floats = pixels.dtype.kind == "f"
    inside = floats and bool((pixels >= 0).all() and (pixels <= 1).all())
    if not (pixels.dtype in (np.uint8, np.bool_) or inside):
        raise InvalidInput(
            f"`images` must be uint8, or floats in [0, 1], got {pixels.dtype}"
            f"{' with other values' if floats else ''}: convert them first"
        )
    return pixels


def _texts(texts: Sequence[str], tables: Iterable[ScoreTable]) -> list[str]:
    said = [str(text) for text in texts]
    for table in tables:
        if isinstance(texts, str) or len(said) != table.y_hat.size:
            raise InvalidInput(
                f"`texts` must be one text for each of {table.y_hat.size} points, got "
                f"{'one' if isinstance(texts, str) else len(said)}: pass those of the scored "
                "points in their order"
            )
    return said


def _shortened(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _png(pixels: Array) -> str:
    """A picture as a data address."""
    from PIL import Image

    if pixels.dtype != np.uint8:
        pixels = np.rint(pixels.astype(np.float64) * 255).astype(np.uint8)
    image = Image.fromarray(pixels)
    scale = _SIDE / max(image.size)
    kind = Image.Resampling.NEAREST if scale > 1 else Image.Resampling.LANCZOS
    image = image.resize(
        (max(1, round(image.width * scale)), max(1, round(image.height * scale))), kind
    )
    file = io.BytesIO()
    image.save(file, "png", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


@cache
def _library() -> str:
    """Vega, Vega-Lite and Vega-Embed in one module."""
    import vl_convert

    code: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return code.replace("</script", "<\\/script")


def _inline(data: Any) -> str:
    """JSON that no HTML parser can leave early."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")


def _text(name: str) -> str:
    return resources.files("snapsure.report").joinpath(name).read_text(encoding="utf-8")


def _up(bounds: Floats) -> list[float]:
    """A guarantee, rounded up to the digits that are shown."""
    rounded: list[float] = (np.ceil(bounds * 1e4) / 1e4).round(4).tolist()
    return rounded


def _words(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _percent(value: float, digits: int = 1) -> str:
    return f"{100 * value:.{digits}f} %"


def _area(value: float) -> str:
    return f"{1e3 * value:.2f}"


def _signed(value: float, digits: int = 2) -> str:
    return f"{value:+.{digits}f}".replace("-", "−")
