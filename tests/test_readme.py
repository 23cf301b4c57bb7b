"""The README's ten lines, run as they stand, and its headline against the committed tables."""

import json
import re
from pathlib import Path

import torch
from torch.nn import functional

from tests.network import digits_network

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
        "test_data": digits.test,
    }
    block = re.search(r"```python\n(from snapsure.*?)```", README.read_text(), re.S).group(1)
    exec(block, names)
    output = capsys.readouterr().out
    assert "E-AURC, AES - final: Interval(estimate=" in output
    assert "<Threshold: κ ≥ " in output
    assert names["table"].names == ["softmax", "mc_dropout"]


def test_the_headline_is_that_of_the_committed_tables():
    folder = README.parent / "results" / "cifar100-cpu"
    table1, table3, networks = (
        json.loads((folder / f"{name}.json").read_text())
        for name in ("table1", "table3", "networks")
    )
    rows = re.findall(r"^\| ([^|]+) \| ([\d.]+) \| \*\*([\d.]+)\*\* \| (.+) \| (.+) \|$", README.read_text(), re.M)  # noqa: E501  # fmt: skip
    expected = [
        (table1["softmax"]["final"], table1["softmax"]["k30"]),
        *((table3["final"], table3[method]) for method in ("pes", "snapshot", "les")),
    ]
    for (_, final, ours, gain, interval), (base, part) in zip(rows, expected, strict=True):
        assert (final, ours) == (f"{base['eaurc'] * 1e3:.2f}", f"{part['eaurc'] * 1e3:.2f}")
        assert gain.startswith(f"{part['gain']:+.1f} %")
        _, low, high = part["difference"]
        assert interval.replace("−", "-") == f"{low * 1e3:+.2f} … {high * 1e3:+.2f}"
        assert low < high < 0  # bold
    assert f"to the letter: {table3['pes_paper']['gain']:+.1f} %" in rows[1][3]
    wrong = networks["test_error"]
    assert f"{sum(wrong) / len(wrong):.0%}".replace("%", " % wrong in test") in README.read_text()


def test_every_file_it_links_to_exists():
    for target in re.findall(r"\]\(([^)#]+)\)", README.read_text()):
        assert (README.parent / target).exists(), target
