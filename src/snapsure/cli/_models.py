"""Networks, snapshots, κ functions and executors that options name.

Modules are imported where they are used, so that `snapsure --help` is quick.
"""

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from snapsure.errors import InvalidInput

if TYPE_CHECKING:
    from snapsure.kappas import Kappa
    from snapsure.scoring import Executor
    from snapsure.snapshots import Snapshots


def search_working_folder() -> None:
    """Let modules of the working folder be imported before all others."""
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))


def import_name(spec: str, option: str) -> Any:
    """Import what package.module:name or file.py:name names, from the working folder first."""
    from snapsure.networks import _factory

    search_working_folder()
    return _factory.import_name(spec, option)


def call_factory(spec: str, option: str) -> Any:
    """Import what package.module:name or file.py:name names, and call it."""
    from snapsure.networks import _factory

    search_working_folder()
    return _factory.call_factory(spec, option)


def open_snapshots(folder: Path | str, model: str, state: str | None, trust: bool) -> "Snapshots":
    """Open a store, or another tool's checkpoints as the options say."""
    from snapsure.snapshots import SnapshotStore
    from snapsure.snapshots._adopt import is_foreign

    if is_foreign(Path(folder)):
        make = partial(call_factory, model, "--model")
        return SnapshotStore.adopt(folder, model=make, state=state, trust=trust)
    if state is not None:
        raise InvalidInput(
            f"--state must come with another tool's checkpoints, got a store in {folder}. "
            "Leave it out, and let --model make the module that was recorded."
        )
    return SnapshotStore(folder)


def make_kappas(names: list[str], reference: str | None) -> list["Kappa"]:
    """Make κ functions from their names; those that compare with training data get it."""
    from snapsure.cli._data import load_data
    from snapsure.kappas import registry

    data = None
    if comparing := [name for name in names if registry.get(name).kind.prepares]:
        if reference is None:
            raise InvalidInput(
                f"--reference must name the training data for {comparing[0]}, got none. Add "
                "--reference SPEC."
            )
        data = load_data(reference, "--reference")
    return [registry.make(name, reference=data) for name in names]


def make_executor(name: str, address: str | None, device: str | None) -> "Executor":
    """Make the executor of a name, which must fit the other options."""
    from snapsure.scoring import LocalExecutor, RayExecutor

    if name == "local" and address is not None:
        raise InvalidInput(
            f"--address must come with --executor ray, got {address!r} alone. Add --executor ray."
        )
    if name == "ray" and device is not None:
        raise InvalidInput(
            f"--device must come with --executor local, got {device!r} and ray, whose workers take "
            "a GPU if the cluster has any. Leave it out."
        )
    return RayExecutor(address) if name == "ray" else LocalExecutor(device=device)
