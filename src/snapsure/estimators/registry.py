"""The registry of methods: every way to a confidence, in one list.

`evaluate`, `compare`, `choose`, the report, the command line and saved files find methods here,
each by its one name. To add a method, write an `Estimator` and register it; then it is compared,
chosen, saved and deployed like the others: `@register` above the class is all it takes.

A name in a file never imports code: only registered classes, or those passed to a `load` function,
are found.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeVar

from snapsure.errors import InvalidInput
from snapsure.estimators._aes import AES
from snapsure.estimators._base import Estimator
from snapsure.estimators._error_predictor import ErrorPredictor
from snapsure.estimators._les import LES
from snapsure.estimators._logits import FinalGEN
from snapsure.estimators._pes import PES
from snapsure.estimators._pnorm import MaxLogitPNorm
from snapsure.estimators._single import BestSnapshot, Final
from snapsure.estimators._sptd import SPTD
from snapsure.estimators._temperature import Temperature

__all__ = ["AVERAGED", "FINAL", "Method", "find_class", "find_method", "get", "names", "register"]

Need = Literal["labels", "snapshots", "snapshot labels", "logits", "averaged"]
Export = Literal["mean", "layers", "logistic"]

FINAL = "final"
AVERAGED = "averaged weights"
# Mid-tones that colour-blind readers can tell apart, on a light and on a dark background.
_RED, _BLUE, _GREEN, _ORANGE, _GREY = "#d1495b", "#0c7bb3", "#2e933c", "#c77d0a", "#8a8a8a"


@dataclass(frozen=True)
class Method:
    """One way to a confidence.

    Attributes
    ----------
    name : str
        The name that results, files, the page and the command line use.
    make : callable
        Makes the estimator, not fitted.
    description : str
        What it does, in one sentence.
    needs : tuple of str
        What a table must have: "labels" to learn from, several "snapshots", the "snapshot labels"
        (each snapshot's own predictions), the final "logits", several or what "averaged"
        weights answer.
    passes : int or None
        Forward passes per answer, where the name fixes them.
    make_within : callable or None
        Makes the estimator for at most so many snapshots per answer, where it can adapt.
    is_candidate : bool
        Whether `choose` may deploy it. `evaluate` shows it by default, unless it fixes `passes`.
    export : str or None
        The formula that a deployed graph computes; None if the method cannot be exported.
    colour : str
        Its colour in every chart.

    Examples
    --------
    >>> method = Method("AES (k=10)", partial(AES, 10), needs=("snapshots",))
    >>> method.make()
    AES(k=10, start=0.4)
    """

    name: str
    make: Callable[[], Estimator]
    description: str = ""
    needs: tuple[Need, ...] = ()
    passes: int | None = None
    make_within: Callable[[int], Estimator] | None = None
    is_candidate: bool = True
    export: Export | None = None
    colour: str = _GREY


_LEARNS: tuple[Need, ...] = ("snapshots", "labels")
_LOGITS: tuple[Need, ...] = ("logits", "labels")


def _rival(name: str, make: Callable[[], Estimator], description: str, *needs: Need) -> Method:
    return Method(name, make, description, needs, is_candidate=False)


_BUILT_IN = (
    Method(FINAL, Final, "κ of the final snapshot.", passes=1, export="mean", colour=_RED),
    Method(
        *("AES", AES, "Mean κ of up to 30 snapshots, from 40 % of the training on."),
        needs=("snapshots",),
        make_within=lambda snapshots: AES(min(30, snapshots)),
        export="mean",
        colour=_BLUE,
    ),
    Method(
        *("LES", LES, "A logistic regression on up to 20 snapshots and the final logits."),
        needs=_LEARNS,
        make_within=lambda snapshots: LES(passes=snapshots),
        export="logistic",
        colour=_ORANGE,
    ),
    Method(
        *("PES", PES, "For each layer of confidence, κ of the snapshot that ranks it best."),
        needs=_LEARNS,
        export="layers",
        colour=_GREEN,
    ),
    Method(
        *("best snapshot", BestSnapshot, "κ of the snapshot that ranks labelled examples best."),
        needs=_LEARNS,
        export="mean",
    ),
    Method(
        *(AVERAGED, Final, "The network of the snapshots' mean weights, with answers of its own."),
        needs=("averaged",),
        passes=1,
        export="mean",
    ),
    *(
        Method(
            *(f"LES ({n} passes)", partial(LES, passes=n), f"LES with the best {n} snapshots."),
            needs=_LEARNS,
            passes=n,
            is_candidate=n == 3,
            export="logistic",
            colour=_ORANGE,
        )
        for n in (4, 3, 2)
    ),
    Method(
        *("PES (paper)", partial(PES, assign="paper"), "PES, assigned as the paper writes it."),
        needs=_LEARNS,
        is_candidate=False,
        export="layers",
        colour=_GREEN,
    ),
    _rival("temperature by NLL", Temperature, "Softmax at the T of least NLL.", *_LOGITS),
    _rival(
        *("temperature by AURC", partial(Temperature, "aurc"), "Softmax at the T of least AURC."),
        *_LOGITS,
    ),
    _rival("MaxLogit-pNorm", MaxLogitPNorm, "The largest logit over their p-norm.", *_LOGITS),
    _rival("error predictor", ErrorPredictor, "A regression on the final logits.", *_LOGITS),
    _rival("gen", FinalGEN, "Generalised entropy of the final softmax.", "logits"),
    _rival("SPTD", SPTD, "How rarely snapshots disagree with the end.", "snapshot labels"),
)
_METHODS = {method.name: method for method in _BUILT_IN}

Registered = TypeVar("Registered", bound=type[Estimator] | Method)


def register(method: Registered) -> Registered:
    """Add a method: an `Estimator` class, named as the class, or a `Method` with its own name.

    It works as a decorator of a class. Registering the same name again replaces the method, except
    for the names of this library.

    Raises
    ------
    InvalidInput
        If the name, or the name of the estimator's class, belongs to this library.

    Examples
    --------
    >>> method = register(Method("AES (k=10)", partial(AES, 10), needs=("snapshots",)))
    >>> get("AES (k=10)") is method
    True
    """
    record = method if isinstance(method, Method) else _describe(method)
    cls = type(record.make())
    names = {method.name for method in _BUILT_IN}
    classes = {type(method.make()).__name__: type(method.make()) for method in _BUILT_IN}
    taken = [record.name] if record.name in names else []
    taken += [cls.__name__] if classes.get(cls.__name__, cls) is not cls else []
    if taken:
        raise InvalidInput(
            f"`method` must have a name of its own, got {taken[0]!r}, which snapsure uses. Choose "
            "another name."
        )
    _METHODS[record.name] = record
    return method


def _describe(cls: type[Estimator]) -> Method:
    first_line = (cls.__doc__ or "").strip().partition("\n")[0]
    return Method(cls.__name__, cls, first_line, ("labels",) if cls.learns else ())


def names() -> list[str]:
    """Return the names of all registered methods."""
    return list(_METHODS)


def get(name: str) -> Method:
    """Return a method by its name.

    Raises
    ------
    InvalidInput
        If no method has that name.
    """
    if name not in _METHODS:
        raise InvalidInput(
            f"`method` must be one of {', '.join(_METHODS)}, got {name!r}. Choose one of these, or "
            "register your own: snapsure.estimators.register(MyEstimator)."
        )
    return _METHODS[name]


def find_method(estimator: Estimator) -> Method | None:
    """Return the method of an estimator with its settings, or of its class; None if unknown."""
    same = [method for method in _METHODS.values() if type(method.make()) is type(estimator)]
    exact = [method for method in same if method.make().settings == estimator.settings]
    return next(iter(exact or same), None)


def find_class(name: str, custom: Iterable[type[Estimator]] = ()) -> type[Estimator]:
    """Return the registered estimator class of this name, or the one of `custom`.

    Raises
    ------
    InvalidInput
        If no such class is registered. Nothing is imported to find it.
    """
    known = {cls.__name__: cls for cls in custom}
    known |= {type(method.make()).__name__: type(method.make()) for method in _METHODS.values()}
    if name not in known:
        raise InvalidInput(
            f"A saved estimator must be of a registered class, got {name!r}. Register it before "
            f"you load the file: snapsure.estimators.register({name}); or pass custom=[{name}]."
        )
    return known[name]
