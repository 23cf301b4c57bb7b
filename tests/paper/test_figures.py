"""What the paper's figures show: the curves and the groups that are handed to the drawing."""

import numpy as np
import pytest

from snapsure import AES
from snapsure.paper import figures


@pytest.fixture
def drawn(monkeypatch):
    """What is drawn, in the place of a picture."""
    calls = {}

    def draw(kind):
        return lambda *args, **options: calls.setdefault(kind, args)

    monkeypatch.setattr(figures.pictures, "draw_panels", draw("panels"))
    monkeypatch.setattr(figures.pictures, "draw_trajectories", draw("trajectories"))
    monkeypatch.setattr(figures.pictures, "save", lambda spec, path: path.touch())
    return calls


def test_figures_are_of_the_final_snapshot_and_of_the_share_they_name(experiment, drawn, tmp_path):
    paths = figures.draw(experiment, tmp_path)
    assert [path.name for path in paths] == [f"figure{number}.png" for number in (1, 2, 3)]
    table = experiment.tables[0]
    ((curves,), _) = (panels.values() for panels in drawn["panels"])
    for name, confidence in (
        ("final softmax", table.kappa("softmax")[-1]),
        ("AES k=30", AES().confidence(table)),
    ):
        errors = table.errors[np.argsort(-confidence)]
        counts = np.arange(1, errors.size + 1)
        wanted = np.interp(curves[name].coverage, counts / errors.size, errors.cumsum() / counts)
        assert np.allclose(curves[name].risk, wanted, atol=2e-3), name
    _, _, labels, *_ = drawn["trajectories"]
    assert [label.split()[1] for label in labels] == [str(round(table.errors.size / 100))] * 2
