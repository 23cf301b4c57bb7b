"""The README's lines of Python run as they stand, and its links lead somewhere."""

import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_the_lines_run(digits, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "checkpoints").symlink_to(digits.store.path)
    names = {"model": digits.model(), "held_out": digits.test, "batch": digits.test[0][:5]}
    exec(re.search(r"```python\n(.*?)```", README.read_text(), re.S)[1], names)
    assert "LES" in capsys.readouterr().out
    assert names["predictor"].passes <= 3
    assert (tmp_path / "predictor" / "predictor.json").exists()
    assert all(names[part].shape == (5,) for part in ("label", "confidence", "accepted"))


def test_every_file_it_links_to_exists():
    for target in re.findall(r"\]\(([^)#]+)\)", README.read_text()):
        assert (README.parent / target).exists(), target


def test_it_is_short():
    assert len(README.read_text().splitlines()) <= 130
