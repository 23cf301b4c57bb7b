"""A predictor in a folder: `predictor.json`, and the snapshots it needs as safetensors.

It is written beside its place and moved there whole. Hashes of the snapshots stand in the JSON.
"""

import importlib
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from torch import nn

from snapsure import _files, estimators
from snapsure.calibration import Platt
from snapsure.errors import CorruptFile, InvalidInput
from snapsure.estimators import Estimator
from snapsure.predictor._parts import made_kappa
from snapsure.snapshots import Ensemble, SnapshotStore
from snapsure.snapshots._base import Snapshots
from snapsure.threshold import Threshold

if TYPE_CHECKING:
    from snapsure.predictor._predictor import Predictor

CONTENT = "predictor.json"
_VERSION = 1


def save(predictor: "Predictor", folder: Path) -> None:
    """Write it whole, or not at all."""
    with _replacing(folder) as place:
        hashes = predictor.networks.write([place / name for name in _names(predictor.snapshots)])
        content = {
            "format": "snapsure predictor",
            "version": _VERSION,
            "model": predictor.factory,
            "estimator": {
                "class": _class_name(predictor.estimator),
                **predictor.estimator.as_dict(),
            },
            "kappa": {"name": predictor.kappa.name, "settings": predictor.kappa.settings},
            "calibration": predictor.calibration and predictor.calibration.as_dict(),
            "threshold": predictor.threshold and predictor.threshold.as_dict(),
            "classes": predictor.classes,
            "snapshots": hashes,
            "provenance": predictor.provenance,
        }
        _files.write_bytes(place / CONTENT, json.dumps(content, indent=1).encode())


def load(folder: Path, model: nn.Module | str | None, memory: int) -> "Predictor":
    """Read it, and refuse what is not as it was saved."""
    from snapsure.predictor._predictor import Predictor

    content = read(folder)
    given = content["model"] if model is None else model
    if given is None:
        raise InvalidInput(
            f"`model` must be given for {folder}, which names no function that makes the network, "
            "got none: pass the network, or package.module:factory"
        )
    try:
        estimator = _estimator(content["estimator"])
        calibration = content["calibration"] and Platt.from_dict(content["calibration"])
        threshold = content["threshold"] and Threshold.from_dict(content["threshold"])
        predictor = Predictor(
            given,
            _snapshots(folder, content["snapshots"]),
            estimator,
            threshold,
            calibration=calibration,
            kappa=made_kappa(**content["kappa"]),
            classes=content["classes"],
            memory=memory,
            provenance=content["provenance"],
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise _corrupt(folder, f"{type(error).__name__} {error}") from None
    predictor.factory = predictor.factory or content["model"]
    return predictor


def read(folder: Path) -> dict[str, Any]:
    """What `predictor.json` says, if this version can read it."""
    try:
        content = json.loads((folder / CONTENT).read_bytes())
    except FileNotFoundError:
        raise InvalidInput(
            f"{folder} must be a saved predictor, got no {CONTENT} in it: check the path"
        ) from None
    except ValueError as error:
        raise _corrupt(folder, str(error)) from None
    if not isinstance(content, dict) or content.get("format") != "snapsure predictor":
        raise _corrupt(folder, "something else")
    if content.get("version") != _VERSION:
        raise InvalidInput(
            f"{folder} must be a predictor of format {_VERSION}, got {content.get('version')}: "
            "update snapsure to read it"
        )
    return content


def _corrupt(folder: Path, got: str) -> CorruptFile:
    return CorruptFile(
        f"{folder / CONTENT} must be as it was saved, got {got}: save the predictor again"
    )


def _names(snapshots: Snapshots) -> list[str]:
    """A folder of snapshots for each member."""
    if len(snapshots.members) == 1:
        return ["snapshots"]
    return [f"snapshots-{i + 1}" for i in range(len(snapshots.members))]


def _snapshots(folder: Path, hashes: dict[str, dict[str, str]]) -> Snapshots:
    stores = [SnapshotStore(folder / name) for name in hashes]
    for store, known in zip(stores, hashes.values(), strict=True):
        found = {str(epoch): store.sha256(epoch) for epoch in store.epochs}
        if found != known:
            raise CorruptFile(
                f"{store.path} must hold the snapshots that the predictor was saved with, got "
                "others: save the predictor again"
            )
    return stores[0] if len(stores) == 1 else Ensemble(stores)


def _class_name(estimator: Estimator) -> str:
    name = type(estimator).__name__
    known = getattr(estimators, name, None) is type(estimator)
    return name if known else f"{type(estimator).__module__}:{type(estimator).__qualname__}"


def _estimator(content: dict[str, Any]) -> Estimator:
    module, _, name = content["class"].rpartition(":")
    try:
        kind = getattr(importlib.import_module(module) if module else estimators, name)
    except (ImportError, AttributeError) as error:
        raise InvalidInput(
            f"the predictor's estimator must be one that can be imported, got {content['class']!r} "
            f"({error}): install what defines it"
        ) from None
    if not (isinstance(kind, type) and issubclass(kind, Estimator)):
        raise InvalidInput(
            f"the predictor's estimator must be an Estimator, got {content['class']!r}: save the "
            "predictor again"
        )
    return kind.from_dict(content)


@contextmanager
def _replacing(folder: Path) -> Iterator[Path]:
    """A new folder beside, which takes its place in the end; one of other things is refused."""
    if folder.exists() and not (folder / CONTENT).exists() and any(folder.iterdir()):
        raise InvalidInput(
            f"`folder` must be new or a saved predictor, got {folder} with other things in it: "
            "choose another"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    mark = uuid4().hex[:12]
    place = folder.with_name(f".partial-{mark}-{folder.name}")
    place.mkdir()
    try:
        yield place
        if folder.exists():
            old = folder.with_name(f".replaced-{mark}-{folder.name}")
            folder.rename(old)
            place.rename(folder)
            shutil.rmtree(old)
        else:
            place.rename(folder)
        _files.flush_folder(folder.parent)
    finally:
        shutil.rmtree(place, ignore_errors=True)
