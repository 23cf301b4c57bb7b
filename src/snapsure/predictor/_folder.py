"""A predictor in a folder: `predictor.json`, and the snapshots it needs as safetensors.

It is written beside its place and moved there whole. Hashes of the snapshots stand in the JSON.
"""

import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict
from uuid import uuid4

import torch
from msgspec import Meta
from torch import nn

from snapsure import _files, _json
from snapsure.decisions import Platt, Threshold
from snapsure.decisions._calibration import PlattState
from snapsure.decisions._threshold import ThresholdState
from snapsure.errors import CorruptFile, InvalidInput
from snapsure.estimators import Estimator
from snapsure.estimators import registry as methods
from snapsure.kappas import Kappa
from snapsure.kappas import registry as kappas
from snapsure.networks._factory import make_network
from snapsure.snapshots import Ensemble, SnapshotStore
from snapsure.snapshots._base import Snapshots

if TYPE_CHECKING:
    from snapsure.predictor._predictor import Predictor

CONTENT = "predictor.json"
_VERSION = 1
_AGAIN = "restore it, or save the predictor again"
_REPLACED = ".replaced-"
_FolderName = Annotated[str, Meta(pattern=r"\Asnapshots(?:-\d+)?\Z")]


class _KappaState(TypedDict):
    name: str
    settings: dict[str, Any]


class _EstimatorState(_KappaState):
    fitted: dict[str, Any] | None


class _Header(TypedDict):
    """What `predictor.json` of any version holds."""

    format: Literal["snapsure predictor"]
    version: int


class _Content(TypedDict):
    """What `predictor.json` of this version holds."""

    model: str | None
    estimator: _EstimatorState
    kappa: _KappaState
    calibration: PlattState | None
    threshold: ThresholdState | None
    classes: list[str] | None
    snapshots: dict[_FolderName, dict[str, str]]
    provenance: dict[str, Any]


def save(predictor: "Predictor", folder: Path) -> None:
    """Write a predictor, whole or not at all."""
    _refuse_taken_names(predictor)
    with _replacing(folder) as place:
        hashes = predictor.networks.write([place / name for name in _names(predictor.snapshots)])
        content = {
            "format": "snapsure predictor",
            "version": _VERSION,
            "model": predictor.factory,
            "estimator": {
                "name": type(predictor.estimator).__name__,
                **predictor.estimator.as_dict(),
            },
            "kappa": {"name": predictor.kappa.name, "settings": predictor.kappa.settings},
            "calibration": predictor.calibration and predictor.calibration.as_dict(),
            "threshold": predictor.threshold and predictor.threshold.as_dict(),
            "classes": predictor.classes,
            "snapshots": hashes,
            "provenance": predictor.provenance,
        }
        _files.write_bytes(place / CONTENT, _json.text(content))


def load(
    folder: Path,
    model: nn.Module | str | None,
    custom: Sequence[type[Kappa] | type[Estimator]],
    trust: bool,
    memory: int,
    device: str | torch.device | None,
) -> "Predictor":
    """Read a predictor, and refuse what is not as it was saved."""
    from snapsure.predictor._predictor import Predictor, make_kappa

    content = read(folder)
    factory = content["model"]
    if model is None and factory is None:
        raise InvalidInput(
            f"`model` must be given for {folder}, which names no function that makes the network, "
            "got none. Pass the network, or package.module:factory."
        )
    if model is None and not trust:
        raise InvalidInput(
            f"`model` must be given for {folder}, got none. The folder names {factory}: pass "
            f"model={factory!r}, or trust=True to import what the folder names."
        )
    # First, because importing its module may register a κ or an estimator.
    given: nn.Module | str = (factory or "") if model is None else model
    network = make_network(given) if isinstance(given, str) else given
    estimator = _estimator(folder, content["estimator"], custom)
    calibration = content["calibration"] and Platt.from_dict(content["calibration"])
    threshold = content["threshold"] and Threshold.from_dict(content["threshold"])
    try:
        kappa = make_kappa(**content["kappa"], custom=custom)
    except TypeError as error:
        got = f"other settings of κ ({error})"
        raise _json.corrupt(folder / CONTENT, "as it was saved", got, _AGAIN) from None
    predictor = Predictor(
        network,
        _snapshots(folder, content["snapshots"]),
        estimator,
        threshold,
        calibration=calibration,
        kappa=kappa,
        classes=content["classes"],
        memory=memory,
        device=device,
        provenance=content["provenance"],
    )
    predictor.factory = given if isinstance(given, str) else factory
    return predictor


