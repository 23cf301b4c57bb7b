"""`Predictor`: snapshots, estimator, calibration and threshold as one object that answers."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import nn
from torch.utils.data import DataLoader, Dataset

from snapsure import _validate
from snapsure._types import Bools, Floats, Ints
from snapsure.decisions import Monitor, Platt, Threshold
from snapsure.errors import InvalidInput
from snapsure.estimators import Estimator
from snapsure.estimators._base import refuse_no_table
from snapsure.kappas import Kappa, registry
from snapsure.networks._data import Rows
from snapsure.networks._factory import make_network
from snapsure.networks._network import device_named
from snapsure.predictor._scorer import Scorer
from snapsure.snapshots._base import Snapshots
from snapsure.snapshots._store import open_snapshots
from snapsure.table import ScoreTable

_MEMORY = 4 << 30


class Answer(NamedTuple):
    """What a predictor says of n inputs.

    Attributes
    ----------
    label : (n,) int array
        The final snapshot's prediction.
    confidence : (n,) float array
        A probability of being right where the predictor is calibrated.
    accepted : (n,) bool array
        Whether the threshold accepts it; all, without a threshold.

    Examples
    --------
    >>> import numpy as np
    >>> answer = Answer(np.array([3, 7]), np.array([0.98, 0.61]), np.array([True, False]))
    >>> label, confidence, accepted = answer
    >>> label[~accepted].tolist()  # send these to review
    [7]
    """

    label: Ints
    confidence: Floats
    accepted: Bools


class Predictor:
    """A label, a confidence and a decision for new inputs, in as few passes as the estimator needs.

    Snapshots that the estimator asks for are loaded once and stay in memory. It may be called from
    several threads. `Predictor.fit` makes one from a score table, and promises a risk.

    Parameters
    ----------
    model : nn.Module or "package.module:factory"
        A network of the snapshots' architecture, or what makes one: then a saved predictor knows
        how to make it again. It is copied, and runs where it is, or on an accelerator.
    snapshots : Snapshots or path
        The training's snapshots, or an `Ensemble`.
    estimator : Estimator
        From κ of the snapshots to a confidence; fitted, if it learns.
    threshold : Threshold, optional
        Made of what this predictor calls confidence.
    calibration : Platt, optional
        From the estimator's confidence to a probability of being right.
    kappa : Kappa, optional
        The κ that the estimator was fitted on, where its name does not tell all: `MCDropout(...)`.
    classes : sequence of str, optional
        Their names, in order; kept for whoever reads the answers.
    memory : int
        Bytes that weights may take (4 GiB); beyond it, snapshots are loaded in turns.
    device : str or torch.device, optional
        Where networks run, if not where the model is, or on an accelerator.

    Examples
    --------
    >>> import tempfile
    >>> import torch
    >>> from snapsure import AES, SnapshotStore
    >>> model, store = nn.Linear(3, 2), SnapshotStore(tempfile.mkdtemp())
    >>> for epoch in range(1, 11):
    ...     store.save(nn.Linear(3, 2), epoch)
    >>> predictor = Predictor(model, store, AES(k=4))
    >>> predictor.epochs
    [4, 6, 8, 10]
    >>> predictor(torch.rand(5, 3)).label.shape
    (5,)
    """

    def __init__(
        self,
        model: nn.Module | str,
        snapshots: Snapshots | str | Path,
        estimator: Estimator,
        threshold: Threshold | None = None,
        *,
        calibration: Platt | None = None,
        kappa: Kappa | None = None,
        classes: Sequence[str] | None = None,
        memory: int = _MEMORY,
        device: str | torch.device | None = None,
        provenance: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(model, nn.Module | str):
            raise InvalidInput(
                "`model` must be a torch.nn.Module or package.module:factory, got "
                f"{type(model).__name__}. Pass the network, or what makes it as a string."
            )
        if not isinstance(estimator, Estimator):
            raise InvalidInput(
                f"`estimator` must be an Estimator such as AES(), got {estimator!r}. Make one."
            )
        if threshold is not None and not isinstance(threshold, Threshold):
            raise InvalidInput(
                f"`threshold` must be a Threshold, got {type(threshold).__name__}. Make one by "
                "Threshold.at_risk or .at_coverage."
            )
        self.factory = model if isinstance(model, str) else None
        module = make_network(model) if isinstance(model, str) else model
        self.snapshots = open_snapshots(snapshots)
        self.estimator = _fit_unfitted(estimator, self.snapshots, kappa)
        self.kappa = kappa or make_kappa(self.estimator.fitted["kappa"])
        if self.kappa.prepares:
            raise _refers_to_data(self.kappa.name)
        if self.estimator.of_kappa and self.kappa.name != self.estimator.fitted["kappa"]:
            raise InvalidInput(
                f"`kappa` must be the one that the estimator was fitted on "
                f"({self.estimator.fitted['kappa']}), got {self.kappa.name}. Pass that one."
            )
        if calibration is not None and self.estimator.calibrated:
            raise InvalidInput(
                f"`calibration` must be left out for {type(self.estimator).__name__}, whose "
                "confidence is a probability already, got one. Leave it out."
            )
        self.threshold, self.calibration = threshold, calibration
        if isinstance(classes, str):
            raise InvalidInput(f"`classes` must be a list of names, got {classes!r}: write [...]")
        self.classes = None if classes is None else [str(name) for name in classes]
        self.provenance = dict(provenance or {})
        self.epochs = self.estimator.snapshots(self.snapshots.epochs)
        self.networks = Scorer(
            module,
            self.snapshots,
            self.epochs,
            self.kappa,
            _validate.count(memory, "memory"),
            needs=self.estimator.needs,
            device=device_named(device),
        )

    @classmethod
    def fit(
        cls,
        model: nn.Module | str,
        snapshots: Snapshots | str | Path,
        table: ScoreTable,
        *,
        risk: float | None = None,
        delta: float = 0.05,
        passes: int | None = None,
        kappa: str = "softmax",
        classes: Sequence[str] | None = None,
        memory: int = _MEMORY,
        seed: int = 0,
    ) -> "Predictor":
        """Choose, fit and calibrate an estimator, and promise a risk, from held-out points.

        One half of the points chooses the estimator that `evaluate` finds best among the final
        snapshot alone, AES, LES, PES and the best snapshot (the final one, unless another is better
        by more than chance), and calibrates it. The other half, which nothing was fitted on, gives
        the threshold. `reason` says what was chosen and why. Without labels there is nothing to
        choose by, and `Predictor(model, snapshots, AES())` is a bet.

        Parameters
        ----------
        model, snapshots, classes, memory
            As `Predictor`.
        table : ScoreTable
            Scores of held-out points, with labels.
        risk : float, optional
            The error rate to promise among accepted inputs; without it, all are accepted.
        delta : float
            How often the promise may be broken, over draws of the held-out points.
        passes : int, optional
            The most forward passes that an answer may take.
        kappa : str
            Which κ of the table.
        seed : int
            Of the halves and splits.
        """
        from snapsure.evaluation import choose

        refuse_no_table(table)
        store = open_snapshots(snapshots)
        _refuse_other_snapshots(table, store)
        choice = choose(table, kappa=kappa, passes=passes, risk=risk, delta=delta, seed=seed)
        settings = table.provenance.get("kappas", {}).get(kappa)
        predictor = cls(
            model,
            store,
            choice.estimator,
            choice.threshold,
            calibration=choice.calibration,
            kappa=make_kappa(kappa, settings),
            classes=classes,
            memory=memory,
            provenance={
                "reason": choice.reason,
                "candidates": [result.as_dict() for result in choice.candidates],
                "points": {"chosen by": choice.learn.size, "promised by": choice.rest.size},
                "seed": seed,
                "table": table.provenance,
            },
        )
        if choice.threshold is not None:
            confidence = choice.confidence(table.rows(choice.rest))
            predictor.provenance["monitor"] = Monitor(choice.threshold, confidence).as_dict()
        return predictor

    def monitor(self) -> Monitor:
        """A new monitor of its answers: it knows the promise and the confidences at fitting.

        Raises
        ------
        InvalidInput
            If no risk was promised by `fit`.
        """
        if "monitor" not in self.provenance:
            raise InvalidInput(
                "a predictor must have been made by `fit` with a risk to be watched, got one "
                "without. Make a Monitor of its threshold and held-out confidences."
            )
        return Monitor.from_dict(self.provenance["monitor"])

    @property
    def reason(self) -> str | None:
        """Why this estimator, where `fit` chose it."""
        return self.provenance.get("reason")

    def __repr__(self) -> str:
        """What it answers with."""
        said = "" if self.threshold is None else f", {self.threshold!r}"
        count = "1 pass" if self.passes == 1 else f"{self.passes} passes"
        return f"<Predictor: {self.estimator!r}, {count}{said}>"

    @property
    def passes(self) -> int:
        """Forward passes per answer."""
        sampling = self.kappa.sampling
        each = 1 if sampling is None else sampling.passes
        return each * len(self.epochs) * len(self.snapshots.members)

    @property
    def calibrated(self) -> bool:
        """Whether its confidence is a probability of being right."""
        return self.estimator.calibrated or self.calibration is not None

    def __call__(self, batch: Any, groups: ArrayLike | None = None) -> Answer:
        """Answer for a batch of inputs, or for all of a data set.

        Parameters
        ----------
        batch : tensor, array, dict or tuple of them; DataLoader or Dataset
            What the network takes, the rows on the first axis: one input is a batch of one. Of a
            data set, labels are left aside. More than 256 rows go through in batches.
        groups : (n,), optional
            The group of each input, where the threshold has one per group; predicted classes if
            not given.
        """
        table = self.networks.table(batch) if groups is None else None
        if table is not None:  # the short way, where every microsecond counts
            return self._answered(table, None)
        answers = list(self.answers(batch, groups))
        if len(answers) == 1:
            return answers[0]
        return Answer(*(np.concatenate(parts) for parts in zip(*answers, strict=True)))

    def answers(self, data: Any, groups: ArrayLike | None = None) -> Iterator[Answer]:
        """The same, part by part: of a long data set nothing but one part is in memory."""
        return (answer for answer, _ in self.labelled_answers(read_inputs(data), groups))

    def labelled_answers(
        self, rows: Rows, groups: ArrayLike | None = None, start: int = 0
    ) -> Iterator[tuple[Answer, Ints | None]]:
        """Answers from a multiple of the batch size on, and the labels that came with the rows."""
        given = None if groups is None else np.asarray(groups)
        if given is not None and self.threshold is None:
            raise InvalidInput("`groups` must be left out without a threshold, got some: leave out")
        if given is not None and given.shape != (rows.n,):
            raise InvalidInput(
                f"`groups` must name a group for each of {rows.n} inputs, got shape "
                f"{given.shape}. Pass one per input."
            )
        for table in self.networks.tables(rows, start):
            stop = start + table.y_hat.size
            answer = self._answered(table, None if given is None else given[start:stop])
            yield answer, table.y
            start = stop

    def confidence(self, table: ScoreTable) -> Floats:
        """Confidence of the points of a score table, as if they were new inputs."""
        score = self.estimator.confidence(table)
        return score if self.calibration is None else self.calibration.predict_proba(score)

    def _answered(self, table: ScoreTable, groups: Any) -> Answer:
        if self.classes is not None and self.networks.classes not in (None, len(self.classes)):
            raise InvalidInput(
                f"`classes` must name each of the {self.networks.classes} classes, got "
                f"{len(self.classes)} names. Give all of them, in order."
            )
        confidence = self.confidence(table)
        if self.threshold is None:
            return Answer(table.y_hat, confidence, np.ones(confidence.size, dtype=np.bool_))
        if groups is None and self.threshold.groups is not None:
            groups = table.y_hat
        return Answer(table.y_hat, confidence, self.threshold.accepts(confidence, groups))

    def save(self, folder: str | Path) -> None:
        """Write all that answers need to a new folder: numbers as JSON, weights as safetensors.

        A predictor that is there is replaced. No pickle is written; the network's code is not
        among what is saved.
        """
        from snapsure.predictor import _folder

        _folder.save(self, Path(folder))

    @classmethod
    def load(
        cls,
        folder: str | Path,
        model: nn.Module | str | None = None,
        *,
        custom: Sequence[type[Kappa] | type[Estimator]] = (),
        trust: bool = False,
        memory: int = _MEMORY,
        device: str | torch.device | None = None,
    ) -> "Predictor":
        """Read what `save` wrote, checking every hash. No code is imported, unless you ask for it.

        Parameters
        ----------
        folder : path
            A saved predictor.
        model : nn.Module or "package.module:factory", optional
            The network, or the name of the function that makes it.
        custom : sequence of classes
            Your own κ and estimator classes that the folder may name, if they are not registered.
        trust : bool
            Whether to import and call the function that the folder names, if `model` is left out.
        memory, device
            As `Predictor`.

        Raises
        ------
        InvalidInput
            If the folder is of a later version, names a κ or an estimator that is not known, or
            needs a model.
        CorruptFile
            If anything in it has changed.
        WrongArchitecture
            If the model's weights have other names or shapes.
        """
        from snapsure.predictor import _folder

        return _folder.load(Path(folder), model, custom, trust, memory, device)

    def export(self, path: str | Path, example: Any) -> None:
        """Write one graph from input to label, confidence and accepted: `.onnx` or `.pt2`.

        Parameters
        ----------
        path : path
            Ends with .onnx (for ONNX Runtime, with the extra `onnx`) or .pt2 (for PyTorch).
        example : tensor, array, dict or tuple of them
            A batch as the network takes it, two rows or more; the number of rows stays free.

        Raises
        ------
        InvalidInput
            If the network, the κ or the estimator cannot be exported; it names what is to blame.
        """
        from snapsure.predictor import _export

        _export.export(self, Path(path), example)


def read_inputs(data: Any) -> Rows:
    """Return inputs in batches; a tuple is all inputs, and labels of a data set are ignored."""
    if isinstance(data, Rows | DataLoader | Dataset) or type(data).__module__.startswith(
        "datasets"
    ):
        return Rows.of(data, "batch")
    return Rows.of((data, None), "batch")


def make_kappa(
    name: str, settings: Mapping[str, Any] | None = None, custom: Sequence[type] = ()
) -> Kappa:
    """Make the κ of a name, which must need nothing but a new input."""
    if registry.get(name, custom).kind.prepares:
        raise _refers_to_data(name)
    return registry.make(name, settings, custom=custom)


def _refers_to_data(name: str) -> InvalidInput:
    return InvalidInput(
        f"`kappa` must need nothing but a new input's own passes, got {name}, which refers to "
        "training data. Fit the estimator on softmax, or on another κ"
    )


def _fit_unfitted(estimator: Estimator, snapshots: Snapshots, kappa: Kappa | None) -> Estimator:
    """Return the estimator with its epochs; one that learns nothing need not be fitted."""
    if estimator.is_fitted:
        return estimator
    if estimator.learns:
        estimator.fitted  # noqa: B018 - refuses an estimator that is not fitted
    name = "softmax" if kappa is None else kappa.name
    epochs = snapshots.epochs
    if not epochs:
        raise InvalidInput(
            f"`snapshots` must hold at least one snapshot, got none in {snapshots.path}. "
            "Check the path, or record some."
        )
    any_example = ScoreTable.from_kappa(np.zeros((len(epochs), 1)), epochs=epochs, name=name)
    return copy.copy(estimator).fit(any_example, name)


def _refuse_other_snapshots(table: ScoreTable, snapshots: Snapshots) -> None:
    """Refuse snapshots that the table was not scored with, where it says which they were."""
    known = table.provenance
    if "snapshots" not in known:
        return
    for member, hashes in zip(snapshots.members, known["snapshots"], strict=False):
        for epoch, sha256 in zip(known["epochs"], hashes, strict=True):
            if epoch not in member or member.sha256(epoch) != sha256:
                raise InvalidInput(
                    f"`snapshots` must be those that the table was scored with, got another of "
                    f"epoch {epoch} in {member.path}. Name the same folder, or score again."
                )
    if len(snapshots.members) != len(known["snapshots"]):
        raise InvalidInput(
            f"`snapshots` must be those that the table was scored with, got "
            f"{len(snapshots.members)} members for {len(known['snapshots'])}. Name the same."
        )
