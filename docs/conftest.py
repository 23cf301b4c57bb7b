"""Pages of the integrations run with frameworks that warn about themselves."""

import sys

import pytest

_THEIRS = {
    "lightning.md": (
        # Its advice on workers; the way it reads PyTorch's trees.
        "ignore::lightning.fabric.utilities.warnings.PossibleUserWarning",
        "ignore:.*LeafSpec.*:FutureWarning",
    ),
    # Memory is pinned for an accelerator that is not there.
    "transformers.md": ("ignore:'pin_memory' argument is set as true",),
    # NumPy has become strict about a keyword.
    "keras.md": ("ignore:__array__ implementation doesn't accept:DeprecationWarning",),
    # Types of its own models.
    "mlflow.md": ("ignore:.*Any type hint is inferred as AnyType",),
}


@pytest.fixture(autouse=True)
def _apart(monkeypatch):
    """What a page puts on the path goes with it; MLflow does not tell its makers it was used."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")


def pytest_collection_modifyitems(items):
    """Mark what needs a framework; leave warnings that are not ours to fix to their makers."""
    for item in items:
        if item.path.parent.name == "integrations" and item.path.suffix == ".md":
            item.add_marker(pytest.mark.slow)
            for rule in _THEIRS.get(item.path.name, ()):
                item.add_marker(pytest.mark.filterwarnings(rule))
        if item.path.name in ("adopt.md", "deploy.md"):
            item.add_marker(pytest.mark.slow)
