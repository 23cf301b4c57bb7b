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
    content = tables.tabulate_table3(experiment).content
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
        made = json.loads(json.dumps(tabulate(experiment).content))
        path = folder / f"{part}.json"
        assert list(_differences(made, json.loads(path.read_text()), path.name)) == []


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
