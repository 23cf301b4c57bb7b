"""The browser that pages are opened in."""

import pytest

from tests.support.browser import BROWSER
from tests.support.report import FLAGS, LONG


@pytest.fixture(scope="session")
def chromium():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=BROWSER, args=FLAGS, timeout=LONG)
        yield browser
        browser.close()
