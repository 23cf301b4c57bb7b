"""A predictor stored by MLflow and loaded by it: a real `load_model`, no server, no network."""

import json
import subprocess
import sys
import textwrap
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from snapsure import AES, Predictor, SnapshotStore, Threshold
from snapsure.errors import InvalidInput
from snapsure.integrations.mlflow import log_model, save_model
from tests.support.refusals import refuses

pytestmark = pytest.mark.slow

CODE = """
from torch import nn


def network():
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
"""


def network():
    """The same, to train."""
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))


@pytest.fixture
def mlflow(monkeypatch):
    """MLflow, which tells nobody that it is used, and may keep runs in a folder."""
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*Any type hint is inferred as AnyType")
        import mlflow.pyfunc
    return mlflow


@pytest.fixture
def code(tmp_path, monkeypatch):
    """A user's module, which is on the path for as long as the predictor is made."""
    (tmp_path / "code").mkdir()
    path = tmp_path / "code" / "user_network.py"
    path.write_text(CODE)
    monkeypatch.syspath_prepend(path.parent)
    yield path
    sys.modules.pop("user_network", None)


@pytest.fixture
def predictor(code, tmp_path):
    store = SnapshotStore(tmp_path / "snapshots")
    for epoch in range(1, 6):
        store.save(network(), epoch)
    x = torch.rand(200, 5)
    confidence = Predictor("user_network:network", store, AES(k=3))(x).confidence
    threshold = Threshold.at_coverage(confidence, 0.5)
    return Predictor("user_network:network", store, AES(k=3), threshold)


def same(frame, answer):
    assert list(frame.columns) == ["label", "confidence", "accepted"]
    for name, values in answer._asdict().items():
        assert frame[name].tolist() == values.tolist()


def test_answers_of_the_loaded_model(mlflow, predictor, code, tmp_path):
    save_model(predictor, tmp_path / "model", code_paths=[code])
    model = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    x = np.random.default_rng(0).random((50, 5)).astype(np.float32)
    answer = predictor(x)
    assert 0 < answer.accepted.sum() < 50
    same(model.predict(x), answer)
    same(model.predict(x.tolist()), answer)
    same(model.predict(pd.DataFrame(x, columns=list("abcde"))), answer)
    # NumPy's ordinary type
    same(model.predict(pd.DataFrame(x.astype(np.float64), columns=list("abcde"))), answer)
    with refuses(InvalidInput, "`model_input`", "got object"):
        model.predict(pd.DataFrame({"a": ["x"], "b": [1.0]}))


def test_a_new_process_has_the_code_from_the_model_alone(mlflow, predictor, code, tmp_path):
    predictor.save(tmp_path / "saved")
    save_model(tmp_path / "saved", tmp_path / "model", code_paths=[code])
    x = np.random.default_rng(1).random((4, 5)).astype(np.float32)
    answer = predictor(x)
    code.unlink()
    told = subprocess.run(
        [
            sys.executable,
            "-c",
            textwrap.dedent("""
                import json, sys
                import numpy as np
                import mlflow.pyfunc
                model = mlflow.pyfunc.load_model(sys.argv[1])
                frame = model.predict(np.array(json.loads(sys.argv[2]), np.float32))
                print(frame.to_json(orient="split", double_precision=15))
            """),
            tmp_path / "model",
            json.dumps(x.tolist()),
        ],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    rows = json.loads(told.stdout)["data"]
    assert [row[0] for row in rows] == answer.label.tolist()
    np.testing.assert_allclose([row[1] for row in rows], answer.confidence, rtol=1e-6)
    assert [row[2] for row in rows] == answer.accepted.tolist()


def test_names_of_classes(mlflow, predictor, code, tmp_path):
    names = ["cat", "dog", "owl"]
    named = Predictor(predictor.factory, predictor.snapshots, AES(k=3), classes=names)
    save_model(named, tmp_path / "model", code_paths=[code])
    x = np.random.default_rng(3).random((20, 5)).astype(np.float32)
    frame = mlflow.pyfunc.load_model(str(tmp_path / "model")).predict(x)
    assert frame["label"].tolist() == [names[label] for label in named(x).label]


def test_what_is_stored(mlflow, predictor, code, tmp_path):
    save_model(predictor, tmp_path / "model", code_paths=[code], metadata={"owner": "us"})
    stored = tmp_path / "model" / "data" / "predictor"
    names = {path.name.partition("-")[0] for path in stored.iterdir()}
    assert names == {"predictor.json", "epoch"}
    assert not list((tmp_path / "model").rglob("*.pkl"))
    needed = (tmp_path / "model" / "requirements.txt").read_text()
    assert "snapsure[mlflow]==" in needed
    assert "+" not in needed
    assert mlflow.models.get_model_info(str(tmp_path / "model")).metadata == {"owner": "us"}
    save_model(predictor, tmp_path / "other", pip_requirements=["snapsure"])
    assert "torch" not in (tmp_path / "other" / "requirements.txt").read_text()


def test_logged_to_a_run(mlflow, predictor, code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    try:
        with mlflow.start_run():
            told = log_model(predictor, "digits", code_paths=[code])
        x = np.random.default_rng(2).random((6, 5)).astype(np.float32)
        same(mlflow.pyfunc.load_model(told.model_uri).predict(x), predictor(x))
    finally:
        mlflow.set_tracking_uri(before)


def test_a_predictor_without_a_factory(predictor, tmp_path):
    made = Predictor(
        nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3)), predictor.snapshots, AES(k=3)
    )
    made.save(tmp_path / "saved")
    for given in (made, tmp_path / "saved"):
        with refuses(InvalidInput, "`predictor`", "model='package.module:factory'"):
            save_model(given, tmp_path / "model")
    with pytest.raises(InvalidInput, match=r"must be a saved predictor, got no predictor\.json"):
        save_model(tmp_path / "nothing", tmp_path / "model")
