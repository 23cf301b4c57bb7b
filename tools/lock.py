"""Write lock.txt: which version of every package the tests passed with.

    python tools/lock.py > lock.txt

What `snapsure[dev]` needs is looked up in the environment that runs this, package by package; it
names no index to get them from.
"""

import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
HEAD = """\
# Every package of `make test` as it was when all tests passed, on Linux and Python 3.11.7. Made by
# tools/lock.py, taken by `make test LOCK=lock.txt`.
"""


def locked() -> dict[str, str]:
    """The versions of all packages that the tests need, by name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    found: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    left = [(Requirement(text), "") for text in [*project["dependencies"], "snapsure[dev]"]]
    while left:
        requirement, extra = left.pop()
        name = canonicalize_name(requirement.name)
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        for wanted in ("", *requirement.extras):
            if (name, wanted) in seen:
                continue
            seen.add((name, wanted))
            if name == "snapsure":
                needs = extras[wanted] if wanted else []
            else:
                try:
                    package = distribution(name)
                except PackageNotFoundError:  # for a marker that only pip can tell
                    continue
                found[name] = Version(package.version).public
                needs = package.requires or []
            left += [(Requirement(text), wanted) for text in needs]
    return found


if __name__ == "__main__":
    versions = locked()
    print(HEAD + "\n".join(f"{name}=={versions[name]}" for name in sorted(versions)))
