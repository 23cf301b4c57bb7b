"""Examples in a fixed order: which ranges are read, what identifies them, and what is refused."""

import pickle

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, TensorDataset

from snapsure.errors import InvalidInput
from snapsure.networks._data import Digest, Rows, refuse_infinite, to_device
from tests.support.refusals import refuses

X, Y = torch.arange(30.0).view(10, 3), torch.arange(10) % 4


class Stream(IterableDataset):
    def __iter__(self):
        return iter(zip(X, Y, strict=True))


FORMS = {
    "arrays": lambda: Rows.of((X, Y), "data", batch_size=3),
    "a loader": lambda: Rows.of(DataLoader(TensorDataset(X, Y), batch_size=3), "data"),
    "a stream": lambda: Rows.of(DataLoader(Stream(), batch_size=3), "data"),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("most", [1, 3, 6, 7, 9, 100])
def test_ranges_of_whole_batches_are_read_in_any_order(form, most):
    rows = FORMS[form]()
    ranges = rows.cut(most)
    size = max(1, most // 3) * 3
    assert ranges == [(low, min(low + size, 10)) for low in range(0, 10, size)]
    for low, high in [*ranges[::-1], *ranges]:
        inputs, labels = zip(*rows.batches(low, high), strict=True)
        assert torch.equal(torch.cat(inputs), X[low:high])
        assert np.concatenate(labels).tolist() == Y[low:high].tolist()
        done = []
        rows.digest(low, high, done.append)
        assert sum(done) == high - low


@pytest.mark.parametrize("form", FORMS)
def test_another_process_reads_the_same(form):
    rows = FORMS[form]()
    next(rows.batches())  # a reading that has begun
    again = pickle.loads(pickle.dumps(rows))
    assert again.whole_identity() == rows.whole_identity()
    assert rows.identity()["batch_size"] == 3


@pytest.mark.parametrize("changed", [0, -1])
def test_the_first_and_the_last_row_count_without_reading_all(changed):
    x = torch.zeros(300, 2)
    before = Rows.of(x, "data", batch_size=3).identity()
    x[changed] = 1
    assert Rows.of(x, "data", batch_size=3).identity() != before


def test_content_types_shapes_and_names_identify_a_batch():
    x = torch.arange(6.0)

    def digest(inputs, labels=None):
        made = Digest()
        made.add(inputs, labels)
        return made.hex()

    def texts(last):
        return np.array([str(10**20), str(last)], object)

    different = [
        *map(digest, (x, x + 1, x.view(2, 3), x.view(3, 2), x.view(torch.int32))),
        *map(digest, (x.view(2, 3).numpy(), x.view(3, 2).numpy(), texts(1), texts(2))),
        *map(
            digest, (torch.zeros(5000), (torch.arange(5000) == 2500).float())
        ),  # which repr cuts short
        *map(digest, ({"a": x}, {"b": x}, {"a": x + 1}, ["a", "b"], ["ab"])),
        *(digest(x, np.array(labels)) for labels in ([0, 1], [1, 0])),
    ]
    assert len({*different}) == len(different)
    assert digest(texts(1)) == digest(texts(1))


def test_columns_of_words_are_read_as_they_are():
    words = [*"abcdefghij"]
    rows = Rows.of({"text": words, "x": X, "labels": Y}, "data", batch_size=4)
    parts = [inputs for inputs, _ in rows.batches()]
    assert [part["text"] for part in parts] == [words[:4], words[4:8], words[8:]]
    some, labels = rows.take(np.array([7, 2]))
    assert some["text"] == ["h", "c"]
    assert torch.equal(some["x"], X[[7, 2]])
    assert labels.tolist() == Y[[7, 2]].tolist()


def test_rows_are_taken_as_they_are():
    rows = FORMS["arrays"]()
    assert Rows.of(rows, "data") is rows


def test_two_rows_are_no_pair_and_three_tensors_are_three_inputs():
    assert Rows.of(X[:2], "data").n == 2
    ((inputs, labels),) = Rows.of((X, X + 1, X + 2), "data").batches()
    assert [float(one[0, 0]) for one in inputs] == [0, 1, 2]
    assert labels is None


def test_arrays_that_cannot_be_written_to_are_read():
    x = X.numpy().copy()
    x.flags.writeable = False
    ((inputs, _),) = Rows.of(x, "data").batches()
    assert torch.equal(inputs, X)


def test_tensors_go_to_the_device_and_words_stay():
    meta = torch.device("meta")
    moved = to_device({"x": X, "text": ["a"]}, meta)
    assert (moved["x"].device, moved["text"]) == (meta, ["a"])
    assert to_device(X, meta).device == meta


def test_large_numbers_and_words_are_not_infinite():
    refuse_infinite({"text": ["a"], "ids": torch.tensor([1]), "x": torch.full((1, 4), 3e38)}, "x")


class Growing(IterableDataset):
    """Holds three more rows at each reading."""

    rows = 0

    def __iter__(self):
        self.rows += 3
        return iter(torch.zeros(self.rows, 2))


class InPairs(BatchSampler):
    pass


def test_refusals():
    grown = Rows.of(DataLoader(Growing(), batch_size=3), "data")
    with refuses(InvalidInput, "`data` must keep its length", "6 rows where there were 3"):
        list(grown.batches())
    loader = DataLoader(TensorDataset(X), batch_size=3, collate_fn=lambda rows: rows[0][0][None])
    with refuses(InvalidInput, "`data` must keep its length", "2 rows where there were 6"):
        list(Rows.of(loader, "data").batches(3, 9))
    own = DataLoader(TensorDataset(X), batch_sampler=InPairs(range(10), 2, False))
    with refuses(InvalidInput, "`data` must give its examples in a fixed order", "with InPairs"):
        Rows.of(own, "data")
    with refuses(InvalidInput, "`data`", "got no inputs"):
        Rows.of([], "data")
