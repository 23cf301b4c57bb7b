"""One graph from input to answer: networks, estimator, calibration and threshold in it."""

import io
import logging
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from snapsure.errors import InvalidInput
from snapsure.estimators import AES, LES, PES, BestSnapshot, Estimator, Final
from snapsure.networks._data import Rows
from snapsure.scores import SoftmaxResponse

if TYPE_CHECKING:
    from snapsure.predictor._predictor import Predictor

_OUTPUTS = ("label", "confidence", "accepted")
_NEAREST = 1e-12  # as `_logistic.logit` holds κ away from 0 and 1


class Graph(nn.Module):
    """Input to label, confidence and accepted, in PyTorch's operations alone."""

    def __init__(self, predictor: "Predictor", names: Sequence[str]) -> None:
        super().__init__()
        self._names = names  # of inputs that the networks take by name
        self.networks = nn.ModuleList(predictor.networks.modules)
        self._members = len(predictor.snapshots.members)
        self._epochs = predictor.epochs[::-1]  # as the modules are, the latest first
        self._estimator, self._calibration = predictor.estimator, predictor.calibration
        self._threshold = predictor.threshold

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The answer for a batch."""
        by_name = dict(zip(self._names, inputs, strict=True)) if self._names else {}
        by_place = () if self._names else inputs
        logits = [_logits(network(*by_place, **by_name)).double() for network in self.networks]
        final = logits[: self._members]
        label = sum(one.softmax(dim=1) for one in final).argmax(dim=1)  # type: ignore[union-attr]
        odds = torch.stack([_log_odds(one, label) for one in logits])
        kappa = odds.sigmoid().view(len(self._epochs), self._members, -1).mean(dim=1)
        confidence = self._confidence(dict(zip(self._epochs, kappa, strict=True)))
        return label, confidence, confidence >= self._theta(label, final[0].shape[1])

    def _theta(self, label: Tensor, classes: int) -> Any:
        """The threshold, or that of each predicted class."""
        if self._threshold is None:
            return -math.inf
        groups = self._threshold.groups
        if groups is None:
            return self._threshold.theta
        by_class = [groups.get(number, math.inf) for number in range(classes)]
        return torch.tensor(by_class, dtype=torch.float64, device=label.device)[label]

    def _confidence(self, kappa: Mapping[int, Tensor]) -> Tensor:
        score: Tensor = _FORMULAS[type(self._estimator)](self._estimator, kappa)
        if self._calibration is None:
            return score
        curve = self._calibration.as_dict()
        x = _logit(score) if curve["log_odds"] else score
        return (float(curve["slope"]) * x + float(curve["intercept"])).sigmoid()


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
    inputs = tree_map(lambda leaf: leaf.to(predictor.networks.device), inputs)
    names = list(inputs) if isinstance(inputs, Mapping) else []
    args = _in_order(inputs)
    free = torch.export.Dim("rows", min=1)
    shapes: Any = {"inputs": tree_map(lambda leaf: {0: free}, args)}
    graph = Graph(predictor, names).eval()
    with _quietly(), torch.no_grad():
        try:
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
                    verbose=False,
                )
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                f"export to ONNX needs {error.name}, which is not installed: pip install "
                "'snapsure[onnx]'",
                name=error.name,
            ) from None
        except Exception as error:
            raise InvalidInput(
                f"`model` must be one that PyTorch can export, got {_blamed(error)}: rewrite that "
                "part of its forward, or deploy the saved folder"
            ) from error


@contextmanager
def _quietly() -> Iterator[None]:
    """PyTorch tells much of its own machinery while it exports."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
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


def _logit(p: Tensor) -> Tensor:
    held = p.clamp(_NEAREST, 1 - _NEAREST)
    return held.log() - torch.log1p(-held)


def _single(estimator: Estimator, kappa: Mapping[int, Tensor]) -> Tensor:
    return kappa[estimator.fitted["epochs"][0]]


def _aes(estimator: Estimator, kappa: Mapping[int, Tensor]) -> Tensor:
    return torch.stack([kappa[epoch] for epoch in estimator.fitted["epochs"]]).mean(dim=0)


def _les(estimator: Estimator, kappa: Mapping[int, Tensor]) -> Tensor:
    state = estimator.fitted
    total = torch.zeros_like(next(iter(kappa.values()))) + float(state["weights"][-1])
    parts = zip(state["epochs"], state["center"], state["spread"], state["weights"], strict=False)
    for epoch, center, spread, weight in parts:
        total = total + float(weight) * (_logit(kappa[epoch]) - float(center)) / float(spread)
    return total.sigmoid()


def _pes(estimator: Estimator, kappa: Mapping[int, Tensor]) -> Tensor:
    assert isinstance(estimator, PES)
    layers = estimator.layers_
    answer = len(layers) - 1 + kappa[layers[-1].epoch]
    for i, layer in reversed([*enumerate(layers[:-1])]):  # the first that fits counts
        by_cut = estimator.assign == "layer"
        asked, limit = (layer.cut, layer.edge) if by_cut else (layer.epoch, layer.theta)
        below_next = float(np.nextafter(i + 1.0, 0))
        held = (i + kappa[layer.epoch]).clamp(max=below_next)
        answer = torch.where(kappa[asked] <= limit, held, answer)
    return answer


_FORMULAS: dict[type[Estimator], Any] = {
    Final: _single,
    BestSnapshot: _single,
    AES: _aes,
    LES: _les,
    PES: _pes,
}
