"""One graph from input to answer: networks, estimator, calibration and threshold in it."""

import io
import logging
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from snapsure import _files
from snapsure.errors import InvalidInput
from snapsure.estimators import AES, LES, PES, BestSnapshot, Estimator, Final
from snapsure.kappas import SoftmaxResponse
from snapsure.networks._data import Rows

if TYPE_CHECKING:
    from snapsure.predictor._predictor import Predictor

_OUTPUTS = ("label", "confidence", "accepted")
_ONE_FILE = 1_900_000_000  # bytes; an ONNX file has at most 2 GB


class Graph(nn.Module):
    """Input to label, confidence and accepted, in PyTorch's operations alone.

    Numbers are tensors of float64: as plain numbers, ONNX would have them rounded to float32.
    """

    def __init__(self, predictor: "Predictor", names: Sequence[str], classes: int) -> None:
        super().__init__()
        self._names = names  # of inputs that the networks take by name
        self.networks = nn.ModuleList(predictor.networks.modules)
        self._members = len(predictor.snapshots.members)
        self._epochs = predictor.epochs[::-1]  # as the modules are, the latest first
        self._formula = _FORMULAS[type(predictor.estimator)](predictor.estimator)
        self._curve = None
        if predictor.calibration is not None:
            self._curve = _Curve(**predictor.calibration.as_dict())
        theta: Any = -math.inf
        if predictor.threshold is not None:
            groups = predictor.threshold.groups
            theta = predictor.threshold.theta
            if groups is not None:
                theta = [groups.get(number, math.inf) for number in range(classes)]
        self.theta: Tensor
        self.register_buffer("theta", _exact(theta))

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The answer for a batch."""
        logits = [_logits(self._run(network, inputs)).double() for network in self.networks]
        final = logits[: self._members]
        label = sum(one.softmax(dim=1) for one in final).argmax(dim=1)  # type: ignore[union-attr]
        odds = torch.stack([_log_odds(one, label) for one in logits])
        kappa = odds.sigmoid().view(len(self._epochs), self._members, -1).mean(dim=1)
        confidence: Tensor = self._formula(dict(zip(self._epochs, kappa, strict=True)))
        if self._curve is not None:
            confidence = self._curve(confidence)
        return (
            label,
            confidence,
            confidence >= (self.theta[label] if self.theta.ndim else self.theta),
        )

    def _run(self, network: nn.Module, inputs: tuple[Tensor, ...]) -> Any:
        # Copies: a network may change its inputs, and the others are to get them too.
        own = tuple(value.clone() for value in inputs)
        if self._names:
            return network(**dict(zip(self._names, own, strict=True)))
        return network(*own)


def export(predictor: "Predictor", path: Path, example: Any) -> None:
    """Write the graph of a predictor as `.onnx` or `.pt2`."""
    _refuse_what_has_no_graph(predictor, path)
    rows = Rows.of((example, None), "example")
    if rows.n < 2:
        raise InvalidInput(
            f"`example` must be a batch of two rows or more, got {rows.n}: of one row nobody can "
            "tell that their number is free"
        )
    inputs = next(rows.batches())[0]
    predictor(inputs)  # refuses an example that the network does not take
    inputs = tree_map(lambda leaf: leaf.to(predictor.networks.device), inputs)
    names = list(inputs) if isinstance(inputs, Mapping) else []
    graph = Graph(predictor, names, predictor.networks.classes or 0).eval()
    with (
        _files.writing(f"{path.name} in {path.parent}"),
        TemporaryDirectory(dir=path.parent, prefix=".partial-") as folder,
    ):
        made = Path(folder) / path.name
        _write(graph, _in_order(inputs), names, made)
        for part in Path(folder).iterdir():  # weights beyond 2 GB lie beside the graph
            part.replace(path.with_name(part.name))


def _write(graph: Graph, args: tuple[Any, ...], names: list[str], path: Path) -> None:
    free = torch.export.Dim("rows", min=1)
    shapes: Any = {"inputs": tree_map(lambda leaf: {0: free}, args)}
    weights = sum(value.nbytes for value in graph.state_dict().values())
    try:
        with _quietly(), torch.no_grad():
            program = torch.export.export(graph, args, dynamic_shapes=shapes)
            if path.suffix == ".pt2":
                torch.export.save(program, path)
            else:
                torch.onnx.export(
                    program,
                    f=path,
                    dynamo=True,
                    input_names=names or (["input"] if len(args) == 1 else None),
                    output_names=_OUTPUTS,
                    external_data=weights > _ONE_FILE,
                    verbose=False,
                )
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"export to ONNX needs {error.name}, which is not installed: pip install "
            "'snapsure[onnx]'",
            name=error.name,
        ) from None
    except OSError:
        raise
    except Exception as error:
        raise InvalidInput(
            f"`model` must be one that PyTorch can export, got {_blamed(error)}: rewrite that "
            "part of its forward, or deploy the saved folder"
        ) from error


@contextmanager
def _quietly() -> Iterator[None]:
    """PyTorch tells much of its own machinery while it exports."""
    level = logging.root.manager.disable
    logging.disable(logging.ERROR)
    silent = io.StringIO()
    try:
        with warnings.catch_warnings(), redirect_stdout(silent), redirect_stderr(silent):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


def _refuse_what_has_no_graph(predictor: "Predictor", path: Path) -> None:
    if path.suffix not in (".onnx", ".pt2"):
        raise InvalidInput(f"`path` must end with .onnx or .pt2, got {path.name}: choose one")
    if not path.parent.is_dir():
        raise InvalidInput(f"`path` must be in a folder that is there, got {path}: make it first")
    if not isinstance(predictor.kappa, SoftmaxResponse):
        raise InvalidInput(
            f"`kappa` must be softmax for one graph, got {predictor.kappa.name}: fit the estimator "
            "on softmax, or deploy the saved folder"
        )
    if type(predictor.estimator) not in _FORMULAS:
        names = ", ".join(kind.__name__ for kind in _FORMULAS)
        raise InvalidInput(
            f"`estimator` must be one of {names} for one graph, got "
            f"{type(predictor.estimator).__name__}: choose among these, or deploy the saved folder"
        )
    groups = predictor.threshold and predictor.threshold.groups
    if groups and not all(isinstance(group, int) for group in groups):
        raise InvalidInput(
            "`threshold` must be for all, or per predicted class, to be in a graph, got groups "
            f"such as {next(iter(groups))!r}: deploy the saved folder"
        )
    if predictor.networks.in_turns:
        raise InvalidInput(
            "`memory` must hold all snapshots at once for one graph, got less: raise it"
        )


def _in_order(inputs: Any) -> tuple[Any, ...]:
    if isinstance(inputs, Mapping):
        return tuple(inputs.values())
    return tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)


def _blamed(error: BaseException) -> str:
    """The operator or line that an export failed at, in few words."""
    texts = []
    while error is not None:
        texts.append(str(error))
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    text = "\n".join(texts)
    line = re.search(r'File "(?:[^"]*[/\\])?([^"/\\]+)", line (\d+), in \w+\n\s*(.+)', text)
    if line:
        return f"`{line[3].strip()}` ({line[1]}, line {line[2]})"
    operator = re.search(r"aten[.:]+\w+(?:\.\w+)?|torch\.ops\.[\w.]+|[\w]+::[\w.]+", text)
    first = next((line.strip() for line in texts[-1].splitlines() if line.strip()), "an error")
    return f"{operator[0]} ({first[:200]})" if operator else first[:200]


def _logits(output: Any) -> Tensor:
    logits: Tensor = output["logits"] if isinstance(output, Mapping) else output
    return logits


def _log_odds(z: Tensor, label: Tensor) -> Tensor:
    """Log-odds of the chosen class's softmax, exact where the softmax rounds to 1."""
    chosen = torch.nn.functional.one_hot(label, z.shape[1]).bool()
    others = z.masked_fill(chosen, -math.inf).logsumexp(dim=1)
    return z.masked_fill(~chosen, 0).sum(dim=1) - others


