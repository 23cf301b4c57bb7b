"""Which of my classifier's predictions can I trust?

Public names load on first use, so that `import snapsure` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from snapsure.analysis import trajectories
    from snapsure.calibration import Platt
    from snapsure.contest import Comparison, Run, compare
    from snapsure.estimators import (
        AES,
        LES,
        PES,
        SPTD,
        MaxLogitPNorm,
        Temperature,
    )
    from snapsure.metrics import (
        Interval,
        RCCurve,
        RiskCoverageSketch,
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
    from snapsure.report.page import Report
    from snapsure.scores import (
        DeepKNN,
        Doctor,
        Energy,
        Ensemble,
        Entropy,
        Margin,
        MaxLogit,
        MCDropout,
        NNDistance,
        SoftmaxResponse,
    )
    from snapsure.scoring import (
        LocalExecutor,
        RayExecutor,
        average_weights,
        score,
    )
    from snapsure.selective import SelectiveClassifier
    from snapsure.snapshots import (
        Budget,
        Evenly,
        EveryEpoch,
        Recorder,
        SnapshotStore,
    )
    from snapsure.table import (
        ScoreTable,
    )

__all__ = [
    "AES",
    "Budget",
    "Comparison",
    "DeepKNN",
    "Doctor",
    "Energy",
    "Ensemble",
    "Entropy",
    "Evenly",
    "EveryEpoch",
    "Interval",
    "LES",
    "LocalExecutor",
    "MCDropout",
    "Margin",
    "MaxLogit",
    "MaxLogitPNorm",
    "NNDistance",
    "PES",
    "Platt",
    "RCCurve",
    "RayExecutor",
    "Recorder",
    "Report",
    "RiskCoverageSketch",
    "Run",
    "SPTD",
    "ScoreTable",
    "SelectiveClassifier",
    "SnapshotStore",
    "SoftmaxResponse",
    "Temperature",
    "augrc",
    "aurc",
    "aurc_optimal",
    "average_weights",
    "bootstrap",
    "bootstrap_difference",
    "brier",
    "compare",
    "coverage_at_risk",
    "eaurc",
    "ece",
    "naurc",
    "nll",
    "rc_curve",
    "risk_at_coverage",
    "score",
    "trajectories",
]

_HOMES = {
    "snapsure.analysis": "trajectories",
    "snapsure.calibration": "Platt",
    "snapsure.contest": "Comparison Run compare",
    "snapsure.estimators": "AES LES MaxLogitPNorm PES SPTD Temperature",
    "snapsure.report.page": "Report",
    "snapsure.selective": "SelectiveClassifier",
    "snapsure.metrics": (
        "Interval RCCurve RiskCoverageSketch augrc aurc aurc_optimal bootstrap "
        "bootstrap_difference brier coverage_at_risk eaurc ece naurc nll "
        "rc_curve risk_at_coverage"
    ),
    "snapsure.scores": (
        "DeepKNN Doctor Energy Ensemble Entropy MCDropout Margin MaxLogit NNDistance "
        "SoftmaxResponse"
    ),
    "snapsure.scoring": "LocalExecutor RayExecutor average_weights score",
    "snapsure.snapshots": ("Budget Evenly EveryEpoch Recorder SnapshotStore"),
    "snapsure.table": ("ScoreTable"),
}


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("snapsure.errors")
    for module, names in _HOMES.items():
        if name in names.split():
            try:
                return getattr(import_module(module), name)
            except ModuleNotFoundError as error:
                if error.name != "torch":
                    raise
                raise ModuleNotFoundError(
                    f"snapsure.{name} needs PyTorch, which is not installed: "
                    "pip install 'snapsure[torch]'",
                    name="torch",
                ) from None
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
