"""A saved predictor as a model of MLflow: `mlflow.pyfunc.load_model(path).predict(x)` answers.

MLflow stores the predictor's folder, as `Predictor.save` writes it: JSON and safetensors, no
pickle. The module that makes the network must be importable where the model is loaded: pass it in
`code_paths`, or install it there.
"""

import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from snapsure.errors import InvalidInput
from snapsure.predictor import _folder
from snapsure.predictor._predictor import Predictor

__all__ = ["log_model", "save_model"]


def save_model(
    predictor: Predictor | str | Path,
    path: str | Path,
    *,
    code_paths: Sequence[str | Path] = (),
    pip_requirements: Sequence[str] | None = None,
    **options: Any,
) -> None:
    """Write a predictor to a new folder in MLflow's form.

    Parameters
    ----------
    predictor : Predictor or path
        Made with `model="package.module:factory"`, or the folder of one that was saved.
    path : path
        A folder that does not exist yet.
    code_paths : sequence of path
        Files and folders of the code that the factory needs; they are copied.
    pip_requirements : sequence of str, optional
        What a server must install; by default this snapsure and this PyTorch.
    **options
        As `mlflow.pyfunc.save_model`: `signature`, `input_example`, `metadata`, …
    """
    with _describe(predictor, code_paths, pip_requirements) as model:
        _import_pyfunc().save_model(path=str(path), **model, **options)


def log_model(
    predictor: Predictor | str | Path,
    name: str = "predictor",
    *,
    code_paths: Sequence[str | Path] = (),
    pip_requirements: Sequence[str] | None = None,
    **options: Any,
) -> Any:
    """Log a predictor to the current run; return MLflow's `ModelInfo` with its `model_uri`.

    `name` is the model's name in the run. Other arguments as for `save_model`; options as for
    `mlflow.pyfunc.log_model` (`registered_model_name`, `signature`, …).
    """
    with _describe(predictor, code_paths, pip_requirements) as model:
        return _import_pyfunc().log_model(name=name, **model, **options)


class _Model:
    """What MLflow calls."""

    def __init__(self, predictor: Predictor) -> None:
        self.predictor = predictor

    def predict(self, model_input: Any, params: Any = None) -> Any:
        """Return label (its name, where classes have names), confidence and accepted per input.

        Inputs are what the predictor takes; the columns of a DataFrame are the features.
        """
        import pandas as pd  # type: ignore[import-untyped]

        data = np.asarray(model_input) if isinstance(model_input, list) else model_input
        if isinstance(data, pd.DataFrame):
            data = data.to_numpy()
            if data.dtype.kind not in "biuf":
                raise InvalidInput(
                    f"`model_input` must have columns of numbers, got {data.dtype}. Convert them, "
                    "or pass an array."
                )
        columns = self.predictor(data)._asdict()
        if (names := self.predictor.classes) is not None:
            columns["label"] = [names[label] for label in columns["label"]]
        return pd.DataFrame(columns)


def _load_pyfunc(path: str) -> _Model:
    """Load what `save_model` stored: MLflow looks for a function of this name."""
    return _Model(Predictor.load(path, trust=True))  # the code is logged with the model


@contextmanager
def _describe(
    predictor: Predictor | str | Path,
    code_paths: Sequence[str | Path],
    pip_requirements: Sequence[str] | None,
) -> Iterator[dict[str, Any]]:
    """Yield what MLflow stores; a predictor in memory is saved to a temporary folder first."""
    with tempfile.TemporaryDirectory() as place:
        if isinstance(predictor, Predictor):
            folder, factory = Path(place) / "predictor", predictor.factory
        else:
            folder, factory = Path(predictor), _folder.read(Path(predictor))["model"]
        if factory is None:
            raise InvalidInput(
                "`predictor` must have a factory of its network, got one that was given the "
                "network itself. Make it with model='package.module:factory'."
            )
        if isinstance(predictor, Predictor):
            predictor.save(folder)
        if pip_requirements is None:
            torch = version("torch").partition("+")[0]  # without the build of this machine
            pip_requirements = [f"snapsure[mlflow]=={version('snapsure')}", f"torch=={torch}"]
        yield {
            "loader_module": __name__,
            "data_path": str(folder),
            "code_paths": [str(one) for one in code_paths] or None,
            "pip_requirements": list(pip_requirements),
        }


def _import_pyfunc() -> Any:
    """Import MLflow's module, which warns about its own type hints."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*Any type hint is inferred as AnyType")
        import mlflow.pyfunc
    return mlflow.pyfunc
