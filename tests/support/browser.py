"""The browser that the report is tested in."""

import os
import shutil

import pytest

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
NO_BROWSER = "no Chromium on this machine"


def needs_browser(test):
    """Skip a test where there is none; in CI, where there must be one, let it fail."""
    absent = BROWSER is None and "CI" not in os.environ
    return pytest.mark.slow(pytest.mark.skipif(absent, reason=NO_BROWSER)(test))
