"""The package as a whole: its public names, the order of its imports, what an import loads."""

import ast
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import snapsure

SOURCE = Path(snapsure.__file__).parent

# A module may import only from those before it.
LAYERS = [
    "errors",
    "_types",
    "_validate",
    "_files",
    "_sealed",
    "_display",
    "_json",
    "_spacing",
    "_logistic",
    "_gen",
    "metrics",
    "snapshots",
    "table",
    "estimators",
    "decisions",
    "evaluation",
    "networks",
    "kappas",
    "scoring",
    "predictor",
    "training",
    "report",
    "integrations",
    "paper",
    "cli",
    "testing",
    "__main__",
]


def layer(path):
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(path):
    """Every import in a file, as (line, module)."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, node.module
            # `from snapsure import _validate` names a module, or else comes from the facade.
            if node.module == "snapsure":
                yield from ((node.lineno, f"snapsure.{name.name}") for name in node.names)


def offences(paths):
    for path in paths:
        own = layer(path)
        for line, module in imports(path):
            head, _, rest = module.partition(".")
            if head != "snapsure" or not rest:
                continue
            other = rest.split(".")[0]
            place = f"{path.relative_to(SOURCE)}:{line} imports {module}"
            if other not in LAYERS:
                yield f"{place}, which is no module: import a name from where it is defined"
            elif other != own and LAYERS.index(other) > LAYERS.index(own):
                yield f"{place}, but {own} comes before {other}"


def test_imports_follow_the_order():
    paths = [path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py"]
    assert {layer(path) for path in paths} <= {*LAYERS}
    assert list(offences(paths)) == []


def test_the_order_is_really_checked(monkeypatch, tmp_path):
    monkeypatch.setattr(sys.modules[__name__], "SOURCE", tmp_path)
    early = tmp_path / "errors.py"
    early.write_text(
        "import numpy\nfrom snapsure.metrics import aurc\nfrom snapsure import eaurc\n"
    )
    assert list(offences([early])) == [
        "errors.py:2 imports snapsure.metrics, but errors comes before metrics",
        "errors.py:3 imports snapsure.eaurc, which is no module: "
        "import a name from where it is defined",
    ]


def test_every_public_name_is_there_and_sorted():
    assert sorted(snapsure.__all__) == snapsure.__all__ == dir(snapsure)
    assert {"AES", "Estimator", "Executor", "Forward", "Kappa", "Schedule", "Snapshots"} <= {
        *snapsure.__all__
    }
    for name in snapsure.__all__:
        assert getattr(snapsure, name).__doc__, name


def test_every_public_name_is_written_once():
    """In the `__init__.py` of its room, as `from … import name as name`."""
    rooms = [node for node in ast.parse((SOURCE / "__init__.pyi").read_text()).body]
    starred = [
        node.module.removeprefix("snapsure.")
        for node in rooms
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*"
    ]
    assert "kappas" in starred
    for room in starred:
        tree = ast.parse((SOURCE / room / "__init__.py").read_text())
        _, *lines = tree.body
        assert all(isinstance(line, ast.ImportFrom) for line in lines), room
        written = [alias.name for line in lines for alias in line.names]
        assert len({*written}) == len(written)
        assert all(alias.name == alias.asname for line in lines for alias in line.names), room
        assert {*written} <= {*snapsure.__all__}


def test_a_name_is_looked_up_once():
    code = "import snapsure; snapsure.AES; print('AES' in vars(snapsure))"
    assert fresh(code) == ["True"]


def test_the_version():
    assert snapsure.__version__ == metadata.version("snapsure")
    for command in (["-m", "snapsure"], ["-c", "from snapsure.cli import app; app()"]):
        run = subprocess.run(
            [sys.executable, *command, "--version"], capture_output=True, text=True, check=True
        )
        assert run.stdout == f"snapsure {snapsure.__version__}\n"


def test_contributing_shows_the_rooms_as_they_are():
    root = Path(__file__).parent.parent
    made = subprocess.run(
        [sys.executable, root / "tools" / "rooms.py"], capture_output=True, text=True, check=True
    ).stdout
    page = (root / "CONTRIBUTING.md").read_text()
    assert f"<!-- made by tools/rooms.py -->\n{made}<!-- end -->" in page


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"^module 'snapsure' has no attribute 'auroc'$"):
        snapsure.auroc  # noqa: B018


def fresh(code):
    """What a new interpreter prints."""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return run.stdout.split()


def test_import_loads_next_to_nothing():
    loaded = fresh("import sys, snapsure; print(*sys.modules)")
    heavy = {"torch", "sklearn", "scipy", "typer", "rich", "safetensors", "numpy"}
    assert heavy.isdisjoint(loaded)


def test_metrics_load_numpy_alone():
    loaded = fresh("import sys; from snapsure import aurc; aurc([1], [0]); print(*sys.modules)")
    assert "numpy" in loaded
    assert {"torch", "sklearn", "scipy"}.isdisjoint(loaded)


def test_help_loads_the_command_line_alone():
    code = """
import io, sys
from contextlib import redirect_stdout
from snapsure.cli import app
shown = io.StringIO()
with redirect_stdout(shown):
    app(["--help"], standalone_mode=False)
assert "compare" in shown.getvalue()
print(*sys.modules)
"""
    loaded = fresh(code)
    ours = {name for name in loaded if name.startswith("snapsure.")}
    light = {"snapsure.errors", "snapsure._files", "snapsure._json", "snapsure._display"}
    assert {name for name in ours if not name.startswith("snapsure.cli")} <= light
    heavy = {"torch", "sklearn", "scipy", "safetensors", "filelock", "numpy", "importlib.metadata"}
    assert heavy.isdisjoint(loaded)


def test_without_pytorch_a_sentence_says_what_to_install():
    code = """
import sys
sys.modules["torch"] = None
import snapsure
snapsure.ScoreTable
try:
    snapsure.score
except ModuleNotFoundError as error:
    print(error)
"""
    assert " ".join(fresh(code)) == (
        "snapsure.score needs PyTorch, which is not installed: pip install 'snapsure[torch]'"
    )


def test_snapshots_and_answers_do_not_wait_for_the_compiler(tmp_path):
    """`torch._dynamo` takes a second or two to import, and is of use to compiled networks alone."""
    code = f"""
import sys, torch
from snapsure import AES, Predictor, Recorder, score
model, x = torch.nn.Linear(2, 3), torch.zeros(4, 2)
Recorder({str(tmp_path / "run")!r}).record(model, 1)
score(model, {str(tmp_path / "run")!r}, (x, torch.zeros(4, dtype=torch.int64)), progress=False)
Predictor(model, {str(tmp_path / "run")!r}, AES())(x)
print("torch._dynamo" in sys.modules)
"""
    assert fresh(code) == ["False"]


def test_what_follows_the_table_never_loads_torch():
    names = (
        "AES, LES, MaxLogitPNorm, Monitor, PES, Platt, SPTD, ScoreTable, Threshold, Temperature, "
        "trajectories"
    )
    loaded = fresh(f"import sys; from snapsure import {names}; print(*sys.modules)")
    assert {"torch", "sklearn", "scipy"}.isdisjoint(loaded)
    loaded = fresh("import sys, snapsure.cli, snapsure.evaluation; print(*sys.modules)")
    assert "torch" not in loaded
