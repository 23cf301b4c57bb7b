"""Export a predictor as one graph from input to answer: networks, estimator and threshold."""

import io
import logging
import math
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from snapsure import _files
from snapsure._logit_scores import FINAL_NUMBERS
from snapsure.errors import InvalidInput
from snapsure.estimators import PES, Estimator, registry
from snapsure.estimators._les import cut, find_late
from snapsure.kappas import SoftmaxResponse
from snapsure.networks._data import Rows, to_device

if TYPE_CHECKING:
    from snapsure.predictor._predictor import Answer, Predictor

_OUTPUTS = ("label", "confidence", "accepted")
_EQUAL = 1e-3  # how far the confidence of a file may be from the predictor's
_LINE = ("start", "base", "slope")  # of the lines that LES maps a feature by
_ONE_FILE = 1_900_000_000  # bytes; an ONNX file has at most 2 GB


def export(predictor: "Predictor", path: Path, example: Any) -> None:
    """Write the graph of a predictor as `.onnx` or `.pt2`."""
    _refuse_unexportable(predictor, path)
    rows = Rows.of((predictor.networks.tokenize(example), None), "example")
    if rows.n < 2:
        raise InvalidInput(
            f"`example` must be a batch of at least two inputs, got {rows.n}. One input does not "
            "show that their number is free; pass two."
        )
    inputs = next(rows.batches())[0]
    answer = predictor(inputs)  # refuses an example that the network does not take
    shorter, of_shorter = _shorten(inputs), None
    with suppress(Exception):  # a network that takes one length alone
        of_shorter = None if shorter is None else predictor(shorter)
    names = list(inputs) if isinstance(inputs, Mapping) else []
    device = predictor.networks.device
    args, short = (_list_arguments(batch, device) for batch in (inputs, shorter))
    cases = [(args, answer), (tree_map(lambda leaf: leaf[:1], args), answer)]

    graph = Graph(predictor, names, predictor.networks.classes or 0).eval()
    with (
        _files.writing(f"{path.name} in {path.parent}"),
        TemporaryDirectory(dir=path.parent, prefix=".partial-") as folder,
    ):
        is_free = _write(graph, args, names, Path(folder) / path.name)
        if of_shorter is not None and is_free:
            cases.append((short, of_shorter))
        elif of_shorter is not None:
            warnings.warn(
                "The file takes texts as long as those of `example` alone, because the network's "
                "forward makes their length a constant. Pad texts to it, or deploy the saved "
                "folder.",
                stacklevel=3,
            )
        _refuse_other_answers(Path(folder) / path.name, cases)
        for part in Path(folder).iterdir():  # weights beyond 2 GB lie beside the graph
            part.replace(path.with_name(part.name))


def _list_arguments(inputs: Any, device: torch.device) -> tuple[Any, ...]:
    """List what the graph gets, on the device of its networks."""
    if isinstance(inputs, Mapping):
        inputs = tuple(inputs.values())
    parts = tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)
    moved: tuple[Any, ...] = to_device(parts, device)
    return moved


def _shorten(inputs: Any) -> Any:
    """Leave out the last word of each text; None for inputs that are no texts."""
    leaves = tree_leaves(inputs)
    is_text = any(leaf.ndim == 2 and not leaf.is_floating_point() for leaf in leaves)
    if not is_text or any(leaf.ndim > 1 and leaf.shape[1] < 2 for leaf in leaves):
        return None
    return tree_map(lambda leaf: leaf[:, :-1] if leaf.ndim > 1 else leaf, inputs)


def _refuse_other_answers(path: Path, cases: Sequence[tuple[tuple[Any, ...], "Answer"]]) -> None:
    """Run the file on batches, and refuse other answers than those of the predictor."""
    for args, answer in cases:
        n = len(tree_leaves(args)[0])
        try:
            if path.suffix == ".pt2":
                found = torch.export.load(path).module()(*args)
            else:
                import onnxruntime

                session = onnxruntime.InferenceSession(path)
                arrays = [leaf.cpu().numpy() for leaf in tree_leaves(args)]
                given = zip([each.name for each in session.get_inputs()], arrays, strict=True)
                found = session.run(None, dict(given))
        except Exception as error:
            got = f"one that cannot be run ({str(error).strip().splitlines()[0][:200]})"
            raise _other_answers(got) from error
        label, confidence, _ = (np.asarray(torch.as_tensor(part).detach().cpu()) for part in found)
        same = (label == answer.label[:n]) & (abs(confidence - answer.confidence[:n]) < _EQUAL)
        if not same.all():
            at = int(np.argmin(same))
            raise _other_answers(
                f"class {label[at]} at confidence {confidence[at]:.6g} for class "
                f"{answer.label[at]} at {answer.confidence[at]:.6g} in row {at} of `example`"
            )


