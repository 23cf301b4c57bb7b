"""Do embeddings find errors and unknowns? `python -m experiments.embeddings runs words cifar10`.

Protocol, written before the first run.

Networks: words, clothes, cifar10, cifar100 by the plain recipe of `experiments.passes`, with its
snapshots of every second epoch; seeds 0, 1, 2 of words and clothes, and of the CIFARs those of
0, 1, 2 that are trained. An embedding is what the last linear layer takes. 10,000 test examples are
halved as in `compare`: what learns does so on one half and is judged on the other, both ways round.
Every seed is reported, with the interval of its own examples (paired bootstrap, 95 %).

Errors (percent less E-AURC than the final softmax). Ours found that a predictor of errors with the
embedding loses in 11 of 11 trainings; Rabanser & Papernot (2510.20242) find that only scores that
know the features rank better; AdUE (Zabolotnyi et al., 2505.15443) starts from the classifier's own
head and is held there. So:

- "as in the contest": log-odds of the softmax, logits and embedding, the last two penalised by 10;
- "embedding alone": a logistic regression on the standardised embedding, which knows no softmax;
- "softmax and embedding": log-odds of the softmax with a free slope, and the penalised embedding;
- "AdUE's head": the last layer's own weights, penalised by their squared distance from what they
  are; its log-odds of the answer, with a free slope and intercept, say how likely it is right. AdUE
  takes a smooth maximum over classes and fits by gradient steps; here the answer is fixed, and the
  fit is complete (L-BFGS);
- "LES and embedding": as the third, with the log-odds of LES in place of the softmax's;
- GEN, with γ = 0.1 and with γ and classes chosen by E-AURC on the half learnt from, because the
  archives of 100 classes have no logits.

The four heads between choose the penalty among 1, 10 … 10⁵ by the log-loss of a fifth of the half
that is learnt from, and then learn from all of it. "softmax and embedding" and "AdUE's head" are
the final softmax where the penalty is infinite.

Second round, written after a look at words and the first network of cifar10, where AdUE's head
gains in every network, always with a penalty of 100. Does it add to LES, and is it better than LES
in one pass? "LES (1 pass)" is judged too, and "LES and AdUE's head": each of the two learns from
one half of the half learnt from and answers for the other; a logistic regression weighs their
log-odds there; then both learn from all of it. The head's penalty is 100.

Unknowns (percent less AURC than the final softmax, errors and unknowns together). The networks of
cifar10 get images of CIFAR-100's test set too, whose label is −1. Left out are bus, pickup truck
and streetcar: by the authors' definition no class of CIFAR-10 has them, but "automobile" or "truck"
is hardly an error. Animals of like kinds (wolf, leopard) stay, as in published comparisons. Of the
9,700 images, in a random order, 0, 2,500 (a fifth of all examples) or all are added. The half that
is learnt from has its unknowns, labelled as such ("seen"), or has none ("unseen"), as where nobody
thought of them. Judged are:

- SIRC (Xia & Bouganis 2022): −(1 − κ) (1 + e^{−b (s − a)}) with a = mean − 3 std and b = 1 / std of
  a second score s, over the known examples that are learnt from. s is the embedding's 1-norm; the
  negative residual (Wang et al. 2022): its length outside the 96 of 192 principal directions of the
  training embeddings; or k-NN (Sun et al. 2022), the nearness of the 50th training embedding;
- k-NN alone; LES; LES with both neighbour scores as features (as in `les_features`); LES and k-NN
  by SIRC's formula; AES; GEN with γ = 0.1 and with γ and classes chosen on the half learnt from.

Coverage at a promised 5 %: `Threshold.at_risk` learns from one half of the judged half (where
unknowns are unseen, from its known examples), and what it accepts of the other half is counted,
with the share of it that is wrong, both ways round; 0 where nothing can be promised.

The same on the archived transformers of `results/intents` with their 1,000 queries of no intent,
as far as the archive goes: it has k-NN, but neither embeddings nor logits, so no 1-norm, no
residual and no choice of γ. To train them again takes hours.

Without `--results`, trains what is not trained; with it, judges what is.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import torch
import typer
from scipy.optimize import minimize  # type: ignore[import-untyped]
from scipy.stats import rankdata  # type: ignore[import-untyped]
from torch import Tensor, nn

from experiments.contest.packing import DONE, Packages, Seeds, Threads, show, train_once
from experiments.contest.runs import embed, predict, predict_from_embedding
from experiments.les_features import CHOSEN, fit_and_score
from experiments.passes.__main__ import NAMES, make_task
from experiments.passes.tasks import Task
from experiments.passes.trainings import PLAIN, locate_training, train
from snapsure import _files
from snapsure._logistic import (
    fit_logistic,
    log_odds,
    logit,
    platt_curve,
    sigmoid,
    summed_losses,
)
from snapsure._types import Bools, Floats, Ints
from snapsure._validate import NO_CLASS
from snapsure.decisions import Threshold
from snapsure.errors import Infeasible
from snapsure.estimators import AES, LES, registry
from snapsure.evaluation import Halves, Run, compare
from snapsure.kappas import DeepKNN, NNDistance
from snapsure.scoring import score
from snapsure.scoring._recorded import RecordedLogits, score_recorded
from snapsure.snapshots import SnapshotStore
from snapsure.table import ScoreTable
from tools.studies import CHOSEN_GEN, PUBLISHED_GEN, choose_gen, open_study, score_gen

SEEDS = range(3)
PENALTIES = tuple(10.0**i for i in range(6))
UNKNOWN = (0, 2500, 9700)
ALIKE = (13, 58, 81)  # bus, pickup truck, streetcar among CIFAR-100's classes
PRINCIPAL = 0.5  # of the embedding's directions
RISK = 0.05
KNN, STACKED = "k-NN", "LES and AdUE's head"
INTENTS, OUTSIDE = "intents", "-oos"  # the archive, and the end of its boards with unknowns
NEIGHBOURS = replace(CHOSEN, neighbours=True)

Fit = Callable[[Ints, float], Floats]  # rows to learn from and a penalty -> log-odds of all rows


@dataclass(frozen=True)
class Network:
    """A final network on examples to judge by, and the scores of its snapshots."""

    table: ScoreTable  # with the final logits
    embedding: Floats  # (n, features)
    train: Floats  # embeddings of the training examples
    weights: Floats  # of the last linear layer, (classes, features + 1), its bias last
    neighbours: Mapping[str, Floats]


def open_network(task: Task, folder: Path, unknown: Tensor | None = None) -> Network:
    """Run a finished training's snapshots on unknown images, and add them to the test examples."""
    store = SnapshotStore(folder / "snapshots")
    known = RecordedLogits(folder / "validation")
    network, x, labels = task.network(), task.test[0], known.labels()
    if unknown is not None:
        x = torch.cat((x, unknown))
        labels = np.append(labels, np.full(len(unknown), NO_CLASS))
    with TemporaryDirectory() as scratch:
        recorded = RecordedLogits(scratch)
        for epoch in store.epochs:
            logits = known.read(epoch)
            if unknown is not None:
                store.load_into(network, epoch)
                logits = torch.cat((logits, predict(network, unknown)))
            recorded.write(epoch, logits.numpy(), labels)
        table = score_recorded(recorded).with_logits(logits.numpy())
    store.load_into(network, store.epochs[-1])
    last = [module for module in network.modules() if isinstance(module, nn.Linear)][-1]
    weights = torch.cat((last.weight, last.bias[:, None]), dim=1).detach().double().numpy()
    neighbours = {}
    if unknown is not None:
        near = [DeepKNN(task.train), NNDistance(task.train)]
        found = score(network, store.select(store.epochs[-1:]), x, near, progress=False)
        neighbours = {name: found.kappa(name)[-1] for name in found.names}
    return Network(table, embed(network, x), embed(network, task.train[0]), weights, neighbours)


