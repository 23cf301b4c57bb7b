"""The paper's tables against the same steps written out, on simulated networks."""

import json
from pathlib import Path

import numpy as np
import pytest

from snapsure import (
    AES,
    LES,
    PES,
    Platt,
    ScoreTable,
    aurc,
    bootstrap_difference,
    brier,
    eaurc,
    nll,
    trajectories,
)
from snapsure.paper import tables
from snapsure.paper.archive import Experiment
from tests.evaluation.test_evaluate import simulated
from tools import paper_tables


def ensemble():
    table = simulated(9)
    return ScoreTable({"ensemble": table.kappa("softmax")}, table.labels, table.y)


def network(seed):
    """With both statistics of MC-dropout, as at the paper's scale."""
    table = simulated(seed)
    kappas = {name: table.kappa(name) for name in table.names}
    kappas["mc_dropout_variance"] = 1 - kappas["mc_dropout"] * (1 - kappas["mc_dropout"])
    return ScoreTable(kappas, table.labels, table.y)


@pytest.fixture(scope="module")
def experiment():
    history = [{"epoch": 12, "training_accuracy": 0.99}]
    about = {"dataset": "cifar100", "scale": "cpu", "networks": [history, history]}
    return Experiment(about, [network(0), network(1)], {(0, 1): ensemble()})


@pytest.mark.slow
def test_table1(experiment):
    content = tables.table1(experiment)
    assert list(content) == ["softmax", "mc_dropout_variance", "mc_dropout", "ensemble"]
    for name, row in content.items():
        of = [experiment.ensembles[0, 1]] if name == "ensemble" else experiment.tables
        assert row["networks"] == len(of)
        final = [eaurc(t.kappa(name)[-1], t.errors) for t in of]
        assert row["final"]["eaurc"] == pytest.approx(np.mean(final), rel=1e-12)
        for k in (10, 30, 50):
            scores = [AES(k).fit(t, name).confidence(t) for t in of]
            areas = [eaurc(s, t.errors) for s, t in zip(scores, of, strict=True)]
            part = row[f"k{k}"]
            assert part["eaurc"] == pytest.approx(np.mean(areas), rel=1e-12)
            assert part["gain"] == pytest.approx(100 * (1 - np.mean(areas) / np.mean(final)))
            gains = 100 * (1 - np.array(areas) / final)
            assert part["gains"] == pytest.approx(gains.tolist())
            intervals = [
                bootstrap_difference(eaurc, s, t.kappa(name)[-1], t.errors)
                for s, t in zip(scores, of, strict=True)
            ]
            assert part["difference"] == pytest.approx(np.mean(intervals, axis=0).tolist())


@pytest.mark.slow
def test_table2(experiment):
    content = tables.table2(experiment)
    values = {"nll": [], "brier": []}
    for seed, table in enumerate(experiment.tables):
        fit, rest = table.split(0.5, seed)
        assert abs(fit.y_hat.size - rest.y_hat.size) <= 1
        for metric in (nll, brier):
            pair = []
            for part in (lambda t: t.kappa("softmax")[-1], lambda t: AES(30).fit(t, "softmax").confidence(t)):  # noqa: E501  # fmt: skip
                p = Platt().fit(part(fit), fit.errors).predict_proba(part(rest))
                pair.append(metric(p, rest.errors))
            values[metric.__name__].append(pair)
    for name, pairs in values.items():
        final, ours = np.mean(pairs, axis=0)
        assert content["softmax"][name]["final"] == pytest.approx(final)
        assert content["softmax"][name]["k30"] == pytest.approx(ours)
        estimate, low, high = content["softmax"][name]["difference"]
        assert estimate == pytest.approx(ours - final)
        assert low < estimate < high


