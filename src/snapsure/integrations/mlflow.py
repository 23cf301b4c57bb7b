"""A saved predictor as a model of MLflow: `mlflow.pyfunc.load_model(path).predict(x)` answers.

What is stored is the predictor's folder, as `Predictor.save` writes it: JSON and safetensors, no
pickle. The network's code is what the folder names, so that module must be importable where the
model is loaded: hand it over in `code_paths`, or install it there.
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
        What a server has to install; by default this snapsure and this PyTorch.
    **options
        As `mlflow.pyfunc.save_model`: `signature`, `input_example`, `metadata`, …

    Raises
    ------
    InvalidInput
        If the predictor does not know how to make its network.
    """
    with _stored(predictor) as folder:
        told = _described(folder, code_paths, pip_requirements)
        _pyfunc().save_model(path=str(path), **told, **options)


def log_model(
    predictor: Predictor | str | Path,
    name: str = "predictor",
    *,
    code_paths: Sequence[str | Path] = (),
    pip_requirements: Sequence[str] | None = None,
    **options: Any,
) -> Any:
    """Log a predictor to the current run; MLflow's `ModelInfo`, whose `model_uri` loads it.

    Parameters
    ----------
    predictor, code_paths, pip_requirements
        As `save_model`.
    name : str
        What the model is called in the run.
    **options
        As `mlflow.pyfunc.log_model`: `registered_model_name`, `signature`, …
    """
    with _stored(predictor) as folder:
        told = _described(folder, code_paths, pip_requirements)
        return _pyfunc().log_model(name=name, **told, **options)


class _Answering:
    """What MLflow calls."""

    def __init__(self, predictor: Predictor) -> None:
        self.predictor = predictor

    def predict(self, model_input: Any, params: Any = None) -> Any:
        """Label (its name, where classes have names), confidence and accepted of each input.

        Inputs are what the predictor takes; of a DataFrame, its columns are the features.
        """
        import pandas as pd  # type: ignore[import-untyped]

        data = model_input
        if isinstance(data, pd.DataFrame):
            data = data.to_numpy()
            if data.dtype.kind not in "biuf":
                raise InvalidInput(
                    f"`model_input` must have columns of numbers, got {data.dtype}: convert them, "
                    "or pass an array"
                )
        elif isinstance(data, list):
            data = np.asarray(data)
        columns = self.predictor(data)._asdict()
        names = self.predictor.classes
        if names is not None:
            columns["label"] = [names[label] for label in columns["label"]]
        return pd.DataFrame(columns)


def _load_pyfunc(path: str) -> _Answering:
    """Load what `save_model` stored: MLflow looks for a function of this name."""
    return _Answering(Predictor.load(path))


@contextmanager
def _stored(predictor: Predictor | str | Path) -> Iterator[Path]:
    """The folder of a saved predictor; of one in memory, one for as long as it is needed."""
    if isinstance(predictor, Predictor):
        _refuse_without_factory(predictor.factory)
        with tempfile.TemporaryDirectory() as place:
            predictor.save(Path(place) / "predictor")
            yield Path(place) / "predictor"
    else:
        _refuse_without_factory(_folder.read(Path(predictor))["model"])
        yield Path(predictor)


def _refuse_without_factory(factory: str | None) -> None:
    if factory is None:
        raise InvalidInput(
            "`predictor` must know how to make its network, got one that was given the network "
            "itself: make it with model='package.module:factory'"
        )


def _described(
    folder: Path, code_paths: Sequence[str | Path], pip_requirements: Sequence[str] | None
) -> dict[str, Any]:
    needed = pip_requirements
    if needed is None:
        torch = version("torch").partition("+")[0]  # the build is the machine's own
        needed = [f"snapsure[mlflow]=={version('snapsure')}", f"torch=={torch}"]
    return {
        "loader_module": __name__,
        "data_path": str(folder),
        "code_paths": [str(one) for one in code_paths] or None,
        "pip_requirements": list(needed),
    }


def _pyfunc() -> Any:
    """MLflow's module, which warns about its own type hints when it is first imported."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*Any type hint is inferred as AnyType")
        import mlflow.pyfunc
    return mlflow.pyfunc
