"""The page in a real browser: what it shows, asks for, and does."""

import base64
import io
import os
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from snapsure import AES, Report, ScoreTable, Threshold, compare
from snapsure.errors import InvalidInput
from snapsure.evaluation import choose
from snapsure.evaluation._archive import open_contest
from snapsure.report.accept import find_all_positions, write_threshold
from snapsure.report.examples import Examples, shorten
from snapsure.report.sections import SECTIONS
from tests.support.browser import needs_browser
from tests.support.report import LONG, chapter_of, opened, scored, spoilt

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
HOSTILE = ["<script>alert(1)</script>", "x" * 200, '🐈 & "cats"</li>', "'; drop"]
MEGABYTE = 2**20
RISK = 0.3
POSITIONS = 200  # of the slider


@pytest.fixture(scope="module")
def table():
    return scored()


@pytest.fixture(scope="module")
def choice(table):
    return choose(table, risk=RISK)


@pytest.fixture(scope="module")
def page_file(table, tmp_path_factory):
    images = np.random.default_rng(0).integers(0, 256, (900, 16, 16, 3), dtype=np.uint8)
    path = tmp_path_factory.mktemp("page") / "report.html"
    origin = {"command": "snapsure report <scores>", "data": {"city": "Zürich"}}
    return Report(table, risk=RISK, images=images, classes=HOSTILE, origin=origin).save(path)


def shown(page, role):
    return page.text_content(f'[data-role="{role}"]')


def whole_threshold(page):
    return float(page.get_attribute('[data-role="theta"]', "data-whole"))


def test_the_page_has_the_notices_of_all_libraries_that_it_contains(page_file):
    import vl_convert

    (binary,) = Path(vl_convert.__file__).parent.glob("vl_convert.*")
    found = re.findall(rb"npm/([a-z0-9.-]+)@\d", binary.read_bytes())
    libraries = {name.decode() for name in found}
    assert {"vega", "vega-lite", "vega-embed", "d3-array"} <= libraries
    notices = re.search(r'<pre class="note">(.*?)</pre>', page_file.read_text(), re.S)[1]
    assert not [name for name in libraries if not re.search(rf"(?<![\w-]){name}(?![\w-])", notices)]


def test_text_that_is_not_unicode_is_refused(table, tmp_path):
    report = Report(table, title="odd \ud800")
    with pytest.raises(InvalidInput, match=r"Unicode text, got '\\ud800' in .*odd.*UTF-8"):
        report.save(tmp_path / "page.html")
    assert [*tmp_path.iterdir()] == []


def test_one_file_of_bounded_size_that_names_no_address(table, page_file):
    text = Report(table).html()
    assert len(text.encode()) < 2 * MEGABYTE
    markup = re.sub(r'(?s)<script type="module">.*?</script>', "", text)
    assert not re.search(r"<(script|link|img|iframe)[^>]+(src|href)=\"(?!data:|#)", markup)
    assert "default-src 'none'" in text
    assert page_file.stat().st_size < 3 * MEGABYTE
    written = page_file.read_text(encoding="utf-8")
    assert "<dd>snapsure report &lt;scores&gt;</dd>" in written
    assert "<dd>{&#34;city&#34;: &#34;Zürich&#34;}</dd>" in written
    assert Report(table).html() == text


@needs_browser
def test_charts_are_drawn_with_descriptions_and_tables(chromium, page_file):
    with opened(chromium, page_file) as page:
        names = page.eval_on_selector_all("[data-chart]", "all => all.map(c => c.dataset.chart)")
        assert names[:2] == ["risk", "difference"]
        assert page.locator("[data-chart] svg").count() == len(names)
        assert page.locator("[data-chart][aria-label]").count() == len(names)
        marks = "all => all.map(s => s.querySelectorAll('.role-mark path, .role-mark line').length)"
        assert min(page.eval_on_selector_all("[data-chart] svg", marks)) >= 1
        # A screen reader reads descriptions and tables, not every mark.
        assert page.locator("[data-chart] .role-mark:not([aria-hidden=true])").count() == 0
        assert page.locator("figure > figcaption").count() == len(names)
        assert page.locator("details table").count() >= 3
        headings = page.eval_on_selector_all("h2", "all => all.map(h => h.textContent)")
        assert headings[1:-1] == [section.title for section in SECTIONS]
        assert not page.locator("dl.made").is_visible()  # provenance is folded, at the end


