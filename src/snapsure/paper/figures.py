"""Draw the paper's figures from an experiment's score tables: the first network with the κ."""

from pathlib import Path

from snapsure.estimators import AES
from snapsure.evaluation import trajectories
from snapsure.evaluation._trajectories import best_curve
from snapsure.metrics import rc_curve
from snapsure.paper.archive import Experiment
from snapsure.report import pictures
from snapsure.report.charts import Spec
from snapsure.table import ScoreTable

_FEW, _HALF = 0.01, 0.5
# Which figure shows which κ: the first that there is.
_ALONG = {2: ["softmax"], 3: ["mc_dropout_variance", "mc_dropout"], 4: ["nn_distance"]}


def draw(experiment: Experiment, folder: Path) -> list[Path]:
    """Draw figures 1 (RC curve), 2, 3 and 4 (κ and E-AURC along training), of the κ there are."""
    where = f"{experiment.about['dataset']}, scale {experiment.about['scale']}, seed "
    table, first = experiment.tables[0], f"{where}{experiment.seeds[0]}"
    curves = {
        "AES k=30": rc_curve(AES().confidence(table), table.errors),
        "final softmax": rc_curve(table.kappa("softmax")[-1], table.errors),
    }
    figures = {1: pictures.draw_panels({first: curves}, {first: best_curve(table.errors)})}
    for number, names in _ALONG.items():
        for name in [name for name in names if experiment.of(name)][:1]:
            seed, table = next(iter(experiment.of(name).items()))
            figures[number] = _draw_along(table, name, f"{name}: {where}{seed}")

    paths = {folder / f"figure{number}.png": spec for number, spec in figures.items()}
    for path, spec in paths.items():
        pictures.save(spec, path)
    return [*paths]


def _draw_along(table: ScoreTable, name: str, title: str) -> Spec:
    kappa, errors = table.kappa(name), table.errors
    few, halves = trajectories(kappa, errors, _FEW), trajectories(kappa, errors, _HALF)
    shown = halves._replace(green_kappa=few.green_kappa, red_kappa=few.red_kappa)
    count = round(_FEW * errors.size)
    labels = (f"the {count} surest", f"the {count} least sure")
    areas = ("the surer half", "the less sure half")
    return pictures.draw_trajectories(table.epochs, shown, labels, title, areas=areas)
