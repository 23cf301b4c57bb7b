"""A report in a notebook, in a real browser: the page in its frame, and nothing out of it."""

from snapsure import Report
from tests.report.test_page import LONG, chromium, scored  # noqa: F401 - a fixture
from tests.support.browser import needs_browser

HOSTILE = "</iframe><script>document.title = 'out'</script>"


@needs_browser
def test_the_page_is_drawn_in_its_frame(chromium, tmp_path):  # noqa: F811
    report = Report(scored(), title=HOSTILE)
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
    assert frame.locator("h1").inner_text() == HOSTILE
    assert page.title() == "notebook"
    assert page.locator("p").first.inner_text().split(".")[0] in frame.locator("body").inner_text()
    assert complaints == []
    context.close()
