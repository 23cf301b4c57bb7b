"""A predictor in a folder: `predictor.json`, and the snapshots that it names, as safetensors.

Frozen weights that the snapshots leave out are in a file of their own, once.

`predictor.json` is the folder's only manifest: it has the SHA-256 of every file and of itself. A
save writes its snapshots under new names, replaces `predictor.json` in one step, and then removes
the snapshots of earlier saves. Wherever a crash happens, `predictor.json` names whole files, and
other people's files in the folder stay as they are.
"""

import re
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict
from uuid import uuid4

from msgspec import Meta
from torch import Tensor, nn

from snapsure import _files, _json
from snapsure.decisions import Platt, Threshold
from snapsure.decisions._calibration import PlattState
from snapsure.decisions._threshold import ThresholdState
from snapsure.errors import CorruptFile, InvalidInput
from snapsure.estimators import Estimator
from snapsure.estimators import registry as methods
from snapsure.kappas import Kappa
from snapsure.kappas import registry as kappas
from snapsure.networks._code import model_digest
from snapsure.networks._factory import make_network
from snapsure.snapshots import Ensemble, _weights
from snapsure.snapshots._base import Snapshots, refuse_missing

if TYPE_CHECKING:
    from snapsure.predictor._predictor import Predictor

CONTENT = "predictor.json"
_VERSION = 3
_WHAT, _AGAIN = "as it was saved", "restore it, or save the predictor again"
_Epoch = Annotated[str, Meta(pattern=r"\A(?:0|[1-9]\d{0,18})\Z")]
_SNAPSHOT = r"(?:epoch-\d{6,}|base)-[0-9a-f]{12}\.safetensors"
_OWN = re.compile(f"{_SNAPSHOT}|{re.escape(CONTENT)}")


class _File(TypedDict):
    """A file of weights. Its name is one of ours, because files are read by it."""

    file: Annotated[str, Meta(pattern=rf"\A{_SNAPSHOT}\Z")]
    sha256: Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]


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
    network: Annotated[str, Meta(pattern=r"\A[0-9a-f]{16}\Z")]  # `model_digest`
    estimator: _EstimatorState
    kappa: _KappaState
    calibration: PlattState | None
    threshold: ThresholdState | None
    classes: list[str] | None
    base: _File | None  # what any of the snapshots leaves out
    tokenizer: Annotated[str, Meta(pattern=r"\A[0-9a-f]{16}\Z")] | None  # a digest
    output: str | int | bool | None  # True: a function, which is not here
    snapshots: Annotated[list[dict[_Epoch, _File]], Meta(min_length=1)]  # of each member
    provenance: dict[str, Any]


class _SavedSnapshots(Snapshots):
    """The snapshots of one training in a predictor's folder."""

    def __init__(self, folder: Path, files: dict[str, _File], base: _File | None) -> None:
        self.path, self._files = folder, {int(epoch): file for epoch, file in files.items()}
        self._base = base

    @property
    def epochs(self) -> list[int]:
        return sorted(self._files)

    def load(self, epoch: int) -> dict[str, Tensor]:
        refuse_missing(epoch, self._files, self.path)
        return self._read(self._files[epoch])

    def base(self, epoch: int) -> str | None:
        return _weights.read_base(self.path / self._files[epoch]["file"])

    def load_into(self, model: nn.Module, epoch: int, *, has_base: bool = False) -> None:
        if self._base is not None and not has_base:
            _weights.unwrap(model).load_state_dict(self._read(self._base), strict=False)
        super().load_into(model, epoch, has_base=has_base)

    def _read(self, file: _File) -> dict[str, Tensor]:
        path = self.path / file["file"]
        _files.check_sha256(path, file["sha256"], _AGAIN)
        return _weights.read(path)

    def sha256(self, epoch: int) -> str:
        return self._files[epoch]["sha256"]


def save(predictor: "Predictor", folder: Path) -> None:
    """Write a predictor, whole or not at all."""
    _refuse_taken_names(predictor)
    _refuse_other_folder(folder)
    content = describe(predictor)
    _json.text(content)  # refuses what could not be read again, before anything is written
    _files.make_folder(folder)
    with _files.locking(folder):
        content["snapshots"], content["base"] = members, base = _write_snapshots(predictor, folder)
        _files.write_bytes(folder / CONTENT, _json.text(content))
        written = [file for files in members for file in files.values()] + ([base] if base else [])
        _remove_all_but(folder, {file["file"] for file in written})


def describe(predictor: "Predictor") -> dict[str, Any]:
    """Return what `predictor.json` holds, with the hashes of the snapshots instead of files."""
    members = predictor.snapshots.members
    return {
        "format": "snapsure predictor",
        "version": _VERSION,
        "model": predictor.factory,
        "network": model_digest(predictor.networks.model),
        "estimator": {"name": type(predictor.estimator).__name__, **predictor.estimator.as_dict()},
        "kappa": {"name": predictor.kappa.name, "settings": predictor.kappa.settings},
        "calibration": predictor.calibration and predictor.calibration.as_dict(),
        "threshold": predictor.threshold and predictor.threshold.as_dict(),
        "classes": predictor.classes,
        "tokenizer": predictor.networks.tokenizer_digest,
        "output": True if callable(predictor.output) else predictor.output,
        "snapshots": [[one.sha256(epoch) for epoch in predictor.epochs] for one in members],
        "provenance": {**predictor.provenance, "way": predictor.networks.way},
    }