@pytest.mark.slow
def test_table3(experiment):
    content = tables.table3(experiment)
    areas = {"final": [], "aes": [], "pes": [], "pes_paper": [], "snapshot": [], "les": []}
    for table in experiment.tables:
        own = {name: [] for name in areas}
        for seed in range(10):
            fit, rest = table.split(0.7, seed)
            seen, new = fit.kappa("softmax"), rest.kappa("softmax")
            own["final"].append(eaurc(new[-1], rest.errors))
            own["aes"].append(eaurc(AES(30).confidence(rest), rest.errors))
            own["pes"].append(eaurc(PES().fit(fit).confidence(rest), rest.errors))
            letter = PES(assign="paper").fit(fit)
            own["pes_paper"].append(eaurc(letter.confidence(rest), rest.errors))
            ranked = min(range(len(seen)), key=lambda j: (eaurc(seen[j], fit.errors), -j))
            own["snapshot"].append(eaurc(new[ranked], rest.errors))
            own["les"].append(eaurc(LES().fit(fit).confidence(rest), rest.errors))
        for name, each in own.items():
            areas[name].append((np.mean(each), np.std(each, ddof=1) / np.sqrt(10)))
    for name, each in areas.items():
        mean, error = np.mean(each, axis=0)
        assert content[name]["eaurc"] == pytest.approx(mean)
        assert content[name]["standard_error"] == pytest.approx(error)
    for name in ("aes", "pes", "pes_paper", "snapshot", "les"):
        estimate, low, high = content[name]["difference"]
        assert estimate == pytest.approx(content[name]["eaurc"] - content["final"]["eaurc"])
        assert low < estimate < high


def test_table4_is_of_kappas_with_several_networks(experiment):
    content = tables.table4(experiment)
    assert list(content) == ["softmax", "mc_dropout_variance", "mc_dropout"]
    areas = [eaurc(t.kappa("softmax")[-1], t.errors) for t in experiment.tables]
    assert content["softmax"]["final"]["eaurc"] == pytest.approx(np.mean(areas))
    expected = abs(areas[0] - areas[1]) / 2  # the standard error of two
    assert content["softmax"]["final"]["standard_error"] == pytest.approx(expected)


def test_saturation_ties_what_float32_cannot_tell_apart(experiment):
    """Points nearer to 1 than float32 can tell lose their order, and AES gets the same ones."""
    rng = np.random.default_rng(0)
    n = 500
    kappa = 1 - 10.0 ** rng.uniform(-12, -1, (40, n))
    wrong = (rng.random(n) < 0.3).astype(int)
    table = ScoreTable({"softmax": kappa}, np.zeros((40, n), int), wrong)
    content = tables.saturation(Experiment(experiment.about, [table]))
    single = kappa.astype(np.float32).astype(np.float64)
    assert content["exact"]["ones"] == 0
    assert content["float32"]["ones"] == (single[-1] == 1).mean() > 0.3
    assert content["exact"]["final"] == eaurc(kappa[-1], wrong)
    assert content["float32"]["final"] == eaurc(single[-1], wrong)
    assert content["float32"]["k30"] == eaurc(
        AES().confidence(ScoreTable.from_kappa(single)), wrong
    )


def test_motivation(experiment):
    content = tables.motivation(experiment)
    table = experiment.tables[1]
    halves = trajectories(table.kappa("softmax"), table.errors, 0.5)
    row = content["softmax"][1]
    assert row["surer"]["best_epoch"] == table.epochs[halves.best]
    assert row["surer"]["final"] == halves.green_eaurc[-1]
    assert row["less_sure"]["best"] == halves.red_eaurc.min()
    assert row["last_epoch"] == 12


def test_published_numbers_are_the_papers():
    """A few of each table, read off the paper."""
    paper = tables.published()
    assert paper["table1_aes"]["cifar100"]["nn_distance"]["k50"] == 35.36
    assert paper["table1_aes"]["imagenet"]["softmax"]["baseline"] == 99.68
    assert paper["table1_standard_errors"]["svhn"]["softmax"]["k30"] == 0.04
    assert paper["table2_platt_k30"]["cifar10"]["ensemble"]["brier"] == [0.044, 0.039]
    assert paper["table3_pes_softmax"]["cifar100"]["improvement_percent"] == 18.24
    gain = 100 * (1 - 41.64 / 50.97)
    assert gain == pytest.approx(18.3, abs=0.05)  # as printed in table 1


