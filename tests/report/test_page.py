"""The page in a real browser: what it shows, asks for, and does."""

import json
import os
import re
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import sync_playwright

from snapsure import AES, Report, ScoreTable, Threshold, compare
from snapsure.errors import InvalidInput
from snapsure.paper.archive import Experiment
from snapsure.report import findings
from snapsure.report.findings import POSITIONS, find
from tests.browser import BROWSER, needs_browser

pytestmark = pytest.mark.slow

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
HOSTILE = ["<script>alert(1)</script>", "x" * 200, '🐈 & "cats"</li>', "'; drop"]
MEGABYTE = 2**20
LONG = 600_000  # milliseconds; a busy machine takes its time


def scored(n=900, snapshots=30, seed=0):
    """Four classes; confidence that rises with training, and errors that it knows of."""
    rng = np.random.default_rng(seed)
    ease = rng.normal(size=n)
    noise = rng.normal(size=(snapshots, n)) * np.linspace(2, 0.9, snapshots)[:, None]
    kappa = 1 / (1 + np.exp(-(ease + noise)))
    y = rng.integers(0, 4, n)
    wrong = rng.random(n) > 1 / (1 + np.exp(-(1 + ease)))
    y_hat = np.where(wrong, (y + 1) % 4, y)
    labels = np.where(rng.random((snapshots, n)) < 0.2, y, y_hat)
    labels[-1] = y_hat
    return ScoreTable({"softmax": kappa}, labels, y)


@pytest.fixture(scope="module")
def table():
    return scored()


@pytest.fixture(scope="module")
def page_file(table, tmp_path_factory):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (900, 16, 16, 3), dtype=np.uint8)
    path = tmp_path_factory.mktemp("page") / "report.html"
    origin = {"command": "snapsure report <scores>"}
    return Report(table, images=images, classes=HOSTILE, origin=origin).save(path)


@pytest.fixture(scope="module")
def chromium():
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=BROWSER, args=FLAGS, timeout=LONG)
        yield browser
        browser.close()


