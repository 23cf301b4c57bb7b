"""One self-contained HTML page about score tables: a recommendation, charts, a slider, examples."""

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from html import escape
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from snapsure import _files, _validate
from snapsure.errors import InvalidInput
from snapsure.estimators._base import refuse_no_table
from snapsure.estimators.registry import FINAL
from snapsure.evaluation import Comparison, choose
from snapsure.report.advice import recommend, summarise
from snapsure.report.chapter import Block, Chapter
from snapsure.report.examples import Examples
from snapsure.report.sections import SECTIONS, show_contest
from snapsure.report.tables import to_html
from snapsure.table import ScoreTable
from snapsure.table._table import name_classes

_FRAME = 640  # pixels of the page's height in a notebook
_ORIGIN = ("epochs", "kappas", "data", "model")  # of a table's provenance


class Report:
    """One HTML page about score tables that needs no other file.

    It opens with what to use, and how many answers that accepts at an error limit: exactly what
    `Predictor.fit` deploys from the same table. `register_section` adds a section of your own.

    Parameters
    ----------
    tables : ScoreTable or mapping of name to ScoreTable
        With labels. Several tables, such as seeds, get one recommendation and a chapter each.
    kappa : str, optional
        The κ that the page is about. Default: the table's first.
    risk : float, optional
        The error limit to promise, in (0, 1). Default: a round one below half of the error rate.
    images : (n, height, width), (n, height, width, channels) or (n, channels, height, width)
        The examples as pictures, optional. Values outside [0, 1], such as normalised ones, are
        stretched to it.
    texts : sequence of str, optional
        The examples as text.
    fields : DataFrame or mapping of name to n values, optional
        The examples as rows of a table; the page shows the first eight columns.
    classes : sequence of str, optional
        The names of the classes.
    origin : mapping, optional
        Where the scores come from; listed at the end of the page.
    contest : Comparison, optional
        The result of `compare`; it gets a section of its own.
    folder, model : str, optional
        The first table's folder and the factory of its network, as `snapsure fit` takes them: the
        page then shows the command that deploys, else a line of Python.
    title : str
        The page's heading.
    seed : int
        Fixes splits and resamples.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> probabilities = rng.dirichlet(np.ones(3), size=(5, 100))
    >>> table = ScoreTable.from_probabilities(probabilities, rng.integers(0, 3, 100))
    >>> "Use the final softmax." in Report(table).html()
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
        folder: str | Path | None = None,
        model: str | None = None,
        title: str = "Which predictions can be trusted?",
        seed: int = 0,
    ) -> None:
        if not isinstance(tables, Mapping):
            refuse_no_table(tables)
            tables = {"": tables}
        named = dict(tables)
        if not named:
            raise InvalidInput(
                "`tables` must hold at least one table, got none. Pass a ScoreTable."
            )
        self._seed = _validate.count(seed, "seed", least=0)
        self._title, self._origin, self._contest = title, dict(origin or {}), contest
        for table in named.values():
            if table.errors.size < 20:
                raise InvalidInput(
                    f"`table` must have at least twenty examples, got {table.errors.size}. Score "
                    "more examples."
                )
            if classes is not None:
                classes = name_classes(table, classes)
        for n in {table.y_hat.size for table in named.values()}:
            examples = Examples.of(n, images, texts, fields)

        choices = [
            choose(table, kappa=kappa or table.names[0], seed=seed) for table in named.values()
        ]
        self.advice = recommend(list(named.values()), choices, risk)
        self._deployment = self.advice.write_deployment(folder, model, seed)
        self._chapters = [
            Chapter(name, table, choice, self.advice.risk, examples, classes, len(named), seed)
            for (name, table), choice in zip(named.items(), self.advice.choices, strict=True)
        ]

    def html(self) -> str:
        """Return the page."""
        return render_page(
            title=self._title,
            sentences=self.advice.write(),
            is_final=self.advice.method == FINAL,
            summary=summarise(self.advice, self._chapters, self._deployment),
            chapters=[
                (
                    f"chapter-{i}",
                    chapter.name,
                    [(section.title, list(section.make(chapter))) for section in SECTIONS],
                )
                for i, chapter in enumerate(self._chapters)
            ],
            contest=[] if self._contest is None else show_contest(self._contest),
            made={"seed of splits and resamples": self._seed, **self._origin},
        )

    def save(self, path: str | Path) -> Path:
        """Write the page, replacing what is there."""
        return write_page(self.html(), _files.check_path(path, "path"))

    def _repr_html_(self) -> str:
        """Show the recommendation in a notebook, and the page in a frame apart from other cells.

        A viewer that does not trust the notebook removes the frame: the sentence stays.
        """
        return (
            f"<p>{escape(' '.join(self.advice.write()))}</p>"
            f'<iframe srcdoc="{escape(self.html())}" sandbox="allow-scripts allow-popups" '
            f'style="width: 100%; height: {_FRAME}px; border: 1px solid #8888"></iframe>'
        )


def render_page(
    *,
    title: str,
    sentences: Sequence[str],
    is_final: bool,
    summary: Sequence[Block],
    chapters: Sequence[tuple[str, str, Sequence[tuple[str, Sequence[Block]]]]],
    made: Mapping[str, Any],
    contest: Sequence[Block] = (),
) -> str:
    """Render a page: the advice in `sentences`, and chapters of (id, name, titled sections)."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "kind": lambda block: type(block).__name__,
        "table": lambda table: Markup(to_html(replace(table, title=""))),
        # No string of the data may end the script element around it.
        "json": lambda data: Markup(
            json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
        ),
        "count": "{:,}".format,
    }
    versions = (
        f"snapsure {metadata.version('snapsure')}, numpy {np.__version__}, "
        f"Python {platform.python_version()}"
    )
    origin = {
        key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for key, value in made.items()
    }
    return environment.from_string(_read("page.html")).render(
        title=title,
        first=sentences[0],
        others=sentences[1:],
        is_final=is_final,
        summary=summary,
        chapters=chapters,
        contest=contest,
        made={"versions": versions, **origin},
        style=_read("page.css"),
        library=_load_vega(),
        notices=_read("notices.txt"),
        script=_read("page.js"),
    )


def write_page(html: str, target: Path) -> Path:
    """Write a page, replacing what is there."""
    if target.is_dir():
        raise InvalidInput(
            f"`path` must be a file, got the folder {target}. Add a file name to it."
        )
    try:
        content = html.encode()
    except UnicodeEncodeError as error:
        near = html[max(0, error.start - 20) : error.end + 20]
        raise InvalidInput(
            f"The page must hold Unicode text, got {html[error.start]!r} in {near!r}. Decode texts "
            "and names as UTF-8 first."
        ) from None
    _files.make_folder(target.parent)
    _files.write_bytes(target, content)
    return target


def describe_origin(table: ScoreTable, name: str) -> dict[str, Any]:
    """Return what a table records about how it was made; `name` is its chapter's."""
    made = table.provenance
    origin = {f"{name}: {key}": made[key] for key in _ORIGIN if key in made}
    for i, hashes in enumerate(made.get("snapshots", [])):
        member = f" of member {i}" if len(made["snapshots"]) > 1 else ""
        digests = " ".join(digest[:12] for digest in hashes)
        origin[f"{name}: SHA-256 of the snapshots{member}"] = digests
    return origin


@cache
def _load_vega() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one module."""
    import vl_convert

    code: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return code.replace("</script", "<\\/script")


def _read(name: str) -> str:
    return resources.files("snapsure.report").joinpath(name).read_text(encoding="utf-8")
