"""New inputs give the numbers of the score table, to the last bit, however they come."""

import copy
import os
import pickle
import signal
import threading
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from snapsure import (
    AES,
    LES,
    Ensemble,
    MCDropout,
    NNDistance,
    Platt,
    Predictor,
    SnapshotStore,
    Threshold,
    score,
)
from snapsure.errors import CorruptFile, InvalidInput, NotFitted
from snapsure.estimators import SPTD, Final, Temperature
from snapsure.kappas import Margin
from snapsure.networks._data import Rows
from snapsure.predictor import _scorer
from tests.support import processes
from tests.support.deployed import ESTIMATORS, fitted
from tests.support.refusals import refuses


def same(answer, table, estimator, platt=None, threshold=None):
    confidence = estimator.confidence(table)
    if platt is not None:
        confidence = platt.predict_proba(confidence)
    assert answer.label.tolist() == table.y_hat.tolist()
    assert answer.confidence.tolist() == confidence.tolist()
    expected = (
        np.ones(len(confidence), bool) if threshold is None else threshold.accepts(confidence)
    )
    assert answer.accepted.tolist() == expected.tolist()


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
def test_the_tables_numbers_to_the_last_bit(deployed, estimator):
    made, platt, threshold = fitted(estimator, deployed)
    digits = deployed.digits
    predictor = Predictor(digits.model(), digits.store, made, threshold, calibration=platt)
    same(predictor(deployed.x), deployed.table, made, platt, threshold)
    assert predictor.calibrated
    assert predictor.passes == len(predictor.epochs) <= 6
    assert repr(threshold) in repr(predictor)
    assert ("1 pass," in repr(predictor)) == (predictor.passes == 1)


def test_inputs_of_any_form(deployed):
    digits, x = deployed.digits, deployed.x
    predictor = Predictor(digits.model(), digits.store, AES(k=3))
    expected = predictor(x)
    loader = DataLoader(TensorDataset(*digits.test), batch_size=256)
    for form in (x.numpy(), TensorDataset(*digits.test), loader, (x,), [x]):
        for ours, theirs in zip(predictor(form), expected, strict=True):
            assert ours.tolist() == theirs.tolist()
    one = predictor(x[:1])
    assert one.label.tolist() == expected.label[:1].tolist()
    assert one.confidence == pytest.approx(expected.confidence[:1], rel=1e-5)


def test_other_kappas(deployed):
    digits = deployed.digits
    for kappa in (Margin(), MCDropout(5, p=0.3)):
        data = (deployed.x, deployed.y)
        table = score(digits.model(), digits.store, data, kappa, progress=False)
        made = LES(k=3).fit(table, kappa.name)
        predictor = Predictor(digits.model(), digits.store, made, kappa=kappa)
        same(predictor(deployed.x), table, made)
    assert predictor.passes == 3 * 5


def test_estimators_of_labels_and_of_logits(deployed):
    digits = deployed.digits
    same(Predictor(digits.model(), digits.store, SPTD())(deployed.x), deployed.table, SPTD())
    model = digits.model()
    digits.store.load_into(model, digits.store.epochs[-1])
    with torch.inference_mode():
        logits = torch.cat([model.eval()(part) for part in deployed.x.split(256)]).double().numpy()
    table = deployed.table.with_logits(logits)
    made = Temperature().fit(table)
    same(Predictor(digits.model(), digits.store, made)(deployed.x), table, made)


def test_an_ensemble(deployed, other_digits):
    digits = deployed.digits
    ensemble = Ensemble([digits.store, other_digits.store])
    table = score(digits.model(), ensemble, digits.test, progress=False)
    predictor = Predictor(digits.model(), ensemble, AES(k=2))
    same(predictor(deployed.x), table, AES(k=2))
    assert predictor.passes == 4
    made = LES(k=2).fit(score(digits.model(), ensemble, (deployed.x, deployed.y), progress=False))
    assert made.needs == {"labels", "final"}
    same(Predictor(digits.model(), ensemble, made)(deployed.x), table, made)


@pytest.mark.parametrize("fits", [0, 1, 2, 4])
def test_snapshots_that_do_not_fit_take_turns(deployed, fits, monkeypatch):
    monkeypatch.setattr(_scorer, "_CHUNK", 512)
    digits = deployed.digits
    weights = sum(value.nbytes for value in digits.model().state_dict().values())
    made = LES(k=5).fit(deployed.learn)
    predictor = Predictor(digits.model(), digits.store, made, memory=max(1, fits * weights))
    assert len(list(predictor.networks.modules())) == max(fits, 1)
    for _ in range(2):
        same(predictor(deployed.x), deployed.table, made)
    few = predictor(deployed.x[:40]).confidence
    assert few == pytest.approx(made.confidence(deployed.table)[:40], rel=1e-5)
    (rest,) = predictor.networks.tables(Rows.of((deployed.x, deployed.y), "data"), start=512)
    assert rest.y_hat.tolist() == deployed.table.y_hat[512:].tolist()
    assert rest.y.tolist() == deployed.y[512:].tolist()


