"""Augmentation: the maps against what they mean, on images that show it."""

import numpy as np
import pytest
import torch

from snapsure.paper.augment import Augmentation


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def images():
    rng = np.random.default_rng(0)
    return torch.from_numpy(rng.integers(0, 256, (64, 9, 9, 3), dtype=np.uint8))


def test_nothing_asked_nothing_done(images):
    result = Augmentation(flip=False)(images, generator())
    assert torch.allclose(result, images.float(), atol=1e-3)


def test_flips_half_of_them_left_to_right(images):
    result = Augmentation()(images, generator())
    same = torch.isclose(result, images.float(), atol=1e-2).flatten(1).all(dim=1)
    mirrored = torch.isclose(result, images.flip(2).float(), atol=1e-2).flatten(1).all(dim=1)
    assert (same | mirrored).all()
    assert 16 < mirrored.sum() < 48


def test_shifts_move_by_at_most_the_share_asked_and_repeat_the_edge():
    ramp = torch.arange(20.0).view(1, 1, 20, 1).expand(200, 20, 20, 3)
    moved = Augmentation(flip=False, shift=0.1)(ramp, generator())
    by = moved[:, 10, 10, 0] - 10
    assert by.abs().max() <= 2.001  # a tenth of 20
    assert by.min() < -1.8
    assert by.max() > 1.8
    assert moved.min() >= 0
    assert moved.max() <= 19


def test_whole_shifts_blur_nothing_and_are_equally_likely(images):
    """Every result is the image moved by whole pixels, its edge repeated: nothing in between."""
    many = images[:1].expand(2000, 9, 9, 3)
    moved = Augmentation(flip=False, shift=2 / 9, whole=True)(many, generator())
    padded = np.pad(images[0].numpy(), ((2, 2), (2, 2), (0, 0)), mode="edge")
    counts = []
    for down in range(5):
        for right in range(5):
            here = torch.from_numpy(padded[down : down + 9, right : right + 9]).float()
            counts.append(int(torch.isclose(moved, here, atol=1e-2).flatten(1).all(dim=1).sum()))
    assert sum(counts) == 2000
    assert 40 < min(counts) <= max(counts) < 130  # 80 expected, and a deviation of 9


def test_rotations_turn_by_at_most_the_degrees_asked():
    maps = Augmentation(flip=False, degrees=15).maps(500, generator(), 32)
    angle = torch.rad2deg(torch.atan2(maps[:, 1, 0], maps[:, 0, 0]))
    assert angle.abs().max() <= 15.001
    assert angle.min() < -14
    assert angle.max() > 14
    assert torch.allclose(maps[:, :, :2] @ maps[:, :, :2].mT, torch.eye(2).expand(500, 2, 2))


def test_a_cut_that_is_turned_stays_a_square():
    """A quarter of the area has half of the side, along both of its directions."""
    maps = Augmentation(degrees=15, area=(0.25, 0.25)).maps(100, generator(), 32)[:, :, :2]
    assert torch.allclose(maps.mT @ maps, 0.25 * torch.eye(2).expand(100, 2, 2), atol=1e-6)


def test_crops_lie_inside_and_have_the_area_asked():
    area = (0.08, 1.0)
    maps = Augmentation(flip=False, area=area, stretch=4 / 3).maps(2000, generator(), 32)
    wide, high = maps[:, 0, 0], maps[:, 1, 1]
    assert (wide * high).min() >= area[0] - 1e-6
    assert (maps[:, 0, 2].abs() + wide).max() <= 1 + 1e-6
    assert (maps[:, 1, 2].abs() + high).max() <= 1 + 1e-6
    assert (wide / high).max() <= 4 / 3 + 1e-5
    assert (wide / high).min() >= 3 / 4 - 1e-5
    # Each reaches almost as far as it may: area, ratio, and place, of cuts that leave some room.
    assert (wide * high).min() < 0.1
    assert (wide * high).max() > 0.9
    assert (wide / high).min() < 0.77
    assert (wide / high).max() > 1.3
    for place, side in ((maps[:, 0, 2], wide), (maps[:, 1, 2], high)):
        share = (place / (1 - side))[side < 0.9]
        assert share.min() < -0.95
        assert share.max() > 0.95


def test_size_of_what_comes_out(images):
    assert Augmentation(size=6)(images, generator()).shape == (64, 6, 6, 3)


def test_the_same_seed_gives_the_same(images):
    augmentation = Augmentation(degrees=15, shift=0.1)
    one, two, other = (augmentation(images, generator(seed)) for seed in (3, 3, 4))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)


def test_a_seed_moves_images_as_in_published_trainings():
    """Numbers are drawn for angle, flip, area, ratio, then place and shift: across, and down."""
    own = generator(5)
    draws = torch.stack([torch.rand(50, generator=own) for _ in range(8)])
    spread = 2 * draws - 1
    area, ratio = 0.25 + 0.75 * draws[2], torch.exp(spread[3] * np.log(4 / 3))
    augmentation = Augmentation(degrees=15, shift=0.1, area=(0.25, 1.0), stretch=4 / 3)
    maps = augmentation.maps(50, generator(5), 32)
    for axis, side in enumerate(((area * ratio).sqrt(), (area / ratio).sqrt())):
        place, shift = spread[4 + 2 * axis], spread[5 + 2 * axis]
        expected = place * (1 - side.clamp(max=1)) + 2 * 0.1 * shift
        assert torch.allclose(maps[:, axis, 2], expected, atol=1e-6)
    assert torch.equal(maps[:, 0, 0] < 0, draws[1] < 0.5)
    sine = maps[:, 1, 0] / (area * ratio).sqrt().clamp(max=1) / maps[:, 0, 0].sign()
    assert torch.allclose(sine, torch.sin(torch.deg2rad(15 * spread[0])), atol=1e-6)
