"""The command line: thin over the library, one file per command.

Errors are one sentence on stderr and exit code 2. Ctrl-C keeps what is done, and says how to
resume.
"""

from snapsure.cli._app import app

# The help lists commands in this order.
# isort: off
from snapsure.cli import score, evaluate, report, fit, predict, decide, monitor  # noqa: F401
from snapsure.cli import compare, distill, reproduce, train  # noqa: F401
from snapsure.cli import rebuild, demo  # noqa: F401

__all__ = ["app"]