def _other_answers(got: str) -> InvalidInput:
    return InvalidInput(
        f"The exported file must give the answers of the predictor, got {got}. Simplify the "
        "network's forward, or deploy the saved folder."
    )


def _refuse_unexportable(predictor: "Predictor", path: Path) -> None:
    if path.suffix not in (".onnx", ".pt2"):
        raise InvalidInput(f"`path` must end with .onnx or .pt2, got {path.name}. Choose one.")
    if not path.parent.is_dir():
        raise InvalidInput(f"`path` must be in an existing folder, got {path}. Create it first.")
    if not isinstance(predictor.kappa, SoftmaxResponse):
        raise InvalidInput(
            f"`kappa` must be softmax to be exported, got {predictor.kappa.name}. Fit the "
            "estimator on softmax, or deploy the saved folder."
        )
    method = registry.find_method(predictor.estimator)
    if method is None or method.export is None:
        able = [name for name in registry.names() if registry.get(name).export]
        raise InvalidInput(
            f"`estimator` must be one of {', '.join(able)} to be exported, got "
            f"{type(predictor.estimator).__name__}. Choose one of these, or deploy the saved "
            "folder."
        )
    threshold = predictor.threshold
    if threshold is not None and threshold.groups and threshold.groups_are == "given":
        raise InvalidInput(
            "`threshold` must be one for all, or one for each predicted class, to be exported, got "
            f"groups such as {next(iter(threshold.groups))!r}. Deploy the saved folder."
        )
    if predictor.networks.in_turns:
        raise InvalidInput(
            "`memory` must hold all snapshots at once to export them, got less. Make the predictor "
            "with more."
        )


def _write(graph: "Graph", args: tuple[Any, ...], names: list[str], path: Path) -> bool:
    """Write a graph, and return whether the length of texts is free in it."""
    batch = torch.export.Dim("rows", min=1)
    # Whole numbers are ids of words: the length of texts stays free.
    free = 1 if _shorten(args) is None else 2
    auto = torch.export.Dim.AUTO
    shapes: Any = {
        "inputs": tree_map(
            lambda leaf: {0: batch, **dict.fromkeys(range(1, min(free, leaf.ndim)), auto)}, args
        )
    }
    # By their place in memory, because snapshots may share a base.
    sizes = {value.data_ptr(): value.nbytes for value in graph.state_dict().values()}
    try:
        with _silence(), torch.no_grad():
            program = torch.export.export(graph, args, dynamic_shapes=shapes)
            if path.suffix == ".pt2":
                torch.export.save(program, path)
            else:
                made = torch.onnx.export(
                    program,
                    dynamo=True,
                    input_names=names or (["input"] if len(args) == 1 else None),
                    output_names=_OUTPUTS,
                    verbose=False,
                )
                assert made is not None
                _name_axes(made.model.graph)
                made.save(path, external_data=sum(sizes.values()) > _ONE_FILE)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"export to ONNX needs {error.name}, which is not installed. Install it: pip install "
            "'snapsure[onnx]'",
            name=error.name,
        ) from None
    except OSError:
        raise
    except Exception as error:
        raise InvalidInput(
            f"`model` must be one that PyTorch can export, got {_find_cause(error)}. Rewrite that "
            "part of its forward, or deploy the saved folder."
        ) from error
    given = [n for n in program.graph.nodes if n.name in program.graph_signature.user_inputs]
    axes = [node.meta["val"].shape[1:2] for node in given]
    return not any(str(axis).isdigit() for some in axes for axis in some)  # else a symbol