# Errors ---------------------------------------------------------------------------------------


def make_heads(network: Network) -> dict[str, Fit]:
    """Return the heads whose penalty is chosen, by name."""
    table, right = network.table, (~network.table.errors).astype(np.float64)
    assert table.logits is not None
    spread = network.embedding.std(axis=0)
    scaled = network.embedding / np.where(spread > 1e-9, spread, np.inf)
    odds = log_odds(table.logits, table.y_hat)

    def regress(free: Callable[[Ints], list[Floats]], rows: Ints, penalty: float) -> Floats:
        base = free(rows)
        design = np.column_stack((scaled - scaled[rows].mean(axis=0), *base, np.ones(right.size)))
        held = np.append(np.full(scaled.shape[1], penalty), np.zeros(len(base) + 1))
        z: Floats = design @ fit_logistic(design[rows], right[rows], held)
        return z

    def learn_les(rows: Ints) -> list[Floats]:
        return [logit(LES().fit(table.rows(rows)).confidence(table))]

    size = float(np.sqrt((network.embedding**2).mean()))
    x = np.column_stack((network.embedding / size, np.ones(right.size)))
    start = network.weights * np.append(np.full(x.shape[1] - 1, size), 1.0)
    return {
        "embedding alone": partial(regress, lambda _: []),
        "softmax and embedding": partial(regress, lambda _: [odds]),
        "AdUE's head": partial(fit_head, x, table.y_hat, right, start),
        "LES and embedding": partial(regress, learn_les),
    }


