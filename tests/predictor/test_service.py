"""The example service, in a real server, over HTTP."""

import json
import os
import re
import sys
import time
import urllib.error
import urllib.request

import pytest

from snapsure import AES, Predictor
from tests.support import processes

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def address(deployed, tmp_path_factory):
    """Where the service answers."""
    folder = tmp_path_factory.mktemp("service") / "predictor"
    Predictor("tests.support.network:digits_network", deployed.digits.store, AES(k=3)).save(folder)
    command = [sys.executable, "-m", "uvicorn", "examples.service:app", "--port", "0"]
    env = {**os.environ, "PREDICTOR": str(folder)}
    log = folder.parent / "log.txt"
    with (
        log.open("w") as file,
        processes.started(command, cwd=processes.ROOT, env=env, stderr=file) as server,
    ):
        deadline = time.monotonic() + processes.LONG
        while not (found := re.search(r"http://127\.0\.0\.1:\d+", log.read_text())):
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        yield found[0]


def post(address, body):
    request = urllib.request.Request(address, data=body)
    try:
        with urllib.request.urlopen(request, timeout=processes.LONG) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def test_it_answers(deployed, address):
    x = deployed.x[:30]
    status, said = post(address, json.dumps({"inputs": x.tolist()}).encode())
    answer = Predictor(deployed.digits.model(), deployed.digits.store, AES(k=3))(x)
    assert status == 200
    assert said["label"] == answer.label.tolist()
    assert said["confidence"] == pytest.approx(answer.confidence.tolist(), abs=1e-6)
    assert said["accepted"] == [True] * 30


def test_bad_input_gets_a_sentence(address):
    assert post(address, b"{")[0] == 422
    assert post(address, b"{}") == (422, {"error": "'inputs'"})
    status, said = post(address, json.dumps({"inputs": [[1.0, 2.0]]}).encode())
    assert status == 422
    told = "`batch` must be what the network takes, got torch.float32 of shape (1, 2)"
    assert said["error"].startswith(told)
    assert post(address, json.dumps({"inputs": []}).encode())[0] == 422
