"""JSON files that carry their own SHA-256.

Each room declares what a file holds as a `TypedDict` next to the code that reads the file, with
`msgspec.Meta` for ranges and patterns. `load` checks the hash first and the type second.
"""

import hashlib
import json
import re
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from snapsure import _files
from snapsure.errors import CorruptFile, InvalidInput, StorageError

HASH = "sha256"
_LONGEST = 40  # characters of a wrong value in a message

Integer = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]

T = TypeVar("T")


def write(path: str | Path, kind: str, content: dict[str, Any]) -> None:
    """Write a saved object, complete or not at all, and remove what killed writes of it left."""
    target = _files.check_path(path, "path")
    _files.write_bytes(target, text({"format": f"snapsure {kind} 2", **content}))
    _files.remove_partial(target.parent, re.compile(re.escape(target.name)))


def read(path: str | Path, kind: str, type_: type[T]) -> T:
    """Read what `write` wrote."""
    what, remedy = f"a saved {kind}", "restore it, or save it again"
    try:
        content = load(_files.check_path(path, "path"), what, dict[str, Any], remedy)
    except FileNotFoundError:
        raise InvalidInput(f"{path} must be {what}, got no file. Check the path.") from None
    if content.get("format") != f"snapsure {kind} 2":
        raise corrupt(path, what, f"`format` {_shorten(content.get('format'))}", remedy)
    return convert(content, type_, path, what, remedy)


def text(content: dict[str, Any]) -> bytes:
    """Encode as JSON, with the hash of the content; refuse what could not be read again."""
    plain = json.loads(json.dumps(content))  # as it will be read: keys are strings
    encoded = json.dumps({**plain, HASH: digest(plain)}, indent=1).encode()
    try:
        msgspec.json.decode(encoded)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidInput(
            f"What is saved must hold finite numbers and Unicode text, got something else ({error})"
            ". Correct it, and save it again."
        ) from None
    return encoded


def digest(content: Any) -> str:
    """Hash the content, whatever the spaces and the order of keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def load(path: str | Path, what: str, type_: type[T], remedy: str) -> T:
    """Read what `text` encoded, without the hash; without a file, raise FileNotFoundError.

    `what` completes "must be …" and `remedy` is an instruction, both for the message.
    """
    try:
        encoded = _files.read_bytes(Path(path))
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(path) from None
    except OSError as error:
        message = f"cannot read {path} ({error.strerror}). Make it readable, or {remedy}."
        raise StorageError(error.errno, message) from None
    try:
        content = msgspec.json.decode(encoded)  # which refuses NaN and infinity
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise corrupt(path, what, "no JSON", remedy) from None
    if not isinstance(content, dict) or content.pop(HASH, None) != digest(content):
        raise corrupt(path, what, "other content (its SHA-256 differs)", remedy)
    return convert(content, type_, path, what, remedy)


def convert(content: Any, type_: type[T], path: str | Path, what: str, remedy: str) -> T:
    """Give the content of a file as its type, or raise `CorruptFile` with the place and value."""
    try:
        return msgspec.convert(content, type_)
    except msgspec.ValidationError as error:
        rule, _, place = str(error).partition(" - at ")
        got = f"{_value_at(content, place)} at {place or '`$`'} ({rule})"
        raise corrupt(path, what, got, remedy) from None


def corrupt(path: str | Path, what: str, got: str, remedy: str) -> CorruptFile:
    """Word the error for a file that does not hold what it must."""
    return CorruptFile(f"{path} must be {what}, got {got}. {_files.instruct(remedy)}")


def _value_at(content: Any, place: str) -> str:
    """Describe the value at a place such as `$.layers[2].theta`."""
    for name, index in re.findall(r"\.(\w+)|\[(\d+|\.\.\.)\]", place):
        if index == "...":  # a value under a key that msgspec does not name
            return "a wrong value"
        content = content[name or int(index)]
    return _shorten(content)


def _shorten(value: Any) -> str:
    if isinstance(value, dict | list):
        return f"a {type(value).__name__} of {len(value)}"
    whole = repr(value)
    return whole if len(whole) <= _LONGEST else f"{whole[:_LONGEST]}…"