@needs_browser
def test_the_slider_shows_what_the_library_computes(chromium, page_file, table, choice):
    rest = table.rows(choice.rest)
    deployed = choice.confidence(rest)
    positions = find_all_positions(chapter_of(table, RISK))
    with opened(chromium, page_file) as page:
        assert page.input_value('[data-role="score"]') == choice.method
        assert whole_threshold(page) == choice.threshold.theta
        assert shown(page, "coverage-shown") == f"{100 * choice.accepted:.1f} %"
        assert shown(page, "promise") == "(here)"
        for step in (1, 40, 190, POSITIONS):
            page.fill('[data-role="coverage"]', str(step))
            chosen = Threshold.at_coverage(deployed, step / POSITIONS)
            accepted = chosen.accepts(deployed)
            assert whole_threshold(page) == chosen.theta
            assert shown(page, "theta") == write_threshold(chosen.theta)
            assert shown(page, "risk") == f"{100 * rest.errors[accepted].mean():.2f} %"
            assert shown(page, "reviewed") == f"{(~accepted).sum():,}"
            bound = positions[choice.method].bounds[0.05][step - 1]
            assert 0 <= float(shown(page, "bound")[:-2]) - 100 * bound < 0.0100001  # rounded up
        assert shown(page, "promise") == "(not here)"
        page.select_option('[data-role="score"]', "final softmax")
        page.select_option('[data-role="delta"]', "0.001")
        page.fill('[data-role="coverage"]', "40")
        final = rest.kappa("softmax")[-1]
        assert whole_threshold(page) == Threshold.at_coverage(final, 0.2).theta
        bound = positions["final softmax"].bounds[0.001][39]
        assert 0 <= float(shown(page, "bound")[:-2]) - 100 * bound < 0.0100001
        page.click('[data-role="reset"]')
        assert whole_threshold(page) == choice.threshold.theta


@needs_browser
def test_the_slider_shows_the_share_of_none_of_the_classes(chromium, table, tmp_path):
    y = np.where(np.arange(table.y.size) % 9 == 0, -1, table.y)
    strangers = ScoreTable({"softmax": table.kappa("softmax")}, table.labels, y)
    path = Report(strangers, risk=RISK).save(tmp_path / "report.html")
    with opened(chromium, path) as page:
        page.select_option('[data-role="score"]', "final softmax")
        page.fill('[data-role="coverage"]', "20")
        positions = find_all_positions(chapter_of(strangers, RISK))["final softmax"]
        assert shown(page, "strange") == f"{100 * positions.strange[19]:.1f} %"


@needs_browser
@pytest.mark.parametrize("chart", ["risk", "difference"])
def test_the_rule_in_the_charts_follows(chromium, page_file, chart):
    """Its place in the picture, before and after."""
    rule = f"[data-chart={chart}] .mark-rule.role-mark line[stroke-dasharray='4,3']"
    place = f'() => document.querySelector("{rule}").getBoundingClientRect().x'
    with opened(chromium, page_file) as page:
        page.fill('[data-role="coverage"]', "160")
        page.wait_for_timeout(300)
        before = page.evaluate(place)
        page.fill('[data-role="coverage"]', "40")
        page.wait_for_function(f"({place})() < {before}")
        moved = before - page.evaluate(place)
        width = page.evaluate(f"document.querySelector('[data-chart={chart}] svg').clientWidth")
        assert 0.45 * width < moved < 0.65 * width  # from 80 % to 20 % of what lies between axes


@needs_browser
def test_by_keyboard_alone(chromium, page_file):
    with opened(chromium, page_file) as page:
        page.focus('[data-role="coverage"]')
        before = shown(page, "coverage-shown")
        page.keyboard.press("ArrowLeft")
        assert shown(page, "coverage-shown") != before
        spoken = page.get_attribute('[data-role="coverage"]', "aria-valuetext")
        assert spoken == f"{shown(page, 'coverage-shown')} of the answers"
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
def test_hostile_names_are_text_and_pictures_have_words(chromium, page_file):
    with opened(chromium, page_file) as page:
        text = page.text_content("main")
        assert "<script>alert(1)</script>" in text
        assert '🐈 & "cats"</li>' in text
        assert f"{'x' * 79}…" in text
        assert "x" * 80 not in text
        assert "snapsure report <scores>" in text
        pictures = page.query_selector_all(".points img")
        assert len(pictures) == 12 + 4 * 6
        assert all(picture.get_attribute("alt").startswith("Example ") for picture in pictures)
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
        page.emulate_media(color_scheme="dark" if scheme == "light" else "light")
        page.wait_for_function(
            "ink => document.querySelector('[data-chart] svg text')?.getAttribute('fill') !== ink",
            arg=ink,
        )
        page.wait_for_timeout(300)


