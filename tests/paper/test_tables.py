"""The paper's tables against the same steps written out, on simulated networks."""

import json
from pathlib import Path

import numpy as np
import pytest

from snapsure import AES, LES, PES, Platt, ScoreTable, bootstrap_difference, brier, eaurc, nll
from snapsure.evaluation import trajectories
from snapsure.paper import tables
from snapsure.paper.archive import Experiment


@pytest.mark.slow
def test_table1(experiment):
    content = tables.tabulate_table1(experiment).content
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
    content = tables.tabulate_table2(experiment).content
    values = {"nll": [], "brier": []}
    for seed, table in enumerate(experiment.tables):
        fit, rest = table.split(0.5, seed)
        assert abs(fit.y_hat.size - rest.y_hat.size) <= 1
        methods = (lambda t: t.kappa("softmax")[-1], AES(30).confidence)
        pair = [Platt().fit(f(fit), fit.errors).predict_proba(f(rest)) for f in methods]
        for metric in (nll, brier):
            values[metric.__name__].append([metric(p, rest.errors) for p in pair])
    for name, pairs in values.items():
        final, ours = np.mean(pairs, axis=0)
        assert content["softmax"][name]["final"] == pytest.approx(final)
        assert content["softmax"][name]["k30"] == pytest.approx(ours)
        estimate, low, high = content["softmax"][name]["difference"]
        assert estimate == pytest.approx(ours - final)
        assert low < estimate < high


@pytest.mark.slow
def test_table3(experiment):
    content = tables.tabulate_table3(experiment).content
    areas = {"final": [], "aes": [], "pes": [], "pes_paper": [], "snapshot": [], "les": []}
    for table in experiment.tables:
        own = {name: [] for name in areas}
        for seed in range(10):
            fit, rest = table.split(0.7, seed)
            seen, new = fit.kappa("softmax"), rest.kappa("softmax")
            ranked = min(range(len(seen)), key=lambda j: (eaurc(seen[j], fit.errors), -j))
            scores = {
                "final": new[-1],
                "aes": AES(30).confidence(rest),
                "pes": PES().fit(fit).confidence(rest),
                "pes_paper": PES(assign="paper").fit(fit).confidence(rest),
                "snapshot": new[ranked],
                "les": LES().fit(fit).confidence(rest),
            }
            for name, confidence in scores.items():
                own[name].append(eaurc(confidence, rest.errors))
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
    content = tables.tabulate_table4(experiment).content
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
    content = tables.tabulate_saturation(Experiment(experiment.about, [table])).content
    single = kappa.astype(np.float32).astype(np.float64)
    assert content["exact"]["ones"] == 0
    assert content["float32"]["ones"] == (single[-1] == 1).mean() > 0.3
    assert content["exact"]["final"] == eaurc(kappa[-1], wrong)
    assert content["float32"]["final"] == eaurc(single[-1], wrong)
    assert content["float32"]["k30"] == eaurc(
        AES().confidence(ScoreTable.from_kappa(single)), wrong
    )


def test_motivation(experiment):
    content = tables.tabulate_motivation(experiment).content
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


RESULTS = Path(__file__).parents[2] / "results"
EXPERIMENTS = sorted(path.parent.name for path in RESULTS.glob("*/experiment.json"))


def test_results_are_found():
    assert {"cifar100-cpu-full", "cifar100-cpu-full-underfitted"} <= {*EXPERIMENTS}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_committed_results_follow_from_the_committed_scores(name):
    folder = RESULTS / name
    experiment = Experiment.open(folder)
    for part, tabulate in tables.TABLES.items():
        made = flat(json.loads(json.dumps(tabulate(experiment).content)))
        kept = flat(json.loads((folder / f"{part}.json").read_text()))
        assert [*made] == [*kept]
        for place, value in kept.items():  # another machine's last digits differ
            is_number = isinstance(value, float)
            wanted = pytest.approx(value, rel=1e-7, abs=1e-12) if is_number else value
            assert made[place] == wanted, (part, place)


def flat(content, where=""):
    """The values of a nested content by their places."""
    if not isinstance(content, dict | list):
        return {where: content}
    parts = content.items() if isinstance(content, dict) else enumerate(content)
    return {
        place: value for key, part in parts for place, value in flat(part, f"{where} {key}").items()
    }
