"""The paper's two networks, a quick one, and the layer that takes images as they are stored.

VGG-16 for 32 × 32 pixels follows Liu & Deng (2015): batch normalisation, much dropout, and one
hidden linear layer instead of two. ResNet-18 is that of He et al. (2016) for ImageNet. The quick
one has the shape of Jordan's (2024) records on CIFAR-10, with the paper's head.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

# Channels of the 13 convolutions in units of `width`; a block ends with a pooling.
_BLOCKS = ((1, 1), (2, 2), (4, 4, 4), (8, 8, 8), (8, 8, 8))


class Pixels(nn.Module):
    """Turns images (n, height, width, 3) of 0–255 into normalised (n, 3, size, size).

    As part of the network it travels with every snapshot, so that data sets stay uint8 and no
    caller has to remember a mean. Larger images are cut in the middle. The result lies in memory
    as channels_last, which is free here and twice as fast on a CPU.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float], size: int) -> None:
        super().__init__()
        self.size = size
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32).view(3, 1, 1))
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32).view(3, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        """Cut, move the channels to the front, normalise."""
        top, left = ((side - self.size) // 2 for side in images.shape[1:3])
        images = images[:, top : top + self.size, left : left + self.size]
        pixels = (images.permute(0, 3, 1, 2) - self.mean) / self.std
        return pixels.contiguous(memory_format=torch.channels_last)

    def extra_repr(self) -> str:
        """Return what the model's description adds."""
        return f"size={self.size}"


def vgg16(
    classes: int, *, width: int = 64, dropout: tuple[float, float, float] = (0.3, 0.4, 0.5)
) -> nn.Sequential:
    """VGG-16 for 32 × 32 images; 15.0 million weights at width 64, the first block's channels.

    The rates of `dropout` are those after the first convolution, after the others but each block's
    last, and around the hidden layer; 0 leaves a layer out.
    """
    first, other, head = dropout
    layers: list[nn.Module] = []
    channels = 3
    for block in _BLOCKS:
        for i, factor in enumerate(block):
            layers += [
                nn.Conv2d(channels, factor * width, 3, padding=1),
                nn.BatchNorm2d(factor * width),
                nn.ReLU(inplace=True),
            ]
            if i < len(block) - 1:
                layers += _dropout(first if channels == 3 else other)
            channels = factor * width
        layers.append(nn.MaxPool2d(2))
    layers += [
        nn.Flatten(),
        *_dropout(head),
        nn.Linear(channels, channels),
        nn.BatchNorm1d(channels),
        nn.ReLU(inplace=True),
        *_dropout(head),
        nn.Linear(channels, classes),
    ]
    network = nn.Sequential(*layers)
    _start_weights(network)
    return network


class Whitening(nn.Conv2d):
    """A convolution of 2 × 2 whose 24 channels are uncorrelated, never trained (Page 2018).

    Along each of the 12 principal directions of small patches there is a channel, and one against
    it, so that a ReLU behind them loses nothing. The network learns faster in its first epochs.
    """

    def __init__(self) -> None:
        super().__init__(3, 24, 2)
        self.weight.requires_grad_(False)

    def fit(self, images: Tensor) -> None:
        """Take the directions from normalised images (n, 3, height, width)."""
        patches = nn.functional.unfold(images.double(), 2).permute(0, 2, 1).reshape(-1, 12)
        variances, directions = torch.linalg.eigh(patches.T @ patches / len(patches))
        # Noise alone lies along the least direction: it is not blown up to the size of the others.
        filters = directions.T / (variances + 5e-4).sqrt()[:, None]
        with torch.no_grad():
            self.weight.copy_(torch.cat((filters, -filters)).view_as(self.weight))
            self.bias.zero_()  # type: ignore[union-attr]


class PlaneByPlane(nn.Conv2d):
    """A convolution that lays its input out channel by channel first, not as channels_last.

    Of 3 × 3 pixels with hundreds of channels that is up to twice as fast with AVX-512 (forward and
    to the input; to the weights the same), and about as fast without.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Convolve the planes."""
        return super().forward(x.contiguous())


def quick(classes: int, *, width: int = 32, dropout: float = 0.5) -> nn.Sequential:
    """Seven convolutions for 32 × 32 images; 1.9 million weights at width 32.

    A sixth of VGG-16's multiplications: each block pools right after its first convolution, most
    channels are where images are small already, and the first layer needs no training. `dropout`
    follows the hidden layer; 0 leaves it out.
    """
    layers: list[nn.Module] = [Whitening(), nn.ReLU(inplace=True)]
    channels = 24
    for first, second, kind in ((1, 1, nn.Conv2d), (4, 4, nn.Conv2d), (8, 16, PlaneByPlane)):
        layers += [_convolution(channels, first * width), nn.MaxPool2d(2)]
        layers += [nn.BatchNorm2d(first * width), nn.ReLU(inplace=True)]
        channels = second * width
        layers += [_convolution(first * width, channels, kind)]
        layers += [nn.BatchNorm2d(channels), nn.ReLU(inplace=True)]
    layers += [
        nn.MaxPool2d(3),
        nn.Flatten(),
        nn.Linear(channels, 256),
        nn.BatchNorm1d(256),
        nn.ReLU(inplace=True),
        *_dropout(dropout),
        nn.Linear(256, classes),
    ]
    return nn.Sequential(*layers)


def resnet18(classes: int, *, width: int = 64) -> nn.Sequential:
    """ResNet-18 for 224 × 224 images; 11.7 million weights at width 64 and 1,000 classes."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, stride=2, padding=1),
    ]
    channels = width
    for stage in range(4):
        for i in range(2):
            out = width * 2**stage
            layers.append(Residual(channels, out, stride=2 if stage and i == 0 else 1))
            channels = out
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)]
    network = nn.Sequential(*layers)
    _start_weights(network)
    return network


class Residual(nn.Module):
    """Two convolutions, and a shortcut around them."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, out, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(out),
            nn.ReLU(inplace=True),
            nn.Conv2d(out, out, 3, padding=1, bias=False),
            nn.BatchNorm2d(out),
        )
        self.around: nn.Module = nn.Identity()
        if stride > 1 or channels != out:
            self.around = nn.Sequential(
                nn.Conv2d(channels, out, 1, stride=stride, bias=False), nn.BatchNorm2d(out)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Add both ways."""
        return torch.relu(self.body(x) + self.around(x))


def _convolution(channels: int, out: int, kind: type[nn.Conv2d] = nn.Conv2d) -> nn.Conv2d:
    """Return a 3 × 3 convolution that begins as the identity (Jordan 2024)."""
    convolution = kind(channels, out, 3, padding=1, bias=False)
    nn.init.dirac_(convolution.weight.data[:channels])
    return convolution


def _dropout(p: float) -> list[nn.Module]:
    return [nn.Dropout(p)] if p else []


def _start_weights(network: nn.Module) -> None:
    """Draw weights as He et al. (2015); without it a VGG of 13 convolutions starts slowly."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
