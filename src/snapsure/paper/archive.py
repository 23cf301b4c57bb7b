"""The results of an experiment in a few megabytes, which give its tables and figures.

A folder has `experiment.json` (recipe, each training's record, and the SHA-256 of each file) and
score tables packed as `seed-0.npz` … (softmax response), `costly-seed-0.npz` … (κ that need passes
of their own, of some snapshots and some networks), and `ensemble-0-1.npz` of seeds 0 and 1. Reading
it takes NumPy alone.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict

from msgspec import Meta

from snapsure import _files, _json
from snapsure.errors import CorruptFile, InvalidInput
from snapsure.table import ScoreTable
from snapsure.table._packed import pack, unpack

_ABOUT = "experiment.json"
_AGAIN = "take it from the archive again"
_Seeds = Annotated[list[_json.Integer], Meta(min_length=1)]


class _About(TypedDict):
    """What `experiment.json` holds."""

    dataset: str
    scale: str
    files: dict[str, str]
    recipe: NotRequired[dict[str, Any]]
    precision: NotRequired[str]
    networks: Annotated[list[list[Any]], Meta(min_length=1)]
    seeds: NotRequired[_Seeds]
    ensembles: NotRequired[list[_Seeds]]


@dataclass(frozen=True)
class Experiment:
    """Networks of one recipe on one data set, and ensembles of those trained together."""

    # "dataset", "scale", "recipe", "networks"; perhaps "precision" (else 32-true)
    about: Mapping[str, Any]
    tables: Sequence[ScoreTable]
    ensembles: Mapping[tuple[int, ...], ScoreTable] = field(default_factory=dict)  # by their seeds
    # Of κ that need passes of their own: by the place of the network in `tables`.
    costly: Mapping[int, ScoreTable] = field(default_factory=dict)

    def of(self, kappa: str) -> dict[int, ScoreTable]:
        """Return the tables of the networks whose κ was measured, by seed."""
        tables = [*enumerate(self.tables), *self.costly.items()]
        return {self.seeds[i]: table for i, table in tables if kappa in table.names}

    @staticmethod
    def open(folder: Path, option: str = "--from") -> "Experiment":
        """Read a folder that `save` wrote; `option` names it in errors."""
        path = folder / _ABOUT
        if not path.is_file():
            raise InvalidInput(
                f"{option} must be a folder with {_ABOUT}, got none in {folder}. Check the path, "
                "or let the experiment finish."
            )
        about = _json.load(path, "the manifest of an experiment", _About, _AGAIN)
        count, seeds = len(about["networks"]), _seeds(about)
        if len(set(seeds)) != count:
            raise CorruptFile(
                f"{path} must have a seed of each of its {count} networks, got {len(set(seeds))}. "
                "Take it from the archive again."
            )

        def read(name: str) -> ScoreTable:
            _files.check_sha256(folder / name, about["files"].get(name), _AGAIN)
            return unpack(folder / name)

        facts = {name: part for name, part in about.items() if name not in ("files", "ensembles")}
        return Experiment(
            facts,
            [read(_seed(i)) for i in range(count)],
            {(*of,): read(_ensemble(of)) for of in about.get("ensembles", [])},
            {i: read(_costly(i)) for i in range(count) if _costly(i) in about["files"]},
        )

    def beside(self, earlier: "Experiment") -> "Experiment":
        """Return both as one, the earlier networks first, with the largest ensembles of either.

        No ensemble mixes networks of both: it would need their logits, which are not packed.
        """
        earlier.check_beside(self.about)
        networks = [*earlier.about["networks"], *self.about["networks"]]
        ensembles = {**earlier.ensembles, **self.ensembles}
        most = max(map(len, ensembles), default=0)
        return Experiment(
            {**self.about, "seeds": [*earlier.seeds, *self.seeds], "networks": networks},
            [*earlier.tables, *self.tables],
            {members: one for members, one in ensembles.items() if len(members) == most},
            {**earlier.costly, **{len(earlier.tables) + i: one for i, one in self.costly.items()}},
        )

    def check_beside(self, others: Mapping[str, Any]) -> None:
        """Refuse networks of another data set, scale, recipe or precision, or of equal seeds."""
        kinds = [
            (
                *(one["dataset"], one["scale"], one.get("precision", "32-true")),
                json.dumps(one.get("recipe"), sort_keys=True),  # it has lists for tuples
            )
            for one in (self.about, others)
        ]
        if kinds[0] != kinds[1] or {*self.seeds} & {*_seeds(others)}:
            ours, theirs = (
                f"{one['dataset']} at scale {one['scale']} in {kind[2]}, seeds "
                f"{str(_seeds(one))[1:-1]}"
                for one, kind in zip((self.about, others), kinds, strict=True)
            )
            raise InvalidInput(
                "--beside must be results of other seeds, of the same data set, scale, recipe and "
                f"precision, got {ours} for {theirs}. Choose other results."
            )

    @property
    def seeds(self) -> list[int]:
        """The seeds of the networks, in their order."""
        return _seeds(self.about)

    def save(self, folder: Path) -> None:
        """Write the tables, then the manifest that makes the folder an experiment."""
        _files.make_folder(folder)
        (folder / _ABOUT).unlink(missing_ok=True)
        for old in (*folder.glob("ensemble*.npz"), *folder.glob("costly-seed-*.npz")):
            old.unlink()
        tables = {
            **{_seed(i): table for i, table in enumerate(self.tables)},
            **{_costly(i): table for i, table in self.costly.items()},
            **{_ensemble(members): table for members, table in self.ensembles.items()},
        }
        for name, table in tables.items():
            pack(table, folder / name)
        files = {name: _files.sha256(folder / name) for name in tables}
        about = {**self.about, "ensembles": [*self.ensembles], "files": files}
        _files.write_bytes(folder / _ABOUT, _json.text(about) + b"\n")


def _seeds(about: Mapping[str, Any]) -> list[int]:
    return list(about["seeds"] if "seeds" in about else range(len(about["networks"])))


def _seed(i: int) -> str:
    return f"seed-{i}.npz"


def _costly(i: int) -> str:
    return f"costly-seed-{i}.npz"


def _ensemble(members: Sequence[int]) -> str:
    return f"ensemble-{'-'.join(map(str, members))}.npz"
