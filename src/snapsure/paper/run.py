"""Run an experiment: train the networks and score their snapshots, or resume where it stopped."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from lightning.fabric import Fabric

from snapsure import _files, _json
from snapsure.kappas import MCDropout, NNDistance
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
from snapsure.snapshots import SnapshotStore
from snapsure.table import ScoreTable
from snapsure.table._pieces import read_layout
from snapsure.training._epochs import read_history, refuse_another


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
    """Return softmax response of one seed's snapshots, from the logits that training recorded.

    A second table has the κ that need passes, of the snapshots that the recipe names; those that
    are missing are scored. With `softmax_only` nothing is scored: an incomplete table is left out.
    """
    folder, how = study.folder(seed), study.recipe
    tables = [score_recorded(open_logits(folder))]
    kappas: list[Kappa] = []
    if how.neighbours is not None:
        reference = parts.train.first(how.images)
        kappas.append(NNDistance((reference.pixels, reference.labels), k=how.neighbours))
    if how.passes is not None:
        rest = (how.passes, how.mc_rate, how.mc_layers)
        kappas += [MCDropout(*rest, statistic) for statistic in how.mc_statistics]

    out = folder / "costly"
    layout = read_layout(out)
    is_complete = layout is not None and layout["finished"]
    if kappas and (is_complete or not softmax_only):
        store = SnapshotStore(folder / "snapshots")
        some = store.select(store.epochs[:: -how.costly_every][::-1])
        names = ", ".join(kappa.name for kappa in kappas)
        show(f"seed {seed}: scoring {len(some.epochs)} snapshots ({names})")
        test = (parts.test.pixels, parts.test.labels)
        tables.append(score(build(how, parts), some, test, kappas, out=out))
    return tables


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
    costly = {i: second for i, (_, *others) in enumerate(tables) for second in others}
    ensembles = {}
    if len(seeds) > 1:
        show(f"the ensemble of {len(seeds)}")
        ensembles[(*seeds,)] = score_recorded(*(open_logits(study.folder(seed)) for seed in seeds))
    networks = [read_history(study.folder(seed)) for seed in seeds]
    firsts = [first for first, *_ in tables]
    done = Experiment({**about, "networks": networks}, firsts, ensembles, costly)
    return done if beside is None else done.beside(beside)


def claim(study: Study) -> None:
    """Refuse another experiment's folder or an unknown scale before anything is trained."""
    _ = study.recipe
    path, about = study.out / "study.json", {"dataset": study.dataset, "scale": study.scale}
    refuse_another(path, about, "data set and scale")
    _files.make_folder(study.out)
    _files.write_bytes(path, _json.text(about))
