"""Processes that tests start: each ends with its block, whatever happens there."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).parents[2]
LONG = 900  # seconds: no machine is that busy, so what takes longer hangs


@contextmanager
def started(command, **options):
    """Start a command; it ends with the block, and so does all that it has started."""
    with _heeding_ctrl_c():
        process = subprocess.Popen(
            [*map(str, command)], start_new_session=True, text=True, **options
        )
    try:
        yield process
    finally:
        _kill(process.pid)
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            with suppress(OSError):  # what was not read in time
                if pipe is not None:
                    pipe.close()


@contextmanager
def forked(code, *arguments, cwd=ROOT, env=None, loaded=("torch",)):
    """Start code as a command of its own, without waiting until its libraries are loaded.

    `loaded` are modules that are there already when it starts; importing them must start no thread.
    """
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("stdout", "stderr")]
        for path in files:
            path.touch()
        asked = {
            "code": textwrap.dedent(code),
            "arguments": [*map(str, arguments)],
            "cwd": str(cwd),
            "env": {**os.environ, **(env or {})},
            "loaded": loaded,
            "files": [os.devnull, *map(str, files)],
        }
        process = Forked(_ask(asked), *files)
        try:
            yield process
        finally:
            process.kill()


def run(code, *arguments, **options):
    """Let code run to its end as a command of its own; give what came of it."""
    with forked(code, *arguments, **options) as process:
        process.wait()
        return subprocess.CompletedProcess(
            ["-c", *map(str, arguments)], process.returncode, process.stdout, process.stderr
        )


def run_script(path, code, *arguments, **env):
    """Run code from a file, which what it starts can run too; give what it printed."""
    path.write_text(textwrap.dedent(code))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **env}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with started([sys.executable, path, *arguments], cwd=path.parent, env=env, **pipes) as process:
        told, error = process.communicate(timeout=LONG)
    assert process.returncode == 0, error
    return told


def until(holds, process=None):
    """Wait for what must come to hold, while a process runs if one is given."""
    deadline = time.monotonic() + LONG
    while not holds():
        assert time.monotonic() < deadline
        assert process is None or process.poll() is None
        time.sleep(0.05)


class Forked:
    """A command that runs, or has run."""

    def __init__(self, pid, stdout, stderr):
        self.pid, self.returncode = pid, None
        self._files = stdout, stderr

    @property
    def stdout(self):
        return self._files[0].read_text()

    @property
    def stderr(self):
        return self._files[1].read_text()

    def poll(self):
        if self.returncode is None:
            self.returncode = _ask({"pid": self.pid})
        return self.returncode

    def wait(self):
        deadline = time.monotonic() + LONG
        while self.poll() is None:
            assert time.monotonic() < deadline, self.stderr
            time.sleep(0.005)
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        """End it and what it has started."""
        _kill(self.pid)
        self.send_signal(signal.SIGKILL)  # it may not be the leader of its own group yet
        self.wait()


_running = ExitStack()
_servers = []


def _ask(asked):
    """What the server says; it is started when it is first asked."""
    if not _servers:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        command = [sys.executable, ROOT / "tests" / "support" / "forked.py"]
        _servers.append(_running.enter_context(started(command, cwd=ROOT, **pipes)))
    (server,) = _servers
    server.stdin.write(json.dumps(asked) + "\n")
    server.stdin.flush()
    return json.loads(server.stdout.readline())


def end_server():
    """End what commands are forked from, if it was ever needed."""
    _servers.clear()
    _running.close()


def _kill(leader):
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


@contextmanager
def _heeding_ctrl_c():
    """A job in the background ignores SIGINT, and so would all that it starts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
