"""The page of when AES hurts: its tables, and what it says of them."""

import pytest

from tools import aes_tables


@pytest.fixture(scope="module")
def moved():
    runs = aes_tables.networks()
    found = aes_tables.starts(runs)
    return found, aes_tables.record_of(found, runs)


@pytest.mark.slow
def test_the_page_has_the_tables(moved):
    found, records = moved
    text = aes_tables.PAGE.read_text()
    made = [aes_tables.starts_table(found), aes_tables.record_table(records)]
    for table in (*made, aes_tables.rules_table(records)):
        assert "\n".join(table) + "\n" in text


@pytest.mark.slow
def test_the_page_says_what_the_tables_show(moved):
    found, records = moved
    text = " ".join(aes_tables.PAGE.read_text().split())
    boards = [board for board in found.boards.values() if not board.name.endswith("-oos")]
    gains = {
        board.name: [board[f"from {start}"].saved.estimate for start in aes_tables.STARTS]
        for board in boards
    }
    each = {one.task: one.gains for one in records}
    losing = [task for task, values in each.items() for value in values if value < 0]
    networks = sum(values.size for values in each.values())
    gaining = sum(values[0] > 0 for values in gains.values())
    significant = sum(board["from 0.4"].p_holm < 0.05 for board in boards)
    assert f"on the mean of {gaining} of {len(boards)} tasks" in text
    assert f"AES gains on {gaining} of {len(boards)} tasks, significantly on {significant}." in text
    assert f"It loses on {len(losing)} of the {networks} networks" in text
    later = {name for name, values in gains.items() if values[4] > values[0] + 0.1}
    assert gains["intents"][4] == pytest.approx(gains["intents"][0], abs=0.1)  # "the same"
    contrasts = {*aes_tables.CONTRASTS}
    assert later == {"clothes-strong", "clothes (few passes)"} | contrasts
    assert all(aes_tables.best_start(found.boards[name]) in ("0.8", "0.9") for name in later)
    improved = {one.task: round(100 * float(one.improved.mean())) for one in records}
    fourth, images = (f"{name}{aes_tables.REGIME}" for name in ("cifar100-underfitted", "cifar10"))
    falling = {name for name, share in improved.items() if share >= 15}
    assert falling == later - {fourth} | {"intents", images}
    assert improved[fourth] == 9
    assert aes_tables.best_start(found.boards[images]) == "0.4"
    outside = found.boards["intents-oos"]["from 0.4"]
    assert outside.saved.estimate < 0
    assert outside.p_holm >= 0.05
    held_out = "the held-out error's fall after 0.4 T"
    rules = {row.split(" | ")[0][2:]: row for row in aes_tables.rules_table(records)[2:]}
    count = {name: row.split(" | ")[4].removesuffix(" |") for name, row in rules.items()}
    accuracy, error = (count[name].split()[0] for name in ("right in training", held_out))
    assert f"Training accuracy finds {accuracy} of the {len(losing)} networks that lose" in text
    assert f"the error in test {error}." in text
    assert count["the training loss's fall after 0.4 T"] == "0 of 3"
    falling = next(row for name, row in rules.items() if "training loss" in name)
    assert [float(cell) < 0 for cell in falling.split(" | ")[2:4]] == [True, True]  # "*more*"
