"""Every estimator of the package holds to the contract, and files of others are told."""

import pytest

from snapsure import AES, LES, PES, ScoreTable, _json
from snapsure.errors import CorruptFile, InvalidInput
from snapsure.estimators import SPTD, Final, MaxLogitPNorm, Temperature, registry
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
    assert not again.is_fitted
    assert again.snapshots([1, 5, 9]) == estimator.snapshots([1, 5, 9])


def test_snapshots_that_are_not_there():
    pes = PES().fit(of([[0.1, 0.9], [0.2, 0.3]], [0, 1], epochs=[3, 8]))
    with pytest.raises(InvalidInput, match=r"`table` must have .* got none of epoch 8\. Score"):
        pes.confidence(of([[0.1, 0.9]], epochs=[3]))
    with pytest.raises(InvalidInput, match=r"`epochs` must have .* got none of epoch 8\. Pass"):
        pes.snapshots([3, 9])
