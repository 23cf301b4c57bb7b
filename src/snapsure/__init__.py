"""Which of my classifier's predictions can I trust?

The names most users need are here; every other public name is in its room, such as
`snapsure.kappas` or `snapsure.evaluation`. Each loads on first use, so that `import snapsure`
costs next to nothing. Type checkers read the same list from `__init__.pyi`.
"""

from collections.abc import Callable, Mapping
from typing import Any

import lazy_loader

from snapsure import _display

_load, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submodules=[
        "decisions",
        "errors",
        "estimators",
        "evaluation",
        "kappas",
        "metrics",
        "networks",
        "predictor",
        "report",
        "scoring",
        "snapshots",
        "table",
        "training",
    ],
    submod_attrs={
        "decisions": ["Monitor", "Platt", "Threshold"],
        "estimators": ["AES", "LES", "PES"],
        "evaluation": ["Comparison", "Result", "compare", "evaluate"],
        "kappas": ["MCDropout", "NNDistance", "SoftmaxResponse"],
        "metrics": [
            "Interval",
            "RCCurve",
            "RiskCoverageSketch",
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
        ],
        "predictor": ["Answer", "Predictor"],
        "report": ["Report"],
        "scoring": ["score"],
        "snapshots": ["Budget", "Ensemble", "Evenly", "EveryEpoch", "Recorder", "SnapshotStore"],
        "table": ["ScoreTable"],
        "training": ["Student"],
    },
)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("snapsure")
    try:
        return _load(name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ModuleNotFoundError(
            f"snapsure.{name} needs PyTorch, which is not installed. "
            "Run `pip install 'snapsure[torch]'`.",
            name="torch",
        ) from None


def _load_renderers() -> Mapping[str, Callable[..., Any]]:
    """Load what the report draws for the rooms before it, which cannot import it."""
    from snapsure.report import pictures, tables

    return {
        "curves": pictures.draw_curves,
        "boards": pictures.draw_boards,
        "comparison": tables.render_comparison,
        "comparison text": tables.write_comparison,
        "score table": tables.render_score_table,
    }


_display.set_renderers(_load_renderers)