def load(
    folder: Path,
    model: nn.Module | str | None,
    custom: Sequence[type[Kappa] | type[Estimator]],
    trust: bool,
    options: dict[str, Any],
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
            f"model={factory!r} (--model {factory}), or trust=True (--trust) to import what the "
            "folder names."
        )
    # First, because importing its module may register a κ or an estimator.
    given: nn.Module | str = (factory or "") if model is None else model
    network = make_network(given)
    own = [each for each in custom if issubclass(each, Estimator)]
    if options["output"] is None and content["output"] is True:
        raise InvalidInput(
            f"`output` must be passed again for {folder}, which was saved with a function, got "
            "none. Pass the same one: output=lambda o: …"
        )
    if options["output"] is None:
        options["output"] = content["output"]

    while True:
        kind = methods.find_class(content["estimator"]["name"], own)
        estimator = kind.from_file(content["estimator"], folder / CONTENT, _WHAT, _AGAIN)
        calibration = content["calibration"] and Platt.from_dict(content["calibration"])
        threshold = content["threshold"] and Threshold.from_dict(content["threshold"])
        try:
            kappa = make_kappa(**content["kappa"], custom=custom)
        except TypeError as error:
            got = f"other settings of κ ({error})"
            raise _json.corrupt(folder / CONTENT, _WHAT, got, _AGAIN) from None
        each = content["snapshots"]
        members = [_SavedSnapshots(folder, files, content["base"]) for files in each]
        try:
            predictor = Predictor(
                network,
                members[0] if len(members) == 1 else Ensemble(members),
                estimator,
                threshold,
                calibration=calibration,
                kappa=kappa,
                classes=content["classes"],
                provenance=content["provenance"],
                **options,
            )
        except (CorruptFile, FileNotFoundError):
            now = read(folder)
            if now == content:
                raise
            content = now  # another process has saved a predictor there in the meantime
            continue
        if model_digest(predictor.networks.model) != content["network"]:
            warnings.warn(
                f"The network's code or settings differ from those that {folder} was saved with. "
                "Answers and promise may differ too: pass the same network, or fit again.",
                stacklevel=3,
            )
        if content["tokenizer"] and predictor.networks.tokenizer_digest not in (
            None,
            content["tokenizer"],
        ):
            warnings.warn(
                f"The tokenizer returns something else than the one that {folder} was saved with. "
                "Answers and promise may differ too: pass the same tokenizer, or fit again.",
                stacklevel=3,
            )
        predictor.factory = given if isinstance(given, str) else factory
        return predictor


def read(folder: Path) -> _Content:
    """Read `predictor.json`, if this version can."""
    path = folder / CONTENT
    try:
        content = _json.load(path, _WHAT, dict[str, Any], _AGAIN)
    except FileNotFoundError:
        raise InvalidInput(
            f"{folder} must be a saved predictor, got no {CONTENT} in it. Check the path."
        ) from None
    version = _json.convert(content, _Header, path, _WHAT, _AGAIN)["version"]
    if version != _VERSION:
        remedy = "Update snapsure" if version > _VERSION else "Save the predictor again"
        raise InvalidInput(
            f"{folder} must be a predictor of format {_VERSION}, got {version}. {remedy}."
        )
    return _json.convert(content, _Content, path, _WHAT, _AGAIN)


def _write_snapshots(
    predictor: "Predictor", folder: Path
) -> tuple[list[dict[str, _File]], _File | None]:
    """Write each member's snapshots and their base under new names, and return the files."""

    def write(start: str, state: dict[str, Tensor], base: str | None = None) -> _File:
        name = f"{start}-{uuid4().hex[:12]}.safetensors"
        with _files.replacing(folder / name) as file:
            sha256 = _weights.write(file, state, base=base)
        return {"file": name, "sha256": sha256()}

    members: list[dict[str, _File]] = [{} for _ in predictor.snapshots.members]
    frozen: dict[str, Tensor] = {}
    for (member, epoch), state in predictor.networks.states():
        store = predictor.snapshots.members[member]
        base, trained = store.base(epoch), state.keys()
        if base is not None:
            trained = store.load(epoch).keys()
            frozen |= {n: t for n, t in state.items() if n not in trained and n not in frozen}
        part = {name: state[name] for name in trained}
        members[member][str(epoch)] = write(f"epoch-{epoch:06d}", part, base)
    return members, write("base", frozen) if frozen else None


def _remove_all_but(folder: Path, names: set[str]) -> None:
    """Remove the snapshots of earlier saves, and what an interrupted save left."""
    _files.remove_partial(folder, _OWN)
    for path in folder.iterdir():
        earlier = re.fullmatch(_SNAPSHOT, path.name) and path.name not in names
        if earlier and not path.is_symlink() and _weights.is_own_file(path):
            _files.remove(path)


def _refuse_other_folder(folder: Path) -> None:
    """Refuse a link, a file, and a folder of other things than a saved predictor."""
    _files.refuse_link(folder)
    if folder.exists() and not folder.is_dir():
        got = f"the file {folder}"
    else:
        others = _files.things_in(folder, _OWN)
        if CONTENT in others or all(re.fullmatch(_SNAPSHOT, name) for name in others):
            return
        got = f"{folder} with {others[0]} in it"
    raise InvalidInput(
        f"`folder` must be new, empty or a saved predictor, got {got}. Choose another folder."
    )


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
