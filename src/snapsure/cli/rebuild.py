"""`snapsure rebuild`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from snapsure.cli._app import command


@command("Repair", "snapsure rebuild run")
def rebuild(
    folder: Annotated[Path, typer.Argument(help="Folder of snapshots: epoch-1.safetensors …")],
) -> None:
    """Write a lost or damaged manifest of snapshots again, after reading and hashing each file."""
    from snapsure.snapshots import SnapshotStore

    store = SnapshotStore(folder)
    with Console(stderr=True).status("reading snapshots …"):
        store.rebuild()
    epochs = store.epochs
    typer.echo(f"{len(epochs)} snapshots, epochs {epochs[0]}…{epochs[-1]}: {folder} is a store")
