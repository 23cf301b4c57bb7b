"""The example service, in a real server, over HTTP."""

import json
import os
import re
import socket
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
    env = {**os.environ, "PREDICTOR": str(folder), "MOST_BYTES": "100000", "MOST_SECONDS": "1"}
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
    assert post(address, b"{")[0] == 400
    assert post(address, b"{}") == (400, {"error": "'inputs'"})
    status, content = post(address, json.dumps({"inputs": [[1.0, 2.0]]}).encode())
    assert status == 400
    words = "`batch` must be what the network takes, got torch.float32 of shape (1, 2)"
    assert content["error"].startswith(words)
    assert post(address, json.dumps({"inputs": []}).encode())[0] == 400
    assert post(address, b'{"inputs": [[' + b"9" * 400 + b"]]}")[0] == 400
    assert post(address, b'{"inputs": [[NaN]]}')[0] == 400
    assert post(address, b"[" * 50_000)[0] == 400


def test_long_and_slow_bodies_are_refused(deployed, address):
    assert post(address, b" " * 100_001)[0] == 413
    host, port = address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=processes.LONG) as slow:
        slow.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{")
        body = json.dumps({"inputs": deployed.x[:1].tolist()}).encode()
        assert post(address, body)[0] == 200  # while the other has not sent its body
        assert slow.recv(1000).startswith(b"HTTP/1.1 408")
