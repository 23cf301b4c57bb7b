"""Every estimator of the package holds to the contract, and files of others are told."""

import pytest

import snapsure
from snapsure import AES, LES, PES, ScoreTable, _json
from snapsure.errors import CorruptFile, InvalidInput
from snapsure.estimators import SPTD, BestSnapshot, Estimator, Final, MaxLogitPNorm, Temperature
from snapsure.testing import EstimatorContract
from tests.support.tables import of


class TestAES(EstimatorContract):
    make = staticmethod(lambda: AES(k=4))


class TestPES(EstimatorContract):
    make = PES


class TestPESToTheLetter(EstimatorContract):
    make = staticmethod(lambda: PES(assign="paper"))


class TestLES(EstimatorContract):
    make = staticmethod(lambda: LES(k=5))


class TestFinal(EstimatorContract):
    make = Final


class TestBestSnapshot(EstimatorContract):
    make = BestSnapshot


class TestSPTD(EstimatorContract):
    make = SPTD


class TestTemperature(EstimatorContract):
    make = Temperature


class TestMaxLogitPNorm(EstimatorContract):
    make = MaxLogitPNorm


@pytest.mark.parametrize("make", [SPTD, Temperature, MaxLogitPNorm])
def test_what_works_on_labels_or_logits_asks_for_no_kappa(make):
    logits = [[2.0, 1.0, 0.0], [0.0, 3.0, 1.0], [1.0, 0.0, 4.0]]
    y = [0, 1, 0]
    margin = {"margin": [[0.3, 0.4, 0.5]]}
    table = ScoreTable(margin, [[0, 1, 2]], y, logits=logits)
    assert make().fit(table).confidence(table).shape == (3,)
    with pytest.raises(InvalidInput, match=r"^`name` must be one of margin, got 'softmax'"):
        Final().fit(table)


def test_none_is_left_out():
    suites = (TestAES, TestPES, TestLES, TestFinal)
    tested = {type(suite.make()) for suite in suites}
    tested |= {TestBestSnapshot.make, TestSPTD.make, TestTemperature.make, TestMaxLogitPNorm.make}
    public = vars(snapsure.estimators).values()
    assert {kind for kind in public if isinstance(kind, type) and issubclass(kind, Estimator)} == (
        tested | {Estimator}
    )


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
    with pytest.raises(InvalidInput) as caught:
        pes.confidence(of([[0.1, 0.9]], epochs=[3]))
    assert str(caught.value) == (
        "`table` must have the snapshots that were fitted, got none of epoch 8: score the points "
        "with the same snapshots"
    )
    with pytest.raises(InvalidInput) as caught:
        pes.snapshots([3, 9])
    assert str(caught.value) == (
        "`epochs` must have the snapshots that were fitted, got none of epoch 8: pass the epochs "
        "of the same training"
    )
