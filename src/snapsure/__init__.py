"""Which of my classifier's predictions can I trust?

Public names load on first use, so that `import snapsure` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from snapsure.metrics import (
        Interval,
        RCCurve,
        augrc,
        aurc,
        aurc_optimal,
        bootstrap,
        bootstrap_difference,
        brier,
        coverage_at_risk,
        eaurc,
        ece,
        naurc,
        nll,
        rc_curve,
        risk_at_coverage,
    )

__all__ = [
    "Interval",
    "RCCurve",
    "augrc",
    "aurc",
    "aurc_optimal",
    "bootstrap",
    "bootstrap_difference",
    "brier",
    "coverage_at_risk",
    "eaurc",
    "ece",
    "naurc",
    "nll",
    "rc_curve",
    "risk_at_coverage",
]

_HOMES = {
    "snapsure.metrics": (
        "Interval RCCurve augrc aurc aurc_optimal bootstrap bootstrap_difference brier "
        "coverage_at_risk eaurc ece naurc nll rc_curve risk_at_coverage"
    ),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names.split():
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
