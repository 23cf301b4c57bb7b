"""Identify a network by what its weights do not show: its form, its settings and its code."""

import ast
import hashlib
import inspect
import sys
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from types import CodeType, FunctionType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from torch import nn

_OTHERS = {"torch", *sys.stdlib_module_names} - {"__main__"}
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
# Finding and parsing a source takes longer than all else here. Each is kept with its code, which
# autoreload in a notebook replaces.
_sources = WeakKeyDictionary[FunctionType, tuple[CodeType, str]]()


def model_digest(model: nn.Module) -> str:
    """Return a digest that is the same in every process and differs if the model's code does.

    It covers `repr(model)`, plain attributes of every module, and the source, where it can be read,
    of their classes and of the functions, classes and CONSTANTS that these use by name. Comments,
    the version of Python and code of PyTorch do not matter; of an installed package, only the
    classes of the modules count.
    """
    digest, known = hashlib.sha256(repr(model).encode()), set[int]()
    for name, module in model.named_modules():
        settings = {n: v for n, v in vars(module).items() if n != "training" and _is_plain(v)}
        digest.update(f"{name}{sorted(settings.items())}".encode())
        own = vars(module).get("forward")  # a function of this module alone
        for part in (own, *module._forward_hooks.values(), *type(module).__mro__):
            digest.update("\n".join(_read(part, known)).encode())
    return digest.hexdigest()[:16]


def _read(part: Any, known: set[int]) -> Iterator[str]:
    """Yield the source of a function, or of all methods of a class, and of what they use."""
    if isinstance(part, property):
        part = part.fget
    try:
        part = getattr(part, "__func__", part)  # of a static method or a class method
        part = inspect.unwrap(part) if callable(part) else part
        package = (getattr(part, "__module__", None) or "").partition(".")[0]
    except Exception:  # an object with a __getattr__ of its own, such as a configuration
        return
    if not isinstance(part, type | FunctionType) or package in _OTHERS or id(part) in known:
        return
    known.add(id(part))
    if part.__name__ != "<lambda>":  # which may be written again elsewhere
        yield f"{part.__module__}.{part.__qualname__}"
    if isinstance(part, type):
        for name, member in vars(part).items():
            if name.isupper() and _is_plain(member):  # others may count or cache
                yield f"{name} = {member!r}"
            yield from _read(member, known)
        return
    code, source = _sources.get(part, (None, ""))
    if code is not part.__code__:
        source = _read_source(part)
        _sources[part] = part.__code__, source
    yield source
    if "site-packages" not in part.__code__.co_filename:
        yield from _read_used(part, known)


def _read_used(function: FunctionType, known: set[int]) -> Iterator[str]:
    """Yield what a function uses of its module, and of modules that it names."""
    names = sorted({*_list_names(function.__code__)})
    for name in names:
        used = function.__globals__.get(name)
        if isinstance(used, ModuleType) and used.__name__.partition(".")[0] not in _OTHERS:
            for inner in names:
                yield from _read(vars(used).get(inner), known)
        elif name.isupper() and _is_plain(used) and name in function.__globals__:
            yield f"{name} = {used!r}"
        else:
            yield from _read(used, known)


def _list_names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _list_names(inner)


def _read_source(function: FunctionType) -> str:
    """Return the source of a function without comments; "" if it cannot be read."""
    try:
        source = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        return ""
    if function.__name__ != "<lambda>":
        return ast.unparse(ast.parse(source))
    start = source.find("lambda")  # in the middle of lines that are no whole expression
    for end in range(len(source), start, -1):
        with suppress(SyntaxError):
            nodes = [*ast.walk(ast.parse(source[start:end].strip(), mode="eval"))]
            code = function.__code__
            names = [*code.co_varnames[: code.co_argcount]]
            own = [
                ast.unparse(node)
                for node in nodes
                if isinstance(node, ast.Lambda) and [a.arg for a in node.args.args] == names
            ]
            return "\n".join(own) or source  # lambdas on one line look the same
    return source


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_is_plain, value))
    return type(value) in _PLAIN
