"""The command line: thin over the library, one file per command.

Errors are one sentence on stderr and exit code 2. Ctrl-C keeps what is done, and says how to
resume.
"""

from snapsure.cli import (
    compare,
    demo,
    distill,
    evaluate,
    fit,
    predict,
    rebuild,
    report,
    reproduce,
    score,
    train,
)
from snapsure.cli._app import app

__all__ = [
    "app",
    "compare",
    "demo",
    "distill",
    "evaluate",
    "fit",
    "predict",
    "rebuild",
    "report",
    "reproduce",
    "score",
    "train",
]
