"""Whose scores a folder holds: told by its `plan.json`, which is written with the first of them."""

import json
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, TypedDict

from msgspec import Meta

from snapsure import _files, _json
from snapsure.errors import InvalidInput
from snapsure.table._pieces import PLAN, TABLE, clear

PREPARED, KEPT = "prepared", ".partial-rows"  # what lies in the folder until the table is whole
_OWN = re.compile(re.escape(PLAN))
_REMEDY = "delete the folder and score again, or choose another"
_FolderName = Annotated[str, Meta(pattern=r"\A\w+\Z")]


class _Plan(TypedDict, total=False):
    """What `plan.json` holds."""

    snapshots: list[list[str]]
    epochs: list[_json.Integer]
    data: dict[str, Any]
    kappas: dict[_FolderName, dict[str, Any]]
    model: str


class Claim:
    """A folder, and what its scores are to be of.

    A run that fails before anything is scored leaves the folder to others. Several processes may
    take it at once if they score the same: the claim is made by one of them, and others find it
    there. If there are other scores to remove, one must be first.

    Parameters
    ----------
    folder : path
        A new one, or one of earlier scores.
    identity : JSON's types
        What scores depend on.
    overwrite : bool
        Whether scores of something else are to be removed when the first new ones are there.
    """

    def __init__(self, folder: Path, identity: Mapping[str, Any], *, overwrite: bool) -> None:
        self._folder, self._path, self._overwrite = folder, folder / PLAN, overwrite
        self.identity = identity
        self._held = False
        self.replaces = False  # whether there are other scores, which may go
        if not self.held:
            self._refuse_others()

    @property
    def held(self) -> bool:
        """Whether the scores in the folder are of the same."""
        if not self._held:
            found = self._found()
            self._held = found is not None and not self._differing(found)
        return self._held

    def take(self) -> None:
        """Write down whose scores these are, if it is not; other scores go, if they may."""
        self._held = False  # whoever scores the same may have failed, and released it
        while not self.held:
            self._refuse_others()
            if self.replaces:
                self.clear()
            self._held = _files.create(self._path, _json.text({**self.identity}))

    def confirm(self) -> None:
        """Refuse a folder that another process has taken meanwhile, by overwriting."""
        self._held = False
        if not self.held:
            raise InvalidInput(
                f"`out` must be left alone while it is scored, got {self._folder}, which another "
                "process has overwritten: choose another folder, or start again"
            )

    def clear(self) -> None:
        """Remove all scores in the folder, and nothing else."""
        found = self._found()
        for name in () if found is None else (PREPARED, KEPT):
            shutil.rmtree(self._folder / name, ignore_errors=True)
        clear(self._folder, list((found or {}).get("kappas", {})))
        self.replaces = self._held = False

    def release(self) -> None:
        """Leave the folder to others, if there is nothing in it but the claim."""
        self._held = False
        if not self.held:
            return  # others have it
        with suppress(OSError):
            (self._folder / PREPARED).rmdir()  # if it is empty
        if self._folder.is_dir() and [path.name for path in self._folder.iterdir()] == [PLAN]:
            self._path.unlink()
            self._held = False

    def _refuse_others(self) -> None:
        """Refuse a folder that holds things of others, or other scores that must stay."""
        _files.remove_partial(self._folder, _OWN)
        there = _files.things_in(self._folder, _OWN)  # before the plan, which comes before them
        found = self._found()
        if found is None and not (self._folder / TABLE).exists():
            if there:
                raise _files.other_things(self._folder, "`out`", "earlier scores")
            return
        if found is not None and not self._differing(found):
            return  # another process has just taken it for the same
        self.replaces = True
        if not self._overwrite:
            what = "a finished table" if found is None else f"other {self._differing(found)}"
            raise InvalidInput(
                f"`out` must hold scores of the same inputs, got {self._folder} with {what}: "
                "choose another folder, or replace these by overwrite=True (--overwrite on the "
                "command line)"
            )

    def _found(self) -> dict[str, Any] | None:
        try:
            return dict(_json.load(self._path, "the plan of earlier scores", _Plan, _REMEDY))
        except FileNotFoundError:
            return None

    def _differing(self, found: Mapping[str, Any]) -> str:
        """In which parts other scores differ, in words; nothing if they do not."""
        own = json.loads(json.dumps(self.identity))
        keys = [key for key in own if found.get(key) != own[key]]
        data = found.get("data")
        if keys == ["data"] and isinstance(data, dict):
            sizes = data.get("batch_size"), own["data"]["batch_size"]
            if sizes[0] != sizes[1] and data.get("n") == own["data"]["n"]:
                return f"batches (of {sizes[0]} rows, not {sizes[1]})"
        return " and ".join(keys)