RESULTS = sorted(path.parent.name for path in Path("results").glob("*/experiment.json"))


def test_results_are_found():
    assert {"cifar100-cpu", "cifar100-cpu-full-underfitted"} <= {*RESULTS}


@pytest.mark.slow
@pytest.mark.parametrize("name", RESULTS)
def test_committed_results_follow_from_the_committed_scores(name):
    folder = Path("results") / name
    experiment = Experiment.open(folder)
    for part in ("about", "table1", "table2", "table3", "table4", "saturation", "motivation"):
        made = json.loads(json.dumps(getattr(tables, part)(experiment)))
        path = folder / f"{'networks' if part == 'about' else part}.json"
        assert list(_differences(made, json.loads(path.read_text()), path.name)) == []


@pytest.mark.parametrize("page", paper_tables.PAGES, ids=lambda page: page.parent.name)
def test_pages_have_the_tables_as_they_were_written(page):
    assert page.read_text().count("\n<!-- cifar") >= 7
    assert paper_tables.filled(page) == page.read_text()


COUNTS = {i: f"{word} networks" for i, word in enumerate(("two", "three", "four", "five"), 2)}


@pytest.mark.parametrize("name", ["cifar100", "cifar10"])
def test_the_readme_tells_what_the_papers_regime_gains(name):
    folder = Path(f"results/{name}-cpu-full")
    first, third = (json.loads((folder / f"table{i}.json").read_text()) for i in (1, 3))
    aes, les, les_in_3 = first["softmax"]["k30"], third["les"], third["les_in_3"]
    assert all(row["difference"][2] < 0 for row in (aes, les, les_in_3))  # "all significant"
    wanted = (
        f"gain {aes['gain']:.1f} % of E-AURC by AES, {les['gain']:.1f} % by LES and "
        f"{les_in_3['gain']:.1f} % by LES in three passes, all significant"
    )
    assert wanted in " ".join(Path("README.md").read_text().split())
    words = COUNTS[len(json.loads((folder / "networks.json").read_text())["training_accuracy"])]
    title = name.upper().replace("CIFAR", "CIFAR-")
    for page, told in (
        ("README.md", f"{words} of {title}"),
        ("results/README.md", f"{title} ({words})"),
    ):
        assert told in " ".join(Path(page).read_text().split())
    method = " ".join(Path("docs/explanation/method.md").read_text().split())
    if name == "cifar100":
        assert f"CIFAR-100's images](../../results/README.md), {words} that are 99 %" in method
        assert f"gain {aes['gain']:.1f} % by AES and {les['gain']:.1f} % by LES" in method


def test_the_page_tells_how_little_the_surer_half_shows():
    """Of CIFAR-10: few errors, and intervals that have 0 in them."""
    tables = Experiment.open(Path("results/cifar10-cpu-full")).tables
    page = " ".join(Path("results/README.md").read_text().split()).replace("−", "-")
    low, high = 13, 30  # the epochs that are averaged
    errors, surer, less_sure = [], [], []
    for table in tables:
        kappa = table.kappa("softmax")
        halves = np.split(np.argsort(-kappa[-1], kind="stable"), 2)
        errors.append(table.errors[halves[0]].sum())
        for half, told in zip(halves, (surer, less_sure), strict=True):
            middle = kappa[low - 1 : high, half].mean(axis=0)
            difference = bootstrap_difference(eaurc, middle, kappa[-1, half], table.errors[half])
            told.append([f"{1e3 * end:+.2f}" for end in difference])
    assert f"the surer half has only {_listed(errors)} errors" in page
    (first, *ends), *later = surer  # the epochs were chosen by looking at the first one
    assert f"by {first.lstrip('-')} × 10⁻³, with an interval of {' … '.join(ends)}" in page
    assert f"The networks trained afterwards: {_each(later)}. Every interval has 0 in it." in page
    assert all(float(low) < 0 < float(high) for _, low, high in surer)
    assert f"gains by that mean ({_each(less_sure)}), significantly in every network" in page
    assert all(float(high) < 0 for *_, high in less_sure)


