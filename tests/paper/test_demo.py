"""The demo's steps, made small; `make demo` runs it whole."""

import io

import numpy as np
import pytest
from rich.console import Console

from snapsure import Predictor, ScoreTable, SnapshotStore
from snapsure.errors import InvalidInput
from snapsure.paper import demo, words

pytestmark = pytest.mark.slow


def test_the_words_are_real_and_cut_once():
    train, test = words.load()
    assert (len(train.y), len(test.y)) == (words.TRAIN, words.TEST) == (10_000, 20_000)
    assert {*train.y.tolist()} == {*range(len(words.LANGUAGES))}
    assert not {*train.text.tolist()} & {*test.text.tolist()}
    again, _ = words.load()
    assert (again.text == train.text).all()
    assert (again.x == train.x).all()
    told = dict(zip(train.text.tolist() + test.text.tolist(), [*train.y, *test.y], strict=True))
    names = list(words.LANGUAGES.values())
    assert names[told.get("schmetterling", 1)] == "German"
    # One sees what is written: letters in their order, and which are not there.
    row = words.spelt(["añb", "дa"])
    assert row[0, :4].tolist() == [ord("a"), ord("ñ"), ord("b"), 0]
    assert row[1, :2].tolist() == [1, ord("a")]


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """Everything with two seeds of few words and epochs, in this process."""
    folder = tmp_path_factory.mktemp("demo")
    output, said = io.StringIO(), []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(words, "TRAIN", 1500)
        patched.setattr(words, "TEST", 4000)
        patched.setattr(words, "EPOCHS", 5)
        patched.setattr(demo, "EPOCHS", 5)
        patched.setattr(demo, "SEEDS", (0, 1))
        patched.setattr(demo, "RISK", 0.3)
        patched.setattr(demo, "ProcessPoolExecutor", InProcess)
        demo.run(folder, Console(file=output, width=100), said.append)
    return folder, output.getvalue(), said


class InProcess:
    """A pool that is none: what is patched here is not patched in another process."""

    def __init__(self, *args, **options):
        self.map = map

    def __enter__(self):
        return self

    def __exit__(self, *raised):
        return None


def test_it_goes_the_whole_way(short):
    folder, text, said = short
    for seed in (0, 1):
        assert SnapshotStore(folder / "snapshots" / f"seed-{seed}").epochs == [1, 2, 3, 4, 5]
        assert ScoreTable.open(folder / f"scores-{seed}").y_hat.size == 4000
    assert said[0] == "1,500 words of ten languages to train on, 4,000 to judge by"
    assert said[-1] == f"the page to look at: {folder / 'report.html'}"
    for word in ("final softmax", "AES", "LES in 3 passes", "Chosen: ", "Promised: at most 30%"):
        assert word in text
    assert "Plain softmax would accept " in text
    assert text.count("sure to be right: ") == len(demo.ASKED)
    assert "snapsure fit scores --risk" in text


def test_what_is_deployed_is_what_answers(short):
    folder, text, _ = short
    predictor = Predictor.load(folder / "predictor")
    said = predictor(words.spelt(demo.ASKED))
    names = list(words.LANGUAGES.values())
    for word, label, confidence, _ in zip(demo.ASKED, *said, strict=True):
        assert f"  {word:16} {names[label]:8} {confidence:4.0%} sure to be right: " in text
    output = io.StringIO()
    demo.answer(folder, ["weather"], Console(file=output, width=100))
    assert output.getvalue().startswith("  weather ")
    with pytest.raises(InvalidInput, match="must hold a finished demo to answer words"):
        demo.answer(folder / "none", ["weather"], Console(file=output))


def test_the_page_shows_the_words(short):
    folder, _, _ = short
    page = (folder / "report.html").read_text()
    assert "Which words can be trusted?" in page
    assert page.count("SHA-256 of the snapshots") == 2
    table = ScoreTable.open(folder / "scores-0")
    surest = np.flatnonzero(table.errors)[table.kappa("softmax")[-1][table.errors].argmax()]
    assert f"row {surest}" in page
    assert page.count("<q>") >= 10
