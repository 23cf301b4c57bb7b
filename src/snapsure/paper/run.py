"""Run an experiment: train the networks and score their snapshots, or resume where it stopped."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from lightning.fabric import Fabric

from snapsure import _files, _json
from snapsure.kappas import MCDropout, NNDistance, SoftmaxResponse
from snapsure.kappas._base import Kappa
from snapsure.paper import data
from snapsure.paper.archive import Experiment
from snapsure.paper.recipes import Recipe, find_recipe
from snapsure.paper.train import (
    Parts,
    Show,
    build,
    check_folder,
    is_finished,
    open_logits,
    train,
)
from snapsure.scoring import score
from snapsure.scoring._recorded import score_recorded
from snapsure.snapshots import Snapshots, SnapshotStore
from snapsure.table import ScoreTable
from snapsure.table._pieces import TABLE
from snapsure.training._epochs import read_history, refuse_another

_EVERY, _SOME = "scores", "scores-apart"  # folders of a network's score tables


@dataclass(frozen=True)
class Study:
    """An experiment: its data set and scale, its folder, and where the data are."""

    dataset: str
    scale: str
    out: Path
    data: Path | None = None

    @property
    def recipe(self) -> Recipe:
        """How its networks are trained."""
        return find_recipe(self.dataset, self.scale)

    def folder(self, seed: int) -> Path:
        """Return the folder of one training."""
        return self.out / f"seed-{seed}"

    def load(self, show: Show) -> Parts:
        """Read its data, decoding them the first time."""

        def load_part(part: str) -> data.Images:
            def report(done: int, total: int) -> None:
                if done == total or done % 100_000 == 0:
                    show(f"{self.dataset}: {done:,} of {total:,} images of {part} decoded")

            return data.load(self.dataset, part, self.data, report)

        return Parts(data.find(self.dataset), load_part("train"), load_part("test"))


def train_one(study: Study, seed: int, parts: Parts, fabric: Fabric, show: Show) -> None:
    """Train the network of one seed, or resume its training."""
    folder = study.folder(seed)
    check_folder(study.recipe, parts, folder, seed, fabric)
    if is_finished(study.recipe, folder):
        show(f"seed {seed}: trained already")
    else:
        train(study.recipe, parts, folder, seed, fabric, lambda line: show(f"seed {seed}: {line}"))


def score_one(
    study: Study, seed: int, parts: Parts, show: Show, *, softmax_only: bool = False
) -> list[ScoreTable]:
    """Score the snapshots of one seed that are not scored yet.

    A second table has NN-distance where it is measured at fewer snapshots than the others. With
    `softmax_only` nothing is scored: an incomplete table is left out, and softmax response comes
    from the logits that the training recorded.
    """
    folder, how = study.folder(seed), study.recipe
    store = SnapshotStore(folder / "snapshots")
    test = (parts.test.pixels, parts.test.labels)
    every: list[Kappa] = []
    apart: list[Kappa] = []
    if how.neighbours is not None:
        reference = parts.train.first(how.images)
        near = NNDistance((reference.pixels, reference.labels), k=how.neighbours)
        (every if how.neighbours_every == 1 else apart).append(near)
    if how.passes is not None:
        rest = (how.passes, how.mc_rate, how.mc_layers)
        every += [MCDropout(*rest, statistic) for statistic in how.mc_statistics]

    def score_into(out: str, kappas: list[Kappa], snapshots: Snapshots) -> list[ScoreTable]:
        if softmax_only and not (folder / out / TABLE).exists():
            return []
        names = ", ".join(kappa.name for kappa in kappas)
        show(f"seed {seed}: scoring {len(snapshots.epochs)} snapshots ({names})")
        return [score(build(how, parts), snapshots, test, kappas, out=folder / out)]

    first = score_into(_EVERY, [SoftmaxResponse(), *every], store) if every else []
    some = store.select(store.epochs[:: -how.neighbours_every][::-1])
    second = score_into(_SOME, apart, some) if apart else []
    return [*(first or [score_recorded(open_logits(folder))]), *second]


def run(
    study: Study,
    fabric: Fabric,
    show: Show,
    seeds: Sequence[int] | None,
    *,
    softmax_only: bool,
    beside: Experiment | None,
) -> Experiment | None:
    """Run the experiment, or some of its networks; an interrupted run resumes.

    All processes train; the first one does the rest and returns the experiment. With
    `softmax_only`, nothing is scored. An experiment `beside` it that does not fit is refused before
    anything is trained.
    """
    claim(study)
    seeds = sorted(set(range(study.recipe.networks) if seeds is None else seeds))
    about = {
        "dataset": study.dataset,
        "scale": study.scale,
        "recipe": asdict(study.recipe),
        "precision": str(fabric.strategy.precision.precision),
        "seeds": seeds,
    }
    if beside is not None:
        beside.check_beside(about)
    parts = study.load(show)
    for seed in seeds:
        train_one(study, seed, parts, fabric, show)
    if not fabric.is_global_zero:
        return None
    tables = [score_one(study, seed, parts, show, softmax_only=softmax_only) for seed in seeds]
    apart = {i: second for i, (_, *others) in enumerate(tables) for second in others}
    ensembles = {}
    if len(seeds) > 1:
        show(f"the ensemble of {len(seeds)}")
        ensembles[(*seeds,)] = score_recorded(*(open_logits(study.folder(seed)) for seed in seeds))
    networks = [read_history(study.folder(seed)) for seed in seeds]
    firsts = [first for first, *_ in tables]
    done = Experiment({**about, "networks": networks}, firsts, ensembles, apart)
    return done if beside is None else done.beside(beside)


def claim(study: Study) -> None:
    """Refuse another experiment's folder or an unknown scale before anything is trained."""
    _ = study.recipe
    path, about = study.out / "study.json", {"dataset": study.dataset, "scale": study.scale}
    refuse_another(path, about, "data set and scale")
    _files.make_folder(study.out)
    _files.write_bytes(path, _json.text(about))