@needs_browser
def test_a_phone_needs_no_sideways_scrolling_and_8000_pixels(chromium, table, tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (900, 3, 16, 16), dtype=np.uint8)
    report = Report(table, risk=RISK, images=images, classes=["cat", "dog", "horse", "ship"])
    path = report.save(tmp_path / "phone.html")
    with opened(chromium, path, viewport={"width": 390, "height": 800}) as page:
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        assert page.evaluate("document.documentElement.scrollHeight") <= 8000
        width = page.evaluate("document.querySelector('[data-chart=risk] svg').clientWidth")
        assert 250 < width <= 370
        cut = """all => all.flatMap(svg => [...svg.querySelectorAll(".mark-text text")].filter(
            text => text.getBoundingClientRect().right > svg.getBoundingClientRect().right + 1))
            .map(text => text.textContent)"""
        assert page.eval_on_selector_all("[data-chart] svg", cut) == []
        loose = "all => all.filter(t => !t.closest('.scroll')).length"
        assert page.eval_on_selector_all("table", loose) == 0  # its edges show that it goes on


@needs_browser
def test_it_opens_with_what_fit_deploys(chromium, page_file, choice):
    with opened(chromium, page_file) as page:
        text = page.inner_text(".advice.beaten")
        assert text.startswith(f"Use {choice.method}")
        assert f"{100 * choice.accepted:.1f} %" in text
        rows = page.locator("main section >> nth=0").locator("tbody tr")
        methods = rows.locator("th").all_text_contents()
        assert methods == [row.method for row in choice.candidates if row.method != "final"]
        bars = page.locator(".bar").all_text_contents()
        for bar, share in zip(bars, (choice.accepted, choice.final_accepted), strict=True):
            assert f"{100 * share:.1f} %" in bar


@needs_browser
def test_what_is_judged_worse_is_not_where_the_page_begins(chromium, tmp_path):
    path = Report(spoilt()).save(tmp_path / "worse.html")
    with opened(chromium, path) as page:
        assert page.inner_text(".advice.plain").startswith("Use the final softmax.")
        assert "significantly worse" in page.inner_text("main section >> nth=0")
        assert page.input_value('[data-role="score"]') == "final softmax"


@needs_browser
def test_several_tables_get_chapters_and_the_first_is_open(chromium, tmp_path):
    path = Report({"seed 0": scored(300), "<b>seed 1": scored(300, seed=1)}).save(
        tmp_path / "r.html"
    )
    with opened(chromium, path) as page:
        chapters = page.locator("details.chapter")
        assert chapters.locator("h2").all_text_contents() == ["seed 0", "<b>seed 1"]
        first, second = (page.locator(f"#chapter-{i}") for i in (0, 1))
        assert first.locator("form.decide").is_visible()
        assert not second.locator("form.decide").is_visible()
        page.click('a[href="#chapter-1"]')
        second.locator('[data-role="coverage"]').fill("20")
        page.wait_for_function(
            "document.querySelector('#chapter-1 [data-chart=risk] svg').clientWidth > 300"
        )
        before = first.locator('[data-role="theta"]').text_content()
        second.locator('[data-role="coverage"]').fill("40")
        assert first.locator('[data-role="theta"]').text_content() == before
        page.emulate_media(media="print")
        assert second.locator(".decide input").is_hidden()
        levels = page.eval_on_selector_all("h1, h2, h3", "all => all.map(h => h.tagName)")
        assert levels == ["H1", "H2", *2 * ["H2", *4 * ["H3"]], "H2"]


def test_several_tables_have_one_recommendation():
    tables = {f"seed {seed}": scored(300, seed=seed) for seed in range(3)}
    report = Report(tables, risk=0.35)
    html = report.html()
    assert html.count('class="advice') == 1
    for (name, table), choice in zip(tables.items(), report.advice.choices, strict=True):
        row = html[html.index(f">{name}</th>") :].partition("</tr>")[0]
        assert f">{100 * (1 - table.errors.mean()):.1f} %<" in row
        assert f">{100 * choice.accepted:.1f} %<" in row if choice.accepted else ">nothing<" in row


