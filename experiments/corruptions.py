"""When does the monitor notice that pixels are no longer as they were? CIFAR-100, corrupted.

    python -m experiments.corruptions folder-of-parquet-files

Trains a small network (two minutes on one core), fits a threshold on half of the test images, and
answers the other half: first clean, then corrupted. Each run draws another half and order.
Corruptions and severities 1, 3 and 5 are those of CIFAR-100-C (Hendrycks & Dietterich 2019).
Prints how many answers after the change the alarms come: the median, the 90 % quantile, and the
share of runs with an alarm within 4,000 answers. On the clean line alarms are false.
"""

import sys
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from snapsure.decisions import Monitor, Threshold
from snapsure.errors import Infeasible
from snapsure.paper.data import Images, load
from snapsure.paper.networks import Pixels

CLEAN = 1000  # answers before the change
RUNS = 100
RISK, DELTA = 0.3, 0.05  # what is promised: the network is a weak one
LABELS = 0.25  # share of the answers whose label comes back
BATCH = 128
LEARNING_RATE = 0.1  # falls to 0 along half a cosine
MEAN, STD = (129.3, 124.1, 112.4), (68.2, 65.4, 70.4)  # of the training pixels

SEVERITIES = (1, 3, 5)
NOISE = (0.04, 0.08, 0.10)  # standard deviation, pixels being 0 … 1
BLUR = (0.4, 0.7, 1.0)  # standard deviation in pixels
CONTRAST = (0.75, 0.4, 0.15)  # what is left of it

Column = NDArray[np.float64]


def make_network(width: int) -> nn.Sequential:
    """Return four convolutions, pooling, and a linear layer."""
    layers: list[nn.Module] = [Pixels(MEAN, STD, 32)]
    for before, after in ((3, width), (width, 2 * width), (2 * width, 4 * width)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
        layers += [nn.MaxPool2d(2)]
    layers += [nn.Conv2d(4 * width, 8 * width, 3, padding=1), nn.BatchNorm2d(8 * width), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8 * width, 100))


