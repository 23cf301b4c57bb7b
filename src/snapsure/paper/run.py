"""From a recipe to an experiment's outcome: train what is not trained, score what is not scored."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from lightning.fabric import Fabric

from snapsure import _files, _json
from snapsure.errors import InvalidInput
from snapsure.paper import data
from snapsure.paper.archive import Experiment
from snapsure.paper.recipes import Recipe, recipe
from snapsure.paper.train import (
    Parts,
    build,
    check,
    finished,
    train,
    validation,
)
from snapsure.scores import MCDropout, NNDistance, SoftmaxResponse
from snapsure.scores._base import Kappa
from snapsure.scoring import score
from snapsure.scoring._recorded import recorded
from snapsure.table import ScoreTable
from snapsure.training._epochs import read_history

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Study:
    """Which experiment, where its data are, and where it is kept."""

    dataset: str
    scale: str
    out: Path
    data: Path | None = None

    @property
    def recipe(self) -> Recipe:
        """How its networks are trained."""
        return recipe(self.dataset, self.scale)

    def folder(self, seed: int) -> Path:
        """Where one training is kept."""
        return self.out / f"seed-{seed}"

    def parts(self, tell: Tell) -> Parts:
        """Its data, decoded if need be."""
        read = {}
        for part in ("train", "test"):

            def told(done: int, total: int, part: str = part) -> None:
                if done == total or done % 100_000 == 0:
                    tell(f"{self.dataset}: {done:,} of {total:,} images of {part} decoded")

            read[part] = data.load(self.dataset, part, self.data, told)
        return Parts(data.named(self.dataset), read["train"], read["test"])


def train_one(study: Study, seed: int, parts: Parts, fabric: Fabric, tell: Tell) -> None:
    """Train the network of one seed, or what is left of it."""
    check(study.recipe, parts, study.folder(seed), seed, fabric)
    if finished(study.recipe, study.folder(seed)):
        tell(f"seed {seed}: trained already")
    else:
        folder = study.folder(seed)
        train(study.recipe, parts, folder, seed, fabric, lambda line: tell(f"seed {seed}: {line}"))


def score_one(study: Study, seed: int, parts: Parts, tell: Tell) -> ScoreTable:
    """κ of all snapshots of one seed, or what is left of it."""
    folder, how = study.folder(seed), study.recipe
    kappas: list[Kappa] = []
    if how.neighbours is not None:
        reference = parts.train.first(how.images)
        kappas.append(NNDistance((reference.pixels, reference.labels), k=how.neighbours))
    if how.passes is not None:
        for statistic in how.mc_statistics:
            kappas.append(MCDropout(how.passes, how.mc_rate, how.mc_layers, statistic))
    if not kappas:
        return recorded(validation(folder))
    tell(f"seed {seed}: scoring {how.epochs} snapshots")
    test = (parts.test.pixels, parts.test.labels)
    kappas.insert(0, SoftmaxResponse())
    return score(build(how, parts), folder / "snapshots", test, kappas, out=folder / "scores")


def run(study: Study, fabric: Fabric, tell: Tell, networks: int | None = None) -> Experiment | None:
    """The whole experiment, or its first networks; interrupted, it resumes where it was.

    All processes train, the first one does the rest and has the outcome.
    """
    claim(study)
    how, parts = study.recipe, study.parts(tell)
    seeds = range(networks or how.networks)
    for seed in seeds:
        train_one(study, seed, parts, fabric, tell)
    if not fabric.is_global_zero:
        return None
    tables = [score_one(study, seed, parts, tell) for seed in seeds]
    ensemble = None
    if len(seeds) > 1:
        tell(f"the ensemble of {len(seeds)}")
        ensemble = recorded(*(validation(study.folder(seed)) for seed in seeds))
    about = {
        "dataset": study.dataset,
        "scale": study.scale,
        "recipe": asdict(how),
        "networks": [read_history(study.folder(seed)) for seed in seeds],
    }
    return Experiment(about, tables, ensemble)


def claim(study: Study) -> None:
    """Refuse another experiment's folder, or a scale that there is not, before hours are spent."""
    _ = study.recipe
    path = study.out / "study.json"
    about = {"dataset": study.dataset, "scale": study.scale}
    again = "restore it, or choose another folder"
    if path.exists() and _json.load(path, "what tells of an experiment", dict, again) != about:
        raise InvalidInput(
            f"--out must be of {study.dataset} at scale {study.scale}, got {study.out}, which "
            "holds another experiment: choose another folder"
        )
    _files.make_folder(study.out)
    _files.write_bytes(path, _json.text(about))
