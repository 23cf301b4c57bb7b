"""The networks against the literature: sizes, and where dropout is."""

import pytest
import torch
from torch import nn

from snapsure.paper.networks import (
    Pixels,
    PlaneByPlane,
    Residual,
    Whitening,
    quick,
    resnet18,
    vgg16,
)


def weights(network):
    return sum(p.numel() for p in network.parameters())


@pytest.mark.parametrize(
    ("classes", "count"),
    [
        (10, 14_991_946),  # the trainable ones of 15,001,418 in the authors' Keras network
        (100, 15_038_116),
    ],
)
def test_vgg16_has_the_published_size(classes, count):
    network = vgg16(classes)
    assert weights(network) == count
    statistics = sum(2 * m.num_features for m in network.modules() if hasattr(m, "running_mean"))
    assert statistics == 9_472  # what Keras counts as not trainable


def test_resnet18_has_the_published_size():
    assert weights(resnet18(1000)) == 11_689_512  # He et al. (2016); torchvision's has the same


def test_vgg16_has_sixteen_layers_with_weights_and_heavy_dropout():
    layers = [m for m in vgg16(10).modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    assert len(layers) == 15  # Liu & Deng leave out one of the three linear layers
    assert [m.p for m in vgg16(10).modules() if isinstance(m, nn.Dropout)] == [
        0.3, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.5, 0.5,
    ]  # fmt: skip
    assert not [m for m in vgg16(10, dropout=(0, 0, 0)).modules() if isinstance(m, nn.Dropout)]


def test_quick_has_a_sixth_of_vgg16s_multiplications():
    counts = [multiplications(make(100), 32) for make in (quick, vgg16)]
    assert 1 / 7 < counts[0] / counts[1] < 1 / 6
    # Convolutions by (channels, out): whitening with its bias, six of 3 × 3, then the head.
    shapes = [(24, 32), (32, 32), (32, 128), (128, 128), (128, 256), (256, 512)]
    normalised = sum(2 * out for _, out in shapes)
    head = 512 * 256 + 256 + 2 * 256 + 256 * 100 + 100
    expected = 24 * 13 + sum(9 * a * b for a, b in shapes) + normalised + head
    assert weights(quick(100)) == expected
    assert [m.p for m in quick(10).modules() if isinstance(m, nn.Dropout)] == [0.5]


def test_resnet18_has_the_published_multiplications():
    """He et al. (2016): 1.8 billion. Strides, paddings and poolings decide it, not the weights."""
    assert multiplications(resnet18(1000), 224) == 1_814_073_344


@pytest.mark.parametrize("make", [vgg16, resnet18])
def test_convolutions_begin_as_wide_as_what_comes_out_asks(make):
    """He et al. (2015): a variance of 2 / (k² · channels that come out), and no offset."""
    torch.manual_seed(0)
    for layer in make(10).modules():
        if isinstance(layer, nn.Conv2d):
            fan = layer.kernel_size[0] ** 2 * layer.out_channels
            assert layer.weight.std().item() == pytest.approx((2 / fan) ** 0.5, rel=0.1)
            assert layer.bias is None or not layer.bias.any()


def test_whitening_makes_patches_uncorrelated_and_loses_nothing():
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(50, 3, 9, 9, generator=generator).cumsum(dim=2).cumsum(dim=3)
    layer = Whitening()
    layer.fit(images)
    found = layer(images).permute(0, 2, 3, 1).reshape(-1, 24)
    moments = found[:, :12].T @ found[:, :12] / len(found)
    assert torch.allclose(moments, torch.eye(12), atol=0.02)  # the smallest variances are damped
    assert torch.equal(found[:, 12:], -found[:, :12])
    assert [p.requires_grad for p in layer.parameters()] == [False, True]
    layer.fit(torch.ones(5, 3, 4, 4))  # of patches that are all alike
    assert layer.weight.isfinite().all()


def test_a_residual_block_adds_to_its_input():
    block = Residual(4, 4, stride=1).eval()
    nn.init.zeros_(block.body[-1].weight)  # nothing to add
    x = torch.randn(2, 4, 5, 5, generator=torch.Generator().manual_seed(0))
    assert torch.equal(block(x), x.clamp(min=0))


def test_a_convolution_of_quick_begins_by_handing_its_input_through():
    first = quick(10, width=32)[2]
    images = torch.randn(2, 24, 6, 6, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(first(images)[:, :24], images, atol=1e-6)


def test_the_last_convolution_of_quick_lays_its_input_out_in_planes():
    network = quick(10, width=4).eval()
    (last,) = (m for m in network.modules() if isinstance(m, PlaneByPlane))
    assert last is [m for m in network.modules() if isinstance(m, nn.Conv2d)][-1]
    images = torch.randn(2, 32, 3, 3, generator=torch.Generator().manual_seed(0))
    found = last(images.contiguous(memory_format=torch.channels_last))
    assert found.is_contiguous()
    assert not found.is_contiguous(memory_format=torch.channels_last)
    plain = nn.functional.conv2d(images.double(), last.weight.double(), padding=1)
    assert torch.allclose(found.double(), plain, atol=1e-5)


def multiplications(network, side):
    """Of convolutions and linear layers, by what comes out of each."""
    total = 0

    def count(module, _, result):
        nonlocal total
        total += module.weight.numel() * result[0][0].numel()

    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            module.register_forward_hook(count)
    network.eval()(torch.zeros(1, 3, side, side))
    return total


@pytest.mark.parametrize(
    ("make", "side"),
    [
        (lambda: vgg16(7, width=4), 32),
        (lambda: quick(7, width=4), 32),
        (lambda: resnet18(7, width=4), 224),
    ],
)
def test_shapes_and_gradients(make, side):
    torch.manual_seed(0)
    network = make()
    logits = network(torch.randn(3, 3, side, side))
    assert logits.shape == (3, 7)
    logits.sum().backward()
    assert all(p.grad is not None for p in network.parameters() if p.requires_grad)


def test_pixels_normalise_cut_and_lie_channels_last():
    layer = Pixels([10, 20, 30], [1, 2, 4], 2)
    images = torch.arange(2 * 4 * 4 * 3, dtype=torch.uint8).view(2, 4, 4, 3)
    result = layer(images)
    middle = images[:, 1:3, 1:3].permute(0, 3, 1, 2).float()
    means, deviations = torch.tensor([10.0, 20, 30]), torch.tensor([1.0, 2, 4])
    assert torch.equal(result, (middle - means.view(3, 1, 1)) / deviations.view(3, 1, 1))
    assert result.is_contiguous(memory_format=torch.channels_last)
    assert "size=2" in repr(layer)
