"""Every estimator of the package holds to the contract, and files of others are told."""

import numpy as np
import pytest

from snapsure import AES, LES, PES, ScoreTable, _json
from snapsure.errors import CorruptFile, InvalidInput, NotFitted
from snapsure.estimators import SPTD, Estimator, Final, MaxLogitPNorm, Temperature, registry
from snapsure.testing import EstimatorContract
from tests.support.tables import of

for name in registry.names():
    suite = type(name, (EstimatorContract,), {"make": staticmethod(registry.get(name).make)})
    globals()[f"Test {name}"] = suite


class TestFewSnapshots(EstimatorContract):
    make = staticmethod(lambda: AES(k=4))


@pytest.mark.parametrize("make", [SPTD, Temperature, MaxLogitPNorm])
def test_what_works_on_labels_or_logits_asks_for_no_kappa(make):
    logits = [[2.0, 1.0, 0.0], [0.0, 3.0, 1.0], [1.0, 0.0, 4.0]]
    y = [0, 1, 0]
    margin = {"margin": [[0.3, 0.4, 0.5]]}
    table = ScoreTable(margin, [[0, 1, 2]], y, logits=logits)
    assert make().fit(table).confidence(table).shape == (3,)
    with pytest.raises(InvalidInput, match=r"^`kappa` must be .* has, margin, got 'softmax'"):
        Final().fit(table)


def test_files_that_are_none(tmp_path):
    path = tmp_path / "other.json"
    with pytest.raises(InvalidInput) as caught:
        LES.load(path)
    assert f"{path} must be a saved LES, got no file" in str(caught.value)
    AES().save(path)
    for content, got in (
        (
            path.read_text(),
            "'snapsure AES 2'",
        ),
        ("nonsense", "no JSON"),
        ("[]", "SHA-256"),
        (
            _json.text({"format": "snapsure LES 2"}).decode(),
            "`settings`",
        ),
    ):
        path.write_text(content)
        with pytest.raises(CorruptFile, match=f"must be a saved LES.*{got}.* save it again"):
            LES.load(path)


@pytest.mark.parametrize(
    ("estimator", "needed"), [(Final(), [9]), (SPTD(), [1, 5, 9]), (AES(k=2, start=0), [1, 9])]
)
def test_what_learns_nothing_knows_its_snapshots_unfitted(estimator, needed):
    assert estimator.snapshots([1, 5, 9]) == needed


@pytest.mark.parametrize("estimator", [Final(), SPTD(), AES(k=2, start=0)])
def test_what_learns_nothing_is_saved_unfitted(estimator, tmp_path):
    estimator.save(tmp_path / "unfitted.json")
    again = type(estimator).load(tmp_path / "unfitted.json")
    assert again.is_fitted is False
    assert again.snapshots([1, 5, 9]) == estimator.snapshots([1, 5, 9])
    assert again.fit(of([[0.5]])).is_fitted is True


@pytest.mark.parametrize("names", [["margin"], ["margin", "softmax"]])
def test_what_learns_nothing_uses_the_only_kappa_or_the_softmax(names):
    kappa = np.random.default_rng(0).random((len(names), 1, 5))
    table = ScoreTable(dict(zip(names, kappa, strict=True)), np.zeros((1, 5), int))
    assert Final().confidence(table).tolist() == kappa[-1, 0].tolist()


class Nearness(Estimator):
    """How near κ is to its mean when it was fitted."""

    settings = property(lambda self: {})

    def _learn(self, table, kappa):
        return {"epochs": [1], "center": float(table.kappa(kappa)[0].mean())}

    def _answer(self, table, kappa, state):
        return -np.abs(table.kappa(kappa)[0] - state["center"])


def test_whatever_an_estimator_learns_is_saved(tmp_path):
    table = of([[0.1, 0.3, 0.8]], [0, 1, 1])
    Nearness().fit(table).save(tmp_path / "near.json")
    again = Nearness.load(tmp_path / "near.json")
    assert again.confidence(table) == pytest.approx([-0.3, -0.1, -0.4])
    with pytest.raises(NotFitted, match=r"Nearness .* Call \.fit"):
        Nearness().save(tmp_path / "unfitted.json")


def test_a_saved_fit_that_is_not_whole_is_refused(tmp_path):
    for make in (Final, Nearness):
        content = {"settings": {}, "fitted": {"kappa": "softmax", "final": 1}}
        with pytest.raises(CorruptFile, match="`epochs`"):
            make.from_file(content, tmp_path, "an estimator", "save it again")


def test_snapshots_that_are_not_there():
    pes = PES().fit(of([[0.1, 0.9], [0.2, 0.3]], [0, 1], epochs=[3, 8]))
    with pytest.raises(InvalidInput, match=r"`table` must have .* got none of epoch 8\. Score"):
        pes.confidence(of([[0.1, 0.9]], epochs=[3]))
    with pytest.raises(InvalidInput, match=r"`epochs` must have .* got none of epoch 8\. Pass"):
        pes.snapshots([3, 9])
