"""The documentation: every example runs, the reference is complete, the site is whole."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

import snapsure
from snapsure.cli import app
from tools import pages

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [*sorted(DOCS.rglob("*.md")), *(ROOT / path for path in pages.PLACES if "." in path)]
FENCE = re.compile(r'^```(\w*)(?: title="(.*)")?\n(.*?)^```$', re.M | re.S)

LANGUAGES = ("python", "sh", "console", "text")


def named(path):
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_block_says_what_it_is(page):
    """Blocks of Python run in tests/test_pages.py; one without a language would escape that."""
    text = page.read_text()
    assert ">>> " not in text, "copied prompts do not run"
    assert all(language in LANGUAGES for language, _, _ in FENCE.findall(text))
    if DOCS in page.parents:
        assert not re.search(r"^    \S", FENCE.sub("", text), re.M), "no language if indented"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_file_a_page_links_to_is_there(page):
    """In a clone; on the site, the strict build says so."""
    for target in re.findall(r"\]\((?!\w+:|#)([^)#]+)", FENCE.sub("", page.read_text())):
        assert (page.parent / target).exists(), target


def test_every_public_name_is_in_the_reference():
    described = [name for names in pages.rooms().values() for name in names]
    assert len({*described}) == len(described)
    described += [f"snapsure.{page}" for page in (*pages.rooms(), *pages.MODULES)]
    assert {f"snapsure.{name}" for name in snapsure.__all__} <= {*described}
    for room, names in pages.rooms().items():
        assert re.findall(r"^::: (.*)$", pages.api_page(room), re.M)[1:] == names
    adapters = (ROOT / "src" / "snapsure" / "integrations").glob("[!_]*.py")
    assert {f"integrations.{path.stem}" for path in adapters} <= {*pages.MODULES}


@pytest.mark.parametrize("room", pages.rooms())
def test_every_public_name_has_an_example(room):
    """The examples themselves run as doctests."""
    for name in pages.rooms()[room]:
        module, _, attribute = name.rpartition(".")
        assert ">>> " in getattr(importlib.import_module(module), attribute).__doc__, name


def test_every_command_and_option_is_in_the_reference():
    sections = re.split(r"^## `snapsure (\w+)`$", pages.cli_page(), flags=re.M)
    found = dict(zip(sections[1::2], sections[2::2], strict=True))
    commands = typer.main.get_command(app).commands
    assert sorted(found) == sorted(commands)
    for name, section in found.items():
        params = commands[name].params
        assert commands[name].help.split("\n")[0] in section.replace("&#x27;", "'")
        options = {opt for p in params for opt in (*p.opts, *p.secondary_opts) if opt[0] == "-"}
        listed = re.findall(r"^\* `(-.*?)`", section, re.M)
        assert {opt for line in listed for opt in re.findall(r"-[\w-]+", line)} >= options
        assert len(listed) == len([p for p in params if p.opts[0][0] == "-"]) + 1  # --help
        arguments = [p.name for p in params if p.opts[0][0] != "-"]
        listed = re.findall(r"^\* `(\w+)", section, re.M)
        assert [argument.lower() for argument in listed] == arguments


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The built site."""
    folder = tmp_path_factory.mktemp("site")
    run = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return folder


@pytest.fixture(scope="module")
def site(folder):
    """Its pages, but for the one that only a server shows."""
    return {path: path.read_text() for path in folder.rglob("*.html") if path.name != "404.html"}


@pytest.mark.slow
def test_the_site_shows_every_public_name(site):
    text = "\n".join(site.values())
    for name in [name for names in pages.rooms().values() for name in names]:
        assert f'id="{name}"' in text, name
    assert 'id="snapsure-score"' in text  # of the command line
    assert "doctest: +" not in text


@pytest.mark.slow
def test_the_site_fetches_nothing_from_elsewhere(folder, site):
    for path, text in site.items():
        fetched = re.findall(r'<(?:script|img|iframe)[^>]* src="?([^" >]+)', text)
        fetched += re.findall(r'<link[^>]* rel="?stylesheet[^>]* href="?([^" >]+)', text)
        fetched += re.findall(r'<link[^>]* href="?([^" >]+)[^>]* rel="?stylesheet', text)
        assert len(fetched) > 1
        for target in fetched:
            assert (path.parent / target.split("?")[0]).exists(), target
    for sheet in folder.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import )['\"]?(?:https?:)?//", sheet.read_text()), sheet


@pytest.mark.slow
def test_every_link_within_the_site_leads_somewhere(site):
    for path, text in site.items():
        for target, anchor in re.findall(r' href="(?!\w+:|#|/)([^"#?]+)(#[^"]+)?"', text):
            to = Path(os.path.normpath(path.parent / target))
            assert to.exists(), f"{path.name}: {target}"
            if anchor and to.suffix == ".html":
                assert f'id="{anchor[1:]}"' in site[to], f"{path.name}: {target}{anchor}"
