"""The package as a whole: its public names, and what an import loads."""

import ast
import importlib
import re
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

import snapsure

SOURCE = Path(snapsure.__file__).parent
TESTS = Path(__file__).parent


def public_names(path):
    """Names that a stub or a room's `__init__.py` imports, and the modules they come from."""
    return {
        alias.name: node.module
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def test_the_facade_offers_what_type_checkers_see():
    stub = public_names(SOURCE / "__init__.pyi")
    assert sorted(stub) == snapsure.__all__ == dir(snapsure)
    for name, module in stub.items():
        home = importlib.import_module(f"snapsure.{name}" if module == "snapsure" else module)
        value = getattr(snapsure, name)
        assert value is (home if module == "snapsure" else getattr(home, name))
        assert value.__doc__, name


def test_every_name_of_a_room_is_there_and_documented():
    rooms = [name for name in snapsure.__all__ if (SOURCE / name / "__init__.py").exists()]
    assert {"estimators", "evaluation", "kappas"} <= {*rooms}
    for room in rooms:
        module = importlib.import_module(f"snapsure.{room}")
        for name in public_names(SOURCE / room / "__init__.py"):
            assert getattr(module, name).__doc__, f"{room}.{name}"


def test_what_a_function_returns_cannot_be_changed():
    """A result that is stored, hashed or shared stays what it was."""
    classes = {
        node.name: [ast.unparse(mark) for mark in node.decorator_list]
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    }
    holders = {name for name, marks in classes.items() if "dataclass" in str(marks)}
    thawed = {name for name in holders if "frozen=True" not in str(classes[name])}
    assert thawed == {"Threshold", "_Set"}
    assert len(holders) > 20


def test_it_works_from_a_zip(tmp_path):
    with zipfile.ZipFile(tmp_path / "snapsure.zip", "w") as archive:
        for path in SOURCE.rglob("*.py"):
            archive.write(path, Path("snapsure") / path.relative_to(SOURCE))
    code = f"""
import sys
sys.path.insert(0, {str(tmp_path / "snapsure.zip")!r})
import snapsure
print(".zip" in snapsure.__file__, snapsure.aurc([0.9, 0.1], [0, 1]), snapsure.AES(k=2))
"""
    assert fresh(code) == ["True", "0.25", "AES(k=2,", "start=0.4)"]


def test_every_room_has_its_tests():
    rooms = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    tested = {path.parent.name for path in TESTS.glob("*/test_*.py")}
    assert tested - {"experiments", "fuzz"} == rooms


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


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="auroc"):
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
    assert re.search(r"snapsure\.score needs PyTorch.*snapsure\[torch\]", " ".join(fresh(code)))


@pytest.mark.slow
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
    rooms = "snapsure.decisions, snapsure.estimators, snapsure.metrics, snapsure.table"
    loaded = fresh(f"import sys, {rooms}; print(*sys.modules)")
    assert {"torch", "sklearn", "scipy"}.isdisjoint(loaded)
    loaded = fresh("import sys, snapsure.cli, snapsure.evaluation; print(*sys.modules)")
    assert "torch" not in loaded


def test_no_test_module_imports_another():
    """Helpers that several tests need are in tests/support."""
    for path in TESTS.rglob("*.py"):
        own = ".".join(path.relative_to(TESTS.parent).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module != own:
                assert not re.fullmatch(r"tests\.(.+\.)?test_\w+", node.module), (path, node.module)