def _name_axes(graph: Any) -> None:
    """Call the free axes of inputs rows and length, there and wherever they come from there."""
    names: dict[str, str] = {}
    for each in graph.inputs:
        for axis, name in zip(each.shape, ("rows", "length"), strict=False):
            if not isinstance(axis, int):
                names[str(axis.value)] = name
    pattern = re.compile(rf"\b({'|'.join(map(re.escape, names))})\b")
    made = (value for node in graph.all_nodes() for value in node.outputs)
    for value in (*graph.inputs, *made):
        for i, axis in enumerate(value.shape or ()):
            if not isinstance(axis, int) and axis.value is not None:
                value.shape[i] = pattern.sub(lambda found: names[found[0]], str(axis.value))


@contextmanager
def _silence() -> Iterator[None]:
    """Hide what PyTorch prints about its own machinery while it exports."""
    level = logging.root.manager.disable
    logging.disable(logging.ERROR)
    silent = io.StringIO()
    try:
        with warnings.catch_warnings(), redirect_stdout(silent), redirect_stderr(silent):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


def _find_cause(error: BaseException | None) -> str:
    """Return the line or the operator that an export failed at."""
    texts = []
    while error is not None:
        texts.append(str(error))
        error = error.__cause__ or error.__context__
    text = "\n".join(texts)

    line = re.search(r'File "(?:[^"]*[/\\])?([^"/\\]+)", line (\d+), in \w+\n\s*(.+)', text)
    if line:
        return f"`{line[3].strip()}` ({line[1]}, line {line[2]})"
    operator = re.search(r"aten[.:]+\w+(?:\.\w+)?|torch\.ops\.[\w.]+|[\w]+::[\w.]+", text)
    first = next((line.strip() for line in texts[-1].splitlines() if line.strip()), "an error")
    return f"{operator[0]} ({first[:200]})" if operator else first[:200]


class Scores(NamedTuple):
    """What a formula may use."""

    kappa: Mapping[int, Tensor]  # of each epoch, (rows,)
    labels: Mapping[int, Tensor]  # what each epoch predicts, (rows,)
    logits: Sequence[Tensor]  # of the final epoch, (rows, classes) of each member


class Graph(nn.Module):
    """Input to label, confidence and accepted, in PyTorch's operations alone.

    Constants are float64 tensors, because ONNX would round plain numbers to float32.
    """

    theta: Tensor

    def __init__(self, predictor: "Predictor", names: Sequence[str], classes: int) -> None:
        super().__init__()
        self._names = names  # of inputs that the networks take by name
        self._check_inputs = predictor.networks.check_inputs
        self.networks = nn.ModuleList(predictor.networks.modules())
        self._members = len(predictor.snapshots.members)
        self._epochs = predictor.epochs[::-1]  # as the modules are, the latest first
        method = registry.find_method(predictor.estimator)
        assert method is not None
        assert method.export is not None
        self._formula = _FORMULAS[method.export](predictor.estimator, classes)
        curve = predictor.calibration
        self._curve = None if curve is None else _Platt(**curve.as_dict())
        theta: Any = -math.inf
        if predictor.threshold is not None:
            theta, groups = predictor.threshold.theta, predictor.threshold.groups
            if groups is not None:
                theta = [groups.get(number, math.inf) for number in range(classes)]
        self.register_buffer("theta", _exact(theta))

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Answer for a batch."""
        logits = [self._run(network, inputs).double() for network in self.networks]
        alone = self._members == 1
        votes = torch.stack([one if alone else one.softmax(dim=1) for one in logits])
        votes = votes.view(len(self._epochs), self._members, *logits[0].shape).sum(dim=1)
        labels = dict(zip(self._epochs, votes.argmax(dim=2), strict=True))
        label = labels[self._epochs[0]]

        odds = torch.stack([_log_odds(one, label) for one in logits])
        kappa = odds.sigmoid().view(len(self._epochs), self._members, -1).mean(dim=1)
        scores = Scores(
            dict(zip(self._epochs, kappa, strict=True)), labels, logits[: self._members]
        )
        confidence: Tensor = self._formula(scores)
        if self._curve is not None:
            confidence = self._curve(confidence)

        theta = self.theta[label] if self.theta.ndim else self.theta
        # Where Python refuses an input, because its numbers overflow, no answer is accepted.
        checked = [*logits, *(inputs if self._check_inputs else ())]
        finite = [
            one[:, None].flatten(1).isfinite().all(dim=1)
            for one in checked
            if one.is_floating_point()
        ]
        return label, confidence, (confidence >= theta) & torch.stack(finite).all(dim=0)

    def _run(self, network: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
        own = tuple(value.clone() for value in inputs)  # a network may change its inputs
        named = dict(zip(self._names, own, strict=True)) if self._names else {}
        output = network(**named) if named else network(*own)
        logits: Tensor = output["logits"] if isinstance(output, Mapping) else output
        return logits


def _log_odds(z: Tensor, label: Tensor) -> Tensor:
    """Return the log-odds of the chosen class's softmax, exact where the softmax rounds to 1."""
    chosen = torch.nn.functional.one_hot(label, z.shape[1]).bool()
    others = z.masked_fill(chosen, -math.inf)
    # Not by logsumexp, which ONNX Runtime lets underflow where the first is −∞ and all are low.
    most = others.amax(dim=1, keepdim=True)
    total = (others - most).exp().sum(dim=1).log() + most[:, 0]
    return z.masked_fill(~chosen, 0).sum(dim=1) - total


