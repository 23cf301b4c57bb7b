"""What all commands share: the application, how errors are told, how progress is."""

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TextIO

import typer
from rich.console import Console

from snapsure.errors import SnapsureError

app = typer.Typer(
    help="Which of my classifier's predictions can I trust?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

BatchSize = Annotated[
    int | None,
    typer.Option(min=1, help="Rows per forward pass; 256, or what a DataLoader says."),
]
Device = Annotated[
    str | None, typer.Option(help="cpu, cuda, cuda:1, mps; the best there is if not given.")
]
Prefix = Annotated[
    str | None,
    typer.Option(
        help="What stands before the network's names in another tool's checkpoints, such as net., "
        "where they hold several networks."
    ),
]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Read checkpoints that can run any code of whoever made them, with a warning each.",
    ),
]

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
    "vl_convert": "report",
}


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib import metadata

        typer.echo(f"snapsure {metadata.version('snapsure')}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print it.")
    ] = False,
) -> None:
    """Which of my classifier's predictions can I trust?"""


def teller(console: Console) -> Callable[[str], None]:
    """Lines with the time since the start before them."""
    start = time.monotonic()

    def tell(step: str) -> None:
        console.print(
            f"[dim]{time.monotonic() - start:5.0f} s[/dim]  {step}", highlight=False, soft_wrap=True
        )

    return tell


def wide_console() -> Console:
    """A console that leaves tables their columns: a narrow terminal wraps lines instead."""
    return Console(width=max(Console().width, 130))


def _warn(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """A warning as one line; those of other libraries say where they come from."""
    ours = Path(filename).is_relative_to(Path(__file__).parents[1])
    typer.echo(f"snapsure: warning: {message}" if ours else f"{filename}: {message}", err=True)


@contextmanager
def told(resume: str) -> Iterator[None]:
    """Turn what the library raises into a sentence and an exit code, and warnings into one."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            yield
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get(str(error.name).partition(".")[0])
        hint = f": pip install 'snapsure[{extra}]'" if extra else ""
        typer.echo(f"snapsure: {error}{hint}", err=True)
        raise typer.Exit(2) from None
    except (SnapsureError, OSError) as error:
        typer.echo(f"snapsure: {error}", err=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        typer.echo(f"snapsure: interrupted. To resume, {resume}.", err=True)
        raise typer.Exit(130) from None
