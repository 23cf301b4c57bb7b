"""`snapsure demo`."""

from pathlib import Path
from typing import Annotated

import typer

from snapsure.cli._app import command, step_printer, wide_console
from snapsure.cli._options import option


@command("Try", "snapsure demo butterfly papillon")
def demo(
    words: Annotated[
        list[str] | None, typer.Argument(help="Words for a finished demo to answer.")
    ] = None,
    out: Annotated[Path, option("Folder for snapshots, scores and the page.")] = Path(
        "snapsure-demo"
    ),
) -> None:
    """Which language is a word from? Three small networks, end to end, in about a minute."""
    from snapsure.paper import demo as steps

    console = wide_console()
    if words:
        steps.answer(out, words, console)
    else:
        steps.run(out, console, step_printer(console))
