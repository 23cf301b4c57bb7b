"""Make a network by a name: `package.module:function`, or `file.py:function`."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

from torch import nn

from snapsure.errors import InvalidInput


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


def make_network(factory: str) -> nn.Module:
    """Import and call what `package.module:name` names, and return the network."""
    module, _, name = factory.partition(":")
    try:
        network = getattr(import_module(module), name)()
    except Exception as error:
        raise InvalidInput(
            f"`model` must name a function that makes the network, as package.module:name, got "
            f"{factory!r}, which raised {type(error).__name__} ({error}). Try it in Python first."
        ) from None
    if not isinstance(network, nn.Module):
        raise InvalidInput(
            f"`model` must name a function that makes the network, got {factory!r}, which returned "
            f"{type(network).__name__}. Return a torch.nn.Module."
        )
    return network