def test_the_way_to_deploy_is_one_that_works(table, tmp_path):
    python = Report(table, risk=RISK).html()
    assert "Predictor.fit(model, snapshots, table, risk=0.3)" in python
    command = Report(table, risk=RISK, folder="my scores", model="net:make", seed=2).html()
    expected = (
        "snapsure fit &#39;my scores&#39; --model net:make --risk 0.3 --seed 2 --out predictor"
    )
    assert expected in command


@needs_browser
@pytest.mark.parametrize("width", [390, 1000])
def test_a_contest_has_its_own_section(chromium, table, tmp_path, width):
    found = compare({"<b>one</b>": [table], "two": scored(seed=1)}, resamples=400)
    path = Report(table, contest=found).save(tmp_path / "contest.html")
    with opened(chromium, path, viewport={"width": width, "height": 900}) as page:
        section = page.locator('section[aria-labelledby="contest"]')
        assert section.locator("svg").count() == section.locator("table").count() == 3
        assert section.locator("h3").all_text_contents() == [board.name for board in found.every]
        for board, rows in zip(found.every, section.locator("table").all(), strict=True):
            assert rows.locator("tbody th").all_text_contents() == [
                board.label(row) for row in board.rows
            ]
        assert page.evaluate("document.documentElement.scrollWidth") <= width


@needs_browser
def test_one_snapshot_is_seen_as_points(chromium, tmp_path):
    path = Report(scored(200, snapshots=1)).save(tmp_path / "one.html")
    with opened(chromium, path) as page:
        points = "[data-chart=training-0] .mark-symbol.role-mark path"
        assert page.locator(points).count() == 1
        assert page.locator(".points li").count() == 12  # the mistakes; none moved


@needs_browser
def test_the_page_is_drawn_in_its_frame_in_a_notebook(chromium, tmp_path):
    hostile = "</iframe><script>document.title = 'out'</script>"
    notebook = tmp_path / "notebook.html"
    content = Report(scored(300), title=hostile)._repr_html_()
    notebook.write_text(f"<title>notebook</title>{content}", encoding="utf-8")
    context = chromium.new_context(viewport={"width": 1000, "height": 900})
    context.set_default_timeout(LONG)
    page = context.new_page()
    page.goto(notebook.as_uri())
    frame = page.frame_locator("iframe")
    frame.locator("body[data-ready=yes]").wait_for()
    assert frame.locator("[data-chart] svg").count() > 1
    assert frame.locator("h1").inner_text() == hostile
    assert page.title() == "notebook"
    assert page.locator("p").first.inner_text() == frame.locator(".advice").inner_text()
    context.close()


def test_ten_tables_stay_within_the_size():
    tables = {f"seed {seed}": scored(200, snapshots=5, seed=seed) for seed in range(10)}
    assert len(Report(tables).html().encode()) < 3 * MEGABYTE


@needs_browser
def test_many_examples_stay_responsive(chromium, tmp_path):
    """Curves are thinned, the numbers are not."""
    table = scored(100_000, snapshots=3)
    path = Report(table, risk=RISK).save(tmp_path / "many.html")
    assert path.stat().st_size < 2 * MEGABYTE
    aes = AES().confidence(table.rows(choose(table).rest))
    with opened(chromium, path) as page:
        page.select_option('[data-role="score"]', "AES")
        page.fill('[data-role="coverage"]', "50")
        assert shown(page, "reviewed") == f"{aes.size - aes.size // 4:,}"
        rows = "document.querySelector('[data-chart=risk] + script').textContent.length"
        assert page.evaluate(rows) < 100_000


