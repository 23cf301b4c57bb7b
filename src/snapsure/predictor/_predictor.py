"""`Predictor`: snapshots, estimator, calibration and threshold as one object that answers."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn
from torch.utils.data import DataLoader, Dataset

from snapsure import _files, _validate
from snapsure._types import Bools, Floats, Ints
from snapsure.decisions import Monitor, Platt, Threshold
from snapsure.errors import InvalidInput
from snapsure.estimators import Estimator
from snapsure.estimators._base import refuse_no_table
from snapsure.estimators.registry import AVERAGED
from snapsure.kappas import Kappa, SoftmaxResponse, registry
from snapsure.networks._data import Rows, refuse_unusual
from snapsure.networks._factory import make_network
from snapsure.networks._network import Output, adapt_output, find_device
from snapsure.networks._ways import Speed, read_way
from snapsure.predictor._scorer import Scorer, Tokenizer
from snapsure.scoring._average import AveragedWeights, describe_average
from snapsure.snapshots._base import Snapshots
from snapsure.snapshots._store import open_snapshots, refuse_empty
from snapsure.table import ScoreTable
from snapsure.table._table import name_classes

_MEMORY = 4 << 30


class _Columns(NamedTuple):
    label: Ints
    confidence: Floats
    accepted: Bools


class Answer(_Columns):
    """Answers to n inputs; unpacks as `label, confidence, accepted`.

    Attributes
    ----------
    label : (n,) int array
        The final snapshot's prediction.
    confidence : (n,) float array
        The probability of being right, where the predictor is calibrated.
    accepted : (n,) bool array
        Whether the threshold accepts the answer. Without a threshold, all are accepted.
    name : (n,) array of str
        The names of the labels, where the predictor has `classes`.

    Examples
    --------
    >>> answer = Answer(np.array([3, 7]), np.array([0.98, 0.61]), np.array([True, False]))
    >>> label, confidence, accepted = answer
    >>> label[~accepted].tolist()  # send these to review
    [7]
    """

    _classes: Sequence[str] | None = None

    @property
    def name(self) -> NDArray[np.str_]:
        """The names of the labels."""
        if self._classes is None:
            raise InvalidInput(
                "`classes` must be known to name labels, got none. Pass their names to the "
                "predictor: classes=[...]."
            )
        return np.array(self._classes)[self.label]


class Predictor:
    """Answers new inputs with a label, a confidence and a decision.

    It takes as few forward passes as the estimator needs; the snapshots for them are loaded once
    and stay in memory. Several threads may call it. `Predictor.fit` makes one from a score table,
    and promises a risk.

    Parameters
    ----------
    model : nn.Module or "package.module:factory"
        A network of the snapshots' architecture, or the function that makes one; a saved predictor
        then knows it. The network is copied, and runs where it is, or on an accelerator.
    snapshots : Snapshots or path
        The training's snapshots, or an `Ensemble`.
    estimator : Estimator
        Maps κ of the snapshots to a confidence; fitted, if it learns.
    threshold : Threshold, optional
        Chosen on the confidences of this predictor.
    calibration : Platt, optional
        Maps the estimator's confidence to a probability of being right.
    kappa : Kappa, optional
        The κ that the estimator was fitted on, where it has settings: `MCDropout(...)`.
    classes : sequence of str, optional
        The names of the classes, in order.
    tokenizer : optional
        What turns a list of texts into the network's inputs, so that `predictor(["some text"])`
        works: a tokenizer of Hugging Face, or a function of yours.
    output : str, int or function, optional
        Where the logits are in what the model returns, as for `score`.
    memory : int
        Bytes that weights may take (4 GiB). Beyond it, snapshots are loaded in turns.
    device : str or torch.device, optional
        Where networks run. By default, where the model is, or on an accelerator.
    check_inputs : bool
        Refuse inputs with NaN or infinity, which some networks turn into confident answers. False
        trusts them.
    speed : "auto" or "exact"
        "auto": a predictor from `fit` runs as its table was scored, and a saved one as before; any
        other measures at its first batch which way to run is fastest, as `score` does. "exact":
        always as PyTorch runs the network.

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
        tokenizer: Tokenizer | None = None,
        output: Output | None = None,
        memory: int = _MEMORY,
        device: str | torch.device | None = None,
        check_inputs: bool = True,
        speed: Speed = "auto",
        provenance: Mapping[str, Any] | None = None,
    ) -> None:
        _validate.choice(speed, get_args(Speed), "speed")
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
        self.output = output
        module = adapt_output(make_network(model), output)
        self.snapshots = open_snapshots(snapshots, module)
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
        self.classes = None if classes is None else _validate.class_names(classes)
        self.provenance = dict(provenance or {})
        self.epochs = self.estimator.snapshots(self.snapshots.epochs)
        self.networks = Scorer(
            module,
            self.snapshots,
            self.epochs,
            self.kappa,
            _validate.count(memory, "memory"),
            needs=self.estimator.needs,
            check_inputs=check_inputs,
            device=find_device(device),
            way="eager" if speed == "exact" else read_way(self.provenance),
            tokenizer=tokenizer,
        )

    @classmethod
    def fit(
        cls,
        model: nn.Module | str,
        snapshots: Snapshots | str | Path,
        table: ScoreTable,
        *,
        risk: float | Literal["smallest"] | None = None,
        delta: float = 0.05,
        passes: int | None = None,
        kappa: str | Sequence[str] = "softmax",
        answers: Literal["final", "any"] = "final",
        reference: Any = None,
        classes: Sequence[str] | None = None,
        tokenizer: Tokenizer | None = None,
        output: Output | None = None,
        memory: int = _MEMORY,
        speed: Speed = "auto",
        seed: int = 0,
    ) -> "Predictor":
        """Choose, fit and calibrate a method, and promise a risk, from held-out examples.

        `snapsure.evaluation.choose` chooses, and says how in detail. One half of the examples
        compares the methods. It takes LES if that ranks better than the final softmax, of three
        passes if no method is significantly better than these; another method must be significantly
        better. The other half, which nothing was fitted on, tests a threshold for it, and all
        examples test one for the final softmax: the one that accepts more is deployed. `reason`
        says what was chosen and why. Without labels there is nothing to choose by:
        `Predictor(model, snapshots, AES())` promises nothing.

        Parameters
        ----------
        model, snapshots, classes, tokenizer, output, memory, speed
            As for `Predictor`.
        table : ScoreTable
            Scores of held-out examples, with labels.
        risk : float or "smallest", optional
            The error rate to promise among accepted inputs. Without it, all are accepted.
        delta : float
            The probability that the promise does not hold, over draws of the held-out examples.
        passes : int, optional
            The largest number of forward passes for an answer.
        kappa : str or several
            Which κ of the table. Of several, one is chosen; they are compared with the final
            snapshot's first one, which needs no example to be fitted.
        answers : "final" or "any"
            "final": the final network answers. "any": averaged weights answer instead, in one pass,
            where their AURC is significantly lower; `reason` says how many answers that changes.
        reference : optional
            The training examples that `score(..., average=True)` had, for averaged weights of a
            network with batch normalisation.
        seed : int
            Fixes how the examples are split.
        """
        from snapsure.evaluation import choose

        refuse_no_table(table)
        network = make_network(model)
        store = open_snapshots(snapshots, network)
        _refuse_other_snapshots(table, store)
        if classes is not None:
            classes = name_classes(table, classes)
        settings = table.provenance.get("kappas", {})
        kappas = {  # refuses what cannot be deployed
            name: make_kappa(name, settings.get(name))
            for name in ([kappa] if isinstance(kappa, str) else kappa)
            if name in table.names
        }
        choice = choose(
            table,
            kappa=kappa,
            passes=passes,
            risk=risk,
            delta=delta,
            answers=answers,
            seed=seed,
        )
        if choice.method == AVERAGED:
            store = _average(adapt_output(network, output), store, table, reference)
        predictor = cls(
            network,
            store,
            choice.estimator,
            choice.threshold,
            calibration=choice.calibration,
            kappa=SoftmaxResponse() if choice.method == AVERAGED else kappas[choice.kappa],
            classes=classes,
            tokenizer=tokenizer,
            output=output,
            memory=memory,
            speed=speed,
            provenance={
                "method": choice.method,
                "reason": choice.reason,
                "candidates": [result.as_dict() for result in choice.candidates],
                "examples": {
                    "chosen by": choice.learn.size,
                    "promised by": choice.threshold.n if choice.threshold else choice.rest.size,
                },
                "seed": seed,
                "table": table.provenance,
                "way": read_way(table.provenance),
            },
        )
        predictor.factory = model if isinstance(model, str) else None
        if choice.threshold is not None:
            confidence = choice.confidence(table.rows(choice.rest))
            predictor.provenance["monitor"] = Monitor(choice.threshold, confidence).as_dict()
        return predictor

    def monitor(self) -> Monitor:
        """Make a new monitor of its answers, with its threshold and the confidences at fitting.

        Raises
        ------
        InvalidInput
            If `fit` promised no risk, or the threshold is now None or one for each group.
        """
        threshold, fitted = self.threshold, self.provenance.get("monitor")
        if not isinstance(fitted, dict) or threshold is None or threshold.groups is not None:
            raise InvalidInput(
                "A predictor must come from `fit` with a risk, and have one threshold, to be "
                "monitored, got another. Make a Monitor of a threshold and held-out confidences."
            )
        terms = {"theta": float(threshold.theta), "expected_coverage": float(threshold.coverage)}
        if threshold.risk is None:
            fitted = {**fitted, "risk_bets": None}
        return Monitor.from_dict({**fitted, **terms, "promise": threshold.risk})

    @property
    def reason(self) -> str | None:
        """Why this estimator, where `fit` chose it."""
        return self.provenance.get("reason")

    def __repr__(self) -> str:
        """Show the estimator, the passes and the threshold."""
        threshold = "" if self.threshold is None else f", {self.threshold!r}"
        count = "1 pass" if self.passes == 1 else f"{self.passes} passes"
        return f"<Predictor: {self.estimator!r}, {count}{threshold}>"

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
        """Answer a batch of inputs, or all of a data set.

        Parameters
        ----------
        batch : tensor, array, dict or tuple of them; DataLoader or Dataset; list of texts
            What the network takes, the inputs on the first axis: one input is a batch of one.
            Texts need a `tokenizer`.
            Labels of a data set are ignored. More than 256 inputs go through in batches.
        groups : (n,), optional
            The group of each input, where the threshold has one for each given group.

        Raises
        ------
        InvalidInput
            If the network does not take the batch, or an input has NaN or infinity.
        """
        self._refuse_groups(groups)
        try:
            table = self.networks.table(batch) if groups is None else None
            if table is not None:  # the short way, where every microsecond counts
                return self._answer(table, None)
            answers = list(self.answers(batch, groups))
        except Exception:
            refuse_unusual(batch, "batch")
            raise
        if len(answers) == 1:
            return answers[0]
        return self._name(*(np.concatenate(parts) for parts in zip(*answers, strict=True)))

    def answers(self, data: Any, groups: ArrayLike | None = None) -> Iterator[Answer]:
        """Answer part by part: of a long data set, only one part is in memory."""
        return (answer for answer, _ in self.labelled_answers(read_inputs(data), groups))

    def labelled_answers(
        self, rows: Rows, groups: ArrayLike | None = None, start: int = 0
    ) -> Iterator[tuple[Answer, Ints | None]]:
        """Answer from a multiple of the batch size on; yield also the labels of the data."""
        self._refuse_groups(groups)
        given = None if groups is None else np.asarray(groups)
        if given is not None and given.shape != (rows.n,):
            raise InvalidInput(
                f"`groups` must name a group for each of {rows.n} inputs, got shape "
                f"{given.shape}. Pass one per input."
            )
        for table in self.networks.tables(rows, start):
            stop = start + table.y_hat.size
            yield self._answer(table, None if given is None else given[start:stop]), table.y
            start = stop

    def confidence(self, table: ScoreTable) -> Floats:
        """Return the confidence of the examples of a score table, as if they were new inputs.

        Where averaged weights answer, it is theirs, in `table.averaged.labels`.
        """
        if self.provenance.get("method") == AVERAGED and table.averaged is not None:
            table = table.only_averaged()
        score = self.estimator.confidence(table)
        return score if self.calibration is None else self.calibration.predict_proba(score)

    def _answer(self, table: ScoreTable, groups: ArrayLike | None) -> Answer:
        if self.classes is not None and self.networks.classes not in (None, len(self.classes)):
            raise InvalidInput(
                f"`classes` must name each of the {self.networks.classes} classes, got "
                f"{len(self.classes)} names. Give all of them, in order."
            )
        confidence, threshold = self.confidence(table), self.threshold
        if threshold is None:
            return self._name(table.y_hat, confidence, np.ones(confidence.size, dtype=np.bool_))
        if threshold.groups is not None and threshold.groups_are == "classes":
            groups = table.y_hat
        return self._name(table.y_hat, confidence, threshold.accepts(confidence, groups))

    def _name(self, label: Ints, confidence: Floats, accepted: Bools) -> Answer:
        answer = Answer(label, confidence, accepted)
        answer._classes = self.classes
        return answer

    def _refuse_groups(self, groups: ArrayLike | None) -> None:
        """Refuse groups that the threshold does not have, and their absence where it has some."""
        by_class = self.threshold is not None and self.threshold.groups_are == "classes"
        thetas = None if self.threshold is None or by_class else self.threshold.groups
        if thetas and groups is None:
            raise InvalidInput(
                f"`groups` must hold the group of each input, got None. The threshold has one for "
                f"each of {len(thetas)} groups, such as {next(iter(thetas))!r}: pass groups=[...]."
            )
        if groups is not None and not thetas:
            kind = "a threshold for each predicted class" if by_class else "no thresholds by group"
            raise InvalidInput(
                f"`groups` must be left out for a predictor with {kind}, got some. Leave them out."
            )

    def save(self, folder: str | Path) -> None:
        """Write all that answers need into a folder: numbers as JSON, weights as safetensors.

        A predictor in the folder is replaced in one step; other files there stay as they are. No
        pickle and no code of the network is written.

        Raises
        ------
        InvalidInput
            If the folder holds other things and no predictor.
        CorruptFile
            If the snapshots have changed since they were loaded.
        StorageError
            If nothing can be written there, or the folder is a link.
        """
        from snapsure.predictor import _folder

        _folder.save(self, _files.check_path(folder, "folder"))

    @classmethod
    def load(
        cls,
        folder: str | Path,
        model: nn.Module | str | None = None,
        *,
        custom: Sequence[type[Kappa] | type[Estimator]] = (),
        tokenizer: Tokenizer | None = None,
        output: Output | None = None,
        trust: bool = False,
        memory: int = _MEMORY,
        device: str | torch.device | None = None,
        check_inputs: bool = True,
        speed: Speed = "auto",
    ) -> "Predictor":
        """Read what `save` wrote, and check every hash. Nothing that it names is imported.

        A warning reports a network whose code differs from that of the saved predictor, as far as
        its source can be read, and a tokenizer that returns something else.

        Parameters
        ----------
        folder : path
            A saved predictor.
        model : nn.Module or "package.module:factory", optional
            The network, or the function that makes it.
        custom : sequence of classes
            Your own κ and estimator classes that the folder may name, if they are not registered.
        tokenizer : optional
            The tokenizer, which the folder does not hold. Without it, pass what it returns.
        output : str, int or function, optional
            Where the logits are; the folder has a name or an index, but no function.
        trust : bool
            Whether to import and call the function that the folder names, if `model` is left out.
        memory, device, check_inputs, speed
            As for `Predictor`.

        Raises
        ------
        InvalidInput
            If the folder has another version, names a κ or an estimator that is not known, or
            needs a model.
        CorruptFile
            If anything in it has changed.
        WrongArchitecture
            If the model's weights have other names or shapes.
        """
        from snapsure.predictor import _folder

        options: dict[str, Any] = {"tokenizer": tokenizer, "output": output, "memory": memory}
        options |= {"device": device, "check_inputs": check_inputs, "speed": speed}
        return _folder.load(_files.check_path(folder, "folder"), model, custom, trust, options)

    def export(self, path: str | Path, example: Any) -> None:
        """Write one graph from input to label, confidence and accepted: `.onnx` or `.pt2`.

        Parameters
        ----------
        path : path
            Ends with .onnx (for ONNX Runtime, with the extra `onnx`) or .pt2 (for PyTorch).
        example : tensor, array, dict or tuple of them; list of texts
            A batch as the network takes it, of two inputs or more. Their number stays free, and so
            does the length of texts (of whole numbers, with two axes), where the network takes
            any. In ONNX these axes are called "rows" and "length".

        Raises
        ------
        InvalidInput
            If the network, the κ, the estimator or the threshold cannot be exported, or the file
            gives other answers than this predictor; the message names the cause.
        """
        from snapsure.predictor import _export

        _export.export(self, _files.check_path(path, "path"), example)


