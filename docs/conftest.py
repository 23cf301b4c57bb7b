"""Pages of the integrations run with frameworks that warn about themselves."""

import pytest

_THEIRS = (
    # Lightning: its advice on workers; the way it reads PyTorch's trees.
    "ignore::lightning.fabric.utilities.warnings.PossibleUserWarning",
    "ignore:.*LeafSpec.*:FutureWarning",
    # Transformers: memory is pinned for an accelerator that is not there.
    "ignore:'pin_memory' argument is set as true",
    # Keras: NumPy has become strict about a keyword.
    "ignore:__array__ implementation doesn't accept:DeprecationWarning",
)

_FRAMEWORKS = (
    "checkpoints.md",
    "lightning.md",
    "transformers.md",
    "keras.md",
    "torchmetrics.md",
    "trees.md",
    "deploy.md",
    "sklearn.md",
)


def pytest_collection_modifyitems(items):
    """Leave warnings that are not ours to fix to their frameworks."""
    for item in items:
        if item.path.name in ("lightning.md", "transformers.md", "keras.md"):
            for rule in _THEIRS:
                item.add_marker(pytest.mark.filterwarnings(rule))
        if item.path.name in _FRAMEWORKS:
            item.add_marker(pytest.mark.slow)
