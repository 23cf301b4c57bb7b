"""The outcome of an experiment in a few megabytes: what tables and figures are computed from.

A folder with `experiment.json` (recipe, and what became of each training) and score tables packed
as `seed-0.npz` …, `ensemble.npz`, and `nn_distance-seed-0.npz` … where that κ was measured at fewer
snapshots than the others. A κ need not have been measured of all networks. Reading it takes NumPy
alone. Where a κ is called otherwise since it was packed, `renamed` in `experiment.json` has its old
name and its new one.

Tables and figures are computed from what was packed.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from snapsure import _files, _json
from snapsure.errors import CorruptFile, InvalidInput
from snapsure.table import ScoreTable
from snapsure.table._packed import pack, unpack

_ABOUT = "experiment.json"
_ENSEMBLE = "ensemble.npz"
_APART = "nn_distance"
_AGAIN = "take it from the archive again"
_SCHEMA = {
    "dataset": str,
    "scale": str,
    "networks": [list, ...],
    "seeds?": [int, ...],
    "renamed?": {str: str},
}


@dataclass(frozen=True)
class Experiment:
    """Networks of one recipe on one data set, and the ensemble of them if there are several."""

    about: Mapping[str, Any]  # "dataset", "scale", "recipe", "networks"; perhaps "renamed"
    tables: Sequence[ScoreTable]
    ensemble: ScoreTable | None
    # Of NN-distance alone, where it has other snapshots: by the place of its network in `tables`.
    apart: Mapping[int, ScoreTable] = field(default_factory=dict)

    def of(self, kappa: str) -> dict[int, ScoreTable]:
        """The tables of the networks of which a κ was measured, by their seeds."""
        tables = self.apart if self.apart and kappa == _APART else dict(enumerate(self.tables))
        return {self.seeds[i]: table for i, table in tables.items() if kappa in table.names}

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
        seeds = about.get("seeds", range(count))
        if len(set(seeds)) != count:
            raise CorruptFile(
                f"{path} must have a seed of each of its {count} networks, got {len(set(seeds))}: "
                f"{_AGAIN}"
            )
        tables = [unpack(folder / _seed(i), renamed) for i in range(count)]
        ensemble = folder / _ENSEMBLE
        apart = {i: folder / _seed(i, _APART) for i in range(count)}
        return Experiment(
            about,
            tables,
            unpack(ensemble) if ensemble.exists() else None,
            {i: unpack(path) for i, path in apart.items() if path.exists()},
        )

    def beside(self, earlier: "Experiment") -> "Experiment":
        """Both as one, the earlier networks first; the ensemble is that of more networks.

        An ensemble's answers need the logits of all its networks, which are not packed.
        """
        kinds = [(one.about["dataset"], one.about["scale"], one._recipe) for one in (earlier, self)]
        seeds = [*earlier.seeds, *self.seeds]
        if kinds[0] != kinds[1] or len(set(seeds)) < len(seeds):
            raise InvalidInput(
                "--beside must be results of other seeds, of the same data set, scale and recipe, "
                f"got {_words(earlier)} for {_words(self)}: choose other results"
            )
        networks = [*earlier.about["networks"], *self.about["networks"]]
        larger = max(earlier, self, key=lambda one: (one.ensemble is not None, len(one.tables)))
        return Experiment(
            {**self.about, "seeds": seeds, "networks": networks},
            [*earlier.tables, *self.tables],
            larger.ensemble,
            {**earlier.apart, **{len(earlier.tables) + i: one for i, one in self.apart.items()}},
        )

    @property
    def seeds(self) -> list[int]:
        """Of the networks, in their order."""
        return list(self.about.get("seeds", range(len(self.tables))))

    @property
    def _recipe(self) -> Any:
        return json.loads(json.dumps(self.about.get("recipe")))  # tuples as lists, as in a file

    def save(self, folder: Path) -> None:
        """Write it; what makes the folder one comes last."""
        _files.make_folder(folder)
        for old in (folder / _ABOUT, folder / _ENSEMBLE, *folder.glob(f"{_APART}-seed-*.npz")):
            old.unlink(missing_ok=True)
        for i, table in enumerate(self.tables):
            pack(table, folder / _seed(i))
        for i, table in self.apart.items():
            pack(table, folder / _seed(i, _APART))
        if self.ensemble is not None:
            pack(self.ensemble, folder / _ENSEMBLE)
        _files.write_bytes(folder / _ABOUT, _json.text({**self.about}) + b"\n")


def _words(experiment: Experiment) -> str:
    facts = experiment.about
    seeds = ", ".join(map(str, experiment.seeds))
    return f"{facts['dataset']} at scale {facts['scale']}, seeds {seeds}"


def _seed(i: int, kappa: str | None = None) -> str:
    return f"{kappa}-seed-{i}.npz" if kappa else f"seed-{i}.npz"
