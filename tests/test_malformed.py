"""JSON that is not as we write it ends in a sentence, wherever it is used."""

import copy
import json
import warnings

import pytest

from snapsure import _json
from snapsure.errors import SnapsureError
from tests.support.on_disk import MAKERS, no_waiting

# What stands where another thing should. A number too large for a float, and one for 64 bits.
ODD = [None, True, -1, 0, 0.5, 2**63, 10**400, float("nan"), float("inf"), "", "../up", "é\0"]
ODD += [[], [[]], {}, {"a": 1}, [1, "a"], [1e308] * 3]
NESTED = "[" * 100_000 + "]" * 100_000
TEXTS = ["", "{", "[]", "null", "5", '"text"', NESTED, '{"format": ' + NESTED + "}", "\ud800"]


def places(content, so_far=()):
    """The way to everything in a document, but for all but the first two of a list."""
    parts = content.items() if isinstance(content, dict) else enumerate(content[:2])
    for key, value in parts:
        yield (*so_far, key)
        if isinstance(value, dict | list):
            yield from places(value, (*so_far, key))


def changed(content, place, change):
    """A copy with something else in a place."""
    new = copy.deepcopy(content)
    holder = new
    for key in place[:-1]:
        holder = holder[key]
    change(holder, place[-1])
    return new


def put(value):
    return lambda holder, key: holder.__setitem__(key, value)


def remove(holder, key):
    del holder[key]


def add(holder, key):
    if isinstance(holder, list):
        holder.append(holder[key])
    else:
        holder["unknown"] = holder[key]


def find_json(path):
    """The JSON in a file, and how to put other text there: into a header of safetensors too."""
    whole = path.read_bytes()
    if path.suffix != ".safetensors":
        return whole, lambda text: text
    end = 8 + int.from_bytes(whole[:8], "little")
    return whole[8:end], lambda text: len(text).to_bytes(8, "little") + text + whole[end:]


def read(file, content):
    """Read other content in the place of a file, and use it: an answer or a sentence."""
    file.path.write_bytes(content)
    try:
        with warnings.catch_warnings(action="ignore"):  # of overflow, or that `output` differs
            file.read()
    except SnapsureError as error:
        return str(error)
    return None


def malformed(make, folder, changes):
    told = read_all = 0
    with no_waiting():
        files = make(folder)
        for name, file in files.items():
            if file.path.suffix not in (".json", ".digest", ".safetensors"):
                continue
            whole = file.path.read_bytes()
            inner, wrap = find_json(file.path)
            content = json.loads(inner)
            content.pop(_json.HASH, None)
            texts = [*TEXTS]
            for place in places(content):
                for change in changes:
                    new = changed(content, place, change)
                    if isinstance(new, dict):
                        new[_json.HASH] = _json.digest(new)
                    texts.append(json.dumps(new))
            for text in texts:
                try:
                    said = read(file, wrap(text.encode("utf-8", "surrogatepass")))
                except Exception as error:
                    raise AssertionError(f"{name}: {text[:3000]}") from error
                told += said is not None
                read_all += 1
            file.path.write_bytes(whole)
    print(f"{make.__name__}: {read_all} files, {told} told")  # noqa: T201


@pytest.mark.slow
@pytest.mark.parametrize("make", MAKERS)
def test_a_few_changes(make, tmp_path):
    malformed(make, tmp_path, [remove, put("../up"), put(None), put({"a": 1})])


@pytest.mark.slow
@pytest.mark.torture
@pytest.mark.parametrize("make", MAKERS)
def test_all_changes(make, tmp_path):
    malformed(make, tmp_path, [remove, add, *map(put, ODD)])
