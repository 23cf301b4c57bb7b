"""Networks, snapshots, κ functions and executors that options name.

Modules are imported where they are used, so that `snapsure --help` is quick.
"""

import inspect
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from snapsure.errors import InvalidInput, SnapsureError

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
    from snapsure.networks._factory import import_module

    module, _, name = spec.rpartition(":")
    if not module or not name:
        raise InvalidInput(
            f"{option} must be package.module:name or file.py:name, got {spec!r}. Write both parts."
        )
    search_working_folder()
    return _try(spec, option, lambda: getattr(import_module(module), name))


def call_factory(spec: str, option: str) -> Any:
    """Import what package.module:name or file.py:name names, and call it.

    What cannot be called without arguments is refused with the line that makes it callable.
    """
    factory, (module, _, name) = import_name(spec, option), spec.rpartition(":")
    torch = sys.modules.get("torch")
    if not callable(factory) or (torch is not None and isinstance(factory, torch.nn.Module)):
        raise InvalidInput(
            f"{option} must name a function to call, got {spec!r}, which is a "
            f"{type(factory).__name__}. Write `def make(): return {name}` there, and name "
            f"{module}:make."
        )
    needs = []
    with suppress(TypeError, ValueError):  # some functions written in C have no signature
        for each in inspect.signature(factory).parameters.values():
            optional = each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
            needs += [] if optional or each.default is not each.empty else [each.name]
    if needs:
        given = ", ".join(f"{each}=…" for each in needs)
        raise InvalidInput(
            f"{option} must name a function to call without arguments, got {spec!r}, which needs "
            f"{', '.join(needs)}. Write `def make(): return {name}({given})` there, and name "
            f"{module}:make."
        )
    return _try(spec, option, factory)


def _try(spec: str, option: str, work: Callable[[], Any]) -> Any:
    try:
        return work()
    except SnapsureError:
        raise
    except Exception as error:
        raise InvalidInput(
            f"{option} must name a function to call, got {spec!r}, which raised "
            f"{type(error).__name__} ({error}). Try it in Python first."
        ) from None


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
