"""Train a network, record every epoch, and see whether the snapshots help.

    pip install 'snapsure[torch]'
    python -m examples.train_and_record

Leaves `runs/first` (snapshots) and `runs/scores` (a score table).
"""

import torch
from torch import Tensor, nn

from snapsure import Recorder, evaluate, score


def network() -> nn.Module:
    """Yours would be larger."""
    return nn.Sequential(
        nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4)
    )


def points(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Inputs, and labels that are hard to tell where two features are nearly alike."""
    chance = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 8, generator=chance)
    return x, (x[:, :4] + 0.3 * torch.randn(n, 4, generator=chance)).argmax(dim=1)


def main() -> None:
    """Run it end to end."""
    torch.manual_seed(0)
    model, (x, y) = network(), points(1000, seed=0)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    recorder = Recorder("runs/first")
    for epoch in range(1, 31):
        for rows in torch.split(torch.randperm(len(y)), 50):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        recorder.record(model, epoch)

    table = score(network(), "runs/first", points(4000, seed=1), out="runs/scores")
    for row in evaluate(table).boards["softmax"].rows:
        print(f"{row.method:10} E-AURC {1e3 * row.eaurc:6.2f}  {row.verdict}")


if __name__ == "__main__":
    main()