def train(images: Images, epochs: int, width: int) -> nn.Module:
    """Train by SGD, with mirrored images."""
    torch.manual_seed(0)
    model = make_network(width)
    steps = epochs * (len(images) // BATCH)
    optimizer = torch.optim.SGD(
        model.parameters(), LEARNING_RATE, momentum=0.9, nesterov=True, weight_decay=5e-4
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for epoch in range(epochs):
        for rows in torch.randperm(len(images))[: steps // epochs * BATCH].view(-1, BATCH):
            pixels = images.pixels[rows].float()
            mirrored = torch.where(torch.rand(len(rows), 1, 1, 1) < 0.5, pixels, pixels.flip(2))
            loss = functional.cross_entropy(model(mirrored), images.labels[rows].long())
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
        print(f"epoch {epoch + 1} of {epochs}: loss {loss.item():.2f}", file=sys.stderr)
    model.eval()
    return model


def noise(pixels: Tensor, severity: int) -> Tensor:
    """Add normal noise to each pixel and colour."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(pixels.shape, generator=generator)
    return pixels + 255 * NOISE[SEVERITIES.index(severity)] * drawn


def blur(pixels: Tensor, severity: int) -> Tensor:
    """Blur by a normal distribution."""
    places = torch.arange(-4.0, 5.0)
    kernel = torch.exp(-((places / BLUR[SEVERITIES.index(severity)]) ** 2) / 2)
    kernel = (kernel[:, None] * kernel[None, :] / kernel.sum() ** 2).expand(3, 1, 9, 9)
    padded = functional.pad(pixels.permute(0, 3, 1, 2), (4, 4, 4, 4), mode="replicate")
    return functional.conv2d(padded, kernel, groups=3).permute(0, 2, 3, 1)


def contrast(pixels: Tensor, severity: int) -> Tensor:
    """Move every pixel towards the image's mean colour."""
    middle = pixels.mean(dim=(1, 2), keepdim=True)
    return middle + (pixels - middle) * CONTRAST[SEVERITIES.index(severity)]


CORRUPTIONS = {"noise": noise, "blur": blur, "contrast": contrast}


def answer(model: nn.Module, pixels: Tensor, labels: Tensor) -> tuple[Column, Column]:
    """Return softmax response and errors."""
    with torch.inference_mode():
        batches = pixels.clamp(0, 255).round().view(-1, 500, *pixels.shape[1:])
        logits = torch.cat([model(batch) for batch in batches])
    top = logits.double().softmax(dim=1).max(dim=1)
    return top.values.numpy(), (top.indices != labels).double().numpy()


def measure_delays(
    clean: tuple[Column, Column], changed: tuple[Column, Column]
) -> tuple[list[float], list[float]]:
    """Count the answers until the alarms on risk and shift in each run; ∞ if there was none."""
    found: tuple[list[float], list[float]] = ([], [])
    for run in range(RUNS):
        rng = np.random.default_rng(run)
        held_out, before, after = np.split(
            rng.permutation(len(clean[0])), [len(clean[0]) // 2, len(clean[0]) // 2 + CLEAN]
        )
        try:
            threshold = Threshold.at_risk(
                clean[0][held_out], clean[1][held_out], risk=RISK, delta=DELTA
            )
        except Infeasible:
            continue
        monitor = Monitor(threshold, clean[0][held_out], seed=run)
        kappa = np.concatenate([clean[0][before], changed[0][after]])
        errors = np.concatenate([clean[1][before], changed[1][after]])
        errors[rng.random(errors.size) > LABELS] = np.nan
        monitor.update(kappa, errors)
        since = {alarm.kind: float(alarm.since) for alarm in monitor.alarms}
        counted = np.flatnonzero((kappa >= threshold.theta) & ~np.isnan(errors)) + 1
        risk = counted[int(since["risk"]) - 1] if "risk" in since else np.inf
        for list_, at in zip(found, (risk, since.get("shift", np.inf)), strict=True):
            list_.append(at - CLEAN)
    return found


def write_row(name: str, clean: tuple[Column, Column], changed: tuple[Column, Column]) -> str:
    """Write one line of the table."""
    theta = Threshold.at_risk(*clean, risk=RISK, delta=DELTA).theta
    accepted = changed[0] >= theta
    cells = [name, f"{changed[1].mean():.1%}", f"{accepted.mean():.1%}"]
    cells.append(f"{changed[1][accepted].mean():.1%}")
    for waits in measure_delays(clean, changed):
        middle, late = np.quantile(waits, [0.5, 0.9], method="higher")
        cells.append(f"{middle:,.0f} / {late:,.0f} ({np.isfinite(waits).mean():.0%})")
    return f"| {' | '.join(cells)} |"


def main(
    data: Annotated[Path, typer.Argument(help="Folder of CIFAR-100's parquet files.")],
    epochs: Annotated[int, typer.Option(help="Passes over the training images.")] = 3,
    width: Annotated[int, typer.Option(help="Channels of the first convolution.")] = 16,
) -> None:
    """Train, corrupt, watch."""
    torch.set_num_threads(1)
    model = train(load("cifar100", "train", data), epochs, width)
    test = load("cifar100", "test", data)
    pixels, labels = test.pixels.float(), test.labels
    clean = answer(model, pixels, labels)
    print("| pixels | wrong | accepted | risk | alarm on the risk | alarm on a shift |")
    print("|---|--:|--:|--:|--:|--:|")
    print(write_row("clean", clean, clean))
    for name, corrupt in CORRUPTIONS.items():
        for severity in SEVERITIES:
            changed = answer(model, corrupt(pixels, severity), labels)
            print(write_row(f"{name} {severity}", clean, changed), flush=True)


if __name__ == "__main__":
    typer.run(main)
