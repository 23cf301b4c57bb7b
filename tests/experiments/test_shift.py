"""Images under a shift: the study made small, and what is committed of it."""

import io
import json

import numpy as np
import pytest
import torch
from lightning.fabric import Fabric
from PIL import Image

from experiments import shift
from snapsure import AES, LES, eaurc, score
from snapsure.estimators import Final
from snapsure.paper import recipes
from snapsure.paper.run import Study, claim, train_one
from snapsure.paper.train import build, open_logits
from snapsure.scoring._recorded import score_recorded
from snapsure.snapshots import SnapshotStore
from tests.support.tiny import TEST, TINY
from tools import results

pytestmark = pytest.mark.slow

JUDGED = 60


def test_jpeg_is_what_a_file_of_that_quality_holds():
    pixels = torch.randint(0, 256, (3, 32, 32, 3), generator=torch.Generator().manual_seed(0))
    changed = shift.jpeg(pixels.float(), 5)
    file = io.BytesIO()
    Image.fromarray(pixels[1].to(torch.uint8).numpy()).save(file, "JPEG", quality=40)
    assert np.array_equal(changed[1].numpy(), np.asarray(Image.open(file)))


def test_every_shift_is_of_whole_pixels_and_grows():
    ramp = torch.linspace(40, 200, 32).view(1, 1, 32, 1).expand(2, 32, 32, 3)
    drawn = torch.randint(0, 40, ramp.shape, generator=torch.Generator().manual_seed(1))
    pixels = (ramp + drawn).to(torch.uint8)
    found = {(name, level): made for name, level, made in shift.shift_images(pixels)}
    assert torch.equal(found.pop((shift.CLEAN, 0)), pixels)
    assert len(found) == 4 * 3
    for name in shift.SHIFTS:
        moved = [found[name, level] for level in (1, 3, 5)]
        assert all(made.dtype == torch.uint8 for made in moved)
        away = [(made.float() - pixels.float()).abs().mean() for made in moved]
        assert 0 < away[0] < away[1] < away[2]


@pytest.fixture
def trained(cifar, tmp_path, monkeypatch):
    monkeypatch.setitem(recipes.RECIPES["cifar10"], "cpu-full", TINY)
    study = Study("cifar10", "cpu-full", tmp_path / "runs", cifar)
    claim(study)
    parts = study.load(lambda line: None)
    train_one(study, 0, parts, Fabric(accelerator="cpu", devices=1), lambda line: None)
    return study, parts


def test_what_learns_has_learnt_from_other_clean_points(trained, cifar, tmp_path):
    study, parts = trained
    result = tmp_path / "shift.json"
    shift.main(study.out, cifar, result, points=JUDGED, every=2)
    about = json.loads(result.read_text())["cifar10"]
    assert (about["networks"], about["points"], about["learnt_from"]) == (["seed-0"], 60, TEST - 60)
    assert about["snapshots"] == TINY.epochs // 2
    rows = {(row["shift"], row["severity"]): row for row in about["rows"]}
    assert len(rows) == 13
    folder = study.folder(0)
    store = SnapshotStore(folder / "snapshots")
    some = store.select([2, 4])
    clean = score_recorded(open_logits(folder).select([2, 4])).rows(np.arange(JUDGED, TEST))
    pixels = shift.jpeg(parts.test.pixels[:JUDGED].float(), 3).to(torch.uint8)
    data = (pixels, parts.test.labels[:JUDGED])
    table = score(build(TINY, parts), some, data, progress=False)
    ways = rows["jpeg", 3]["ways"]
    for name, made in {
        "final": Final(),
        "AES": AES(),
        "LES": LES(),
    }.items():
        area = eaurc(made.fit(clean).confidence(table), table.errors)
        assert ways[name]["eaurc"] == [pytest.approx(area, abs=1e-6)]
    assert rows["jpeg", 3]["wrong"] == [pytest.approx(table.errors.mean(), abs=1e-6)]
    before = (folder / "shift-60-2").stat().st_mtime_ns
    shift.main(study.out, cifar, result, points=JUDGED, every=2)  # nothing is scored again
    assert (folder / "shift-60-2").stat().st_mtime_ns == before
    assert json.loads(result.read_text())["cifar10"] == about
    lines = results.tabulate_shifts(about).splitlines()
    assert len(lines) == 2 + 13
    estimate = ways["AES"]["eaurc_saved"][0][0]
    assert f"{estimate:+.1f}" in next(line for line in lines if line.startswith("| jpeg 3 |"))
