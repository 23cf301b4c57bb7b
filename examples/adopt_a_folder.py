"""Checkpoints that another tool left, scored where they lie: `python -m examples.adopt_a_folder`.

Here the folder is made first; yours is there already.
"""

from argparse import Namespace
from pathlib import Path

import torch

from examples.train_and_record import network, points
from snapsure import AES, SnapshotStore, score


def main() -> None:
    """From a folder of `.pt` files to a confidence."""
    folder = Path("checkpoints")
    folder.mkdir(exist_ok=True)
    for epoch in range(1, 11):
        torch.manual_seed(epoch)
        content = {"model": network().state_dict(), "epoch": epoch, "args": Namespace(lr=0.1)}
        torch.save(content, folder / f"epoch-{epoch}.pt")

    adopted = SnapshotStore.adopt(folder)  # nothing is copied, and no pickle runs
    needed = AES().snapshots(adopted.epochs)
    table = score(network(), adopted.select(needed), points(500, seed=1), progress=False)
    print(f"{len(adopted)} checkpoints, {len(needed)} needed; ", end="")
    print(f"the surest answer has confidence {AES().confidence(table).max():.3f}")


if __name__ == "__main__":
    main()
