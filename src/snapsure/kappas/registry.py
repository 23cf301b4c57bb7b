"""The κ functions that a file or a command may name: ours, and those that you register.

A name in a file never imports code. It is looked up here, and a name that is not here is refused.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from snapsure.errors import InvalidInput
from snapsure.kappas._base import Kappa
from snapsure.kappas._logits import GEN, Doctor, Energy, Entropy, Margin, MaxLogit
from snapsure.kappas._mc_dropout import MCDropout
from snapsure.kappas._neighbours import DeepKNN, NNDistance
from snapsure.kappas._softmax import SoftmaxResponse

K = TypeVar("K", bound=type[Kappa])


@dataclass(frozen=True)
class Entry:
    """A κ class, and the arguments that its name stands for."""

    name: str
    kind: type[Kappa]
    options: Mapping[str, Any]


_entries: dict[str, Entry] = {}


def register(kind: K, **options: Any) -> K:
    """Let files and commands name a κ class. Usable as a decorator.

    Parameters
    ----------
    kind : subclass of Kappa
        Its `name` must be text on the class itself. Its `settings` must be arguments that make the
        κ again; if it has `prepares = True`, its first argument is the reference data.
    **options
        Arguments that the name stands for, where a class has several names.

    Examples
    --------
    >>> register(MCDropout, statistic="variance").__name__
    'MCDropout'
    >>> make("mc_dropout_variance", {"passes": 10}).settings["statistic"]
    'variance'
    """
    if not (isinstance(kind, type) and issubclass(kind, Kappa)):
        raise InvalidInput(f"`kind` must be a subclass of Kappa, got {kind!r}. Register a class.")
    name = kind(**options).name if options else getattr(kind, "name", None)
    if not isinstance(name, str) or not name:
        raise InvalidInput(
            f"`name` of {kind.__name__} must be text on the class itself, got {name!r}. "
            f'Write `name = "{kind.__name__.lower()}"` in the class'
        )
    known = _entries.get(name)
    if known is not None and _path(known.kind) != _path(kind):  # a notebook defines a class again
        raise InvalidInput(
            f"`name` of {kind.__name__} must be free, got {name!r}, which is {_path(known.kind)}. "
            "Choose another name."
        )
    _entries[name] = Entry(name, kind, options)
    return kind


def names() -> list[str]:
    """Return the names of all registered κ functions."""
    return list(_entries)


def get(name: str, custom: Iterable[type] = ()) -> Entry:
    """Return the entry of a name, from these classes first, or refuse an unknown name."""
    for kind in custom:
        if issubclass(kind, Kappa) and kind.name == name:
            return Entry(name, kind, {})
    if name not in _entries:
        raise InvalidInput(
            f"κ must be one of {', '.join(names())}, got {name!r}. If it is your own, register its "
            "class: snapsure.kappas.register(YourKappa)."
        )
    return _entries[name]


def make(
    name: str,
    settings: Mapping[str, Any] | None = None,
    *,
    reference: Any = None,
    custom: Iterable[type] = (),
) -> Kappa:
    """Make a κ from its name and settings; one that compares with other data gets `reference`."""
    entry = get(name, custom)
    first = (reference,) if entry.kind.prepares else ()
    return entry.kind(*first, **{**entry.options, **(settings or {})})


def _path(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


register(SoftmaxResponse)
register(NNDistance)
register(MCDropout)
register(MCDropout, statistic="variance")
register(MCDropout, statistic="entropy")
register(MCDropout, statistic="mutual_information")
register(Entropy)
register(Margin)
register(Energy)
register(MaxLogit)
register(Doctor)
register(GEN)
register(DeepKNN)
