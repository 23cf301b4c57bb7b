"""The command line, as a process of its own."""

from tests.support import processes

CODE = "from snapsure.cli import app; app()"
LOADED = (
    *("snapsure.cli", "snapsure.scoring", "snapsure.evaluation", "snapsure.report.page"),
    *("scipy.stats", "torch._dynamo", "tests.support.network"),
)


def run(*arguments, cwd=processes.ROOT):
    env = {"COLUMNS": "130", "NO_COLOR": "1"}
    return processes.run(CODE, *arguments, cwd=cwd, env=env, loaded=LOADED)


def refused(result):
    """The one sentence of a refusal."""
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("snapsure: ")
    return result.stderr.removeprefix("snapsure: ").strip()
