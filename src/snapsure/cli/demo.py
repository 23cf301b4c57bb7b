"""`snapsure demo`."""

from pathlib import Path
from typing import Annotated

import typer

from snapsure.cli._app import app, teller, told, wide_console


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for snapshots, scores and plots.")] = Path(
        "snapsure-demo"
    ),
) -> None:
    """Train three small networks on real digits and go the whole way, in about two minutes."""
    console = wide_console()
    with told("run the same command again: trained networks are kept"):
        from snapsure.paper import demo as digits
        from snapsure.paper import demo_report

        tell = teller(console)
        tables, ensemble = digits.run(out, tell)
        tell("comparing AES, PES and LES with the final κ")
        pixels = digits.load_digits().test[0][:, 0].numpy()
        demo_report.show(tables, ensemble, pixels, out, console)
        tell("done")
