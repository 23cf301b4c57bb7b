"""Saving a predictor over another, killed at any moment: there is always one of the two, whole."""

import random

import pytest

from snapsure import AES, Predictor
from tests.support.kills import killed
from tests.support.network import digits_network

pytestmark = pytest.mark.slow

# The even ones keep two snapshots, the odd ones four.
CODE = """
    import itertools, sys, time
    from snapsure import AES, Predictor, SnapshotStore
    from tests.support.network import digits_network
    store, folder, first = sys.argv[1:]
    both = [Predictor(digits_network(), SnapshotStore(store), AES(k=k)) for k in (2, 4)]
    print("ready", flush=True)
    for i in itertools.count(int(first)):
        begin = time.monotonic()
        both[i % 2].save(folder)
        print(i, time.monotonic() - begin, flush=True)
"""
LOADED = ("snapsure.predictor", "tests.support.network", "torch._dynamo")


def test_ten_kills_of_saving_a_predictor(digits, tmp_path):
    kill_again_and_again(digits, tmp_path / "predictor", random.Random(0), kills=10)


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(1, 21))
def test_a_thousand_kills_of_saving_a_predictor(digits, tmp_path, seed):
    kill_again_and_again(digits, tmp_path / "predictor", random.Random(seed), kills=50)


def kill_again_and_again(digits, folder, chance, kills):
    x, number, seconds = digits.test[0][:20], 0, 0.0
    both = [Predictor(digits_network(), digits.store, AES(k=k)) for k in (2, 4)]
    expected = [predictor(x).confidence.tolist() for predictor in both]
    for _ in range(kills):
        lines = killed(
            *(CODE, digits.store.path, folder, number),
            loaded=LOADED,
            after=chance.randrange(3) if seconds else 1,
            delay=chance.uniform(0, seconds),
        ).lines
        last = number - 1
        if lines:
            last, seconds = int(lines[-1].split()[0]), float(lines[-1].split()[1])
        # The last that was told of, or the one in flight, which from then on is there.
        found = Predictor.load(folder, digits_network())(x).confidence.tolist()
        assert found in expected
        number = last + 1 + (found != expected[last % 2])
    assert number > kills / 2
