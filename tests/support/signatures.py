"""Every public function, method and command with its parameters and their defaults, as text.

`signatures.txt` holds what was last published. After a change that the changelog names, write it
again by `python -m tests.support.signatures`.
"""

import ast
import importlib
import inspect
import os
from functools import partial
from pathlib import Path

import snapsure

PUBLISHED = Path(__file__).with_name("signatures.txt")
SOURCE = Path(snapsure.__file__).parent
ADAPTERS = ("keras", "lightning", "mlflow", "sklearn", "torchmetrics", "transformers", "trees")
LATER = ("cli", "integrations", "paper")
ROOMS = sorted(path.parent.name for path in SOURCE.glob("*/__init__.py"))


def list_room(room):
    """List what users find in a room, a line each; of a class, also its methods."""
    module = importlib.import_module(f"snapsure.{room}")
    tree = ast.parse((SOURCE / room / "__init__.py").read_text())
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    names = sorted(alias.name for node in imports for alias in node.names)
    return [line for name in names for line in _list_object(name, getattr(module, name))]


def list_adapter(name):
    """List what a module of `integrations` defines."""
    os.environ.setdefault("KERAS_BACKEND", "torch")
    module = importlib.import_module(f"snapsure.integrations.{name}")
    own = {
        key: value
        for key, value in vars(module).items()
        if not key.startswith("_") and getattr(value, "__module__", "") == module.__name__
    }
    return [line for key in sorted(own) for line in _list_object(key, own[key])]


def list_commands():
    """List every command and its options."""
    from typer.main import get_command

    from snapsure.cli import app

    lines = []
    for name, command in sorted(get_command(app).commands.items()):
        given = [f"{each.name}={_write(each.default)}" for each in command.params]
        lines.append(f"{name}({', '.join(given)})")
    return lines


def list_all():
    """List everything by where it is, in functions that import it when they are called."""
    rooms = {room: partial(list_room, room) for room in ROOMS if room not in LATER}
    adapters = {f"integrations.{name}": partial(list_adapter, name) for name in ADAPTERS}
    return {**rooms, "commands": list_commands, **adapters}


def read_published():
    """Return what `list_all` returned when it was last written."""
    parts = PUBLISHED.read_text(encoding="utf-8").split("\n\n")
    return {part.splitlines()[0]: part.splitlines()[1:] for part in parts}


def _list_object(name, value):
    if not callable(value):
        return []
    adapts = value.__module__.startswith("snapsure.integrations")
    lines = [f"{name}{_list_parameters(value)}"]
    if inspect.isclass(value):
        if adapts and "__init__" not in vars(value):  # it has the parameters of its framework
            lines = []
        for key, method in sorted(vars(value).items()):
            method = getattr(method, "__func__", method)
            if inspect.isfunction(method) and not key.startswith("_"):
                lines.append(f"{name}.{key}{_list_parameters(method)}")
    return lines


def _list_parameters(function):
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # of a builtin
        return "(…)"
    given = []
    for each in parameters:
        default = "" if each.default is each.empty else f"={_write(each.default)}"
        given.append(f"{'*' * (each.kind == each.VAR_POSITIONAL)}{each.name}{default}")
    return f"({', '.join(given)})"


def _write(default):
    if isinstance(default, Path):
        return f"Path({str(default)!r})"
    plain = (str, int, float, bool, tuple, type(None))
    return repr(default) if isinstance(default, plain) else type(default).__name__


if __name__ == "__main__":
    parts = ["\n".join([where, *make()]) for where, make in list_all().items()]
    PUBLISHED.write_text("\n\n".join(parts), encoding="utf-8")