def _listed(values):
    *others, last = map(str, values)
    return f"{', '.join(others)} and {last}"


def _each(differences):
    return "; ".join(f"{by}, {' … '.join(ends)}" for by, *ends in differences)


_NAMES = ("cifar10", "cifar100")


def test_the_summary_is_of_both_data_sets():
    """Its cells in percent of the final κ, from the areas themselves."""
    rows = [line.strip("| ").split(" | ") for line in paper_tables.summary().splitlines()]
    cells = {row[0]: row[1:] for row in rows}
    for i, name in enumerate(("cifar100", "cifar10")):
        tables = Experiment.open(Path(f"results/{name}-cpu-full")).tables
        scores = [(AES().confidence(t), t.kappa("softmax")[-1], t.errors) for t in tables]
        areas = np.mean([[eaurc(a, e), eaurc(b, e)] for a, b, e in scores], axis=0)
        ends = np.mean([bootstrap_difference(eaurc, *score) for score in scores], axis=0)
        gain, most, least = (
            -100 * change / areas[1] for change in (areas[0] - areas[1], *ends[1:])
        )
        told = f"**{gain:+.1f} ({least:+.1f} … {most:+.1f})**"
        assert (
            cells["AES of softmax response"][2 * i + 1].replace("\N{NO-BREAK SPACE}", " ") == told
        )
        wrong = [100 * t.errors.mean() for t in tables]
        assert cells["*test error, %*"][2 * i + 1] == f"*{min(wrong):.1f} … {max(wrong):.1f}*"
    counts = [
        [json.loads(Path(f"results/{name}-cpu-full/table1.json").read_text())[kappa]["networks"]
         for name in ("cifar100", "cifar10")]
        for kappa in ("nn_distance", "mc_dropout_variance", "mc_dropout")
    ]  # fmt: skip
    assert counts == [[1, 1], [2, 1], [2, 1]]
    page = " ".join(Path("results/README.md").read_text().split())
    assert (
        "NN-distance is of one network for each data set, MC-dropout of two of CIFAR-100 and one"
        in page
    )
    assert cells["AES of softmax response"][::2] == ["+21.7", "+6.1"]  # as the paper prints them
    assert cells["PES to the letter"][::2] == ["+18.2", "+6.0"]
    assert cells["*test error, %*"][::2] == ["*29.2*", "*6.4*"]


def test_the_page_tells_when_halves_are_ranked_best():
    page = " ".join(Path("results/README.md").read_text().split())
    ten, hundred = (
        json.loads(Path(f"results/{name}-cpu-full/motivation.json").read_text())["softmax"]
        for name in _NAMES
    )
    best = [row["surer"]["best_epoch"] for row in ten]
    times = [f"{row['surer']['final'] / row['surer']['best']:.1f}" for row in ten]
    assert f"ranked best at epochs {_listed(best)} of 54, and at the end its E-AURC" in page
    assert f"is {_listed(times)} times as high" in page
    late = [row["less_sure"]["best_epoch"] for row in ten]
    assert f"by a single snapshot, at epochs {min(late)} to {max(late)}, as in the paper" in page
    epochs = [row[half]["best_epoch"] for row in hundred for half in ("surer", "less_sure")]
    assert f"ranks both best around the middle, at epochs {min(epochs)} to {max(epochs)}." in page
    rises = [
        sorted(100 * (row[half]["final"] / row[half]["best"] - 1) for row in hundred)
        for half in ("surer", "less_sure")
    ]
    surer, less_sure = (f"{rise[0]:.0f} to {rise[-1]:.0f} %" for rise in rises)
    assert f"surer half rises by {surer}, that of the less sure half by {less_sure}" in page


def test_the_page_tells_how_nn_distance_ranks():
    """Its final κ beside softmax response of the same network."""
    experiment = Experiment.open(Path("results/cifar100-cpu-full"))
    near = [experiment.of("nn_distance"), experiment.of("softmax")]
    (seed,) = near[0]
    areas = [
        1e3 * eaurc(some[seed].kappa(name)[-1], some[seed].errors)
        for some, name in zip(near, ("nn_distance", "softmax"), strict=True)
    ]
    page = " ".join(Path("results/README.md").read_text().split())
    assert f"({areas[0]:.1f} for {areas[1]:.1f} of the same network)" in page


