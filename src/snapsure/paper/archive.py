"""The outcome of an experiment in a few megabytes: what tables and figures are computed from.

A folder with `experiment.json` (recipe, and what became of each training) and score tables packed
as `seed-0.npz` … and `ensemble.npz`. Reading it takes NumPy alone. Where a κ is called otherwise
since it was packed, `renamed` in `experiment.json` has its old name and its new one.

Tables and figures are computed from what was packed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from snapsure import _files, _json
from snapsure.errors import InvalidInput
from snapsure.table import ScoreTable
from snapsure.table._packed import pack, unpack

_ABOUT = "experiment.json"
_ENSEMBLE = "ensemble.npz"
_AGAIN = "take it from the archive again"
_SCHEMA = {"dataset": str, "scale": str, "networks": [list, ...], "renamed?": {str: str}}


@dataclass(frozen=True)
class Experiment:
    """Networks of one recipe on one data set, and the ensemble of them if there are several."""

    about: Mapping[str, Any]  # "dataset", "scale", "recipe", "networks"; perhaps "renamed"
    tables: Sequence[ScoreTable]
    ensemble: ScoreTable | None

    @staticmethod
    def open(folder: Path) -> "Experiment":
        """Read a folder that `save` wrote."""
        path = folder / _ABOUT
        if not path.is_file():
            raise InvalidInput(
                f"--from must be a folder with {_ABOUT}, got none in {folder}: check the path, or "
                "let the experiment finish"
            )
        about = _json.load(path, "what tells of an experiment", _SCHEMA, _AGAIN)
        count, renamed = len(about["networks"]), about.get("renamed", {})
        tables = [unpack(folder / _seed(i), renamed) for i in range(count)]
        several = (folder / _ENSEMBLE).exists()
        return Experiment(about, tables, unpack(folder / _ENSEMBLE) if several else None)

    def save(self, folder: Path) -> None:
        """Write it; what makes the folder one comes last."""
        _files.make_folder(folder)
        for old in (_ABOUT, _ENSEMBLE):
            (folder / old).unlink(missing_ok=True)
        for i, table in enumerate(self.tables):
            pack(table, folder / _seed(i))
        if self.ensemble is not None:
            pack(self.ensemble, folder / _ENSEMBLE)
        _files.write_bytes(folder / _ABOUT, _json.text({**self.about}) + b"\n")


def _seed(i: int) -> str:
    return f"seed-{i}.npz"
