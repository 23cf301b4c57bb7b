"""Build the sdist, a wheel from it, and use that wheel in clean environments: `make wheel`.

Without PyTorch on the oldest Python that pyproject.toml promises and on the newest that is found
here; with it on the oldest alone, unless `--torch-everywhere` is given: for other versions PyPI
has only the build for GPUs, of gigabytes.
"""

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
WHEEL = Path(__file__).parent / "wheel"
LARGEST = 3_000_000  # bytes of the sdist: our studies' results are ten times that

Version = tuple[int, int]


def promised() -> list[Version]:
    """The versions of Python in pyproject.toml's classifiers, in their order."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    ends = [line.rpartition(" ")[2].split(".") for line in project["classifiers"]]
    return sorted((int(end[0]), int(end[1])) for end in ends if len(end) == 2 and end[0] == "3")


def found(wanted: list[Version]) -> dict[Version, Path]:
    """Interpreters of these versions: this one, those on the path, and those of pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    here: dict[Version, Path] = {}
    for version in wanted:
        name = "python{}.{}".format(*version)
        places = [Path(folder) / name for folder in os.get_exec_path()]
        places += sorted(pyenv.glob("{}.{}.*/bin/python".format(*version)), reverse=True)
        if version == sys.version_info[:2]:
            places.insert(0, Path(sys.executable))
        for place in places:
            # A shim of pyenv is there for versions that it will not start.
            command = [str(place), "-c", ""]
            if place.exists() and not subprocess.run(command, capture_output=True).returncode:
                here[version] = place
                break
    return here


def built(folder: Path) -> Path:
    """Build the sdist and, from it, the wheel; return the wheel."""
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT)
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    assert sdist.stat().st_size <= LARGEST, f"{sdist.name} has {sdist.stat().st_size:,} bytes"
    assert {"LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml"} <= {*names}
    assert not [name for name in names if name.startswith("results/")]
    (wheel,) = folder.glob("*.whl")
    sizes = [f"{path.name} {path.stat().st_size / 1e3:,.0f} kB" for path in (sdist, wheel)]
    print(f"built {', '.join(sizes)}", flush=True)
    return wheel


def check(python: Path, version: Version, wheel: Path, folder: Path, *, torch: bool) -> None:
    """Install the wheel into a new environment, and use it there."""
    start = time.monotonic()
    run(python, "-m", "venv", folder / "env")
    scripts = folder / "env" / ("Scripts" if os.name == "nt" else "bin")
    pip = [scripts / "python", "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt"]
    run(*pip, f"{wheel}[torch]" if torch else wheel)
    if torch:
        run(scripts / "python", WHEEL / "with_torch.py", cwd=folder)
    else:
        run(scripts / "python", WHEEL / "core.py", "table", cwd=folder)
        run(scripts / "snapsure", "evaluate", "table", cwd=folder)
    run(scripts / "snapsure", "--version", cwd=folder)
    name = "{}.{}".format(*version) + (" with torch" if torch else "")
    print(f"Python {name}: works, in {time.monotonic() - start:.0f} s", flush=True)


def run(*command: object, cwd: Path | None = None) -> None:
    """Run a command away from this repository; say all it said if it fails."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout}")


def main() -> None:
    """Check what can be checked on this machine, and say what cannot."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch-everywhere", action="store_true", help="PyTorch on all versions")
    everywhere = parser.parse_args().torch_everywhere
    wanted = promised()
    here = found(wanted)
    for version in wanted:
        if version not in here:
            print("Python {}.{}: not on this machine, NOT checked".format(*version), flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        wheel = built(Path(scratch) / "dist")
        ends = sorted({min(here), max(here)})
        for version in sorted(here) if everywhere else ends:
            for torch in (False, True):
                if torch and not everywhere and version != min(here):
                    name = "{}.{}".format(*version)
                    print(f"Python {name} with torch: NOT checked, --torch-everywhere does")
                    continue
                folder = Path(scratch) / f"{version[1]}-{torch}"
                folder.mkdir()
                check(here[version], version, wheel, folder, torch=torch)


if __name__ == "__main__":
    main()
