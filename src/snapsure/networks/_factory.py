"""Import and call what users name: `package.module:function`, or `file.py:function`."""

import importlib
import inspect
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from snapsure.errors import InvalidInput, SnapsureError


def import_module(module: str) -> ModuleType:
    """Import a module by its name, or by its file, as `python file.py` finds what is beside it."""
    if not module.endswith(".py"):
        return importlib.import_module(module)
    path = Path(module).resolve()
    if not path.is_file():
        raise ImportError(f"there is no file {module}")
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    found = importlib.import_module(path.stem)
    if found.__file__ is None or Path(found.__file__).resolve() != path:
        raise ImportError(f"another module is called {path.stem}: give {module} another name")
    return found


def import_name(spec: str, argument: str) -> Any:
    """Import what package.module:name or file.py:name names; errors name the argument."""
    module, _, name = spec.rpartition(":")
    if not module or not name:
        raise InvalidInput(
            f"{argument} must be package.module:name or file.py:name, got {spec!r}. Write both "
            "parts."
        )
    return _try(spec, argument, lambda: getattr(import_module(module), name))


def call_factory(spec: str, argument: str) -> Any:
    """Import what package.module:name or file.py:name names, and call it.

    What cannot be called without arguments is refused with the line that makes it callable.
    """
    factory, (module, _, name) = import_name(spec, argument), spec.rpartition(":")
    if not callable(factory) or isinstance(factory, nn.Module):
        raise InvalidInput(
            f"{argument} must name a function to call, got {spec!r}, which is a "
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
            f"{argument} must name a function to call without arguments, got {spec!r}, which needs "
            f"{', '.join(needs)}. Write `def make(): return {name}({given})` there, and name "
            f"{module}:make."
        )
    return _try(spec, argument, factory)


def make_network(model: nn.Module | str) -> nn.Module:
    """Return a network as it is, or the one that `package.module:name` makes."""
    network = call_factory(model, "`model`") if isinstance(model, str) else model
    if not isinstance(network, nn.Module):
        source = f"{model!r}, which returned a " if isinstance(model, str) else ""
        raise InvalidInput(
            f"`model` must be, or make, a torch.nn.Module, got {source}{type(network).__name__}. "
            "Pass or return one, or name what makes it as package.module:factory."
        )
    return network


def _try(spec: str, argument: str, work: Callable[[], Any]) -> Any:
    try:
        return work()
    except SnapsureError:
        raise
    except Exception as error:
        raise InvalidInput(
            f"{argument} must name a function to call, got {spec!r}, which raised "
            f"{type(error).__name__} ({error}). Try it in Python first."
        ) from None