def _exact(values: Any) -> Tensor:
    return torch.tensor(np.array(values), dtype=torch.float64)


class _Logit(nn.Module):
    """log p / (1 − p), clipped as `_logistic.logit` clips it."""

    limits: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("limits", _exact([1e-12, 1 - 1e-12]))

    def forward(self, p: Tensor) -> Tensor:
        clipped = p.maximum(self.limits[0]).minimum(self.limits[1])
        return clipped.log() - (1 - clipped).log()


class _Platt(nn.Module):
    """Platt's curve."""

    curve: Tensor

    def __init__(self, slope: float, intercept: float, log_odds: bool) -> None:
        super().__init__()
        self._logit = _Logit() if log_odds else None
        self.register_buffer("curve", _exact([slope, intercept]))

    def forward(self, score: Tensor) -> Tensor:
        x = score if self._logit is None else self._logit(score)
        return (self.curve[0] * x + self.curve[1]).sigmoid()


class _Mean(nn.Module):
    """κ of one snapshot, or the mean of several."""

    def __init__(self, estimator: Estimator, classes: int) -> None:
        super().__init__()
        self._epochs = estimator.fitted["epochs"]

    def forward(self, scores: Scores) -> Tensor:
        return torch.stack([scores.kappa[epoch] for epoch in self._epochs]).mean(dim=0)


class _Logistic(nn.Module):
    """LES: the features of `make_features`, and the knots of each as constants."""

    intercepts: Tensor  # of each class

    def __init__(self, estimator: Estimator, classes: int) -> None:
        super().__init__()
        fitted = estimator.fitted
        self._epochs, self._logit = fitted["epochs"], _Logit()
        self._names = [curve["name"] for curve in fitted["features"]]
        self._numbers = _FinalNumbers(classes) if "final" in estimator.needs else None
        offsets = dict(fitted["classes"])
        by_class = [fitted["intercept"] + offsets.get(number, 0.0) for number in range(classes)]
        self.register_buffer("intercepts", _exact(by_class))
        for i, curve in enumerate(fitted["features"]):
            self.register_buffer(f"knots{i}", _exact(curve["knots"]))
            for name, values in zip(_LINE, cut(curve, fitted["weights"][i]), strict=True):
                self.register_buffer(f"{name}{i}", _exact(values))

    def forward(self, scores: Scores) -> Tensor:
        features = self._make_features(scores)
        z = self.intercepts[scores.labels[self._epochs[-1]]]
        for i, name in enumerate(self._names):
            x = features[name]
            line = (x[:, None] >= getattr(self, f"knots{i}")).sum(dim=1)
            start, base, slope = (getattr(self, f"{part}{i}")[line] for part in _LINE)
            z = z + base + slope * (x - start)
        return z.sigmoid()

    def _make_features(self, scores: Scores) -> dict[str, Tensor]:
        kappa, (*others, final) = scores.kappa, self._epochs
        features = {f"epoch {epoch}": self._logit(kappa[epoch]) for epoch in self._epochs}
        late = find_late(self._epochs)
        if others:
            agree = {e: (scores.labels[e] == scores.labels[final]).double() for e in others}
            features["agreement"] = _sum_up(agree.values()) / len(others)
            ordered = [i * one for i, one in enumerate(agree.values(), 1)]
            features["weighted agreement"] = _sum_up(ordered) / sum(range(1, len(others) + 1))
        if late:
            features["late agreement"] = _sum_up(agree[epoch] for epoch in late) / len(late)
            mean = _sum_up(kappa[epoch] for epoch in [*late, final]) / (len(late) + 1)
            features["late mean"] = self._logit(mean)
        if self._numbers is not None:
            label = scores.labels[final]
            numbers = _sum_up(self._numbers(z, label) for z in scores.logits) / len(scores.logits)
            features |= zip(FINAL_NUMBERS, self._logit(numbers), strict=True)
        return features


