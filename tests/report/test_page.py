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
from snapsure.evaluation._archive import open_contest
from snapsure.report import page as page_of
from snapsure.report.accepting import POSITIONS
from snapsure.report.findings import find
from snapsure.report.shown import Shown
from tests.support.browser import BROWSER, needs_browser

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
    return scored(seed=1)


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


def whole_threshold(page):
    return float(page.get_attribute('[data-role="theta"]', "data-whole"))


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
        assert len(drawn) == 7
        described = page.query_selector_all("[data-chart][aria-label]")
        labels = [chart.get_attribute("aria-label") for chart in described]
        assert len(labels) == 7
        assert any("Selective risk against coverage" in label for label in labels)
        marks = "all => all.map(s => s.querySelectorAll('.role-mark path, .role-mark line').length)"
        assert min(page.eval_on_selector_all("[data-chart] svg", marks)) >= 1
        assert page.locator("figure > figcaption").count() == 7
        assert page.locator("details table").count() >= 3
        headings = page.eval_on_selector_all("h1, h2", "all => all.map(h => h.textContent)")
        assert headings == [
            "Which predictions can be trusted?",
            "What to use",
            "Accept, or hand to a person?",
            "Along training",
            "Can the number be read as a probability?",
            "Points worth a look",
            "How this was made",
        ]


@needs_browser
def test_the_slider_shows_what_the_library_computes(chromium, page_file, table):
    rest = table.split(0.5, 0)[1]  # what nothing was fitted on
    aes = AES().confidence(rest)
    found = find(table)
    with opened(chromium, page_file) as page:
        assert page.input_value('[data-role="score"]') == "AES"
        for step in (1, 50, 160, POSITIONS):
            page.fill('[data-role="coverage"]', str(step))
            chosen = Threshold.at_coverage(aes, step / POSITIONS)
            accepted = chosen.accepts(aes)
            assert whole_threshold(page) == chosen.theta
            assert shown(page, "theta") == f"{chosen.theta:.6g}"
            risk = rest.errors[accepted].mean()
            assert shown(page, "risk") == f"{100 * risk:.2f} %"
            assert shown(page, "handed") == f"{(~accepted).sum():,}"
            bound = found.positions["AES"].bounds[0.05][step - 1]
            assert 0 <= float(shown(page, "bound")[:-2]) - 100 * bound < 0.0100001  # rounded up
        page.select_option('[data-role="score"]', "final")
        page.select_option('[data-role="delta"]', "0.001")
        page.fill('[data-role="coverage"]', "100")
        final = rest.kappa("softmax")[-1]
        assert whole_threshold(page) == Threshold.at_coverage(final, 0.5).theta
        assert shown(page, "which") == "the final softmax"
        bound = found.positions["final"].bounds[0.001][99]
        assert 0 <= float(shown(page, "bound")[:-2]) - 100 * bound < 0.0100001


@needs_browser
def test_the_slider_shows_the_share_of_points_of_none_of_the_classes(chromium, table, tmp_path):
    y = np.where(np.arange(table.y.size) % 9 == 0, -1, table.y)
    strangers = ScoreTable({"softmax": table.kappa("softmax")}, table.labels, y)
    path = Report(strangers).save(tmp_path / "report.html")
    with opened(chromium, path) as page:
        page.select_option('[data-role="score"]', "AES")
        page.fill('[data-role="coverage"]', "120")
        share = find(strangers).positions["AES"].strange[119]
        assert float(shown(page, "strange")[:-2]) == pytest.approx(100 * share, abs=0.0501)


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
        assert page.evaluate("navigator.clipboard.readText()") == str(whole_threshold(page))


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
def test_a_phone_shows_one_table_within_8000_pixels(chromium, table, tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (900, 3, 16, 16), dtype=np.uint8)
    path = Report(table, images=images, classes=["cat", "dog", "horse", "ship"]).save(
        tmp_path / "phone.html"
    )
    with opened(chromium, path, viewport={"width": 390, "height": 800}) as page:
        assert page.evaluate("document.documentElement.scrollHeight") <= 8000


@needs_browser
def test_it_opens_with_one_recommendation(chromium, page_file, table):
    found = find(table)
    (first, *others) = Report(table)._advice.sentences("softmax")
    with opened(chromium, page_file) as page:
        assert page.inner_text(".advice") == " ".join((first, *others))
        assert first == "Use AES."
        answers = page.eval_on_selector_all(".verdicts li", "all => all.map(li => li.className)")
        rows = [row for name, row in found.results.items() if name != "final"]
        assert answers == [row.outcome.replace(" ", "-") for row in rows]


