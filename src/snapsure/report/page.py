"""One self-contained HTML page about score tables: a recommendation, charts, a slider, examples."""

import json
import platform
import shlex
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
from snapsure.estimators.registry import FINAL
from snapsure.evaluation import Comparison
from snapsure.report import charts
from snapsure.report.examples import Examples
from snapsure.report.findings import (
    DELTA,
    Recommendation,
    final_name,
    find,
    recommend,
    refuse_few,
)
from snapsure.report.sections import (
    SECTIONS,
    Block,
    Chapter,
    Chart,
    Text,
    show_contest,
)
from snapsure.report.tables import Column, Table, interval, percent, to_html, write_limit
from snapsure.table import ScoreTable

_FRAME = 640  # pixels of the page's height in a notebook
_ORIGIN = ("epochs", "kappas", "data", "model")  # of a table's provenance
_WORDS = {
    "better": "significantly better",
    "worse": "significantly worse",
    "borderline": "borderline: the interval touches 0",
    "no difference": "no significant difference",
}


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
    folder : str or path, optional
        The folder that `snapsure score` wrote the first table to: the page then shows the command
        that deploys it, else a line of Python.
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
        title: str = "Which predictions can be trusted?",
        seed: int = 0,
    ) -> None:
        named = {"": tables} if isinstance(tables, ScoreTable) else dict(tables)
        if not named:
            raise InvalidInput(
                "`tables` must hold at least one table, got none. Pass a ScoreTable."
            )
        self._seed = _validate.count(seed, "seed", least=0)
        self._title, self._origin, self._contest = title, dict(origin or {}), contest
        for table in named.values():
            refuse_few(table)
        for n in {table.y_hat.size for table in named.values()}:
            examples = Examples.of(n, images, texts, fields)

        names = [kappa or table.names[0] for table in named.values()]
        self.advice = recommend(list(named.values()), names, risk, seed)
        self._deploy = _write_deployment(self.advice, folder, seed)
        self._chapters = [
            Chapter(
                name,
                table,
                choice,
                find(table, choice, self.advice.risk, seed, len(named)),
                examples,
                classes,
                len(named),
            )
            for (name, table), choice in zip(named.items(), self.advice.choices, strict=True)
        ]

    def html(self) -> str:
        """Return the page."""
        from jinja2 import Environment, StrictUndefined
        from markupsafe import Markup

        environment = Environment(
            autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
        )
        environment.filters |= {
            "kind": lambda block: type(block).__name__,
            "table": lambda table: Markup(to_html(replace(table, title=""))),
            "json": lambda data: Markup(_inline(data)),
            "count": "{:,}".format,
        }
        first, *others = _advise(self.advice)
        return environment.from_string(_read("page.html")).render(
            title=self._title,
            first=first,
            others=others,
            is_final=self.advice.method == FINAL,
            summary=self._summarise(),
            chapters=[
                (
                    f"chapter-{i}",
                    chapter.name,
                    [(section.title, list(section.make(chapter))) for section in SECTIONS],
                )
                for i, chapter in enumerate(self._chapters)
            ],
            contest=[] if self._contest is None else show_contest(self._contest),
            made=self._describe_making(),
            style=_read("page.css"),
            library=_load_vega(),
            script=_read("page.js"),
        )

    def save(self, path: str | Path) -> Path:
        """Write the page, replacing what is there."""
        target = Path(path)
        if target.is_dir():
            raise InvalidInput(
                f"`path` must be a file, got the folder {target}. Add a file name to it."
            )
        _files.make_folder(target.parent)
        _files.write_bytes(target, self.html().encode())
        return target

    def _repr_html_(self) -> str:
        """Show the recommendation in a notebook, and the page in a frame apart from other cells.

        A viewer that does not trust the notebook removes the frame: the sentence stays.
        """
        return (
            f"<p>{escape(' '.join(_advise(self.advice)))}</p>"
            f'<iframe srcdoc="{escape(self.html())}" sandbox="allow-scripts allow-popups" '
            f'style="width: 100%; height: {_FRAME}px; border: 1px solid #8888"></iframe>'
        )

    def _summarise(self) -> list[Block]:
        """Make what follows the recommendation."""
        advice, chapters = self.advice, self._chapters
        final, limit = final_name(advice.kappa), write_limit(advice.risk)
        table = chapters[0].table
        accuracy = np.mean([chapter.found.accuracy for chapter in chapters])
        mean = f" (mean of {len(chapters)} tables)" if len(chapters) > 1 else ""
        blocks: list[Block] = []
        if advice.accepted is not None:
            blocks.append(
                Chart(
                    "accepted",
                    charts.draw_accepted(advice),
                    f"Answers accepted at an error limit of {limit}{mean}. The rest is sent to "
                    "review.",
                )
            )
        blocks += [
            Text(
                f"{table.y_hat.size:,} examples, {percent(float(accuracy))} right{mean}; "
                f"{table.epochs.size} snapshots; confidence: {advice.kappa}.",
                note=True,
            ),
            Text(
                f"The error limit is a promise: at most {limit} of the accepted answers to new "
                "inputs like these are wrong. It comes from the half of the examples that nothing "
                f"was fitted on, and may fail for 1 in {round(1 / DELTA)} draws of them.",
                note=True,
            ),
            Text("To deploy it:", note=True, code=self._deploy),
            _tabulate_verdicts(advice),
        ]
        if len(chapters) > 1:
            blocks.append(
                Table(
                    [
                        *(Column(head, text=True) for head in ("table", "recommended")),
                        Column("right", percent),
                        Column("accepted", percent),
                        Column(f"{final} accepts", percent),
                    ],
                    [
                        (
                            chapter.name,
                            final if chapter.choice.method == FINAL else chapter.choice.method,
                            chapter.found.accuracy,
                            "nothing"
                            if chapter.choice.accepted is None
                            else chapter.choice.accepted,
                            chapter.choice.final_accepted
                            if chapter.choice.final_accepted is not None
                            else "nothing",
                        )
                        for chapter in chapters
                    ],
                    f"Each table at an error limit of {limit}",
                )
            )
        return blocks

    def _describe_making(self) -> dict[str, str]:
        versions = {
            "snapsure": metadata.version("snapsure"),
            "numpy": np.__version__,
            "Python": platform.python_version(),
        }
        origin = {
            key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            for key, value in self._origin.items()
        }
        return {
            "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
            "seed of splits and resamples": str(self._seed),
            **origin,
        }