def test_a_threshold_per_predicted_class(deployed):
    digits, table = deployed.digits, deployed.table
    made = LES(k=3).fit(deployed.learn)
    confidence, classes = made.confidence(table), {"groups": table.y_hat, "groups_are": "classes"}
    by_class = Threshold.at_risk(confidence, table.errors, 0.6, small="join", **classes)
    predictor = Predictor(digits.model(), digits.store, made, by_class)
    expected = by_class.accepts(confidence, table.y_hat).tolist()
    assert predictor(deployed.x).accepted.tolist() == expected
    for answer in (predictor, lambda *args, **kwargs: list(predictor.answers(*args, **kwargs))):
        with refuses(InvalidInput, "`groups` must be left out", "each predicted class"):
            answer(deployed.x, groups=table.y_hat)


@pytest.mark.parametrize("numbered", [True, False])
def test_given_groups_are_never_taken_from_predicted_classes(deployed, numbered, tmp_path):
    """Sites may be numbered like classes; the promise is about sites."""
    digits, table = deployed.digits, deployed.table
    made = LES(k=3).fit(deployed.learn)
    confidence = made.confidence(table)
    sites = np.arange(len(confidence)) % 2
    sites = sites if numbered else np.where(sites, "north", "south")
    by_site = Threshold.at_risk(confidence, table.errors, 0.5, groups=sites)
    Predictor(digits.model(), digits.store, made, by_site).save(tmp_path / "p")
    predictor = Predictor.load(tmp_path / "p", digits.model())
    answer = predictor(deployed.x, groups=sites)
    assert answer.accepted.tolist() == by_site.accepts(confidence, sites).tolist()
    for inputs in (deployed.x, deployed.x[:1], deployed.x.numpy()):
        with pytest.raises(InvalidInput, match="`groups` must hold the group of each input, got N"):
            predictor(inputs)
    with pytest.raises(InvalidInput, match="`groups` must name a group for each of 797 inputs"):
        predictor(deployed.x, groups=sites[:5])
    with pytest.raises(InvalidInput, match="one for each predicted class, to be exported"):
        predictor.export(tmp_path / "m.onnx", deployed.x[:2])


class Swallowing(nn.Module):
    """It turns NaN and infinity into numbers, and so into confident answers."""

    most = 0  # rows at once

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        Swallowing.most = max(Swallowing.most, len(x))
        return self.head(torch.nan_to_num(x, posinf=10.0))


@pytest.mark.parametrize("memory", [1 << 30, 1])
def test_infinite_inputs_are_refused_whatever_the_network_makes_of_them(tmp_path, memory):
    store = SnapshotStore(tmp_path / "run")
    for epoch in (1, 2):
        store.save(Swallowing(), epoch)
    predictor = Predictor(Swallowing(), store, AES(), memory=memory)
    predictor.save(tmp_path / "p")
    loaded = Predictor.load(tmp_path / "p", Swallowing())
    for bad in (torch.nan, torch.inf, -torch.inf):
        x = torch.rand(700, 4)
        x[650, 2] = bad
        with refuses(InvalidInput, "`batch` must be finite", "row 650"):
            loaded(x)
        for batch in (x, x.numpy(), {"x": x}):
            with pytest.raises(
                InvalidInput, match="must be finite, got NaN or infinity in row 650"
            ):
                predictor(batch)
        with pytest.raises(InvalidInput, match="in row 0"):
            predictor(x[650:651])
    trusting = Predictor(Swallowing(), store, AES(), memory=memory, check_inputs=False)
    assert np.isfinite(trusting(x).confidence).all()
    assert Swallowing.most == 256


def test_ambient_autocast_changes_no_answer(deployed):
    predictor = Predictor(deployed.digits.model(), deployed.digits.store, AES(k=2))
    expected = predictor(deployed.x[:40]).confidence.tolist()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert predictor(deployed.x[:40]).confidence.tolist() == expected
        assert torch.is_autocast_enabled("cpu")