def _exact(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


class _Logit(nn.Module):
    """log p / (1 − p), held as `_logistic.logit` holds it."""

    def __init__(self) -> None:
        super().__init__()
        self.limits: Tensor
        self.register_buffer("limits", _exact([1e-12, 1 - 1e-12]))

    def forward(self, p: Tensor) -> Tensor:
        held = p.maximum(self.limits[0]).minimum(self.limits[1])
        return held.log() - (1 - held).log()


class _Curve(nn.Module):
    """Platt's curve."""

    def __init__(self, slope: float, intercept: float, log_odds: bool) -> None:
        super().__init__()
        self._logit = _Logit() if log_odds else None
        self.curve: Tensor
        self.register_buffer("curve", _exact([slope, intercept]))

    def forward(self, score: Tensor) -> Tensor:
        x = score if self._logit is None else self._logit(score)
        return (self.curve[0] * x + self.curve[1]).sigmoid()


class _Mean(nn.Module):
    """κ of one snapshot, or the mean of several."""

    def __init__(self, estimator: Estimator) -> None:
        super().__init__()
        self._epochs = estimator.fitted["epochs"]

    def forward(self, kappa: Mapping[int, Tensor]) -> Tensor:
        return torch.stack([kappa[epoch] for epoch in self._epochs]).mean(dim=0)


class _Learned(nn.Module):
    """LES."""

    def __init__(self, estimator: Estimator) -> None:
        super().__init__()
        state = estimator.fitted
        self._epochs, self._logit = state["epochs"], _Logit()
        self.center: Tensor
        self.spread: Tensor
        self.weights: Tensor
        self.register_buffer("center", _exact(state["center"]))
        self.register_buffer("spread", _exact(state["spread"]))
        self.register_buffer("weights", _exact(state["weights"]))

    def forward(self, kappa: Mapping[int, Tensor]) -> Tensor:
        x = torch.stack([self._logit(kappa[epoch]) for epoch in self._epochs], dim=1)
        scaled = (x - self.center) / self.spread
        return ((scaled * self.weights[:-1]).sum(dim=1) + self.weights[-1]).sigmoid()


class _Layered(nn.Module):
    """PES."""

    def __init__(self, estimator: Estimator) -> None:
        super().__init__()
        assert isinstance(estimator, PES)
        self._layers, by_cut = estimator.layers_, estimator.assign == "layer"
        self._asked = [layer.cut if by_cut else layer.epoch for layer in self._layers]
        limits = [layer.edge if by_cut else layer.theta for layer in self._layers]
        self.limits: Tensor
        self.below: Tensor
        self.register_buffer("limits", _exact(limits))
        self.register_buffer("below", _exact(np.nextafter(np.arange(1.0, 1 + len(limits)), 0)))

    def forward(self, kappa: Mapping[int, Tensor]) -> Tensor:
        answer = len(self._layers) - 1 + kappa[self._layers[-1].epoch]
        for i in reversed(range(len(self._layers) - 1)):  # the first that fits counts
            held = (i + kappa[self._layers[i].epoch]).minimum(self.below[i])
            answer = torch.where(kappa[self._asked[i]] <= self.limits[i], held, answer)
        return answer


_FORMULAS: dict[type[Estimator], type[nn.Module]] = {
    Final: _Mean,
    BestSnapshot: _Mean,
    AES: _Mean,
    LES: _Learned,
    PES: _Layered,
}
