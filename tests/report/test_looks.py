"""Charts and pictures look as approved: scales, sizes, dashes, opacities, ticks, what is beside."""

import json

import pytest

from tests.support.looks import APPROVED, draw_all, leaves, prune


def test_charts_look_as_approved():
    """A changed look that you want: `python -m tests.support.looks` approves it."""
    approved = json.loads(APPROVED.read_text(encoding="utf-8"))
    drawn = {name: prune(spec) for name, spec in draw_all().items()}
    assert list(drawn) == list(approved)
    for name in approved:
        ours, theirs = leaves(drawn[name]), leaves(approved[name])
        assert list(ours) == list(theirs), name
        for path, value in ours.items():
            expected = (
                pytest.approx(theirs[path], rel=1e-9) if type(value) is float else theirs[path]
            )
            assert value == expected, f"{name}{path}"
