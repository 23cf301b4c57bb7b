"""Score tables that arguments name, and the note that `score` leaves beside one for `fit`."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

from snapsure import _files, _json
from snapsure.errors import InvalidInput

if TYPE_CHECKING:
    from snapsure.evaluation import Run

_SOURCE = "source.json"


class _Source(TypedDict):
    """What `source.json` holds."""

    model: str
    snapshots: str
    state: NotRequired[str | None]


def open_runs(
    tables: list[Path], source: Path | None = None, *, apart: bool = False
) -> Mapping[str, Sequence["Run"]]:
    """Open runs by data set: a packed contest's, or tables, with equal labels as one data set."""
    import numpy as np

    from snapsure.evaluation import Run
    from snapsure.evaluation._archive import open_contest
    from snapsure.table import ScoreTable

    if (source is None) == (not tables):
        raise InvalidInput(
            f"compare must get tables or --from, got {'both' if tables else 'neither'}. "
            "Name one of them."
        )
    if source is not None:
        return open_contest(source)

    refuse_repeats(tables)
    groups: dict[str, list[Run]] = {}
    for path in tables:
        table = ScoreTable.open(path)
        run = Run(table)
        same = (n for n, some in groups.items() if not apart and np.array_equal(some[0].y, run.y))
        groups.setdefault(next(same, str(path)), []).append(run)
    return groups


def refuse_repeats(tables: list[Path]) -> None:
    """Refuse a table that is named twice."""
    if len(set(tables)) < len(tables):
        given = " ".join(map(str, tables))
        raise InvalidInput(f"TABLES must be different folders, got {given}. Name each once.")


def write_source(table: Path, model: str, snapshots: Path, state: str | None) -> None:
    """Note beside the scores how they were made, for `snapsure fit`."""
    content = {"model": model, "snapshots": str(snapshots.resolve()), "state": state}
    _files.write_bytes(table / _SOURCE, _json.text(content))


def read_model(table: Path) -> str | None:
    """Return the factory that `snapsure score` noted beside a table; None if it wrote no note."""
    return _load_source(table).get("model")


def _load_source(table: Path) -> Mapping[str, Any]:
    what, remedy = "the file that `snapsure score` wrote", "delete it, and pass the options instead"
    with suppress(FileNotFoundError):
        return _json.load(table / _SOURCE, what, _Source, remedy)
    return {}


def read_source(
    table: Path, model: str | None, snapshots: str | None, state: str | None, *, trust: bool
) -> tuple[str, str, str | None]:
    """Return model, snapshots and state: what options say, or else how the table was made.

    The code of a model that only the table's folder names is imported only with `trust`.
    """
    known = _load_source(table)
    options = {"model": model, "snapshots": snapshots}
    for name, value in options.items():
        if value is None and name not in known:
            raise InvalidInput(
                f"--{name} must be given for a table without {_SOURCE}, which `snapsure score` "
                f"leaves, got none for {table}. Add --{name}."
            )
    if model is None and not trust:
        raise InvalidInput(
            f"--model must be given, got none. The folder {table} names {known['model']}: add "
            f"--model {known['model']}, or --trust to import what the folder names."
        )
    return (
        str(model or known["model"]),
        str(snapshots or known["snapshots"]),
        known.get("state") if state is None else state,
    )