def fit_head(
    x: Floats, y_hat: Ints, right: Floats, start: Floats, rows: Ints, penalty: float
) -> Floats:
    """Move the last layer's weights, held where they start; return log-odds of being right."""
    onehot = y_hat[:, None] == np.arange(len(start))

    def find_odds(moved: Floats, some: Ints | slice) -> tuple[Floats, Floats]:
        """Return the log-odds of the answer, and the softmax over the other classes."""
        z = x[some] @ (start + moved).T
        others = np.where(onehot[some], -np.inf, z)
        top = others.max(axis=1, keepdims=True)
        weight = np.exp(others - top)
        total = weight.sum(axis=1, keepdims=True)
        return z[onehot[some]] - (top + np.log(total))[:, 0], weight / total

    def lose(flat: Floats) -> tuple[float, Floats]:
        moved, (slope, intercept) = flat[:-2].reshape(start.shape), flat[-2:]
        odds, others = find_odds(moved, rows)
        u = slope * odds + intercept
        rest = sigmoid(u) - right[rows]
        by_logits = (slope * rest)[:, None] * (onehot[rows] - others)
        loss = float(summed_losses(u[None], right[rows])[0]) + penalty / 2 * float((moved**2).sum())
        gradient = (by_logits.T @ x[rows] + penalty * moved).ravel()
        return loss, np.concatenate((gradient, [rest @ odds, rest.sum()]))

    still = np.zeros(start.shape)
    curve = platt_curve(find_odds(still, rows)[0], right[rows] == 0)
    first = np.concatenate((still.ravel(), curve))
    flat = minimize(lose, first, jac=True, method="L-BFGS-B", options={"maxiter": 300}).x
    z: Floats = flat[-2] * find_odds(flat[:-2].reshape(start.shape), slice(None))[0] + flat[-1]
    return z


