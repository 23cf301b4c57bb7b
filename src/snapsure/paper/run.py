"""From a recipe to an experiment's outcome: train what is not trained, score what is not scored."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lightning.fabric import Fabric

from snapsure import _files, _json
from snapsure.errors import InvalidInput
from snapsure.kappas import MCDropout, NNDistance, SoftmaxResponse
from snapsure.kappas._base import Kappa
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
from snapsure.scoring import score
from snapsure.scoring._recorded import score_recorded
from snapsure.snapshots import Snapshots, SnapshotStore
from snapsure.table import ScoreTable
from snapsure.table._pieces import TABLE
from snapsure.training._epochs import read_history

Tell = Callable[[str], None]

_EVERY, _SOME = "scores", "scores-apart"  # folders of a network's score tables


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
    """Train the network of one seed, or resume its training."""
    check(study.recipe, parts, study.folder(seed), seed, fabric)
    if finished(study.recipe, study.folder(seed)):
        tell(f"seed {seed}: trained already")
    else:
        folder = study.folder(seed)
        train(study.recipe, parts, folder, seed, fabric, lambda line: tell(f"seed {seed}: {line}"))


def score_one(
    study: Study, seed: int, parts: Parts, tell: Tell, *, softmax_only: bool = False
) -> list[ScoreTable]:
    """Score the snapshots of one seed, or those that are not scored yet.

    A second table has NN-distance where it is measured at fewer snapshots than the others. With
    `softmax_only` nothing is scored: a table that is not whole yet is left out, and softmax
    response comes from the logits that the training recorded.
    """
    folder, how = study.folder(seed), study.recipe
    store = SnapshotStore(folder / "snapshots")
    every, apart = _kappas(how, parts)
    test = (parts.test.pixels, parts.test.labels)

    def scored(kappas: list[Kappa], snapshots: Snapshots, out: str) -> list[ScoreTable]:
        if softmax_only and not (folder / out / TABLE).exists():
            return []
        names = ", ".join(kappa.name for kappa in kappas)
        tell(f"seed {seed}: scoring {len(snapshots.epochs)} snapshots ({names})")
        return [score(build(how, parts), snapshots, test, kappas, out=folder / out)]

    first = scored([SoftmaxResponse(), *every], store, _EVERY) if every else []
    some = store.select(store.epochs[:: -how.neighbours_every][::-1])
    second = scored(apart, some, _SOME) if apart else []
    return [*(first or [score_recorded(validation(folder))]), *second]


def _kappas(how: Recipe, parts: Parts) -> tuple[list[Kappa], list[Kappa]]:
    """Return the κ besides softmax response: of every snapshot, and of some."""
    every: list[Kappa] = []
    apart: list[Kappa] = []
    if how.neighbours is not None:
        reference = parts.train.first(how.images)
        near = NNDistance((reference.pixels, reference.labels), k=how.neighbours)
        (every if how.neighbours_every == 1 else apart).append(near)
    if how.passes is not None:
        for statistic in how.mc_statistics:
            every.append(MCDropout(how.passes, how.mc_rate, how.mc_layers, statistic))
    return every, apart


def run(
    study: Study,
    fabric: Fabric,
    tell: Tell,
    seeds: Sequence[int] | None = None,
    *,
    softmax_only: bool = False,
    beside: Experiment | None = None,
) -> Experiment | None:
    """Run the experiment, or some of its networks; an interrupted run resumes.

    All processes train, the first one does the rest and has the outcome. With `softmax_only`, what
    is not scored yet is left so. An experiment `beside` it is refused before hours are spent.
    """
    claim(study)
    seeds = sorted(set(range(study.recipe.networks) if seeds is None else seeds))
    about = {
        "dataset": study.dataset,
        "scale": study.scale,
        "recipe": asdict(study.recipe),
        "seeds": seeds,
    }
    if beside is not None:
        beside.check_beside(about)
    parts = study.parts(tell)
    for seed in seeds:
        train_one(study, seed, parts, fabric, tell)
    if not fabric.is_global_zero:
        return None
    tables = [score_one(study, seed, parts, tell, softmax_only=softmax_only) for seed in seeds]
    apart = {i: second for i, (_, *others) in enumerate(tables) for second in others}
    ensembles = {}
    if len(seeds) > 1:
        tell(f"the ensemble of {len(seeds)}")
        ensembles[(*seeds,)] = score_recorded(*(validation(study.folder(seed)) for seed in seeds))
    networks = [read_history(study.folder(seed)) for seed in seeds]
    firsts = [first for first, *_ in tables]
    done = Experiment({**about, "networks": networks}, firsts, ensembles, apart)
    return done if beside is None else done.beside(beside)


def claim(study: Study) -> None:
    """Refuse another experiment's folder or an unknown scale before hours are spent."""
    _ = study.recipe
    path = study.out / "study.json"
    about = {"dataset": study.dataset, "scale": study.scale}
    what, again = "the description of an experiment", "restore it, or choose another folder"
    if path.exists() and _json.load(path, what, dict[str, Any], again) != about:
        raise InvalidInput(
            f"--out must be of {study.dataset} at scale {study.scale}, got {study.out}, which "
            "holds another experiment. Choose another folder."
        )
    _files.make_folder(study.out)
    _files.write_bytes(path, _json.text(about))