@contextmanager
def opened(chromium, path, **options):
    """A page that is drawn, and has made no complaint and no request but for itself."""
    context = chromium.new_context(**{"viewport": {"width": 1000, "height": 900}, **options})
    context.set_default_timeout(LONG)
    page = context.new_page()
    said, asked = [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    page.wait_for_selector("body[data-ready=yes]")
    try:
        yield page
        assert said == []
        assert [url for url in asked if not url.startswith("data:")] == [path.as_uri()]
    finally:
        context.close()


def shown(page, role):
    return page.text_content(f'[data-role="{role}"]')


def test_one_file_of_bounded_size_that_names_no_address(table, page_file):
    text = Report(table).html()
    assert len(text.encode()) < 2 * MEGABYTE
    markup = re.sub(r'(?s)<script type="module">.*?</script>', "", text)
    assert not re.search(r"<(script|link|img|iframe)[^>]+(src|href)=\"(?!data:|#)", markup)
    assert "default-src 'none'" in text
    assert page_file.stat().st_size < 3 * MEGABYTE


def test_the_same_table_gives_the_same_page(table):
    assert Report(table).html() == Report(table).html()


@needs_browser
def test_charts_are_drawn_with_descriptions_and_tables(chromium, page_file):
    with opened(chromium, page_file) as page:
        drawn = page.query_selector_all("[data-chart] svg")
        assert len(drawn) == 6
        described = page.query_selector_all("[data-chart][aria-label]")
        labels = [chart.get_attribute("aria-label") for chart in described]
        assert len(labels) == 6
        assert any("Selective risk against coverage" in label for label in labels)
        marks = "all => all.map(s => s.querySelectorAll('.role-mark path, .role-mark line').length)"
        assert min(page.eval_on_selector_all("[data-chart] svg", marks)) >= 1
        assert page.locator("figure > figcaption").count() == 6
        assert page.locator("details table").count() >= 3
        headings = page.eval_on_selector_all("h1, h2", "all => all.map(h => h.textContent)")
        assert headings == [
            "Which predictions can be trusted?",
            "Did it help?",
            "Accept, or hand to a person?",
            "Along training",
            "Can the number be read as a probability?",
            "Points worth a look",
            "How this was made",
        ]


@needs_browser
def test_the_slider_shows_what_the_library_computes(chromium, page_file, table):
    aes = AES().confidence(table)
    found = find(table)
    with opened(chromium, page_file) as page:
        for step in (1, 50, 160, POSITIONS):
            page.fill('[data-role="coverage"]', str(step))
            chosen = Threshold.at_coverage(aes, step / POSITIONS)
            accepted = chosen.accepts(aes)
            assert float(shown(page, "theta")) == chosen.theta
            risk = table.errors[accepted].mean()
            assert shown(page, "risk") == f"{100 * risk:.2f} %"
            assert shown(page, "handed") == f"{(~accepted).sum():,}"
            bound = found.positions["AES"].bounds[0.05][step - 1]
            assert 0 <= float(shown(page, "bound")[:-2]) - 100 * bound < 0.0100001  # rounded up
        page.select_option('[data-role="score"]', "final")
        page.select_option('[data-role="delta"]', "0.001")
        page.fill('[data-role="coverage"]', "100")
        final = table.kappa("softmax")[-1]
        assert float(shown(page, "theta")) == Threshold.at_coverage(final, 0.5).theta
        assert shown(page, "which") == "final softmax"
        bound = found.positions["final"].bounds[0.001][99]
        assert 0 <= float(shown(page, "bound")[:-2]) - 100 * bound < 0.0100001


@needs_browser
def test_the_slider_shows_the_share_of_points_of_none_of_the_classes(chromium, table, tmp_path):
    y = np.where(np.arange(table.y.size) % 9 == 0, -1, table.y)
    strangers = ScoreTable({"softmax": table.kappa("softmax")}, table.labels, y)
    path = Report(strangers).save(tmp_path / "report.html")
    with opened(chromium, path) as page:
        page.fill('[data-role="coverage"]', "120")
        share = find(strangers).positions["AES"].strange[119]
        assert shown(page, "strange") == f"{100 * share:.1f} %"


@needs_browser
def test_the_rule_in_the_chart_follows(chromium, page_file):
    """Its place in the picture, before and after."""
    rule = "[data-chart=rc] .mark-rule.role-mark line"
    place = f"() => document.querySelector('{rule}').getBoundingClientRect().x"
    with opened(chromium, page_file) as page:
        before = page.evaluate(place)
        page.fill('[data-role="coverage"]', "40")
        page.wait_for_function(f"({place})() < {before}")
        moved = before - page.evaluate(place)
        width = page.evaluate("document.querySelector('[data-chart=rc] svg').clientWidth")
        assert 0.5 * width < moved < 0.6 * width  # from 80 % to 20 % of what lies between the axes


@needs_browser
def test_by_keyboard_alone(chromium, page_file):
    with opened(chromium, page_file) as page:
        page.focus('[data-role="coverage"]')
        before = shown(page, "asked")
        page.keyboard.press("ArrowLeft")
        assert shown(page, "asked") != before
        spoken = page.get_attribute('[data-role="coverage"]', "aria-valuetext")
        assert spoken == f"{shown(page, 'asked')} of the points"
        for role in ("score", "delta", "coverage"):
            identity = page.get_attribute(f'[data-role="{role}"]', "id")
            assert page.locator(f'label[for="{identity}"]').count() == 1


@needs_browser
def test_the_threshold_is_copied(chromium, page_file):
    with opened(chromium, page_file) as page:
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.click('[data-role="copy"]')
        page.wait_for_selector('[data-role="copy"]:text("Copied")')
        assert page.evaluate("navigator.clipboard.readText()") == shown(page, "theta")


@needs_browser
def test_hostile_names_are_text(chromium, page_file):
    with opened(chromium, page_file) as page:
        text = page.inner_text("main")
        assert "<script>alert(1)</script>" in text
        assert '🐈 & "cats"</li>' in text
        assert f"{'x' * 79}…" in text
        assert "x" * 80 not in text
        assert "snapsure report <scores>" in text


@needs_browser
def test_pictures_have_words(chromium, page_file):
    with opened(chromium, page_file) as page:
        pictures = page.query_selector_all(".points img")
        assert len(pictures) == 12 + 4 * 6
        assert all(picture.get_attribute("alt").startswith("Point ") for picture in pictures)
        widths = [
            picture.evaluate("async i => (await i.decode(), i.naturalWidth)")
            for picture in pictures
        ]
        assert set(widths) == {96}


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark(chromium, page_file, scheme):
    with opened(chromium, page_file, color_scheme=scheme) as page:
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        ink = page.evaluate("document.querySelector('[data-chart] svg text').getAttribute('fill')")
        assert (ground, ink) == {
            "light": ("rgb(255, 255, 255)", "#1c2126"),
            "dark": ("rgb(20, 24, 28)", "#e6eaee"),
        }[scheme]
        other = "dark" if scheme == "light" else "light"
        page.emulate_media(color_scheme=other)
        page.wait_for_function(
            "ink => document.querySelector('[data-chart] svg text')?.getAttribute('fill') !== ink",
            arg=ink,
        )
        page.wait_for_timeout(300)


@needs_browser
def test_a_narrow_screen_needs_no_sideways_scrolling(chromium, page_file):
    with opened(chromium, page_file, viewport={"width": 360, "height": 700}) as page:
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        width = page.evaluate("document.querySelector('[data-chart=rc] svg').clientWidth")
        assert 250 < width <= 340
        for verdict in page.query_selector_all(".verdicts li"):
            box = verdict.bounding_box()
            assert box["x"] + box["width"] <= 360
            assert "…" in verdict.inner_text()  # the interval is in the words


@needs_browser
def test_several_tables_get_chapters(chromium, tmp_path):
    path = Report({"seed 0": scored(300), "<b>seed 1": scored(300, seed=1)}).save(
        tmp_path / "r.html"
    )
    with opened(chromium, path) as page:
        chapters = page.eval_on_selector_all("h2.chapter", "all => all.map(h => h.textContent)")
        assert chapters == ["seed 0", "<b>seed 1"]
        assert page.locator("nav a").count() == 2
        first, second = (page.locator(f"#chapter-{i}") for i in (0, 1))
        before = first.locator('[data-role="theta"]').text_content()
        second.locator('[data-role="coverage"]').fill("20")
        assert first.locator('[data-role="theta"]').text_content() == before
        page.emulate_media(media="print")
        assert page.locator(".decide input").first.is_hidden()
        levels = page.eval_on_selector_all("h1, h2, h3", "all => all.map(h => h.tagName)")
        assert levels == ["H1", *2 * ["H2", *5 * ["H3"]], "H2"]


@needs_browser
@pytest.mark.parametrize("width", [360, 1000])
def test_a_contest_has_its_own_section(chromium, table, tmp_path, width):
    found = compare({"<b>one</b>": [table], "two": scored(seed=1)}, resamples=400)
    path = Report(table, contest=found).save(tmp_path / "contest.html")
    with opened(chromium, path, viewport={"width": width, "height": 900}) as page:
        section = page.locator('section[aria-labelledby="contest"]')
        assert section.locator("svg").count() == section.locator("table").count() == 3
        boards = [found.pooled, *found.boards.values()]
        assert section.locator("h3").all_text_contents() == [board.name for board in boards]
        for board, rows in zip(boards, section.locator("table").all(), strict=True):
            cells = rows.locator("tbody tr").all()
            assert len(cells) == len(board.rows)
            for row, line in zip(board.rows, cells, strict=True):
                assert line.locator("th").text_content() == row.method
                assert line.locator("td").last.text_content() == row.verdict
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width


@needs_browser
def test_one_snapshot_is_seen_as_points(chromium, tmp_path):
    path = Report(scored(200, snapshots=1)).save(tmp_path / "one.html")
    with opened(chromium, path) as page:
        points = "[data-chart=training-0] .mark-symbol.role-mark path"
        assert page.locator(points).count() == 1
        assert page.locator(".points li").count() == 12  # the mistakes; nothing was moved


def test_ten_tables_stay_within_the_size():
    tables = {f"seed {seed}": scored(200, snapshots=5, seed=seed) for seed in range(10)}
    assert len(Report(tables).html().encode()) < 3 * MEGABYTE


@needs_browser
def test_a_million_points_stay_responsive(chromium, tmp_path, monkeypatch):
    """Curves are thinned, the numbers are not; of the intervals there is no need here."""
    monkeypatch.setattr(findings, "_EFFORT_LARGE", (1, 20))
    table = scored(1_000_000, snapshots=3)
    path = Report(table).save(tmp_path / "million.html")
    assert path.stat().st_size < 2 * MEGABYTE
    aes = AES().confidence(table)
    with opened(chromium, path) as page:
        page.fill('[data-role="coverage"]', "150")
        chosen = Threshold.at_coverage(aes, 0.75)
        assert float(shown(page, "theta")) == chosen.theta
        assert shown(page, "handed") == "250,000"
        data = json.loads(page.text_content("#data"))
        rows = data["chapter-0"]["charts"]["rc"]["data"]["values"]
        assert len(rows) <= 1200


def test_refusals(table, tmp_path):
    with pytest.raises(InvalidInput) as refusal:
        Report(table, images=np.zeros((3, 8, 8)))
    assert str(refusal.value) == (
        "`images` must have shape (n, height, width) or (n, height, width, 3) with n = 900, got "
        "(3, 8, 8): pass the scored points in their order"
    )
    for pixels, told in (
        (np.zeros((900, 8, 8), int), "int64"),
        (np.full((900, 8, 8), 7.0), "float64 with other values"),
        (np.full((900, 8, 8), np.nan), "float64 with other values"),
    ):
        with pytest.raises(InvalidInput) as refusal:
            Report(table, images=pixels)
        assert str(refusal.value) == (
            f"`images` must be uint8, or floats in [0, 1], got {told}: convert them first"
        )
    with pytest.raises(InvalidInput) as refusal:
        Report({})
    assert str(refusal.value) == (
        "`tables` must hold at least one table, got none: pass a ScoreTable"
    )
    with pytest.raises(InvalidInput) as refusal:
        Report(table).save(tmp_path)
    assert str(refusal.value) == f"`path` must be a file, got the folder {tmp_path}: add a name"


@needs_browser
def test_the_readmes_picture(chromium, tmp_path):
    """A committed CIFAR-100 network; SNAPSURE_SCREENSHOT=docs/images/report.png makes it anew."""
    table = Experiment.open(Path("results/cifar100-cpu")).tables[0]
    report = Report(table, title="CIFAR-100: which predictions can be trusted?")
    path = report.save(tmp_path / "report.html")
    with opened(chromium, path, viewport={"width": 960, "height": 1180}) as page:
        first = page.inner_text(".verdicts .yes >> nth=0")
        assert "AES k=30 ranks right from wrong better" in first
        picture = page.screenshot()
        assert picture.startswith(b"\x89PNG")
        if "SNAPSURE_SCREENSHOT" in os.environ:
            Path(os.environ["SNAPSURE_SCREENSHOT"]).write_bytes(picture)