@needs_browser
def test_what_is_judged_worse_is_not_where_the_page_begins(chromium, tmp_path):
    """The final snapshot knows best, and averaging with the others spoils it."""
    rng = np.random.default_rng(0)
    ease = rng.normal(size=900)
    noise = rng.normal(size=(30, 900)) * np.where(np.arange(30) < 29, 9, 0.1)[:, None]
    wrong = rng.random(900) > 1 / (1 + np.exp(-(1 + 2 * ease)))
    kappa = 1 / (1 + np.exp(-(ease + noise)))
    table = ScoreTable({"softmax": kappa}, np.zeros((30, 900), int), wrong.astype(int))
    path = Report(table).save(tmp_path / "worse.html")
    with opened(chromium, path) as page:
        assert page.inner_text(".advice").startswith(
            "Nothing here beats the final softmax: use it."
        )
        assert page.inner_text(".verdicts .worse >> nth=0").startswith("AES ranks right from wrong")
        assert page.input_value('[data-role="score"]') == "final"


@needs_browser
def test_several_tables_get_chapters(chromium, tmp_path):
    path = Report({"seed 0": scored(300), "<b>seed 1": scored(300, seed=1)}).save(
        tmp_path / "r.html"
    )
    with opened(chromium, path) as page:
        chapters = page.locator("details.chapter")
        assert chapters.locator("h2").all_text_contents() == ["seed 0", "<b>seed 1"]
        first, second = (page.locator(f"#chapter-{i}") for i in (0, 1))
        assert not first.locator("form.decide").is_visible()
        page.click('a[href="#chapter-1"]')  # of the table that has a row for each
        second.locator('[data-role="coverage"]').fill("20")
        page.wait_for_function(
            "document.querySelector('#chapter-1 [data-chart=rc] svg').clientWidth > 500"
        )
        before = first.locator('[data-role="theta"]').text_content()
        second.locator('[data-role="coverage"]').fill("40")
        assert first.locator('[data-role="theta"]').text_content() == before
        page.emulate_media(media="print")
        assert second.locator(".decide input").is_hidden()
        levels = page.eval_on_selector_all("h1, h2, h3", "all => all.map(h => h.tagName)")
        assert levels == ["H1", "H2", *2 * ["H2", *5 * ["H3"]], "H2"]


def test_several_tables_have_one_recommendation():
    tables = {f"seed {seed}": scored(300, seed=seed) for seed in range(3)}
    report = Report(tables, risk=0.3)
    accepted = report._advice.accepted
    html = " ".join(report.html().split())
    assert html.count("of the answers at a promised risk of 30 %") == 1
    for (name, table), share in zip(tables.items(), accepted, strict=True):
        assert f">{name}</a></th><td>{100 * (1 - table.errors.mean()):.1f} %</td>" in html
        assert share is None or f"<td>{100 * share:.1f} %</td>" in html


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
        assert (
            page.locator(".points li").count() == 12
        )  # the mistakes, six of them folded; none moved


def test_ten_tables_stay_within_the_size():
    tables = {f"seed {seed}": scored(200, snapshots=5, seed=seed) for seed in range(10)}
    assert len(Report(tables).html().encode()) < 3 * MEGABYTE


@needs_browser
def test_a_million_points_stay_responsive(chromium, tmp_path, monkeypatch):
    """Curves are thinned, the numbers are not; of the intervals there is no need here."""
    monkeypatch.setattr("snapsure.evaluation._choose._EFFORT_LARGE", (1, 20))
    table = scored(1_000_000, snapshots=3)
    path = Report(table).save(tmp_path / "million.html")
    assert path.stat().st_size < 2 * MEGABYTE
    aes = AES().confidence(table.split(0.5, 0)[1])
    with opened(chromium, path) as page:
        page.select_option('[data-role="score"]', "AES")
        page.fill('[data-role="coverage"]', "150")
        chosen = Threshold.at_coverage(aes, 0.75)
        assert whole_threshold(page) == chosen.theta
        assert shown(page, "handed") == "125,000"
        data = json.loads(page.text_content("#data"))
        rows = data["chapter-0"]["charts"]["rc"]["data"]["values"]
        assert len(rows) <= 1200