def describe_origin(table: ScoreTable, name: str) -> dict[str, Any]:
    """Return what a table records about how it was made; `name` is its chapter's."""
    made = table.provenance
    origin = {f"{name}: {key}": made[key] for key in _ORIGIN if key in made}
    for i, hashes in enumerate(made.get("snapshots", [])):
        member = f" of member {i}" if len(made["snapshots"]) > 1 else ""
        digests = " ".join(digest[:12] for digest in hashes)
        origin[f"{name}: SHA-256 of the snapshots{member}"] = digests
    return origin


def _advise(advice: Recommendation) -> list[str]:
    """Write the recommendation; the first sentence says what to use."""
    final, limit = final_name(advice.kappa), write_limit(advice.risk)
    agree = sum(choice.method == advice.method for choice in advice.choices)
    among = "" if agree == len(advice.choices) else f" ({agree} of {len(advice.choices)} tables)"
    if advice.accepted is None:
        promise = f"These examples cannot promise an error limit of {limit}."
    else:
        promise = (
            f"Accept {percent(advice.accepted)} of the answers at an error limit of {limit}, and "
            f"send {percent(1 - advice.accepted)} to review."
        )
    if advice.method == FINAL:
        return [
            f"Use the {final}{among}.",
            "No other method is significantly better here.",
            promise,
        ]
    sentences = [f"Use {advice.method}{among}.", promise]
    if advice.accepted is not None:
        share = advice.final_accepted
        accepts = "cannot keep that limit" if share is None else f"would accept {percent(share)}"
        sentences.append(f"The {final} {accepts}.")
    return sentences


def _write_deployment(advice: Recommendation, folder: str | Path | None, seed: int) -> str:
    """Write the command or the line of Python that deploys what is recommended."""
    options = {"risk": advice.risk} if advice.accepted is not None else {}
    settings: dict[str, Any] = {**options}
    if advice.kappa != "softmax":
        settings["kappa"] = advice.kappa
    if seed:
        settings["seed"] = seed
    if folder is not None:
        given = [word for key, value in settings.items() for word in (f"--{key}", str(value))]
        return shlex.join(["snapsure", "fit", str(folder), *given, "--out", "predictor"])
    given = [f"{key}={value!r}" for key, value in settings.items()]
    arguments = ", ".join(["model", "snapshots", "table", *given])
    return f'Predictor.fit({arguments}).save("predictor")'


def _tabulate_verdicts(advice: Recommendation) -> Table:
    final = final_name(advice.kappa)
    return Table(
        [
            Column("method", text=True),
            Column("gain, % (95 % interval)", interval),
            Column("passes", "{:.0f}".format),
            Column("verdict", text=True),
        ],
        [
            (verdict.method, verdict.gain or "–", verdict.passes, _WORDS[verdict.answer])
            for verdict in advice.verdicts
        ],
        f"Methods beside the {final}. Gain: percent less E-AURC, what an imperfect ranking costs, "
        "on ten splits of the half of the examples that methods learn from.",
    )


@cache
def _load_vega() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one module."""
    import vl_convert

    code: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return code.replace("</script", "<\\/script")


def _inline(data: Any) -> str:
    """Write JSON that cannot end the script element around it."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")


def _read(name: str) -> str:
    return resources.files("snapsure.report").joinpath(name).read_text(encoding="utf-8")
