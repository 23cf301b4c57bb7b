"""A process that has loaded what is slow to load, and forks one for every command it is asked for.

It computes nothing itself and has one thread, so a fork of it is as good as a fresh interpreter.
Asked by lines of JSON: `{"code": …}` starts a command and gives its number, `{"pid": …}` gives the
number it has returned, or null while it runs.
"""

import atexit
import gc
import importlib
import json
import os
import signal
import sys
import threading
import traceback


def serve():
    """Answer until there is nobody to ask; in a forked process, return what it is to do."""
    running = set()
    for line in sys.stdin:
        asked = json.loads(line)
        if "pid" in asked:
            answer = _returned(asked["pid"])
            if answer is not None:
                running.remove(asked["pid"])
        else:
            for name in asked["loaded"]:
                importlib.import_module(name)
            gc.freeze()  # so that collecting in a fork copies none of it
            answer = os.fork()
            if answer == 0:
                return asked
            running.add(answer)
        print(json.dumps(answer), flush=True)  # noqa: T201
    for pid in running:  # whoever asked has died
        os.kill(pid, signal.SIGKILL)
    return None


def become(asked):
    """Be the process of a command: its folder, environment, arguments and output."""
    os.setsid()
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    sys.argv = ["-c", *asked["arguments"]]
    sys.path[:0] = [""]
    kinds = (os.O_RDONLY, os.O_WRONLY, os.O_WRONLY)
    for number, (path, kind) in enumerate(zip(asked["files"], kinds, strict=True)):
        handle = os.open(path, kind)
        os.dup2(handle, number)
        os.close(handle)


def run(code):
    """Run to the end as an interpreter does, but for taking down all that is loaded."""
    returned = 0
    try:
        exec(compile(code, "<command>", "exec"), {"__name__": "__main__"})
    except SystemExit as end:
        returned = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        returned = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(returned)


def _returned(pid):
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


if __name__ == "__main__":
    sys.path[0] = os.getcwd()  # noqa: PTH109 - of the repository, for `import tests`
    if command := serve():
        become(command)
        run(command["code"])