class _FinalNumbers(nn.Module):
    """The numbers of final logits that `_logit_scores.py` defines, (5, rows)."""

    entropy: Tensor
    gamma: Tensor
    largest: Tensor

    def __init__(self, classes: int) -> None:
        super().__init__()
        self._top = min(100, classes)
        self.register_buffer("entropy", _exact(math.log(classes)))
        self.register_buffer("gamma", _exact(0.1))
        self.register_buffer("largest", _exact(self._top * 0.25**0.1))

    def forward(self, z: Tensor, label: Tensor) -> Tensor:
        classes = z.shape[1]
        first = torch.nn.functional.one_hot(z.argmax(dim=1), classes).bool()
        chosen = torch.nn.functional.one_hot(label, classes).bool()
        gap = z - z.amax(dim=1, keepdim=True)
        weight = gap.exp()
        others = weight.masked_fill(first, 0)
        missing = others.sum(dim=1)
        log_total = missing.log1p()

        entropy = 1 - (log_total - (others * gap).sum(dim=1) / (1 + missing)) / self.entropy

        answer, rivals = weight.masked_fill(~chosen, 0).sum(dim=1), weight.masked_fill(chosen, 0)
        best = torch.nn.functional.one_hot(rivals.argmax(dim=1), classes).bool()
        rival, rest = rivals.amax(dim=1), rivals.masked_fill(best, 0).sum(dim=1)
        total = answer + rival + rest
        low, high = (answer + rest / 2) / total, 1 - (rival + rest / 2) / total
        margin = torch.where(answer < rival, low, high)  # which are equal but for rounding

        energy = _squash(z.amax(dim=1) + log_total)
        max_logit = _squash(z.masked_fill(~chosen, 0).sum(dim=1))

        short = torch.where(first, missing[:, None], 1 + missing[:, None] - others)
        terms = (self.gamma * (gap + short.log() - 2 * log_total[:, None])).exp()
        gen = 1 - terms.topk(self._top, dim=1).values.sum(dim=1) / self.largest
        return torch.stack([entropy, margin, energy, max_logit, gen])


def _squash(x: Tensor) -> Tensor:
    short = (1 / (1 + x.abs())) / 2
    return torch.where(x < 0, short, 1 - short)


def _sum_up(values: Iterable[Tensor]) -> Tensor:
    """Add tensors one after the other."""
    first, *rest = values
    for value in rest:
        first = first + value
    return first


class _Layers(nn.Module):
    """PES."""

    limits: Tensor
    below: Tensor

    def __init__(self, estimator: Estimator, classes: int) -> None:
        super().__init__()
        assert isinstance(estimator, PES)
        self._layers, by_cut = estimator.layers_, estimator.assign == "layer"
        self._asked = [layer.cut if by_cut else layer.epoch for layer in self._layers]
        limits = [layer.edge if by_cut else layer.theta for layer in self._layers]
        self.register_buffer("limits", _exact(limits))
        self.register_buffer("below", _exact(np.nextafter(np.arange(1.0, 1 + len(limits)), 0)))

    def forward(self, scores: Scores) -> Tensor:
        kappa = scores.kappa
        confidence = len(self._layers) - 1 + kappa[self._layers[-1].epoch]
        for i in reversed(range(len(self._layers) - 1)):  # the first layer that fits counts
            own = (i + kappa[self._layers[i].epoch]).minimum(self.below[i])
            confidence = torch.where(kappa[self._asked[i]] <= self.limits[i], own, confidence)
        return confidence


# By what `Method.export` names.
_FORMULAS: dict[registry.Export, type[nn.Module]] = {
    "mean": _Mean,
    "layers": _Layers,
    "logistic": _Logistic,
}
