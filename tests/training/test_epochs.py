"""What a training that resumes rests on: its seeds, its saved state, and the time left."""

import random
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from snapsure.errors import CorruptFile
from snapsure.training._epochs import (
    describe_time_left,
    load_state,
    mix_seeds,
    save_state,
    seed_all,
    separate_randomness,
)
from tests.support.refusals import refuses


class Part:
    """A part of a training, with a state to save."""

    def __init__(self, state=None):
        self.state = state

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = state


def draw():
    """A number of each source that an augmentation may draw from."""
    return float(torch.rand(())), float(np.random.rand()), random.random()  # noqa: NPY002


def test_mixed_seeds_differ_and_fit_into_64_bits_with_a_sign():
    seeds = [mix_seeds(*numbers) for numbers in product(range(10), repeat=2)]
    assert len({*seeds}) == 100
    assert 0 <= min(seeds) < max(seeds) < 2**63


def test_a_seed_reaches_every_source_of_random_numbers():
    def drawn(seed):
        with separate_randomness():
            seed_all(seed)
            return draw()

    first = drawn(1)
    assert drawn(1) == first
    for seed in (2, 65):
        assert all(a != b for a, b in zip(drawn(seed), first, strict=True))


def test_separate_randomness_leaves_the_callers_numbers():
    seed_all(1)
    wanted = draw()
    seed_all(1)
    with separate_randomness():
        draw()
    assert draw() == wanted


@pytest.mark.parametrize(
    ("epochs", "left"), [(3, "0 s"), (5, "60 s"), (6, "2 min"), (23, "10 min")]
)
def test_the_time_left_is_that_of_the_median_epoch(epochs, left):
    history = [{"epoch": i, "seconds": s} for i, s in ((1, 10.0), (2, 100.0), (3, 30.0))]
    assert describe_time_left(history, epochs) == f"{left} left"


def test_one_state_is_kept_and_files_of_others_stay(tmp_path):
    (tmp_path / "state-mine.pt").touch()
    history = []
    for epoch in (1, 2):
        history.append({"epoch": epoch})
        save_state(tmp_path, {"part": Part({"x": epoch})}, history)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["history.json", "state-000002.pt", "state-mine.pt"]
    part = Part()
    assert load_state(tmp_path, {"part": part}) == history
    assert part.state == {"x": 2}
    torch.save({"part": {"x": 3}}, tmp_path / "state-000002.pt")
    with refuses(CorruptFile, tmp_path / "state-000002.pt", "SHA-256 differs"):
        load_state(tmp_path, {"part": part})


def test_a_state_that_would_run_code_is_refused(tmp_path):
    """Its hash is no secret: whoever hands on a folder can compute it."""

    class Harmful:
        def __reduce__(self):
            return Path.touch, (tmp_path / "ran",)

    save_state(tmp_path, {"part": Part({"x": Harmful()})}, [{"epoch": 1}])
    with refuses(CorruptFile, tmp_path / "state-000001.pt", "cannot be loaded"):
        load_state(tmp_path, {"part": Part()})
    assert not (tmp_path / "ran").exists()
