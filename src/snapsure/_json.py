"""JSON files that say what they are: one way to write them, one check on reading."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from snapsure import _files
from snapsure.errors import CorruptFile, InvalidInput


def write(path: str | Path, kind: str, content: dict[str, Any]) -> None:
    """Write what a thing is and what it holds, whole or not at all."""
    text = json.dumps({"format": _format(kind), **content}, indent=1)
    _files.write_bytes(Path(path), text.encode())


def read(path: str | Path, kind: str, keys: Collection[str]) -> dict[str, Any]:
    """Read what `write` wrote, which must have the keys.

    Raises
    ------
    InvalidInput
        If there is no file.
    CorruptFile
        If it is something else.
    """
    try:
        content = json.loads(Path(path).read_bytes())
    except FileNotFoundError:
        raise InvalidInput(f"{path} must be a saved {kind}, got no file: check the path") from None
    except ValueError:
        content = None
    known = isinstance(content, dict) and content.get("format") == _format(kind)
    if not known or any(key not in content for key in keys):
        raise CorruptFile(f"{path} must be a saved {kind}, got something else: save it again")
    return dict(content)


def _format(kind: str) -> str:
    return f"snapsure {kind} 2"
