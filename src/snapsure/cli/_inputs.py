"""What the options of the command line name: data, networks, κ functions, executors, tables.

What they need is imported where it is used: `snapsure --help` is quick.
"""

import csv
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NotRequired, TypedDict
from zipfile import is_zipfile

from snapsure import _files, _json
from snapsure.errors import InvalidInput, SnapsureError, UnsafeFile

_EXECUTORS = ("local", "ray")
_SOURCE = "source.json"


def kappas(names: list[str], reference: str | None) -> list[Any]:
    """Make κ functions from their names; those that compare with training data get it."""
    from snapsure.kappas import registry

    asking = [name for name in names if registry.get(name).kind.prepares]
    if asking and reference is None:
        raise InvalidInput(
            f"--reference must name the training data for {asking[0]}, got none. Add "
            "--reference SPEC"
        )
    data = data_of(reference, "--reference") if asking and reference is not None else None
    return [registry.make(name, reference=data) for name in names]


def contest_runs(tables: list[Path], source: Path | None, *, apart: bool = False) -> Any:
    """Runs by data set: a packed contest's, or tables, those with the same labels together."""
    import numpy as np

    from snapsure.evaluation import Run
    from snapsure.table import ScoreTable

    if (source is None) == (not tables):
        raise InvalidInput(
            "compare must be given tables or --from, got "
            f"{'both' if tables else 'neither'}: name one of them"
        )
    if source is not None:
        from snapsure.evaluation._archive import open_contest

        return open_contest(source)
    refuse_twice(tables)
    groups: dict[str, list[Run]] = {}
    for path in tables:
        table = ScoreTable.open(path)
        run = Run(table)
        same = (n for n, some in groups.items() if not apart and np.array_equal(some[0].y, run.y))
        groups.setdefault(next(same, str(path)), []).append(run)
    return groups


def refuse_twice(tables: list[Path]) -> None:
    if len(set(tables)) < len(tables):
        given = " ".join(map(str, tables))
        raise InvalidInput(f"TABLES must be different folders, got {given}: name each once")


def executor(name: str, address: str | None, device: str | None = None) -> Any:
    from snapsure.scoring import LocalExecutor, RayExecutor

    if name not in _EXECUTORS:
        raise InvalidInput(
            f"--executor must be one of {', '.join(_EXECUTORS)}, got {name!r}: choose among these"
        )
    if name == "ray" and device is not None:
        raise InvalidInput(
            f"--device must come with --executor local, got {device!r} and ray, whose workers take "
            "a GPU if the cluster has any: leave it out"
        )
    if name == "ray":
        return RayExecutor(address)
    if address is not None:
        raise InvalidInput(
            f"--address must come with --executor ray, got {address!r} alone: add that"
        )
    return LocalExecutor(device=device)


def search_here() -> None:
    """Let modules of the working folder be imported before all others."""
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))


def named(spec: str, option: str) -> Any:
    """What package.module:name gives when called, the working folder being searched first."""
    function = found(spec, option)
    _refuse_no_maker(function, spec, option)
    return _tried(spec, option, function)


def found(spec: str, option: str) -> Any:
    """What package.module:name or file.py:name is, the working folder being searched first."""
    from snapsure.networks._factory import imported

    module, _, name = spec.rpartition(":")
    if not module or not name:
        raise InvalidInput(
            f"{option} must be package.module:name or file.py:name, got {spec!r}: write both"
        )
    search_here()
    return _tried(spec, option, lambda: getattr(imported(module), name))


