"""How the tests are run: alike on every machine, in any order, by one worker or several."""

import os
import re

# One thread, here and in processes that tests start: with more, a matrix product may be cut up
# otherwise from one process to the next, and differ in its last bit.
os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
os.environ["KERAS_BACKEND"] = "torch"
# Ray takes a node that answers late for lost; on a busy machine it only answers late.
os.environ.update(RAY_health_check_timeout_ms="120000", RAY_worker_register_timeout_seconds="600")
# Its workers are nicer than all others, and starve beside busy ones.
os.environ.update(RAY_worker_niceness="0")
os.environ.pop("RAY_ADDRESS", None)

import hypothesis
import pytest

from tests.support.browser import NO_BROWSER

# A busy machine takes its time; in CI every run draws the same.
hypothesis.settings.register_profile(
    "any machine",
    deadline=None,
    derandomize="CI" in os.environ,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.register_profile(
    "quick", hypothesis.settings.get_profile("any machine"), max_examples=20
)

RAY = "ray"


@pytest.fixture(autouse=True)
def _registries(monkeypatch):
    """Forget the κ and the methods that a test registers, so that tests run in any order."""
    from snapsure.estimators import registry as methods
    from snapsure.kappas import registry as kappas

    monkeypatch.setattr(kappas, "_entries", {**kappas._entries})
    monkeypatch.setattr(methods, "_METHODS", {**methods._METHODS})


def _quick(config):
    return config.option.markexpr.startswith("not slow")


def pytest_configure(config):
    """For daily work hypothesis draws less."""
    hypothesis.settings.load_profile("quick" if _quick(config) else "any machine")


def pytest_ignore_collect(collection_path, config):
    """Import no module for doctests it has not, nor, where slow ones are not wanted, slow files."""
    if collection_path.suffix != ".py":
        return None
    text = collection_path.read_text()
    if "src" in collection_path.relative_to(config.rootpath).parts and ">>>" not in text:
        return True
    if not _quick(config):
        return None
    if collection_path.parts[-3:-1] == ("snapsure", "integrations"):
        return True  # doctests, of modules that import their frameworks
    slow = re.search(r"^pytestmark = \[?\s*pytest\.mark\.slow", text, re.M)
    return True if slow else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Run slow files first, so that none keeps one worker when the others are done.

    pytest-randomly has shuffled files and tests before, and the order stays random otherwise.
    """
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: (_share(item.nodeid) != RAY, item.path not in slow))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Keep the tests of a file with one worker, which makes their fixtures once."""
    from xdist.scheduler import LoadScopeScheduling

    class Files(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return _share(nodeid)

    config.option.loadscopereorder = False
    return Files(config, log)


def _share(nodeid):
    """What goes to a worker as a whole: a file, and the files that need Ray together."""
    path = nodeid.split("::")[0]
    return RAY if path.endswith("ray.py") else path


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter):
    """Say last what was skipped for want of a browser, and how to get one."""
    yield
    skipped = terminalreporter.stats.get("skipped", [])
    count = sum(NO_BROWSER in str(report.longrepr) for report in skipped)
    if count:
        terminalreporter.write_line(
            f"{count} tests of the report were skipped, {NO_BROWSER}: apt install chromium",
            yellow=True,
        )
