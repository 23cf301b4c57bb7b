"""For days, and from many threads: memory stays flat, and eight threads answer as one does.

The short forms run with all tests; `make torture` runs the long ones, each in a process of its own.
"""

import gc
import multiprocessing
import resource
import tracemalloc
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest
import torch

from snapsure import (
    AES,
    LES,
    PES,
    Monitor,
    Platt,
    Predictor,
    SnapshotStore,
    SoftmaxResponse,
    Threshold,
    aurc,
    bootstrap,
    eaurc,
    rc_curve,
    score,
)
from snapsure.estimators import SPTD, Temperature
from snapsure.testing import EstimatorContract, small_network

# Bytes: Python keeps the last few thousand names that were looked up. What a call would leave (an
# answer, a monitor, a table) is more, times the calls.
_NOISE = 32_000
INPUTS = torch.randn(64, 5, generator=torch.Generator().manual_seed(1))


def trained(folder):
    """A network, and three snapshots of it."""
    model, store = small_network(), SnapshotStore(folder)
    for epoch in (1, 2, 3):
        with torch.no_grad():
            model[0].weight.mul_(1.1)
        store.save(model, epoch)
    return model, store


def predicting(folder):
    model, store = trained(folder)
    predictor = Predictor(model, store, AES(k=3), Threshold(0.5, 0.5))
    return lambda: predictor(INPUTS)


def merging(folder):
    rng = np.random.default_rng(0)
    kappa = rng.random(2000)
    threshold = Threshold.at_risk(kappa, rng.random(2000) > kappa, 0.2)
    one, all_of_them = Monitor(threshold, kappa), [Monitor(threshold, kappa)]
    one.update(kappa, rng.random(2000) > kappa)

    def work():
        all_of_them[0] = all_of_them[0].merge(one)

    return work


def scoring(folder):
    model, store = trained(folder)
    data = (INPUTS, torch.arange(64) % 4)
    return lambda: score(model, store, data, SoftmaxResponse(), progress=False)


def grown(make, folder, warm, count, windows=3):
    """Bytes that Python and NumPy hold more after so many calls, and kilobytes of the peak.

    The least of several windows: what leaks does so in each, a late import only in one.
    """
    work, held, peak = make(folder), [], []
    tracemalloc.start()
    try:
        for i in range(1 + windows):
            for _ in range(count if i else warm):
                work()
            gc.collect()
            held.append(tracemalloc.get_traced_memory()[0])
            peak.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
        return min(np.diff(held)), min(np.diff(peak))
    finally:
        tracemalloc.stop()


def grown_alone(*what):
    """The same in a process of its own: no other test's threads are in the count."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as alone:
        return alone.submit(grown, *what).result()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "warm", "count"), [(predicting, 30, 200), (merging, 5, 40), (scoring, 6, 8)]
)
def test_memory_stays_flat(make, warm, count, tmp_path):
    held, _ = grown_alone(make, tmp_path, warm, count)
    assert held < _NOISE


def leaking(folder):
    kept, work = [], scoring(folder)
    return lambda: kept.append(work())


@pytest.mark.slow
def test_a_leak_is_noticed(tmp_path):
    held, _ = grown_alone(leaking, tmp_path, 6, 8)
    assert held > _NOISE


@pytest.mark.torture
@pytest.mark.parametrize(
    ("make", "warm", "count"), [(predicting, 500, 10_000), (merging, 50, 1000), (scoring, 20, 100)]
)
def test_memory_stays_flat_for_long(make, warm, count, tmp_path):
    held, peak = grown_alone(make, tmp_path, warm, count)
    assert held < 10 * _NOISE
    assert peak < 8_000  # kilobytes


def tasks(folder):
    """What may be asked at once, each with one right answer, to the last bit."""
    rng = np.random.default_rng(3)
    kappa = rng.random((6, 4000))
    errors = rng.random(4000) > kappa.mean(axis=0)
    table, points = EstimatorContract().table(), EstimatorContract().table(1)
    predict = predicting(folder)
    return [
        lambda: aurc(kappa, errors).tolist(),
        lambda: eaurc(kappa - 0.5, errors).tolist(),
        lambda: aurc(kappa[0], kappa[1]),
        lambda: rc_curve(kappa[0], errors).risk.tolist(),
        lambda: bootstrap(aurc, kappa[0, :500], errors[:500], resamples=50),
        lambda: Threshold.at_risk(kappa.mean(axis=0), errors, 0.4).theta,
        lambda: Platt().fit(kappa[0], errors).coef_,
        lambda: [part.tolist() for part in predict()],
        *(
            lambda kind=kind: kind().fit(table).confidence(points).tolist()
            for kind in (AES, PES, LES, SPTD, Temperature)
        ),
    ]


def same_from_eight_threads(folder, rounds):
    asked = tasks(folder)
    alone = [ask() for ask in asked]

    def one_thread(number):
        order = np.random.default_rng(number).permutation(len(asked))
        return [(i, asked[i]()) for i in order.tolist()]

    with ThreadPoolExecutor(8) as pool:
        for answers in pool.map(one_thread, range(8 * rounds)):
            assert all(answer == alone[i] for i, answer in answers)


def test_eight_threads_give_the_answers_of_one(tmp_path):
    same_from_eight_threads(tmp_path, 1)


@pytest.mark.torture
def test_eight_threads_give_the_answers_of_one_for_long(tmp_path):
    same_from_eight_threads(tmp_path, 100)