@pytest.mark.parametrize("shape", [(900, 8, 8), (900, 8, 8, 3), (900, 3, 8, 8), (900, 1, 8, 8)])
def test_pictures_as_they_were_scored(shape):
    """Channels first or last, normalised or not: the same picture as of the plain bytes."""

    def picture(images):
        return Examples.of(900, images, None, None).show(7)["picture"]

    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    pixels.flat[:2] = 0, 255  # the whole range, so that stretching is exact
    scaled = pixels / 255
    stretched = ((scaled - 0.5) / 0.25, scaled - 0.5, pixels.astype(int) * 2)
    for same in (scaled, scaled.astype(np.float32), pixels.astype(int), *stretched):
        assert picture(same) == picture(pixels)
    dark = pixels // 2
    assert picture(dark) == picture(dark / 255)  # stays dark
    bright = 255 - dark
    assert picture(bright) == picture(bright / 255)
    if len(shape) == 4 and shape[1] in (1, 3):
        assert picture(np.moveaxis(pixels, 1, -1)) == picture(pixels)
    shown = np.asarray(Image.open(io.BytesIO(base64.b64decode(picture(pixels).partition(",")[2]))))
    channels_last = np.moveaxis(pixels[7], 0, -1) if shape[1] in (1, 3) else pixels[7]
    assert shown.shape[:2] == (96, 96)
    assert np.array_equal(shown[6::12, 6::12], channels_last.squeeze())


def test_examples_as_rows_of_a_table(table):
    fields = {"size": np.linspace(0, 1, 900), "city": ["Rome", "<b>Bonn"] * 450}
    html = Report(table, fields=fields).html()
    assert "<dt>city</dt><dd>&lt;b&gt;Bonn</dd>" in html
    row = int(re.search(r'class="row">row (\d+)<', html).group(1))
    assert f"<dt>size</dt><dd>{row / 899:.4g}</dd>" in html
    assert [shorten("x" * n, 9) for n in (9, 10)] == ["x" * 9, "x" * 8 + "…"]
    html = Report(table, fields={f"column {i}": np.zeros(900) for i in range(20)}).html()
    assert "column 7" in html
    assert "column 8" not in html


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        ({"images": np.zeros((3, 8, 8))}, r"`images`.*n = 900.*\(3, 8, 8\).*in their order"),
        ({"images": np.zeros((900, 8, 8, 2))}, r"`images`.*\(900, 8, 8, 2\)"),
        ({"images": np.zeros((900, 0, 8))}, r"`images`.*none of them 0.*\(900, 0, 8\)"),
        ({"images": np.full((900, 8, 8), np.nan)}, "`images`.*NaN.*Replace"),
        ({"images": np.full((900, 8, 8), "x")}, "`images`.*<U1.*Convert"),
        ({"texts": ["one"]}, "`texts`.*900.*got 1"),
        ({"texts": "x" * 900}, "`texts`.*900.*got one"),
        ({"fields": {"size": [1, 2]}}, r"`fields`.*900.*\(2,\).*'size'"),
        ({"risk": 5}, "`risk`.*got 5"),
    ],
)
def test_refusals(table, arguments, facts):
    with pytest.raises(InvalidInput, match=facts):
        Report(table, **arguments)


def test_refusals_of_tables_and_paths(table, tmp_path):
    with pytest.raises(InvalidInput, match=r"ScoreTable, got str.*ScoreTable.open"):
        Report("scores")
    with pytest.raises(InvalidInput, match=r"`tables`.*got none"):
        Report({})
    with pytest.raises(InvalidInput, match=f"`path` must be a file, got the folder {tmp_path}"):
        Report(table).save(tmp_path)


def test_twenty_examples_make_a_report():
    kappa = np.random.default_rng(0).random((3, 20))
    table = ScoreTable.from_kappa(kappa, np.arange(20) % 2)
    assert Report(table).html()
    with pytest.raises(InvalidInput, match=r"`table`.*twenty.*got 19"):
        Report(table.rows(np.arange(19)))
    with pytest.raises(InvalidInput, match=r"`table`.*two right and two wrong.*Score more"):
        Report(ScoreTable.from_kappa(kappa, np.arange(20) == 0))


@needs_browser
def test_the_readmes_picture(chromium, tmp_path):
    """Of a committed network; SNAPSURE_SCREENSHOT=docs/images/report.png makes it again."""
    table = open_contest(ROOT / "results" / "passes")["words"][0].table
    report = Report(table, title="Which of ten languages is this word from?")
    path = report.save(tmp_path / "report.html")
    with opened(chromium, path, viewport={"width": 960, "height": 1180}) as page:
        assert page.inner_text(".advice").startswith("Use LES")
        picture = page.screenshot()
        assert picture.startswith(b"\x89PNG")
        if "SNAPSURE_SCREENSHOT" in os.environ:
            Path(os.environ["SNAPSURE_SCREENSHOT"]).write_bytes(picture)
