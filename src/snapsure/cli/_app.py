"""What all commands share: the application, how errors become sentences, how progress shows."""

import errno
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal, TextIO, TypeVar

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup

from snapsure.errors import SnapsureError

F = TypeVar("F", bound=Callable[..., Any])

# Packages that extras install.
_EXTRAS = {
    "torch": "torch",
    "lightning": "lightning",
    "datasets": "data",
    "pyarrow": "data",
    "PIL": "data",
    "h5py": "keras",
    "wordfreq": "demo",
    "onnx": "onnx",
    "onnxscript": "onnx",
    "sklearn": "sklearn",
    "jinja2": "report",
    "pandas": "pandas",
    "vl_convert": "report",
}
_FIRST = """\
Which of my classifier's predictions can I trust?

  snapsure demo      try everything on a small example, in about a minute
  snapsure score     score the checkpoints of your own training
  snapsure decide    set an error limit from a log of confidences, without checkpoints
  snapsure --help    list all commands"""


class _Help:
    """Help that shows no type for flags (`--json`, not `--json <bool>`), and reports errors."""

    def make_context(self, *args: Any, **options: Any) -> Any:
        with report_errors():  # such as a full output, while it writes help or the version
            return super().make_context(*args, **options)  # type: ignore[misc]

    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if getattr(param, "is_flag", False):
                param.display_type_rich = lambda ctx: None
        return params


class _Command(_Help, TyperCommand):
    pass


class _Group(_Help, TyperGroup):
    pass


app = typer.Typer(
    cls=_Group,
    help="Which of my classifier's predictions can I trust?",
    epilog="Example: snapsure demo",
    pretty_exceptions_enable=False,
    add_completion=False,
)


def command(group: Literal["Use", "Study", "Repair", "Try"], example: str) -> Callable[[F], F]:
    """Add a command to a group of the help, with an example at the end of its own help."""

    def add(run: F) -> F:
        @wraps(run)
        def run_and_report(**options: Any) -> None:
            with report_errors():
                run(**options)

        epilog = f"Example: {example}"
        app.command(cls=_Command, rich_help_panel=group, epilog=epilog)(run_and_report)
        return run

    return add


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib import metadata

        typer.echo(f"snapsure {metadata.version('snapsure')}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def main(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Which of my classifier's predictions can I trust?"""
    if context.invoked_subcommand is None:
        with report_errors():
            typer.echo(_FIRST)


def step_printer(console: Console) -> Callable[[str], None]:
    """Return a function that prints a line after the seconds since now."""
    start = time.monotonic()

    def show(step: str) -> None:
        seconds = f"[dim]{time.monotonic() - start:5.0f} s[/dim]"
        console.print(f"{seconds}  {escape(step)}", highlight=False, soft_wrap=True)

    return show


def wide_console() -> Console:
    """Return a console that keeps the columns of tables: a narrow terminal wraps lines instead."""
    return Console(width=max(Console().width, 130))


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning as one line, after the file that it comes from if that is not ours."""
    ours = Path(filename).is_relative_to(Path(__file__).parents[1])
    typer.echo(f"snapsure: warning: {message}" if ours else f"{filename}: {message}", err=True)


@contextmanager
def report_errors() -> Iterator[None]:
    """Turn errors into a sentence and exit code 2, warnings into a line, Ctrl-C into what to do."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            yield
    except ImportError as error:
        extra = _EXTRAS.get(str(error.name).partition(".")[0])
        if extra is None or not isinstance(error, ModuleNotFoundError):
            message = f"{error}. Reinstall {error.name or 'the package'}"
        else:
            message = f"{error}. Install it: pip install 'snapsure[{extra}]'"
        typer.echo(f"snapsure: {message}", err=True)
        raise typer.Exit(2) from None
    except BrokenPipeError:  # whoever reads has read enough, and typer ends quietly
        raise
    except (SnapsureError, OSError) as error:
        is_full = type(error) is OSError and (error.errno, error.filename) == (errno.ENOSPC, None)
        full = "Cannot write the output (no space left). Send it elsewhere."
        typer.echo(f"snapsure: {full if is_full else error}", err=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        typer.echo("snapsure: interrupted. To resume, run the same command again.", err=True)
        raise typer.Exit(130) from None