def test_names_beside_labels(deployed):
    names = [f"digit {i}" for i in range(10)]
    digits = deployed.digits
    predictor = Predictor(digits.model(), digits.store, AES(k=2), classes=names)
    for x in (deployed.x[:5], deployed.x):  # one batch, and several
        answer = predictor(x)
        label, confidence, accepted = answer
        assert answer.name.tolist() == [names[i] for i in label]
        assert len(confidence) == len(accepted) == len(x)
        assert pickle.loads(pickle.dumps(answer)).name.tolist() == answer.name.tolist()
    with pytest.raises(InvalidInput, match="`classes` must be known"):
        Predictor(digits.model(), digits.store, AES(k=2))(x).name  # noqa: B018
    with pytest.raises(InvalidInput, match=r"`classes` must be Unicode text, got .*udc80"):
        Predictor(digits.model(), digits.store, AES(k=2), classes=["\udc80"])


def test_one_input_without_its_axis_is_told_what_to_pass(deployed, tmp_path):
    store = SnapshotStore(tmp_path / "run")
    store.save(nn.Linear(4, 3), 1)
    cases = [
        (Predictor(nn.Linear(4, 3), store, AES()), torch.rand(4)),
        (Predictor(deployed.digits.model(), deployed.digits.store, AES(k=2)), deployed.x[0]),
    ]
    for predictor, x in cases:
        for one in (x, x.numpy()):
            with pytest.raises(InvalidInput, match=r"got one input of shape .*: x\[None\]"):
                predictor(one)
        assert predictor(x[None]).label.shape == (1,)
    with pytest.raises(InvalidInput, match="`batch` must be what the network takes"):
        cases[0][0](torch.rand(2, 5))


def test_a_network_of_other_code_is_reported(deployed, tmp_path):
    class Halved(type(deployed.digits.model())):
        def forward(self, x):
            return super().forward(x / 2)

    Predictor(deployed.digits.model(), deployed.digits.store, AES(k=2)).save(tmp_path / "p")
    Predictor.load(tmp_path / "p", deployed.digits.model())
    Halved.__name__ = "Sequential"
    other = copy.deepcopy(deployed.digits.model())
    other.__class__ = Halved
    with pytest.warns(UserWarning, match="The network's code or settings differ"):
        Predictor.load(tmp_path / "p", other)


