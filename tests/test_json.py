"""JSON files with their own hash: what is written is read back, and anything else is refused."""

from typing import Annotated, TypedDict

import pytest
from msgspec import Meta

from snapsure import _json
from snapsure.errors import CorruptFile, InvalidInput, StorageError


class Point(TypedDict):
    x: float
    name: Annotated[str, Meta(pattern=r"\A\w+\Z")]


class Content(TypedDict):
    n: _json.Integer
    points: list[Point]


GOOD = {"n": 2**63 - 1, "points": [{"x": 1e-300, "name": "a"}, {"x": -0.0, "name": "é"}]}


def test_what_is_written_is_read_back(tmp_path):
    _json.write(tmp_path / "a.json", "Thing", GOOD)
    assert _json.read(tmp_path / "a.json", "Thing", Content) == GOOD


@pytest.mark.parametrize(
    ("points", "facts"),
    [
        ([{"x": "1", "name": "a"}], ["'1' at `$.points[0].x`", "float"]),
        ([{"x": True, "name": "a"}], ["True at `$.points[0].x`"]),
        ([{"x": 10**400, "name": "a"}], ["1000", "`$.points[0].x`"]),
        ([{"x": 1.0, "name": "../up"}], ["'../up' at `$.points[0].name`"]),
        ([{"x": 1.0, "name": "a\n"}], ["`$.points[0].name`"]),
        ([{"x": 1.0, "name": "a"}, {"x": 1.0}], ["a dict of 1 at `$.points[1]`", "`name`"]),
        ({}, ["a dict of 0 at `$.points`"]),
    ],
)
def test_the_message_names_place_and_value(tmp_path, points, facts):
    path = tmp_path / "a.json"
    path.write_bytes(_json.text({"n": 1, "points": points}))
    with pytest.raises(CorruptFile) as caught:
        _json.load(path, "a thing", Content, "restore it")
    assert str(caught.value).startswith(f"{path} must be a thing, got ")
    assert str(caught.value).endswith(". Restore it.")
    assert all(fact in str(caught.value) for fact in facts)


@pytest.mark.parametrize("n", [2**63, -(2**63) - 1, 1.0, True, None])
def test_integers_have_64_bits(tmp_path, n):
    (tmp_path / "a.json").write_bytes(_json.text({"n": n, "points": []}))
    with pytest.raises(CorruptFile, match=r"`\$\.n`"):
        _json.load(tmp_path / "a.json", "a thing", Content, "restore it")


def test_the_least_integer_and_counts_from_0_are_read(tmp_path):
    (tmp_path / "a.json").write_bytes(_json.text({"n": -(2**63), "points": []}))
    content = _json.load(tmp_path / "a.json", "a thing", Content, "restore it")
    assert content["n"] == -(2**63)
    for count in (0, 2**63 - 1):
        assert _json.convert(count, _json.Count, "a", "a thing", "restore it") == count
    for count in (-1, 2**63):
        with pytest.raises(CorruptFile, match=str(count)):
            _json.convert(count, _json.Count, "a", "a thing", "restore it")


def test_a_message_shows_forty_characters_of_a_long_value():
    for letters, shown in ((38, f"got '{'a' * 38}' at"), (39, f"got '{'a' * 39}… at")):
        with pytest.raises(CorruptFile) as caught:
            _json.convert("a" * letters, int, "a", "a thing", "restore it")
        assert shown in str(caught.value)


def test_files_whose_keys_have_another_order_are_the_same():
    assert _json.digest({"a": 1, "b": 2}) == _json.digest({"b": 2, "a": 1})


@pytest.mark.parametrize("text", ["", "{", "NaN", '{"n": 1e999}', '{"n": Infinity}', "[" * 10**5])
def test_what_is_no_json_is_refused(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(CorruptFile, match="no JSON"):
        _json.load(tmp_path / "a.json", "a thing", Content, "restore it")


@pytest.mark.parametrize("text", ["[]", "null", "{}", '{"n": 1, "points": []}'])
def test_what_has_no_hash_is_refused(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(CorruptFile, match="SHA-256"):
        _json.load(tmp_path / "a.json", "a thing", Content, "restore it")


def test_what_killed_writes_of_the_file_left_is_removed(tmp_path):
    theirs = tmp_path / ".partial-0123456789ab-b.json"
    for path in (theirs, tmp_path / ".partial-0123456789ab-a.json"):
        path.write_text("half")
    _json.write(tmp_path / "a.json", "Thing", GOOD)
    assert {*tmp_path.iterdir()} == {theirs, tmp_path / "a.json"}


def test_another_kind_or_no_file(tmp_path):
    path = tmp_path / "a.json"
    with pytest.raises(InvalidInput, match="got no file"):
        _json.read(path, "Thing", Content)
    _json.write(path, "Other", GOOD)
    with pytest.raises(CorruptFile, match="'snapsure Other 2'"):
        _json.read(path, "Thing", Content)
    with pytest.raises(StorageError, match="cannot read"):
        _json.load(tmp_path, "a thing", Content, "restore it")