def read(folder: Path) -> _Content:
    """What `predictor.json` says, if this version can read it."""
    _recover(folder)
    path, what = folder / CONTENT, "as it was saved"
    try:
        content = _json.load(path, what, dict[str, Any], _AGAIN)
    except FileNotFoundError:
        raise InvalidInput(
            f"{folder} must be a saved predictor, got no {CONTENT} in it: check the path"
        ) from None
    version = _json.convert(content, _Header, path, what, _AGAIN)["version"]
    if version != _VERSION:
        later = version > _VERSION
        raise InvalidInput(
            f"{folder} must be a predictor of format {_VERSION}, got {version}: "
            f"{'update snapsure to read it' if later else 'save the predictor again'}"
        )
    return _json.convert(content, _Content, path, what, _AGAIN)


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


def _refuse_taken_names(predictor: "Predictor") -> None:
    """Refuse a class whose name would load another class."""
    estimator, kappa = type(predictor.estimator), type(predictor.kappa)
    for name, kind, find in (
        (estimator.__name__, estimator, methods.find_class),
        (predictor.kappa.name, kappa, lambda name: kappas.get(name).kind),
    ):
        with suppress(InvalidInput):  # an unknown name is free
            known = find(name)
            if known is not kind:
                break
    else:
        return
    raise InvalidInput(
        f"{kind.__name__} must have a name of its own to be saved, got {name!r}, which loads "
        f"{known.__module__}.{known.__name__}. Rename it."
    )


def _estimator(
    folder: Path, content: _EstimatorState, custom: Sequence[type[Kappa] | type[Estimator]]
) -> Estimator:
    own = [each for each in custom if issubclass(each, Estimator)]
    kind = methods.find_class(content["name"], own)
    return kind.from_file(content, folder / CONTENT, "as it was saved", _AGAIN)


@contextmanager
def _replacing(folder: Path) -> Iterator[Path]:
    """A new folder beside, which takes its place in the end; one of other things is refused."""
    _recover(folder)
    folder = folder.resolve()  # where a link leads to
    refuse_other_things(folder)
    _files.make_folder(folder.parent)
    mark = uuid4().hex[:12]
    place = folder.with_name(f".partial-{mark}-{folder.name}")
    old = folder.with_name(f"{_REPLACED}{mark}-{folder.name}")
    _files.make_folder(place)
    try:
        yield place
        with _files.writing(f"{folder.name} in {folder.parent}"):
            if folder.exists():
                folder.rename(old)
            place.rename(folder)
            _files.flush_folder(folder.parent)
        shutil.rmtree(old, ignore_errors=True)
    except BaseException:
        _recover(folder)
        raise
    finally:
        shutil.rmtree(place, ignore_errors=True)


def refuse_other_things(folder: Path) -> None:
    """Refuse a folder that holds other files than those of a saved predictor."""
    if folder.is_dir():
        others = [
            path.name
            for path in folder.iterdir()
            if path.name != CONTENT and not path.name.startswith("snapshots")
        ]
        if not others and ((folder / CONTENT).exists() or not any(folder.iterdir())):
            return
        got = f"{folder} with {others[0] if others else 'snapshots alone'} in it"
    elif folder.exists():
        got = f"the file {folder}"
    else:
        return
    raise InvalidInput(
        f"`folder` must be new or a saved predictor, got {got}: choose another, or move that away"
    )


def _recover(folder: Path) -> None:
    """Put back a predictor that was moved away by a save that did not come to its end."""
    folder = folder.resolve()
    if folder.exists() or not folder.parent.is_dir():
        return
    its_own = re.compile(re.escape(_REPLACED) + "[0-9a-f]{12}-" + re.escape(folder.name))
    for moved in folder.parent.iterdir():
        if its_own.fullmatch(moved.name):
            moved.rename(folder)
            return