@pytest.mark.parametrize("shape", [(900, 8, 8), (900, 8, 8, 3), (900, 3, 8, 8), (900, 1, 8, 8)])
def test_pictures_as_they_were_scored(table, shape):
    """Channels first or last, normalised or not: the same picture as of the plain bytes."""
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    pixels.flat[:2] = 0, 255  # the whole range, so that stretching is exact
    plain = Shown.of(900, pixels, None, None).of_row(7)["picture"]
    scaled = pixels / 255
    for same in (scaled, scaled.astype(np.float32), (scaled - 0.5) / 0.25, pixels.astype(int)):
        assert Shown.of(900, same, None, None).of_row(7)["picture"] == plain
    if len(shape) == 4 and shape[1] == 3:
        moved = np.moveaxis(pixels, 1, -1)
        assert Shown.of(900, moved, None, None).of_row(7)["picture"] == plain


def test_points_as_rows_of_a_table(table):
    fields = {"size": np.linspace(0, 1, 900), "city": ["Rome", "<b>Bonn"] * 450}
    html = Report(table, fields=fields).html()
    assert "<dt>city</dt><dd>&lt;b&gt;Bonn</dd>" in html
    row = int(re.search(r'class="row">row (\d+)<', html).group(1))
    assert f"<dt>size</dt><dd>{row / 899:.4g}</dd>" in html
    many = {f"column {i}": np.zeros(900) for i in range(20)}
    html = Report(table, fields=many).html()
    assert "column 7" in html
    assert "column 8" not in html


def test_a_threshold_just_below_one_is_not_shown_as_one():
    assert page_of._threshold(1 - 1.5e-9) == "1 − 1.5e-09"
    assert page_of._threshold(1.0) == "1"
    assert page_of._threshold(0.12345678) == "0.123457"


def test_refusals(table, tmp_path):
    for shape in ((3, 8, 8), (900, 8, 8, 2), (900, 8)):
        with pytest.raises(InvalidInput) as refusal:
            Report(table, images=np.zeros(shape))
        assert str(refusal.value) == (
            "`images` must have shape (n, height, width), (n, height, width, channels) or (n, "
            f"channels, height, width) with n = 900 and 1 or 3 channels, got {shape}: pass the "
            "scored points in their order"
        )
    with pytest.raises(InvalidInput) as refusal:
        Report(table, images=np.full((900, 8, 8), np.nan))
    assert str(refusal.value) == (
        "`images` must be finite, got NaN or infinity: replace them first"
    )
    with pytest.raises(InvalidInput) as refusal:
        Report(table, images=np.full((900, 8, 8), "x"))
    assert str(refusal.value) == "`images` must be numbers, got <U1: convert them first"
    with pytest.raises(InvalidInput) as refusal:
        Report(table, fields={"size": [1, 2]})
    assert str(refusal.value) == (
        "`fields` must have one value for each of 900 points, got shape (2,) in 'size': pass the "
        "columns of the scored points in their order"
    )
    with pytest.raises(InvalidInput) as refusal:
        Report(table, risk=5)
    assert str(refusal.value).startswith("`risk` must lie in (0, 1), got 5: write ")
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
    """Of a committed network; SNAPSURE_SCREENSHOT=docs/images/report.png makes it anew."""
    table = open_contest(Path("results/passes"))["words"][0].table
    report = Report(table, title="Which of ten languages is this word from?")
    path = report.save(tmp_path / "report.html")
    with opened(chromium, path, viewport={"width": 960, "height": 1180}) as page:
        assert page.inner_text(".advice").startswith("Use LES. Accept ")
        picture = page.screenshot()
        assert picture.startswith(b"\x89PNG")
        if "SNAPSURE_SCREENSHOT" in os.environ:
            Path(os.environ["SNAPSURE_SCREENSHOT"]).write_bytes(picture)


BREAKOUT = "</iframe><script>document.title = 'out'</script>"


@needs_browser
def test_a_notebook_shows_the_page_in_its_frame(chromium, tmp_path):
    """Nothing gets out of it."""
    report = Report(scored(), title=BREAKOUT)
    notebook = tmp_path / "notebook.html"
    content = report._repr_html_()
    notebook.write_text(f"<title>notebook</title>{content}", encoding="utf-8")
    context = chromium.new_context(viewport={"width": 1000, "height": 900})
    context.set_default_timeout(LONG)
    page, complaints = context.new_page(), []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(notebook.as_uri())
    frame = page.frame_locator("iframe")
    frame.locator("body[data-ready=yes]").wait_for()
    assert frame.locator("[data-chart] svg").count() > 1
    assert frame.locator("h1").inner_text() == BREAKOUT
    assert page.title() == "notebook"
    assert page.locator("p").first.inner_text().split(".")[0] in frame.locator("body").inner_text()
    assert complaints == []
    context.close()
