"""The page of fine-tuned networks: its tables, and what it says of them."""

import pytest

from tools import fine_tuned_tables as page

WAYS = ("AES", "LES", "LES in 3 passes")


@pytest.fixture(scope="module")
def boards():
    return page.boards()


@pytest.fixture(scope="module")
def text():
    return " ".join(page.PAGE.read_text().split())


@pytest.mark.slow
def test_the_page_has_the_tables(boards):
    written = page.PAGE.read_text()
    for table in page.tables(boards):
        assert "\n".join(table) + "\n" in written


@pytest.mark.slow
def test_the_page_says_what_the_image_network_gains(boards, text):
    board = boards[page.IMAGES]
    aes, les, short = (board[f"{name} of softmax"] for name in WAYS)
    assert (
        f"LES saves {les.saved.estimate:.1f} %, LES in three passes {short.saved.estimate:.1f} %, "
        f"both with intervals above 0, AES {aes.saved.estimate:.1f} % with 0 in its interval"
    ) in text
    assert min(les.saved.low, short.saved.low) > 0
    for told in (text, " ".join((page.ROOT / "README.md").read_text().split())):
        assert f"LES saves {les.saved.estimate:.1f} % of E-AURC" in told
    assert aes.saved.low < 0 < aes.saved.high
    assert min(gain for row in (aes, les, short) for gain in row.gains) > 0  # "in all three"
    assert not [row for row in board.rows if row.p_holm < 0.05 and row.saved.estimate > 0]
    best = board["MaxLogit-pNorm"].saved
    assert max(row.saved.estimate for row in board.rows) == best.estimate
    assert best.low > 0
    assert f"ahead of all on the mean, {best.estimate:.1f} %, with an interval above 0" in text
    for name in ("max_logit", "gen", "energy", "error predictor with embedding"):
        assert board[name].saved.estimate < -50
    predictor = board["error predictor"].saved
    assert predictor.low < 0 < predictor.high
    assert [row.method for row in board.rows if row.p_holm < 0.05] == ["deep_knn"]


SIZED = ("energy", "MaxLogit-pNorm", "gen", "max_logit", "temperature by AURC")  # of logits


@pytest.mark.slow
def test_the_page_says_what_all_queries_gain(boards, text):
    inside, everything = boards["intents"], boards["intents-oos"]
    aes, les, short = (inside[f"{name} of softmax"].saved for name in WAYS)
    assert (
        f"AES saves {aes.estimate:.1f} %, LES in three passes saves {short.estimate:.1f} %, LES "
        f"loses {-les.estimate:.1f} %, each with 0 in its interval"
    ) in text
    assert all(one.low < 0 < one.high for one in (aes, les, short))
    assert [gain > 0 for gain in inside["LES of softmax"].gains] == [False, True, True]
    for one in page.about(page.INTENTS)["intents"]:
        assert one["test_error"] == pytest.approx(0.04, abs=0.005)  # "about 4 %"
    assert not [row for row in inside.rows if row.p_holm < 0.05 and row.saved.estimate > 0]
    assert not [row for row in everything.rows if row.p_holm < 0.05 and row.saved.estimate > 0]
    for name in SIZED:
        assert 6.5 < everything[name].saved.estimate < 8.5
        assert everything[name].saved.low > 0
    assert 4.5 < everything["entropy"].saved.estimate < 5.5
    for name in WAYS:
        saved = everything[f"{name} of softmax"].saved
        assert saved.estimate < 0 < saved.high
    for name in ("max_logit", "energy", "gen"):
        assert -12.5 < inside[name].saved.estimate < -10.5
        assert inside[name].saved.high < 0
    assert inside["error predictor"].saved.estimate < -100


@pytest.mark.slow
def test_the_page_says_what_the_transformers_gain(boards, text):
    inside, everything = boards["intents-few"], boards["intents-few-oos"]
    for board in (inside, everything):
        for name in WAYS:
            assert board[f"{name} of softmax"].p_holm >= 0.05
    assert "neither AES nor LES differs significantly from the final softmax" in text
    told = [inside[f"{name} of softmax"].saved for name in WAYS]
    assert "AES saves {:.1f} %, LES {:.1f} %, LES in three passes loses {:.1f} %".format(
        *(abs(one.estimate) for one in told)
    ) in text  # fmt: skip
    assert all(one.low < 0 < one.high for one in told)
    for name in ("MaxLogit-pNorm", "energy", "gen", "max_logit", "temperature by AURC", "entropy"):
        saved = everything[name].saved
        assert (4.5 if name == "entropy" else 5.5) < saved.estimate < 7.5
        assert saved.low > 0
        assert everything[name].p_holm >= 0.05
    assert not [row for row in inside.rows if row.p_holm < 0.05 and row.saved.estimate > 0]
