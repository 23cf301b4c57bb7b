"""Tables that a report is made of, and its page in a real browser."""

from contextlib import contextmanager, suppress

import numpy as np

from snapsure import ScoreTable
from snapsure.errors import Infeasible
from snapsure.evaluation import choose
from snapsure.report.chapter import Chapter
from snapsure.report.examples import Examples

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
LONG = 600_000  # milliseconds; a busy machine takes its time


def scored(n=900, snapshots=30, seed=0):
    """Four classes; late snapshots know of the errors, each with noise: averages are best."""
    rng = np.random.default_rng(seed)
    ease = rng.normal(size=n)
    late = np.arange(snapshots) >= 0.3 * snapshots
    noise = rng.normal(size=(snapshots, n)) * np.where(late, 1.8, 6)[:, None]
    kappa = 1 / (1 + np.exp(-(ease + noise)))
    y = rng.integers(0, 4, n)
    wrong = rng.random(n) > 1 / (1 + np.exp(-(1 + 2 * ease)))
    y_hat = np.where(wrong, (y + 1) % 4, y)
    labels = np.where(rng.random((snapshots, n)) < 0.2, y, y_hat)
    labels[-1] = y_hat
    return ScoreTable({"softmax": kappa}, labels, y)


def early(n=900):
    """The first snapshots know the errors best, and AES leaves them out: LES is best."""
    return _noisy(n, np.where(np.arange(40) < 12, 0.8, 3.0))


def spoilt(n=900):
    """The final snapshot knows the errors best, and averaging it with the others spoils it."""
    return _noisy(n, np.where(np.arange(30) < 29, 9, 0.1))


def _noisy(n, noise):
    """Two classes; each snapshot sees the ease of the examples through so much noise."""
    rng = np.random.default_rng(0)
    ease = rng.normal(size=n)
    kappa = 1 / (1 + np.exp(-(ease + rng.normal(size=(len(noise), n)) * noise[:, None])))
    wrong = rng.random(n) > 1 / (1 + np.exp(-(1 + 2 * ease)))
    return ScoreTable({"softmax": kappa}, np.zeros(kappa.shape, int), wrong.astype(int))


def chapter_of(table, risk=0.15, **options):
    """Return the chapter of a table, with the threshold that promises a risk."""
    choice = choose(table)
    with suppress(Infeasible):
        choice = choice.promise(table, risk)
    examples = Examples.of(table.y_hat.size, None, None, None)
    return Chapter("", table, choice, risk, examples, **options)


@contextmanager
def opened(chromium, path, **options):
    """Open a page, wait until it is drawn, and check that it asks for nothing but itself."""
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
