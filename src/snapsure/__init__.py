"""Which of my classifier's predictions can I trust?

Public names load on first use, so that `import snapsure` costs next to nothing. Each is written
once, in the `__init__.py` of its room; `__init__.pyi` lists the rooms, and type checkers read it.
"""

import ast
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from snapsure import _display

_HERE = Path(__file__).parent


def _load_renderers() -> Mapping[str, Callable[..., Any]]:
    """What the report draws for the rooms before it, which cannot import it."""
    from snapsure.report import pictures, tables

    return {
        "curves": pictures.draw_curves,
        "boards": pictures.draw_boards,
        "comparison": tables.render_comparison,
        "score table": tables.render_score_table,
    }


_display.set_renderers(_load_renderers)


def _imported(path: Path) -> Iterator[tuple[str, str]]:
    """Names that a file imports from this package, and from where, without running it."""
    for node in ast.parse(path.read_bytes()).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield alias.name, node.module


def _public() -> Iterator[tuple[str, str]]:
    """Every public name, and the room that has it."""
    for name, home in _imported(_HERE / "__init__.pyi"):
        if name == "*":
            room = _HERE / home.partition(".")[2] / "__init__.py"
            yield from ((inner, home) for inner, _ in _imported(room))
        else:
            yield name, home


_HOMES = dict(_public())

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("snapsure")
    elif name in _HOMES:
        value = _loaded(name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def _loaded(name: str) -> Any:
    home = _HOMES[name]
    if home == __name__:
        return import_module(f"{home}.{name}")
    try:
        return getattr(import_module(home), name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ModuleNotFoundError(
            f"snapsure.{name} needs PyTorch, which is not installed: pip install 'snapsure[torch]'",
            name="torch",
        ) from None


def __dir__() -> list[str]:
    return __all__