def choose_penalty(fit: Fit, wrong: Bools, learn: Ints) -> float:
    """Return the penalty with the least log-loss on a fifth of the rows to learn from."""
    order = np.random.default_rng(0).permutation(learn)
    held, some = np.split(order, [learn.size // 5])
    right = (~wrong[held]).astype(np.float64)
    losses = [float(summed_losses(fit(some, one)[None, held], right)[0]) for one in PENALTIES]
    return PENALTIES[int(np.argmin(losses))]


def measure_errors(network: Network) -> dict[str, Any]:
    """Judge every head, and LES, on one training's test examples."""
    table, n = network.table, network.table.y_hat.size
    scores = {"as in the contest": predict_from_embedding(table, network.embedding)}
    grid, best = score_gen(table), np.empty(n)
    scores |= {PUBLISHED_GEN: grid[0.1, max(grid)[1]], CHOSEN_GEN: best}
    for learn, rest in Halves().parts(n):
        best[rest] = grid[choose_gen(grid, table.errors, learn)][rest]
    penalties: dict[str, list[float]] = {}
    for name, fit in make_heads(network).items():
        scores[name] = np.empty(n)
        for learn, rest in Halves().parts(n):
            penalty = choose_penalty(fit, table.errors, learn)
            scores[name][rest] = sigmoid(fit(learn, penalty)[rest])
            penalties.setdefault(name, []).append(penalty)
    board = compare(
        Run(table, others=scores), methods=("final", "LES", *scores), correction="none"
    ).boards["data"]
    methods = {
        row.method: {"eaurc": row.eaurc, "saved": [*row.saved]}
        | ({"penalties": penalties[row.method]} if row.method in penalties else {})
        for row in board.rows
    }
    return {"wrong": float(table.errors.mean()), "methods": methods}


def measure_stacked(network: Network) -> dict[str, Any]:
    """Judge LES in one pass, and LES with AdUE's head."""
    table, right = network.table, (~network.table.errors).astype(np.float64)
    head, stacked = make_heads(network)["AdUE's head"], np.empty(right.size)

    def answer(learn: Ints, rest: Ints) -> Floats:
        les = LES().fit(table.rows(learn)).confidence(table.rows(rest))
        return np.column_stack((logit(les), head(learn, 100.0)[rest], np.ones(rest.size)))

    for learn, rest in Halves().parts(right.size):
        one, two = (learn[part] for part in Halves(1).parts(learn.size)[0])
        rows, across = np.append(two, one), np.vstack((answer(one, two), answer(two, one)))
        weights = fit_logistic(across, right[rows], np.array([0.3, 0.3, 0.0]))
        stacked[rest] = sigmoid(answer(learn, rest) @ weights)
    run, both = Run(table, others={STACKED: stacked}), ("LES (1 pass)", STACKED)
    one_pass = replace(registry.get("LES"), name=both[0], make=partial(LES, passes=1))
    board = compare(run, methods=("final", one_pass, STACKED), correction="none").boards["data"]
    return {name: {"eaurc": board[name].eaurc, "saved": [*board[name].saved]} for name in both}


# Unknowns -------------------------------------------------------------------------------------


def find_residual(network: Network) -> Floats:
    """Return how long the embedding is outside the principal directions, from ViM's origin."""
    weights, bias = network.weights[:, :-1], network.weights[:, -1]
    origin = -np.linalg.pinv(weights) @ bias
    train, x = network.train - origin, network.embedding - origin
    _, directions = np.linalg.eigh(train.T @ train)  # the least first
    outside = directions[:, : round((1 - PRINCIPAL) * len(directions))]
    length: Floats = np.linalg.norm(x @ outside, axis=1)
    return length


def combine(odds: Floats, second: Floats, known: Ints) -> Floats:
    """Return −log of SIRC's (1 − κ) (1 + e^{−b (s − a)}), from log-odds of κ and a second score."""
    mean, spread = second[known].mean(), second[known].std()
    sure: Floats = np.logaddexp(0, odds) - np.logaddexp(0, (mean - second) / spread - 3)
    return sure


def score_methods(run: Run, second: Mapping[str, Floats], learn: Ints) -> dict[str, Floats]:
    """Return every method's score of all examples, learnt from some."""
    table, every = run.table, np.arange(run.y.size)
    known = learn[run.y[learn] != NO_CLASS]
    odds = logit(table.kappa("softmax")[-1])
    if table.logits is not None:
        odds = log_odds(table.logits, table.y_hat)
    les = logit(LES().fit(table.rows(learn)).confidence(table))
    scores = {
        "AES": AES().fit(table).confidence(table),
        "LES": les,
        "LES with neighbours": fit_and_score(run, learn, every, NEIGHBOURS),
        f"LES and {KNN} by SIRC": combine(les, second[KNN], known),
        **{f"SIRC, {name}": combine(odds, one, known) for name, one in second.items()},
        f"{KNN} alone": second[KNN],
    }
    if table.logits is None:
        return scores | {PUBLISHED_GEN: run.others["gen"].kappa}
    grid = score_gen(table)
    chosen = grid[choose_gen(grid, table.errors, learn)]
    return scores | {PUBLISHED_GEN: grid[0.1, max(grid)[1]], CHOSEN_GEN: chosen}


def count_accepted(score: Floats, wrong: Bools, proof: Ints, use: Ints) -> tuple[int, int]:
    """Return how many of `use` a threshold promised on `proof` accepts, and how many are wrong."""
    try:
        threshold = Threshold.at_risk(score[proof], wrong[proof], RISK)
    except Infeasible:
        return 0, 0
    taken = threshold.accepts(score[use])
    return int(taken.sum()), int(wrong[use][taken].sum())


def measure_unknowns(run: Run, second: Mapping[str, Floats], *, seen: bool) -> dict[str, Any]:
    """Judge every method on errors and unknowns together: AURC, and coverage at 5 %."""
    wrong, n = run.table.errors, run.y.size
    may_learn = np.ones(n, np.bool_) if seen else run.y != NO_CLASS
    scores: dict[str, Floats] = {}
    counts: dict[str, Ints] = {}
    for learn, rest in Halves().parts(n):
        found = score_methods(run, second, learn[may_learn[learn]])
        for name, one in {"final": run.table.kappa("softmax")[-1], **found}.items():
            # Ranks among the judged: the same order, whatever the unit of the score is.
            scores.setdefault(name, np.empty(n))[rest] = rankdata(one[rest]) / rest.size
            for proof, use in Halves(1).parts(rest.size):
                proof = rest[proof][may_learn[rest[proof]]]
                count = count_accepted(scores[name], wrong, proof, rest[use])
                counts[name] = counts.get(name, np.zeros(2, np.int64)) + count
    del scores["final"]
    rivals = run.replace(run.table, scores)
    board = compare(rivals, methods=("final", *scores), metric="aurc", correction="none")
    methods = {}
    for row in board.boards["data"].rows:
        taken, lost = counts[row.method].tolist()
        methods[row.method] = {
            "aurc": row.aurc,
            "saved": [*row.saved],
            "accepted": taken / n,
            "wrong of accepted": lost / taken if taken else None,
        }
    return {"examples": n, "wrong": float(wrong.mean()), "methods": methods}


def measure_settings(
    run: Run, second: Mapping[str, Floats], counts: Sequence[int]
) -> dict[str, Any]:
    """Judge with so many of the unknowns, seen and unseen; 0 unknowns are the same in both."""
    known, unknown = (np.flatnonzero((run.y == NO_CLASS) == is_unknown) for is_unknown in (0, 1))
    found = {}
    for count in counts:
        rows = np.append(known, unknown[:count])
        some, scores = run.rows(rows), {name: one[rows] for name, one in second.items()}
        for seen in (True, False) if count else (True,):
            name = f"{count} unknowns, {'seen' if seen else 'unseen'}" if count else "no unknowns"
            found[name] = measure_unknowns(some, scores, seen=seen)
    return found


def read_unknown(folder: Path) -> Tensor:
    """Read the test images of CIFAR-100 that look like no class of CIFAR-10, in random order."""
    images, labels = make_task("cifar100", folder, folder).test
    rows = np.flatnonzero(~np.isin(labels.numpy(), ALIKE))
    return images[torch.from_numpy(np.random.default_rng(0).permutation(rows))]


def main(
    out: Annotated[Path, typer.Argument(help="Folder for trainings.")],
    names: Annotated[list[str], typer.Argument(help=f"Some of {', '.join(NAMES)}, intents.")],
    packages: Packages = Path("node_modules"),
    cifar: Annotated[Path, typer.Option(help="CIFAR-100, as for `snapsure train`.")] = Path(),
    seed: Seeds = None,
    results: Annotated[Path | None, typer.Option(help="Judge what is finished, to here.")] = None,
    threads: Threads = 1,
) -> None:
    """Train what is not trained, or judge what is and add it to what is judged."""
    torch.set_num_threads(threads)
    content: dict[str, dict[str, Any]] = {"errors": {}, "stacked": {}, "unknowns": {}}
    if results is not None and results.exists():
        content |= json.loads(results.read_text())

    def add(kind: str, name: str, seed: int, measure: Callable[[], dict[str, Any]]) -> None:
        seeds = content[kind].setdefault(name, {})
        if results is None or str(seed) in seeds:
            return
        rounded = json.dumps(measure())
        seeds[str(seed)] = json.loads(rounded, parse_float=lambda x: round(float(x), 6))
        _files.write_bytes(results, json.dumps(content).encode() + b"\n")
        show(f"{kind}, {name}, seed {seed}: judged")

    def measure_images(task: Task, folder: Path) -> dict[str, Any]:
        network = open_network(task, folder, read_unknown(cifar))
        second = {
            "1-norm": np.abs(network.embedding).sum(axis=1),
            "residual": -find_residual(network),
            KNN: network.neighbours["deep_knn"],
        }
        return measure_settings(Run(network.table, others=network.neighbours), second, UNKNOWN)

    def measure_queries(run: Run) -> dict[str, Any]:
        return measure_settings(run, {KNN: run.others["deep_knn"].kappa}, (0, 1000))

    for name in names:
        if name == INTENTS:
            for board, runs in open_study(INTENTS).items():
                for i, run in enumerate(runs if board.endswith(OUTSIDE) else ()):
                    add("unknowns", board, i, partial(measure_queries, run))
            continue
        task = make_task(name, packages, cifar)
        for one in seed or SEEDS:
            folder = locate_training(out / name / f"seed-{one}", PLAIN.name)
            if results is None:
                train_once(folder, partial(train, task, PLAIN, one, folder))
            elif (folder / DONE).exists():
                for kind, measure in (("errors", measure_errors), ("stacked", measure_stacked)):
                    judge = partial(lambda measure, *at: measure(open_network(*at)), measure)
                    add(kind, name, one, partial(judge, task, folder))
                if name == "cifar10":
                    add("unknowns", name, one, partial(measure_images, task, folder))


if __name__ == "__main__":
    typer.run(main)
