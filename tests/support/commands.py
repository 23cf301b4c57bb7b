"""Run `snapsure` as a person does: in a process of its own, or in this one."""

from typer.testing import CliRunner

from tests.support import processes

CODE = "from snapsure.cli import app; app()"
LOADED = (
    *("snapsure.cli", "snapsure.scoring", "snapsure.evaluation", "snapsure.report.page"),
    *("scipy.stats", "torch._dynamo", "tests.support.network"),
)


def run(*arguments, cwd=processes.ROOT, before="", status=0):
    """Run a command in a process of its own, after some code, and check its exit status."""
    env = {"COLUMNS": "130", "NO_COLOR": "1"}
    result = processes.run(before + CODE, *arguments, cwd=cwd, env=env, loaded=LOADED)
    assert result.returncode == status or (status is None and result.returncode), result.stderr
    return result


def refuse(*arguments, **options):
    """Run a command that is refused, and return its one sentence."""
    result = run(*arguments, status=2, **options)
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("snapsure: ")
    return result.stderr.removeprefix("snapsure: ").strip()


def invoke(command, *words, status=0, **options):
    """Run a command in this process, and check its exit status; options are --name value."""
    from snapsure.cli import app

    pairs = ((f"--{name.replace('_', '-')}", value) for name, value in options.items())
    given = [str(word) for word in (*words, *(word for pair in pairs for word in pair))]
    result = CliRunner().invoke(app, [*command.split(), *given])
    assert result.exit_code == status, result.output
    return result


def invoke_refused(command, **options):
    """Run a command that is refused in this process, and return its last sentence."""
    result = invoke(command, status=2, **options)
    return result.stderr.splitlines()[-1].removeprefix("snapsure: ")
