"""The examples, run as they stand, one after the other in a user's folder."""

import pytest

from tests.support import processes

pytestmark = pytest.mark.slow

EXAMPLES = {
    "train_and_record": "LES        E-AURC ",
    "deploy": "promised 5 %",
    "adopt_a_folder": "10 checkpoints, 7 needed; the surest answer has confidence 0.",
    "without_pytorch": "<Threshold: κ ≥ ",
}


def test_they_run_and_say_what_they_should(tmp_path):
    for name, said in EXAMPLES.items():
        code = f"from examples.{name} import main\nmain()\n"
        env = {"PYTHONPATH": str(processes.ROOT)}
        ended = processes.run(code, cwd=tmp_path, env=env)
        assert ended.returncode == 0, (name, ended.stderr)
        assert said in ended.stdout, (name, ended.stdout)
    assert (tmp_path / "predictor" / "predictor.json").exists()
