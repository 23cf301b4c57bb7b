"""A bit that flips on disk is told, or changes nothing: never another number."""

import os
import random
import signal

import pytest

from snapsure.errors import SnapsureError
from tests.support.on_disk import MAKERS, no_waiting, same

FEW = 12  # bits of each file, in the short form
MANY = 1000  # at most, in the long one


def read(file):
    """What is said, or found."""
    try:
        return None, file.read()
    except SnapsureError as error:
        return str(error), None


def told_or_harmless(file, bits):
    """How many of the flips are told; the others must change nothing."""
    whole, expected, told = file.path.read_bytes(), file.read(), 0
    for bit in bits:
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        file.path.write_bytes(damaged)
        said, found = read(file)
        if said is None:
            assert same(found, expected), (file.path.name, bit)
        else:
            assert str(file.path.parent) in said, bit
        told += said is not None
        file.path.write_bytes(whole)
    return told


def flipped(make, folder, most):
    chance, told, flips = random.Random(0), 0, 0
    with no_waiting():
        for file in make(folder).values():
            size = 8 * file.path.stat().st_size
            bits = sorted(chance.sample(range(size), min(most, size)))
            told += told_or_harmless(file, bits)
            flips += len(bits)
    print(f"{make.__name__}: {flips} flips, {told} told, {flips - told} harmless")  # noqa: T201
    return told / flips


@pytest.mark.parametrize("make", MAKERS)
def test_flipped_bits(make, tmp_path):
    assert flipped(make, tmp_path, FEW) > 0.1


@pytest.mark.slow
@pytest.mark.torture
@pytest.mark.parametrize("make", MAKERS)
def test_many_flipped_bits(make, tmp_path):
    assert flipped(make, tmp_path, MANY) > 0.1


@pytest.mark.parametrize("make", MAKERS)
def test_a_pipe_in_the_place_of_a_file(make, tmp_path):
    """It is refused, or its file written again: nobody waits for what never comes."""
    waited = []

    def stop(*_):
        waited.append(file.path)
        raise AssertionError(file.path)  # which some readers turn into an error of ours

    before = signal.signal(signal.SIGALRM, stop)
    try:
        with no_waiting():
            for file in make(tmp_path).values():
                whole = file.path.read_bytes()
                file.path.unlink()
                os.mkfifo(file.path)
                signal.alarm(60)
                read(file)
                signal.alarm(0)
                assert waited == []
                file.path.unlink()
                file.path.write_bytes(whole)
    finally:
        signal.signal(signal.SIGALRM, before)
