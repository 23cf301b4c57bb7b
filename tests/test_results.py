"""The tables of the pages: they are what the archives in `results/` hold."""

import re

import pytest

from tools import results


@pytest.mark.slow
def test_snippets_and_inline_tables_are_current():
    """Run `make results` where this fails."""
    snippets, _ = results.make_snippets()
    written = {path.stem: path.read_text() for path in results.SNIPPETS.glob("*.md")}
    assert written == snippets
    for page in results.INLINE:
        assert results.fill(page.read_text(), snippets) == page.read_text()


def test_every_snippet_is_shown_somewhere():
    shown = set()
    for page in (*(results.ROOT / "docs").rglob("*.md"), *results.INLINE):
        shown |= {
            *re.findall(r'^(?:--8<-- "|<!-- )([\w-]+)(?:\.md"| -->)$', page.read_text(), re.M)
        }
    assert shown == {path.stem for path in results.SNIPPETS.glob("*.md")}


def test_a_page_gets_the_tables_that_it_names():
    page = "Text.\n\n<!-- one -->\n\n| old |\n| --- |\n\nMore.\n"
    filled = results.fill(page, {"one": results.render_table(["a", "b"], [["x", "1"]])})
    assert filled == "Text.\n\n<!-- one -->\n\n| a | b |\n|---|--:|\n| x | 1 |\n\nMore.\n"


def test_a_cell_counts_networks_whose_interval_excludes_0():
    networks = [(8.04, 1.0, 15.0), (-2.0, -5.0, 1.0), (-3.04, -5.0, -1.0)]
    assert results.format_networks(networks) == "+1.0 (+8.0 -2.0 -3.0), 1 / **1**"
