"""Scoring, killed at any moment: what was written stays, whole, and the end is the same bytes."""

import json
import random
import re

import pytest
import torch

from tests.support import processes
from tests.support.folders import read_files
from tests.support.kills import killed

pytestmark = [pytest.mark.slow, pytest.mark.torture]  # a short form is in test_score.py

KILLS = 50
CODE = """
    import sys, time, torch
    from snapsure import MCDropout, SoftmaxResponse, score
    from snapsure.scoring import _plan
    from tests.support.network import digits_network
    _plan._SHARD, _plan._EVERY = 100, 0
    store, data, out = sys.argv[1:]
    inputs = torch.load(data)
    print("ready", flush=True)
    begin = time.monotonic()
    score(digits_network(), store, inputs, [SoftmaxResponse(), MCDropout(5)], out=out,
          progress=False)
    print(time.monotonic() - begin, flush=True)
"""
LOADED = ("snapsure.scoring", "tests.support.network", "torch._dynamo")
PARTIAL = re.compile(r"(.*/)?\.partial-.*|prepared/.*|\.lock")  # what goes when the table is whole


@pytest.mark.parametrize("seed", range(20))
def test_a_thousand_kills_of_a_scoring(digits, tmp_path, seed):
    chance = random.Random(seed)
    torch.save(digits.test, tmp_path / "data.pt")
    arguments = (digits.store.path, tmp_path / "data.pt")
    run = processes.run(CODE, *arguments, tmp_path / "whole", loaded=LOADED)
    assert run.returncode == 0, run.stderr
    seconds, whole = float(run.stdout.split()[1]), read_files(tmp_path / "whole")
    kills = rounds = between = 0
    while kills < KILLS:
        out, before = tmp_path / f"out-{rounds}", {}
        done = False
        while not done:
            delay = chance.uniform(0, seconds)
            done = killed(CODE, *arguments, out, loaded=LOADED, delay=delay).done
            found = read_files(out) if out.exists() else {}
            found = {name: bytes for name, bytes in found.items() if not PARTIAL.fullmatch(name)}
            manifest = json.loads(found.pop("table.json", "{}"))
            pieces = {name: bytes for name, bytes in whole.items() if name != "table.json"}
            assert found.items() <= pieces.items()
            assert before.keys() <= found.keys()
            assert manifest.get("hashes", {}).keys() <= found.keys()
            assert manifest.get("finished", False) <= (found == pieces)
            between += 0 < len(found) < len(whole) and len(found) > len(before)
            kills, before = kills + (not done), found
            if kills >= KILLS and not done:
                assert processes.run(CODE, *arguments, out, loaded=LOADED).returncode == 0
                done = True
        assert read_files(out) == whole
        rounds += 1
    assert between > KILLS / 10  # many came while there was something and not all of it