def read_inputs(data: Any) -> Rows:
    """Return inputs in batches; a tuple is all inputs, and labels of a data set are ignored."""
    if isinstance(data, str):
        raise InvalidInput(f"`batch` must be a list of texts, got {data[:40]!r}. Write [text].")
    kind = getattr(getattr(data, "dtype", None), "kind", None)
    if kind in ("U", "O", "T") and len(data) and all(isinstance(text, str) for text in data):
        data = list(data)  # of NumPy or pandas
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
        "training data. Fit the estimator on softmax, or on another κ."
    )


def _average(model: nn.Module, store: Snapshots, table: ScoreTable, reference: Any) -> Snapshots:
    """Return the averaged weights that a table has scores of."""
    scored = table.provenance.get("average")
    if scored is not None and scored != describe_average(reference):
        raise InvalidInput(
            "`reference` must be the training examples that averaged weights were scored with, got "
            f"{'none' if reference is None else 'others'}. Pass those of `score`."
        )
    return AveragedWeights(model, store, reference)


def _fit_unfitted(estimator: Estimator, snapshots: Snapshots, kappa: Kappa | None) -> Estimator:
    """Return the estimator with its epochs; one that learns nothing need not be fitted."""
    if estimator.is_fitted:
        return estimator
    if estimator.learns:
        estimator.fitted  # noqa: B018 - refuses an estimator that is not fitted
    name = "softmax" if kappa is None else kappa.name
    refuse_empty(snapshots)
    epochs = snapshots.epochs
    any_example = ScoreTable.from_kappa(np.zeros((len(epochs), 1)), epochs=epochs, name=name)
    return copy.copy(estimator).fit(any_example, name)


def _refuse_other_snapshots(table: ScoreTable, snapshots: Snapshots) -> None:
    """Refuse snapshots that the table was not scored with, where it says which they were."""
    known, epochs = table.provenance.get("snapshots"), table.provenance.get("epochs", [])
    found = [[one.sha256(e) if e in one else None for e in epochs] for one in snapshots.members]
    if known is not None and found != known:
        raise InvalidInput(
            f"`snapshots` must be those that the table was scored with, got others in "
            f"{snapshots.path}. Name the same folder, or score again."
        )