def test_the_page_tells_what_is_better_than_fitting_and_averaging():
    """AURC, which counts the errors too: a network that fits less, and two networks."""
    fitting, contrast = (
        Experiment.open(Path(f"results/cifar100-cpu-full{end}")) for end in ("", "-underfitted")
    )

    def area(tables, confidence):
        return 1e3 * np.mean([aurc(confidence(table), table.errors) for table in tables])

    def final(table):
        return table.kappa("softmax")[-1]

    page = " ".join(Path("results/README.md").read_text().split())
    with_aes = area(fitting.tables, AES().confidence)
    assert f"without any snapshots ({area(contrast.tables, final):.1f} × 10⁻³)" in page
    assert f"that of the fitting network with AES ({with_aes:.1f})" in page
    together = area([*fitting.ensembles.values()], final)
    assert f"Two networks answering together have {together:.1f}." in page
    assert together < area(contrast.tables, final) < with_aes


def test_the_page_tells_that_no_gain_is_of_broken_ties():
    ones = 0
    for name in ("cifar100", "cifar10"):
        content = json.loads(Path(f"results/{name}-cpu-full/saturation.json").read_text())
        ones = max(ones, content["float32"]["ones"])
        assert content["float32"]["gain"] == pytest.approx(content["exact"]["gain"], abs=0.05)
    page = " ".join(Path("results/README.md").read_text().split())
    assert f"at most {ones:.1%}".replace("%", " %") + " of the scores round to 1" in page


def test_the_page_tells_that_nn_distance_gains_by_broken_ties():
    ten, hundred = (Experiment.open(Path(f"results/{name}-cpu-full")) for name in _NAMES)
    ((seed, table),) = ten.of("nn_distance").items()
    last, averaged = (
        table.kappa("nn_distance")[-1],
        AES().fit(table, "nn_distance").confidence(table),
    )
    softmax = ten.of("softmax")[seed].kappa("softmax")[-1]
    tied = last == 1
    final, broken, aes, by_softmax = (
        f"{1e3 * eaurc(kappa, table.errors):.2f}"
        for kappa in (
            last,
            np.where(tied, 1 + averaged, last),
            averaged,
            np.where(tied, 1 + softmax, last),
        )
    )
    page = " ".join(Path("results/README.md").read_text().split())
    assert f"At the end {100 * tied.mean():.0f} % of its κ are exactly 1" in page
    assert f"lowers E-AURC from {final} to {broken}; AES itself has {aes}. The final" in page
    assert f"breaks the ties as well ({by_softmax})" in page
    for table in hundred.of("nn_distance").values():
        assert table.kappa("nn_distance").max() < 1  # "no κ is 1"


def _differences(ours, theirs, where):
    """Places where two contents differ by more than another machine's last digits."""
    if type(ours) is not type(theirs):
        yield where
    elif isinstance(ours, dict | list):
        keys = ours if isinstance(ours, dict) else range(len(ours))
        if len(ours) != len(theirs) or (isinstance(ours, dict) and list(ours) != list(theirs)):
            yield where
            return
        for key in keys:
            yield from _differences(ours[key], theirs[key], f"{where} {key}")
    elif ours != (pytest.approx(theirs, rel=1e-7, abs=1e-12) if type(ours) is float else theirs):
        yield where


def test_differences_are_seen():
    content = {"a": [1.0, {"b": None}], "c": 3}
    assert list(_differences(content, {"a": [1.0 + 1e-9, {"b": None}], "c": 3}, "t")) == []
    other = {"a": [1.001, {"b": 2.0}], "c": 4}
    assert list(_differences(content, other, "t")) == ["t a 0", "t a 1 b", "t c"]
    assert list(_differences(content, {"a": [1.0], "c": 3}, "t")) == ["t a"]
