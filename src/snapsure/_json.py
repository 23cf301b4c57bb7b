"""JSON files that carry their own hash: one way to write them, one check on reading.

A schema says what a file must hold: `str`, `bool`, `int` (of 64 bits), `float` (a finite number),
`dict` or `list` (of anything), `None`; a range of whole numbers; a slice, for numbers between its
ends; a set of constants; a pattern for strings; a tuple of schemas, one of which holds; `[x]`, a
list of x; `[x, ...]`, one that is not empty; `[x, y]`, a list of just these; `{str: x}`, names (or
those of a pattern) with an x each; and `{"a": x, "b?": y}`, these keys at least, those with a
question mark if they are there.
"""

import hashlib
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from snapsure import _files
from snapsure.errors import CorruptFile, InvalidInput, StorageError

HASH = "sha256"
_AGAIN = "restore it, or save it again"
_NOTHING = object()
_LARGEST, _SHOWN = 2**63, 40
_WORDS = {
    str: "text",
    bool: "true or false",
    int: "a whole number",
    float: "a finite number",
    dict: "names and values",
    list: "a list",
}


def write(path: str | Path, kind: str, content: dict[str, Any]) -> None:
    """Write what a thing is and what it holds, whole or not at all."""
    _files.write_bytes(Path(path), text({"format": _format(kind), **content}))


def read(path: str | Path, kind: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Read what `write` wrote.

    Raises
    ------
    InvalidInput
        If there is no file.
    CorruptFile
        If it is something else, or damaged.
    """
    try:
        content = load(path, f"a saved {kind}", {"format": {_format(kind)}, **schema}, _AGAIN)
    except FileNotFoundError:
        raise InvalidInput(f"{path} must be a saved {kind}, got no file: check the path") from None
    return dict(content)


def text(content: dict[str, Any]) -> bytes:
    """JSON with the hash of what it says."""
    plain = json.loads(json.dumps(content))  # as it will be read: keys are strings
    return json.dumps({**plain, HASH: digest(plain)}, indent=1).encode()


def digest(content: Any) -> str:
    """SHA-256 of what is said, whatever the spaces and the order of names."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def load(path: str | Path, what: str, schema: Any, remedy: str, *, earlier: bool = True) -> Any:
    """Read what `text` made, and give it without the hash.

    `earlier` says whether earlier versions wrote such files without one.

    Raises
    ------
    FileNotFoundError
        If there is no file.
    CorruptFile
        If it is damaged, or does not hold what the schema says.
    """
    try:
        written = Path(path).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(path) from None
    except OSError as error:
        raise StorageError(
            error.errno, f"cannot read {path} ({error.strerror}): make it readable, or {remedy}"
        ) from None
    try:
        content = json.loads(written)
        told = content.pop(HASH, None) if isinstance(content, dict) else None
        same = told == digest(content) or (earlier and told is None)
    except (ValueError, RecursionError):
        raise CorruptFile(f"{path} must be {what}, got no JSON: {remedy}") from None
    if not same:
        raise CorruptFile(
            f"{path} must be {what}, as it was written, got other content (its SHA-256 differs): "
            f"{remedy}"
        )
    if wrong := unlike(content, schema):
        raise CorruptFile(f"{path} must be {what}, got something else ({wrong}): {remedy}")
    return content


def unlike(value: Any, schema: Any, place: str = "") -> str | None:
    """Where a value is not as a schema says, in words; None if it is."""
    if isinstance(schema, tuple):
        tried = [unlike(value, one, place) for one in schema]
        return None if None in tried else tried[0]
    if not _fits(value, schema):
        named = f"`{place.replace('.', '', 1)}`" if place else "it"
        return f"{named} must be {_words(schema)}, got {_shown(value)}"
    return next(filter(None, (unlike(*part) for part in _parts(value, schema, place))), None)


def _fits(value: Any, schema: Any) -> bool:
    """Whether a value itself is as a schema says, whatever is in it."""
    if schema is int or schema is float:
        if isinstance(value, float):
            return schema is float and math.isfinite(value)
        return type(value) is int and -_LARGEST <= value < _LARGEST
    if isinstance(schema, range):
        return type(value) is int and value in schema
    if isinstance(schema, slice):
        return _fits(value, float) and schema.start < value < schema.stop
    if isinstance(schema, type):
        return isinstance(value, schema)
    if isinstance(schema, dict):
        return isinstance(value, dict)
    if isinstance(schema, list):
        if schema[1:] == [...]:
            return isinstance(value, list) and bool(value)
        return isinstance(value, list) and len(schema) in (1, len(value))
    if isinstance(schema, re.Pattern):
        return isinstance(value, str) and schema.fullmatch(value) is not None
    constants = schema if isinstance(schema, set) else {schema}
    return any(value is one or (type(value) is type(one) and value == one) for one in constants)


def _parts(value: Any, schema: Any, place: str) -> Iterator[tuple[Any, Any, str]]:
    """What is in a value, what it must be, and where it is."""
    if isinstance(schema, list):
        each = schema[:1] * len(value) if schema[1:] in ([], [...]) else schema
        for i, (part, its) in enumerate(zip(value, each, strict=True)):
            yield part, its, f"{place}[{i}]"
    for key, its in schema.items() if isinstance(schema, dict) else ():
        if isinstance(key, str):
            name = key.removesuffix("?")
            if name in value or name == key:
                yield value.get(name, _NOTHING), its, f"{place}.{name}"
            continue
        for name, part in value.items():
            yield name, key, f"a name in {place}"
            yield part, its, f"{place}.{name}"


def _words(schema: Any) -> str:
    if isinstance(schema, type):
        return _WORDS[schema]
    if isinstance(schema, range):
        return f"a whole number ≥ {schema.start}"
    if isinstance(schema, slice):
        return f"a number between {schema.start} and {schema.stop}"
    if isinstance(schema, dict):
        return _WORDS[dict]
    if isinstance(schema, list):
        if schema[1:] == [...]:
            return "a list of at least one"
        return _WORDS[list] if len(schema) == 1 else f"a list of {len(schema)}"
    if isinstance(schema, re.Pattern):
        return f"text of the form {schema.pattern}"
    constants = schema if isinstance(schema, set) else {schema}
    return " or ".join(sorted(json.dumps(one) for one in constants))


def _shown(value: Any) -> str:
    if value is _NOTHING:
        return "nothing"
    if isinstance(value, dict | list):
        return f"a {type(value).__name__} of {len(value)}"
    whole = repr(value)
    return whole if len(whole) <= _SHOWN else f"{whole[:_SHOWN]}…"


def _format(kind: str) -> str:
    return f"snapsure {kind} 2"
