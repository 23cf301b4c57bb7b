"""What tells a network from others besides its weights: its form, its settings and its code."""

import ast
import hashlib
import inspect
import sys
import textwrap
from collections.abc import Iterator
from types import FunctionType
from typing import Any

from torch import nn

_OTHERS = {"torch", *sys.stdlib_module_names} - {"__main__"}
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def model_digest(model: nn.Module) -> str:
    """Return a digest that is the same in every process and differs if the model's code does.

    It covers `repr(model)`, plain attributes of every module, and the source of the methods of
    their classes where that can be read. Comments, the version of Python and code of PyTorch do not
    matter.
    """
    digest = hashlib.sha256(repr(model).encode())
    known: set[type] = set()
    for name, module in model.named_modules():
        settings = {n: v for n, v in vars(module).items() if n != "training" and _is_plain(v)}
        digest.update(f"{name}{sorted(settings.items())}".encode())
        own = vars(module).get("forward")  # a function of this module alone
        digest.update(_read_source(own).encode())
        for kind in type(module).__mro__:
            if kind in known or kind.__module__.partition(".")[0] in _OTHERS:
                continue
            known.add(kind)
            digest.update("\n".join(_read_class(kind)).encode())
    return digest.hexdigest()[:16]


def _read_class(kind: type) -> Iterator[str]:
    """Yield the name of a class and the source of each of its methods."""
    yield f"{kind.__module__}.{kind.__qualname__}"
    for name, member in vars(kind).items():
        if isinstance(member, property):
            member = member.fget
        if isinstance(member, staticmethod | classmethod):
            member = member.__func__
        yield f"{name}: {_read_source(member)}"


def _read_source(function: Any) -> str:
    """Return the source of a Python function without comments; "" if it cannot be read."""
    function = inspect.unwrap(function) if callable(function) else None
    if not isinstance(function, FunctionType):
        return ""
    try:
        source = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        return ""
    try:
        return ast.unparse(ast.parse(source))
    except SyntaxError:  # a lambda in the middle of an expression
        return source


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_is_plain, value))
    return type(value) in _PLAIN
