"""One self-contained HTML page about score tables: words, charts, a slider, pictures."""

import json
import platform
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from snapsure import _files, _validate
from snapsure._types import Floats
from snapsure.errors import InvalidInput
from snapsure.estimators.registry import FINAL
from snapsure.evaluation import Comparison, Result, choose
from snapsure.report import charts
from snapsure.report.accepting import DELTAS, POSITIONS, Curve, Positions
from snapsure.report.advice import DELTA, Advice, Results, advise, percent
from snapsure.report.findings import BINS, Findings, find, plain, refuse_few
from snapsure.report.points import CLASS_COVERAGE, Point
from snapsure.report.shown import Shown, shortened
from snapsure.table import ScoreTable

_START = 0.8  # where the slider begins, if nothing can be promised
_TABLE_STEP = POSITIONS // 20
_LONGEST = 80  # characters of a class name that are shown
_FIRST = {"mistakes": 6, "moved": 2}  # points that are seen at once; the others are folded
_FRAME = 640  # pixels of the page's height in a notebook
_INDEX = ("epochs", "kappas", "data", "model")


class Report:
    """What score tables say, as a page that needs nothing else.

    It opens with what to use, and how many answers that accepts at a promised risk.

    Parameters
    ----------
    tables : ScoreTable or mapping of name to ScoreTable
        With labels. Several, such as seeds, get one recommendation and a folded chapter each.
    kappa : str, optional
        Which κ the page is about; the table's first if not given.
    risk : float, optional
        The risk to promise, in (0, 1); a round one below half of the error rate if not given.
    images : (n, height, width), (n, height, width, channels) or (n, channels, height, width)
        The points as pictures: optional. Values outside [0, 1], such as normalised ones, are
        stretched to it.
    texts : sequence of str, optional
        The points as text, or as whatever says in a few words which point it is.
    fields : DataFrame or mapping of name to n values, optional
        The points as rows of a table; the page shows the first eight columns.
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
    >>> "Nothing here beats the final softmax: use it." in Report(table).html()
    True
    """

    def __init__(
        self,
        tables: ScoreTable | Mapping[str, ScoreTable],
        *,
        kappa: str | None = None,
        risk: float | None = None,
        images: ArrayLike | None = None,
        texts: Sequence[str] | None = None,
        fields: Mapping[str, ArrayLike] | None = None,
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
        for table in named.values():
            refuse_few(table)
        for n in {table.y_hat.size for table in named.values()}:
            self._shown = Shown.of(n, images, texts, fields)
        names = [table.names[0] if kappa is None else kappa for table in named.values()]
        choices = [
            choose(table, kappa=name, seed=seed)
            for table, name in zip(named.values(), names, strict=True)
        ]
        self._advice = advise(list(named.values()), choices, risk)
        self._found = {
            name: find(table, kappa, seed, len(named), choice, self._advice.method)
            for (name, table), choice in zip(named.items(), choices, strict=True)
        }

    def html(self) -> str:
        """The page."""
        from jinja2 import Environment, StrictUndefined

        environment = Environment(
            autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
        )
        environment.filters |= {
            "percent": _percent,
            "area": _area,
            "signed": _signed,
            "count": _count,
        }
        template = environment.from_string(_text("page.html"))
        chapters = [self._chapter(name, found) for name, found in self._found.items()]
        data = {chapter["id"]: chapter.pop("data") for chapter in chapters}
        boards = [] if self._contest is None else self._contest.every
        specs = {f"board-{i}": charts.board_chart(board) for i, board in enumerate(boards)}
        data["contest"] = {"charts": specs}
        return template.render(
            title=self._title,
            advice=self._recommendation(),
            chapters=chapters,
            data=_inline(data),
            style=_text("page.css"),
            library=_library(),
            script=_text("page.js"),
            deltas=DELTAS,
            positions=POSITIONS,
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
        _files.make_folder(target.parent)
        _files.write_bytes(target, self.html().encode())
        return target

    def _repr_html_(self) -> str:
        """Show the recommendation in a notebook, and the page in a frame apart from other cells.

        A viewer that does not trust the notebook removes the frame: the sentence stays.
        """
        kappa = next(iter(self._found.values())).kappa
        return (
            f"<p>{escape(' '.join(self._advice.sentences(kappa)))}</p>"
            f'<iframe srcdoc="{escape(self.html())}" sandbox="allow-scripts allow-popups" '
            f'style="width: 100%; height: {_FRAME}px; border: 1px solid #8888"></iframe>'
        )

    def _recommendation(self) -> dict[str, Any]:
        """What the page opens with."""
        found, advice = list(self._found.values()), self._advice
        first, *others = advice.sentences(found[0].kappa)
        accuracy = float(np.mean([each.accuracy for each in found]))
        return {
            "first": first,
            "others": others,
            "beaten": advice.method != FINAL,
            "each": _each(self._found, advice),
            "verdicts": _verdicts(advice.results, found[0].kappa),
            "result": advice.results[advice.method],
            "method": advice.method,
            "risk": advice.risk,
            "risk_words": percent(advice.risk),
            "delta": DELTA,
            "promised": any(share is not None for share in advice.accepted),
            "points": found[0].points,
            "snapshots": len(found[0].epochs),
            "accuracy": accuracy,
            "kappa": found[0].kappa,
            "splits": found[0].splits,
        }

    def _chapter(self, name: str, found: Findings) -> dict[str, Any]:
        table, at = self._tables[name], list(self._tables).index(name)
        training = charts.training_charts(found)
        start = _start(self._advice.accepted[at])
        specs = {
            "rc": charts.rc_chart(found.curves, start / POSITIONS),
            "reliability": charts.reliability_chart(found),
            "bins": charts.bins_chart(found),
            **{f"training-{i}": spec for i, (_, spec) in enumerate(training)},
        }
        positions = {
            score: {
                "coverage": plain(each.coverage),
                "theta": each.theta.tolist(),  # whole: it is copied
                "shown": [_threshold(theta) for theta in each.theta.tolist()],
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
            "id": f"chapter-{at}",
            "name": name,
            "found": found,
            "start": start,
            "verdicts": _verdicts(found.results, found.kappa),
            "training": [title for title, _ in training],
            "scores": {score: _score_words(score, found) for score in found.positions},
            "rows": {
                score: _rows(each, found.curves["κ*"]) for score, each in found.positions.items()
            },
            "mistakes": self._points(table, found, found.mistakes, _FIRST["mistakes"]),
            "moved": {
                kind: self._points(table, found, rows, _FIRST["moved"])
                for kind, rows in found.moved.items()
            },
            "classes": [(self._class(each.label), each) for each in found.classes],
            "data": {"charts": specs, "positions": positions},
        }

    def _points(
        self, table: ScoreTable, found: Findings, points: Sequence[Point], first: int
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Those that are seen at once, and the others."""
        assert table.y is not None  # without labels there are no findings
        told = []
        for point in points:
            row = int(found.unseen[point.at])
            told.append(
                {
                    "row": row,
                    "y_hat": self._class(int(table.y_hat[row])),
                    "y": self._class(int(table.y[row])),
                    "before": point.before,
                    "now": point.now,
                    **self._shown.of_row(row),
                }
            )
        return told[:first], told[first:]

    def _class(self, label: int) -> str:
        if label == _validate.NO_CLASS:
            return "none of the classes"
        if self._classes is None or label >= len(self._classes):
            return f"class {label}"
        return shortened(str(self._classes[label]), _LONGEST)

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
                _threshold(float(each.theta[i])),
                _percent(each.risk[i], 2),
                f"{_percent(each.low[i], 2)} … {_percent(each.high[i], 2)}",
                _percent(_up(each.bounds[0.05])[i], 2),
                str(each.handed[i]),
                _percent(best.risk[at], 2),
            ]
        )
    return rows


@cache
def _library() -> str:
    """Vega, Vega-Lite and Vega-Embed in one module."""
    import vl_convert

    code: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return code.replace("</script", "<\\/script")


def _each(found: Mapping[str, Findings], advice: Advice) -> list[dict[str, Any]]:
    """Where there are several tables, what each of them says of the recommended method."""
    if len(found) == 1:
        return []
    return [
        {
            "id": f"chapter-{i}",
            "name": name,
            "accuracy": each.accuracy,
            "result": each.results.get(advice.method),
            "accepted": advice.accepted[i],
            "plain": advice.plain[i],
        }
        for i, (name, each) in enumerate(found.items())
    ]


def _verdicts(results: Results, kappa: str) -> list[dict[str, Any]]:
    """Of every method but the reference."""
    return [_verdict(results[method], kappa) for method in results if method != FINAL]


def _verdict(result: Result, kappa: str) -> dict[str, Any]:
    words = f"ranks right from wrong {result.outcome} than the final {kappa}"
    if result.outcome == "no difference":
        words = f"shows no significant difference from the final {kappa}"
    return {"answer": result.outcome, "words": words, "result": result, "name": result.method}


def _score_words(score: str, found: Findings) -> str:
    if score == FINAL:
        return f"the final {found.kappa}"
    if score == "AES":
        return f"AES (mean {found.kappa} of {len(found.averaged)} snapshots)"
    return score


def _start(accepted: float | None) -> int:
    """Where the slider begins: at what the promise accepts."""
    return round((accepted or _START) * POSITIONS) or 1


def _threshold(theta: float) -> str:
    """Six digits; just below 1 these would say 1."""
    text = f"{theta:.6g}"
    return f"1 − {1 - theta:.3g}" if text == "1" and theta < 1 else text


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


def _count(value: int) -> str:
    return f"{value:,}"


def _area(value: float) -> str:
    return f"{1e3 * value:.2f}"


def _signed(value: float, digits: int = 2) -> str:
    return f"{value:+.{digits}f}".replace("-", "−")
