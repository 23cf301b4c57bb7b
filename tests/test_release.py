"""What a release says of itself, in the several places where it must."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools import check_wheel

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_one_version_everywhere():
    releases = re.findall(r"^## \[([^]]+)\](.*)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    (unreleased, nothing), (newest, date), *_ = releases
    assert (unreleased, nothing) == ("Unreleased", "")
    assert newest == PROJECT["version"]
    assert all(re.fullmatch(r" - \d{4}-\d\d-\d\d", when) for _, when in releases[1:])
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {newest}\ndate-released: {date.removeprefix(' - ')}\n" in citation


def versions(name):
    """What a file pins, by package."""
    return dict(re.findall(r"^([^\s=#]+)==(\S+)", (ROOT / name).read_text(), re.M))


def test_the_lock_has_all_that_development_needs_with_hashes_and_no_index():
    text = (ROOT / "lock.txt").read_text()
    line = r"([a-z0-9-]+==[0-9][0-9a-z.]*| +--hash=sha256:[0-9a-f]{64})( \\)?"
    assert all(re.fullmatch(line, each) for each in text.splitlines())
    assert not re.search(r"==\S+\n", text)  # each has a hash
    # Builds of torch differ by machine: the lock has its version in constraints.txt, and no hash.
    locked = versions("lock.txt") | {"torch": versions("constraints.txt")["torch"]}
    assert versions("constraints.txt").items() <= locked.items()
    extras = PROJECT["optional-dependencies"].values()
    for text in [*PROJECT["dependencies"], *(text for extra in extras for text in extra)]:
        needed = Requirement(text)
        for_linux = needed.marker is None or needed.marker.evaluate({"sys_platform": "linux"})
        if needed.name != "snapsure" and for_linux:
            assert needed.specifier.contains(locked[canonicalize_name(needed.name)]), text


def test_the_changelog_has_the_kinds_of_keep_a_changelog():
    kinds = re.findall(r"^### (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert {*kinds} <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_the_oldest_python_promised_is_the_one_required():
    oldest, *_ = check_wheel.promised()
    assert PROJECT["requires-python"] == ">={}.{}".format(*oldest)


def test_this_python_is_among_those_found():
    assert check_wheel.found(check_wheel.promised())


def test_a_python_that_does_not_start_is_not_found(tmp_path, monkeypatch):
    """Such as pyenv's, for versions that are installed and not chosen."""
    shim = tmp_path / "python3.99"
    shim.write_text("#!/bin/sh\nexit 127\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert check_wheel.found([(3, 99)]) == {}
    shim.write_text("#!/bin/sh\nexit 0\n")
    assert check_wheel.found([(3, 99)]) == {(3, 99): shim}


def test_pre_commit_runs_what_make_lint_runs():
    tools = {"ruff check", "ruff format", "lint-imports", "mypy"}
    hooks = re.findall(r"entry: \.venv/bin/(.*)", (ROOT / ".pre-commit-config.yaml").read_text())
    assert {hook.removesuffix(" --force-exclude") for hook in hooks} == tools
    (lint,) = re.findall(r"^lint:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.M)
    lines = [line.strip().removeprefix("$(BIN)/") for line in lint.splitlines()]
    assert {line.removesuffix(" --check") for line in lines} == tools
