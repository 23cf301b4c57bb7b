"""Draw the paper's figures from an experiment's score tables: the first network with the κ."""

from pathlib import Path

from snapsure.estimators import AES
from snapsure.evaluation import trajectories
from snapsure.evaluation._trajectories import best_curve
from snapsure.metrics import rc_curve
from snapsure.paper.archive import Experiment
from snapsure.report import pictures
from snapsure.table import ScoreTable

_FEW, _HALF = 0.01, 0.5
# Which figure shows which κ: the first that there is.
_ALONG = {2: ["softmax"], 3: ["mc_dropout_variance", "mc_dropout"], 4: ["nn_distance"]}


def draw(experiment: Experiment, folder: Path) -> list[Path]:
    """Draw figures 1 (RC curve), 2, 3 and 4 (κ and E-AURC along training), of the κ there are."""
    where = f"{experiment.about['dataset']}, scale {experiment.about['scale']}, seed "
    paths = [_draw_rc_curves(experiment.tables[0], folder, f"{where}{experiment.seeds[0]}")]
    for number, names in _ALONG.items():
        for name in [name for name in names if experiment.of(name)][:1]:
            path = folder / f"figure{number}.png"
            seed, table = next(iter(experiment.of(name).items()))
            paths.append(_draw_along(table, name, path, f"{where}{seed}"))
    return paths


def _draw_rc_curves(table: ScoreTable, folder: Path, where: str) -> Path:
    path = folder / "figure1.png"
    kappa, errors = table.kappa("softmax"), table.errors
    curves = {
        "AES k=30": rc_curve(AES().confidence(table), errors),
        "final softmax": rc_curve(kappa[-1], errors),
    }
    pictures.save(pictures.draw_panels({where: curves}, {where: best_curve(errors)}), path)
    return path


def _draw_along(table: ScoreTable, name: str, path: Path, where: str) -> Path:
    kappa, errors = table.kappa(name), table.errors
    few, halves = trajectories(kappa, errors, _FEW), trajectories(kappa, errors, _HALF)
    shown = halves._replace(green_kappa=few.green_kappa, red_kappa=few.red_kappa)
    count = round(_FEW * errors.size)
    spec = pictures.draw_trajectories(
        table.epochs,
        shown,
        (f"the {count} surest", f"the {count} least sure"),
        f"{name}: {where}",
        areas=("the surer half", "the less sure half"),
    )
    pictures.save(spec, path)
    return path
