"""The demo's steps, with fewer epochs; `make demo` runs it whole."""

import io
from functools import partial

import numpy as np
import pytest
import torch
from rich.console import Console

from snapsure import ScoreTable, SnapshotStore
from snapsure.paper import demo, demo_report

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    said = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(demo, "EPOCHS", 20)
        patched.setattr(demo, "SEEDS", (0, 1))
        patched.setattr(demo, "MCDropout", partial(demo.MCDropout, passes=5))
        tables, ensemble = demo.run(folder, said.append)
    return folder, tables, ensemble, said


def test_the_images_are_real_and_cut_once():
    digits = demo.load_digits()
    assert len(digits.train[0]) == 400
    assert len(digits.test[0]) == 1397
    assert set(digits.train[1].tolist()) == set(range(10))
    assert (digits.train[0] == demo.load_digits().train[0]).all()


def test_tables_of_each_seed_and_of_the_ensemble(short):
    folder, tables, ensemble, said = short
    for seed, table in enumerate(tables):
        assert table.names == ["softmax", "nn_distance", "mc_dropout"]
        assert table.epochs.tolist() == list(range(1, 21))
        model = demo.network()
        SnapshotStore(folder / "snapshots" / f"seed-{seed}").load_into(model, 20)
        images, y = demo.load_digits().test
        with torch.no_grad():
            logits = torch.cat([model.eval()(part) for part in images.split(256)])
        y_hat = logits.argmax(dim=1).numpy()
        assert (table.y_hat == y_hat).all()
        assert (table.errors == (y_hat != y.numpy())).all()
        saved = ScoreTable.open(folder / f"scores-{seed}")
        np.testing.assert_array_equal(saved.kappa("softmax"), table.kappa("softmax"))
    assert ensemble.names == ["softmax"]
    assert "seed 1: epoch 20 of 20" in said


def test_what_it_shows(short):
    folder, tables, ensemble, _ = short
    output = io.StringIO()
    pixels = demo.load_digits().test[0][:, 0].numpy()
    demo_report.show(tables, ensemble, pixels, folder, Console(file=output, width=140))
    text = output.getvalue()
    wrong = np.mean([table.errors.mean() for table in tables])
    assert f"1397 test images, {wrong:.1%} wrong, mean of 2 seeds" in text
    for word in ("AES k=30", "PES", "LES", "ensemble", "seed 0: ", "seed 1: ", "risk of 1%"):
        assert word in text
    for name in ("rc-curves.png", "green-red.png"):
        assert (folder / name).read_bytes().startswith(b"\x89PNG")
    assert f"the page to look at: {folder / 'report.html'}" in text.replace("\n", "")
    page = (folder / "report.html").read_text()
    assert "Which digits can be trusted?" in page
    assert page.count("SHA-256 of the snapshots") == len(tables)
