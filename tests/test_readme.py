"""The README's ten lines, run as they stand; its table is tested with the study it is from."""

import re
from pathlib import Path

import torch
from torch.nn import functional

from tests.support.network import digits_network

README = Path(__file__).parent.parent / "README.md"


def test_the_ten_lines(digits, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    images, labels = digits.train

    def train_one_epoch(model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        for rows in torch.randperm(len(images)).split(64):
            optimizer.zero_grad()
            functional.cross_entropy(model(images[rows]), labels[rows]).backward()
            optimizer.step()

    torch.manual_seed(0)
    names = {
        "model": digits_network(),
        "epochs": 6,
        "train_one_epoch": train_one_epoch,
        "held_out": digits.test,
        "batch": digits.test[0][:5],
    }
    block = re.search(r"```python\n(from snapsure.*?)```", README.read_text(), re.S).group(1)
    exec(block, names)
    assert "the final softmax" in capsys.readouterr().out
    assert names["table"].names == ["softmax"]
    assert names["predictor"].passes <= 3
    assert (tmp_path / "predictor" / "predictor.json").exists()
    assert [part.shape for part in names["answer"]] == [(5,)] * 3


def test_every_file_it_links_to_exists():
    for target in re.findall(r"\]\(([^)#]+)\)", README.read_text()):
        assert (README.parent / target).exists(), target


def test_it_is_short():
    assert len(README.read_text().splitlines()) <= 150