def test_many_threads(deployed):
    digits = deployed.digits
    predictor = Predictor(digits.model(), digits.store, AES(k=3))
    parts = [deployed.x[i : i + 40] for i in range(0, 400, 40)]
    expected = [predictor(part).confidence.tolist() for part in parts]
    found = [None] * len(parts)

    def answer(i):
        found[i] = [predictor(parts[i]).confidence.tolist() for _ in range(5)]

    threads = [threading.Thread(target=answer, args=(i,)) for i in range(len(parts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[one] * 5 for one in expected]


def test_masks_are_its_own_in_other_threads_and_after_a_fork(tmp_path):
    """Threads of several predictors share one generator, and a fork may come during a pass."""
    store, model = SnapshotStore(tmp_path), nn.Sequential(nn.Dropout(0.5), nn.Linear(6, 3))
    store.save(model, 1)
    kappas = [MCDropout(passes=10, seed=seed) for seed in (0, 1)]
    predictors = [Predictor(model, store, AES(), kappa=kappa) for kappa in kappas]
    x = torch.rand(20, 6)
    expected = [predictor(x).confidence.tolist() for predictor in predictors]
    found, done = [[], []], threading.Event()

    def answer(i):
        while not done.is_set() or len(found[i]) < 5:
            found[i].append(predictors[i](x).confidence.tolist())

    threads = [threading.Thread(target=answer, args=(i,)) for i in (0, 1)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
                child = os.fork()
            if child == 0:
                signal.alarm(processes.LONG)
                os._exit(predictors[0](x).confidence.tolist() != expected[0])
            assert os.waitpid(child, 0)[1] == 0
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert all(one == expected[i] for i in (0, 1) for one in found[i])


def test_a_model_that_changes_its_input_gets_its_own(deployed):
    class Spoiling(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return self.inner(x.mul_(2.0))

    digits = deployed.digits

    class Renamed(type(digits.store)):
        def load_into(self, model, epoch, **options):
            super().load_into(model.inner, epoch, **options)

    store = Renamed(digits.store.path)
    predictor = Predictor(Spoiling(digits.model()), store, AES(k=3))
    predictor(torch.zeros_like(deployed.x[:5]))  # a first batch that shows no change
    x = deployed.x[:50].clone()
    answer = predictor(x)
    assert torch.equal(x, deployed.x[:50])
    plain = Predictor(digits.model(), digits.store, AES(k=3))(2 * x)
    assert answer.confidence.tolist() == plain.confidence.tolist()


def test_only_what_is_needed_is_loaded(deployed, monkeypatch):
    digits, loaded = deployed.digits, []
    load = type(digits.store).load_into
    monkeypatch.setattr(
        type(digits.store), "load_into", lambda *a, **k: (loaded.append(a[2]), load(*a, **k))[1]
    )
    predictor = Predictor(digits.model(), digits.store, AES(k=2))
    assert sorted(loaded) == predictor.epochs == [2, 6]
    predictor(deployed.x)
    assert len(loaded) == 2


def test_weights_that_change_while_they_take_turns_are_told(deployed, tmp_path):
    digits = deployed.digits
    store = type(digits.store)(tmp_path)
    for epoch in digits.store.epochs:
        store.save(digits.store.load(epoch), epoch)
    predictor = Predictor(digits.model(), store, AES(k=3), memory=1)
    store.save(digits.model(), predictor.epochs[0])
    with pytest.raises(CorruptFile, match="must not change while it is in use"):
        predictor(deployed.x)


def test_a_store_that_has_grown_changes_nothing(deployed, tmp_path):
    digits = deployed.digits
    store = type(digits.store)(tmp_path)
    for epoch in digits.store.epochs:
        store.save(digits.store.load(epoch), epoch)
    made = LES(k=3).fit(deployed.learn)
    store.save(digits.model(), 7)
    same(Predictor(digits.model(), store, made)(deployed.x), deployed.table, made)


def test_refusals(deployed):
    digits = deployed.digits
    model, store = digits.model(), digits.store
    with pytest.raises(NotFitted):
        Predictor(model, store, LES())
    with pytest.raises(InvalidInput, match="refers to training data"):
        Predictor(model, store, AES(), kappa=NNDistance(digits.train, k=5))
    with pytest.raises(InvalidInput, match="`kappa` must be the one that the estimator was fitted"):
        Predictor(model, store, LES().fit(deployed.learn), kappa=Margin())
    with pytest.raises(InvalidInput, match="whose confidence is a probability already"):
        Predictor(model, store, LES().fit(deployed.learn), calibration=Platt())
    with pytest.raises(InvalidInput, match=r"`model` must name a function .* AttributeError"):
        Predictor("tests.support.network:nothing", store, Final())
    with pytest.raises(InvalidInput, match="must hold at least one snapshot, got none"):
        Predictor(model, "nowhere", Final())
    soft = nn.Sequential(model, nn.Softmax(dim=1))
    with pytest.raises(InvalidInput):
        Predictor(soft, store, Final())(deployed.x)
    with pytest.raises(InvalidInput, match="`batch` must hold at least one example"):
        Predictor(model, store, Final())(deployed.x[:0])
    with pytest.raises(
        InvalidInput, match=r"what the network takes, got torch.float32 of shape \(5, 3\)"
    ):
        Predictor(model, store, Final())(torch.rand(5, 3))
    with pytest.raises(InvalidInput):
        Predictor(model, store, Final())(torch.tensor(1.0))
    final = Predictor(model, store, Final())
    with pytest.raises(InvalidInput, match="`batch` must be finite, got NaN or infinity"):
        final(torch.full((5, 1, 8, 8), torch.nan))
    with pytest.raises(InvalidInput, match="as many examples in each of its inputs, got 5, 4"):
        final((deployed.x[:5], deployed.x[:4]))
    with pytest.raises(
        InvalidInput,
        match="`groups` must be left out for a predictor with no",
    ):
        final(deployed.x[:5], groups=[1] * 5)
    with pytest.raises(InvalidInput, match="must name each of the 10 classes, got 2 names"):
        Predictor(model, store, Final(), classes=["a", "b"])(deployed.x)
    with pytest.raises(InvalidInput, match="`classes` must be a list of names"):
        Predictor(model, store, Final(), classes="ab")
    for arguments, word in (
        ((digits.model, store, Final()), "`model` must be, or make, a torch.nn.Module, got method"),
        ((model, store, Final), "`estimator` must be an Estimator"),
        ((model, store, Final(), 0.9), "`threshold` must be a Threshold, got float"),
    ):
        with pytest.raises(InvalidInput, match=word):
            Predictor(*arguments)
    with refuses(InvalidInput, "`speed`", "auto", "exact", "fast"):
        Predictor(model, store, Final(), speed="fast")
    with pytest.raises(InvalidInput, match="`table` must be a ScoreTable, got NoneType"):
        Predictor.fit(model, store, None)
    threshold = Threshold.at_coverage([0.1, 0.9], 0.5)
    with pytest.raises(InvalidInput, match="`groups` must be left out for a predictor with no"):
        Predictor(model, store, Final(), threshold)(deployed.x[:5], groups=[1])
