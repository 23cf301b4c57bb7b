"""Answers written into a file: resumed, counted once, and read back in every format."""

import os
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

from snapsure import AES, Monitor, Predictor
from snapsure.errors import InvalidInput, StorageError
from snapsure.networks import _runner
from snapsure.predictor._answers import write_answers
from tests.support.answers import read_answers
from tests.support.refusals import refuses


@pytest.fixture
def predictor(deployed):
    digits = deployed.digits
    return Predictor.fit(digits.model(), digits.store, deployed.table, risk=0.5)


@pytest.fixture(scope="module")
def data(deployed):
    """Ten batches of 256, the last of them not full."""
    return np.concatenate([deployed.x.numpy()] * 3)


def test_interrupted_it_answers_only_what_is_left(tmp_path, predictor, data):
    """Twice, and then the disk lost the end of what was written."""
    out, answered = tmp_path / "left.csv", []
    for most in (512, 1280):

        def stop(done, total, most=most):
            answered.append(done)
            if done == most:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            write_answers(predictor, data, out, stop)
    os.truncate(tmp_path / ".partial-left.csv", 800 * 25)
    write_answers(predictor, data, out, lambda done, total: answered.append(done))
    runs = (range(0, 513, 256), range(512, 1281, 256), range(768, len(data), 256), [len(data)])
    assert answered == [*chain(*runs)]


def test_resumed_it_runs_as_it_began(tmp_path, deployed, data, monkeypatch):
    digits, out, answered = deployed.digits, tmp_path / "way.csv", []

    def stop(done, total):
        if done == 512:
            raise KeyboardInterrupt

    def answer(chosen, advance, **options):
        monkeypatch.setattr(_runner, "choose_way", lambda *given: chosen)
        predictor = Predictor(digits.model(), digits.store, AES(k=2), **options)
        write_answers(predictor, data, out, advance)
        return predictor.networks.way

    for options, expected, begin in (({}, "fused", 512), ({"speed": "exact"}, "eager", 0)):
        with pytest.raises(KeyboardInterrupt):
            answer("fused", stop)
        answered.clear()
        way = answer("channels_last", lambda done, total: answered.append(done), **options)
        assert (way, answered[0]) == (expected, begin)


@pytest.mark.parametrize("name", ["", ".notes"])
def test_answers_damaged_on_the_way_are_made_again(tmp_path, predictor, data, name):
    out = tmp_path / "damaged.csv"
    write_answers(predictor, data, tmp_path / "whole.csv")

    def stop(done, total):
        if done >= 512:
            raise KeyboardInterrupt

    for bit in (3, 805, 2000):
        with pytest.raises(KeyboardInterrupt):
            write_answers(predictor, data, out, stop)
        partial = tmp_path / f".partial-damaged.csv{name}"
        content = bytearray(partial.read_bytes())
        content[bit // 8] ^= 1 << bit % 8
        partial.write_bytes(content)
        write_answers(predictor, data, out)
        assert out.read_text() == (tmp_path / "whole.csv").read_text()


def test_commands_at_once_are_all_counted(tmp_path, predictor, data):
    """Each of eight threads answers other inputs, and all share one monitor."""
    path = tmp_path / "shared.json"
    parts = [data[i : i + 50] for i in range(0, 400, 50)]

    def answer(i):
        write_answers(predictor, parts[i], tmp_path / f"part-{i}.csv", monitor=path)

    with ThreadPoolExecutor(len(parts)) as pool:
        list(pool.map(answer, range(len(parts))))
    assert Monitor.load(path).seen == 400
    assert len(Monitor.load(path).runs) == 8


class Augmented(Dataset):
    def __len__(self):
        return 300

    def __getitem__(self, i):
        return torch.rand(1, 8, 8)


def test_data_that_differ_at_every_pass_are_refused(tmp_path, predictor):
    with refuses(InvalidInput, "`batch`", "same rows at every pass", "Switch off"):
        write_answers(predictor, Augmented(), tmp_path / "random.csv")


def test_labels_that_no_answer_can_have_are_refused(tmp_path, predictor, deployed):
    y = torch.zeros_like(deployed.y)
    y[700] = 10
    rows = TensorDataset(deployed.x, y)
    with pytest.raises(InvalidInput, match=r"`y` must hold classes from 0 to 9, got 10 in row 700"):
        write_answers(predictor, rows, tmp_path / "labels.csv")


def test_class_names_are_data_in_every_format(tmp_path, predictor, deployed):
    names = ["=1+1", "+2", "-3", "@SUM(A1)", "a\rb", "a\nb", 'a"b', "a,b", "\tx", "naïve"]
    predictor.classes = names
    x = deployed.x.numpy()
    label = predictor(x).label
    safe = [f"'{name}" if name[0] in "=+-@\t" else name for name in names]
    for options, expected in (({}, safe), ({"raw": True}, names)):
        write_answers(predictor, x, tmp_path / "names.csv", **options)
        rows = read_answers(tmp_path / "names.csv")
        assert [row["label"] for row in rows] == [expected[i] for i in label]
    for end in ("jsonl", "parquet"):
        write_answers(predictor, x, tmp_path / f"names.{end}")
        rows = read_answers(tmp_path / f"names.{end}")
        assert [row["label"] for row in rows] == [names[i] for i in label]
    assert '"naïve"' in (tmp_path / "names.jsonl").read_text(encoding="utf-8")


def test_nothing_is_written_through_links(tmp_path, predictor, deployed):
    x = deployed.x.numpy()
    for name in ("linked.csv", ".partial-linked.csv", ".partial-linked.csv.notes"):
        target = tmp_path / "theirs.txt"
        target.write_text("theirs")
        (tmp_path / name).symlink_to(target)
        write_answers(predictor, x, tmp_path / "linked.csv")
        assert target.read_text() == "theirs"
        assert len((tmp_path / "linked.csv").read_text().splitlines()) == 798
    (lock := tmp_path / ".partial-linked.csv.lock").symlink_to(target)
    with refuses(StorageError, lock, "Choose a folder"):
        write_answers(predictor, x, tmp_path / "linked.csv")