def _refuse_no_maker(thing: Any, spec: str, option: str) -> None:
    """Refuse what cannot be called as it is, with the line that makes it so."""
    module, _, name = spec.rpartition(":")
    torch = sys.modules.get("torch")
    if not callable(thing) or (torch is not None and isinstance(thing, torch.nn.Module)):
        raise InvalidInput(
            f"{option} must name a function to call, got {spec!r}, which is a "
            f"{type(thing).__name__} already: write `def make(): return {name}` there, and name "
            f"{module}:make"
        )
    try:
        parameters = inspect.signature(thing).parameters.values()
    except (TypeError, ValueError):  # some that are written in C do not tell
        return
    needs = [
        each.name
        for each in parameters
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    if needs:
        given = ", ".join(f"{each}=…" for each in needs)
        raise InvalidInput(
            f"{option} must name a function to call without arguments, got {spec!r}, which needs "
            f"{', '.join(needs)}: write `def make(): return {name}({given})` there, and name "
            f"{module}:make"
        )


def snapshots_of(folder: Path | str, prefix: str | None, trust: bool) -> Any:
    """Snapshots in a folder, told from others in it, and trusted, where options say so."""
    from snapsure.snapshots import SnapshotStore
    from snapsure.snapshots._adopt import is_foreign

    if not is_foreign(Path(folder)):
        if prefix is not None:
            raise InvalidInput(
                f"--prefix must come with another tool's checkpoints, got a store in {folder}: "
                "leave it out, and let --model make the module that was recorded"
            )
        return SnapshotStore(folder)
    return SnapshotStore.adopt(folder, prefix=prefix, trust=trust)


def _tried(spec: str, option: str, work: Callable[[], Any]) -> Any:
    try:
        return work()
    except SnapsureError:
        raise
    except Exception as error:
        raise InvalidInput(
            f"{option} must name a function to call, got {spec!r}, which raised "
            f"{type(error).__name__} ({error}): try it in Python first"
        ) from None


def lines(path: Path, option: str) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise InvalidInput(
            f"{option} must be a text file with one per line, got {path} ({error}): check it"
        ) from None


def columns(path: Path, option: str) -> dict[str, list[str]]:
    """The columns of a .csv by their names."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file, strict=True))
    except (OSError, ValueError, csv.Error) as error:
        raise InvalidInput(f"{option} must be a .csv, got {path} ({error}): check it") from None
    for i, row in enumerate(rows, 1):
        if len(row) != len(rows[0]):
            raise InvalidInput(
                f"{option} must have as many cells in every row as names in its first, "
                f"{len(rows[0])}, got {len(row)} in row {i} of {path}: check it"
            )
    return {name: [row[i] for row in rows[1:]] for i, name in enumerate(rows[0] if rows else [])}


def images_of(path: Path) -> Any:
    """Pictures of the points."""
    import numpy as np

    if path.suffix == ".npz":
        return data_of(str(path), "--images")[0]
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InvalidInput(f"--images must be .npy or .npz, got {path} ({error})") from None


def inputs_of(spec: str, option: str, batch_size: int | None = None) -> Any:
    """Data as `data_of`, in batches; inputs alone from an .npy file are not read at once."""
    from snapsure.networks._data import Rows

    return Rows.of(data_of(spec, option), "data", batch_size)


def note_source(table: Path, model: str, snapshots: Path, prefix: str | None) -> None:
    """Leave beside the scores what they were made with, for `snapsure fit`."""
    from snapsure import _files

    content = {"model": model, "snapshots": str(snapshots.resolve()), "prefix": prefix}
    _files.write_bytes(table / _SOURCE, _json.text(content))


def source_of(table: Path, given: str | None, name: str) -> str:
    """What an option says, or what the table was scored with."""
    known = _source(table).get(name) if given is None else given
    if known is None:
        raise InvalidInput(
            f"--{name} must be given where the table does not say it (`snapsure score` leaves "
            f"{_SOURCE} in it), got none in {table}: add --{name}"
        )
    return str(known)


def prefix_of(table: Path, given: str | None) -> str | None:
    """What an option says, or what the table was scored with, if anything."""
    return _source(table).get("prefix") if given is None else given


class _Source(TypedDict):
    """What `source.json` holds."""

    model: str
    snapshots: str
    prefix: NotRequired[str | None]


def _source(table: Path) -> Mapping[str, Any]:
    what, remedy = "the file that `snapsure score` wrote", "delete it, and pass the options instead"
    try:
        return _json.load(table / _SOURCE, what, _Source, remedy)
    except FileNotFoundError:
        return {}


def data_of(spec: str, option: str) -> Any:
    """Data by function, from an .npz file with x and, if known, y, or inputs from an .npy file."""
    if spec.endswith(".npz"):
        return _from_npz(spec, option)
    if spec.endswith(".npy"):
        return (_from_npy(spec, option), None)
    if ":" not in spec and Path(spec).is_file():
        raise InvalidInput(
            f"{option} must be an .npz or .npy file, or package.module:function, got {spec}: write "
            "a function that reads it and gives (inputs, labels), and name that"
        )
    return named(spec, option)


def _from_npz(spec: str, option: str) -> Any:
    import numpy as np

    _refuse_bytes(spec, option, whole=is_zipfile(spec))
    try:
        _files.refuse_packed_bomb(Path(spec), "write it by np.savez, which does not compress")
        with Path(spec).open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            arrays = dict(file)
    except UnsafeFile:
        raise
    except Exception as error:  # whatever damaged bytes make NumPy or zlib say
        raise _no_arrays(spec, option, str(error).splitlines()[0]) from None
    if "x" not in arrays:
        raise InvalidInput(
            f"{option} must hold an array x (and y), got {', '.join(arrays) or 'none'} in {spec}: "
            "write it by np.savez(path, x=…, y=…)"
        )
    return (arrays["x"], arrays.get("y"))


def _from_npy(spec: str, option: str) -> Any:
    import numpy as np

    magic = b"\x93NUMPY"
    _refuse_bytes(spec, option, whole=True)
    with Path(spec).open("rb") as file:
        _refuse_bytes(spec, option, whole=file.read(len(magic)) == magic)
    try:
        return np.load(spec, mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise _no_arrays(spec, option, str(error).splitlines()[0]) from None


def _refuse_bytes(spec: str, option: str, *, whole: bool) -> None:
    """Refuse a file that is not there, or that NumPy would take for a pickle."""
    path = Path(spec)
    if not path.is_file():
        raise _no_arrays(spec, option, "there is no such file")
    if not path.stat().st_size:
        raise _no_arrays(spec, option, "it is empty")
    if not whole:
        raise _no_arrays(spec, option, "it was cut short, or is something else")


def _no_arrays(spec: str, option: str, why: str) -> InvalidInput:
    kind = Path(spec).suffix
    way = "np.savez(path, x=…, y=…)" if kind == ".npz" else "np.save(path, x)"
    return InvalidInput(
        f"{option} must be a whole {kind} file, got {spec} ({why}): write it by {way}"
    )
