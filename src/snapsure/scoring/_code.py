"""What tells a network from others besides its weights: its form, its settings, and its code.

Code is taken as Python runs it, not as text: a comment changes nothing, and a file that was edited
after it was imported does not count. It is followed from each module's `forward` through methods,
properties, functions, constants and plain attributes that it names; PyTorch's own is left out.
"""

import hashlib
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, MethodType
from typing import Any, NamedTuple

from torch import nn

_OTHERS = {"torch", *sys.stdlib_module_names} - {"__main__"}
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def model_digest(model: nn.Module) -> str:
    """A digest that is the same in every process, and another if the model computes otherwise."""
    digest = hashlib.sha256(repr(model).encode())
    known: dict[Any, _Reached] = {}
    for name, module in model.named_modules():
        owner = type(module)
        start = vars(module).get("forward", getattr(owner, "forward", None))
        key = (_function(start), owner)
        if key not in known:
            known[key] = _reached(start, owner)
            digest.update("\n".join(known[key].parts).encode())
        settings = {n: v for n, v in vars(module).items() if n in known[key].names and _is_plain(v)}
        digest.update(f"{name}{sorted(settings.items())}".encode())
    return digest.hexdigest()[:16]


class _Reached(NamedTuple):
    """Code as text, and all names in it."""

    parts: list[str]
    names: set[str]


def _reached(start: Any, owner: type) -> _Reached:
    """A method of a class, and all that it names, each once."""
    reached, seen, waiting = _Reached([], set()), set(), [start]
    while waiting:
        function = _function(waiting.pop())
        if function is None or function in seen or _is_others(function):
            continue
        seen.add(function)
        reached.parts.append(_text(function))
        named = {name for code in _codes(function.__code__) for name in code.co_names}
        reached.names.update(named)
        for name in sorted(named):
            waiting += [getattr(base, name, None) for base in owner.__mro__]
            waiting.append(function.__globals__.get(name))
        waiting += [_content(cell) for cell in function.__closure__ or ()]
        # What `super` calls has the same name.
        waiting += [getattr(base, function.__name__, None) for base in owner.__mro__]
    return reached


def _text(function: FunctionType) -> str:
    """What a function does, without where it stands."""
    defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).items())
    closed = [_content(cell) for cell in function.__closure__ or ()]
    parts = [function.__qualname__, *(repr(v) for v in (*defaults, *closed) if _is_plain(v))]
    for code in _codes(function.__code__):
        parts += [code.co_code.hex(), repr(code.co_names), repr(code.co_varnames)]
        parts += _constants(code, function.__doc__)
        for name in code.co_names:
            value = function.__globals__.get(name)
            # A constant by its name: a flag may change while the program runs.
            if name.isupper() and _is_plain(value):
                parts.append(f"{name}={value!r}")
    return "\n".join(parts)


def _function(value: Any) -> FunctionType | None:
    """The Python function in something that can be called, or read as an attribute."""
    while not isinstance(value, FunctionType):
        if isinstance(value, MethodType | staticmethod | classmethod):
            value = value.__func__
        elif isinstance(value, property):
            value = value.fget
        else:
            return None
    return value


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A function's code, and that of functions within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _constants(code: CodeType, doc: str | None) -> list[str]:
    """The constants of a code but what documents it; a set's order differs between processes."""
    return [
        repr(sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant)
        for constant in code.co_consts
        if not isinstance(constant, CodeType) and (constant is None or constant != doc)
    ]


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a variable that has no value yet
        return None


def _is_others(value: Any) -> bool:
    return str(value.__module__).partition(".")[0] in _OTHERS


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_is_plain, value))
    return type(value) in _PLAIN
