"""Ways to run the same passes: as PyTorch runs a network, or as a form of it that takes less time.

- "eager": the network as it is.
- "channels_last": a copy whose weights lie in memory channel by channel at each pixel.
- "fused": that, with each batch normalisation folded into the convolution before it; on a CPU,
  the ReLU that follows a convolution or a linear layer is part of it, and the weights of both lie
  in memory in the order in which oneDNN reads them.

A form runs the network's own Python code; only modules are replaced. What may be replaced is seen
in one pass, by which module reads which tensor. Symbolic tracing would change `nn.Module` for all
threads of the process. `torch.compile` and ONNX Runtime need seconds to minutes and fixed shapes,
for little that these forms do not gain.
"""

import copy
import ctypes
import logging
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

Speed = Literal["auto", "exact"]
Way = Literal["eager", "channels_last", "fused"]
Run = Callable[[nn.Module], Tensor]  # one pass over some rows

WAYS: tuple[Way, ...] = get_args(Way)
SAMPLED = 256  # rows that ways are measured on, at most …
SHARE = 1_000  # … and one of so many, because all measuring takes the time of about 10 such passes
UNKNOWN = 16_000  # rows, where nobody knows how many there will be

_CLOSE = 1e-5  # how far logits may be from eager's, of the largest of these
_ROUNDS, _GAIN = 3, 0.95  # timings of a way; what its best one may take of eager's best
_WORTH = 1.0  # seconds of eager passes
# oneDNN's ReLU makes NaN 0, and so hides a network that fails; one of this slope does not.
_SLOPE = 1e-20
# Functions that give Python the values of a tensor.
_VALUES = {"__array__", "__bool__", "__complex__", "__contains__", "__float__", "__index__"}
_VALUES |= {"__int__", "allclose", "equal", "is_nonzero", "item", "numpy", "tolist"}
# Of this thread where that is fine enough: others that use the same cores do not count.
_fine = time.get_clock_info("thread_time").resolution < 1e-6
_log = logging.getLogger("snapsure")


def read_way(provenance: Mapping[str, Any]) -> Way | None:
    """Return the way that scores or a predictor were made in, where it is recorded."""
    return next((way for way in WAYS if way == provenance.get("way")), None)


def choose_way(module: nn.Module, run: Run, passes: float, few: Run | None = None) -> Way:
    """Return the fastest way whose logits agree with eager's; eager where the work is small.

    `passes` is how many times `run` all of the work takes; `few` is as in `make_form`.
    """
    layers = [*module.modules()]
    if any(isinstance(layer, nn.Conv2d) for layer in layers):
        ways = WAYS[1:]
    elif any(type(layer) is nn.Linear and _takes_onednn(layer) for layer in layers):
        ways = WAYS[2:]
    else:
        return "eager"
    try:
        expected = run(module)
        clock = time.thread_time if _fine and expected.device.type == "cpu" else time.perf_counter
        best: dict[Way, float] = {"eager": min(_seconds(run, module, clock) for _ in range(2))}
        if passes * best["eager"] < _WORTH:
            return "eager"
        for way in ways:  # one after the other: a form takes as much memory as the network
            form = make_form(module, way, run, expected, few)
            if form is None:
                continue
            for _ in range(_ROUNDS):
                best["eager"] = min(best["eager"], _seconds(run, module, clock))
                best[way] = min(best.get(way, math.inf), _seconds(run, form, clock))
                if best[way] > _GAIN * best["eager"]:
                    break
            del form
    except Exception:  # scoring explains what is wrong with a network that fails here
        _log.debug("Ways to run the network could not be compared.", exc_info=True)
        return "eager"
    fastest = min(best, key=best.__getitem__)
    _log.info("Seconds per pass over %d rows: %s", len(expected), best)
    return fastest if best[fastest] < _GAIN * best["eager"] else "eager"


def make_form(
    module: nn.Module, way: Way, run: Run, expected: Tensor, few: Run | None = None
) -> nn.Module | None:
    """Return a copy of a network that runs in a way, or None where its logits are not `expected`.

    `run` makes a pass over the rows that these are of. One pass keeps all that it computes in
    memory: give `few`, a pass over few rows, where there are many.
    """
    try:
        form: Any = copy_sharing(module)  # not nn.Module, whose types know no memory format
        if way == "fused":
            _fuse(form, few or run)
        logits = run(form.to(memory_format=torch.channels_last))
        if logits.shape == expected.shape and bool(
            (logits - expected).abs().max() <= _CLOSE * expected.abs().max()
        ):
            made: nn.Module = form
            return made
        _log.info("The network does not run as %s: its logits differ.", way)
    except Exception:  # whatever PyTorch or the network's code raises
        _log.info("The network does not run as %s.", way, exc_info=True)
    return None


def copy_sharing(module: nn.Module) -> nn.Module:
    """Return a copy with weights of its own that lie in the same memory until they are replaced."""
    memo: dict[int, Any] = {
        id(weights): nn.Parameter(weights.detach(), requires_grad=False)
        for weights in module.parameters()
    }
    return copy.deepcopy(module, memo)


@cache
def keep_memory() -> None:
    """Let glibc keep freed blocks of up to 32 MB, in the whole process, for the next pass.

    Otherwise it returns each to the system and asks for it again, which a transformer notices.
    """
    torch.empty((1 << 25) - (1 << 16), dtype=torch.uint8, device="cpu")


def release_memory() -> None:
    """Give freed weights back to the system: glibc keeps the holes that forms leave in its heap."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim(0)


def _seconds(run: Run, module: nn.Module, clock: Callable[[], float]) -> float:
    start = clock()
    run(module).cpu()  # waits for an accelerator
    return clock() - start


class _Reads(TorchFunctionMode):
    """Count how often a function that computes or writes reads each tensor, in this thread.

    `gave_values` says whether Python code saw values of a tensor: with other values, the network
    may take another branch.
    """

    def __init__(self) -> None:
        super().__init__()
        self.counts = Counter[int]()
        self.gave_values = False
        self._results: list[Any] = []  # kept, so that no two tensors have the same id

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self.gave_values |= func.__name__ in _VALUES
        result = func(*args, **kwargs)
        self._results.append(result)
        if result is None or any(isinstance(leaf, Tensor) for leaf in tree_leaves(result)):
            for leaf in tree_leaves((args, kwargs)):
                self.counts[id(leaf)] += isinstance(leaf, Tensor)
        return result


def _fuse(form: nn.Module, run: Run) -> None:
    """Replace linear layers, and convolutions with what directly follows them, in place."""
    reads = _Reads()
    # Of each module: what it read and gave at each call, and how often that had been read by then.
    calls: dict[nn.Module, list[tuple[Any, Any, int]]] = {}

    def note(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        calls.setdefault(module, []).append((args[0], output, reads.counts[id(args[0])]))

    kinds = nn.Linear, nn.Conv2d, nn.BatchNorm2d, nn.ReLU
    plain = [
        layer
        for layer in form.modules()
        if type(layer) in kinds and not (layer._forward_hooks or layer._forward_pre_hooks)
    ]
    handles = [layer.register_forward_hook(note) for layer in plain]
    try:
        with reads:
            run(form)
    finally:
        for handle in handles:
            handle.remove()

    def find_reader(tensor: Any, kind: type[nn.Module]) -> nn.Module | None:
        """Return the module that alone reads a tensor, or that reads it first and changes it."""
        if reads.gave_values:
            return None
        for layer, [(read, output, before), *more] in calls.items():
            if type(layer) is kind and read is tensor and not more and before == 1:
                return layer if output is read or reads.counts[id(tensor)] == 1 else None
        return None

    for layer, [(_, output, _), *more] in list(calls.items()):
        if isinstance(layer, nn.Linear) and _takes_onednn(layer):
            relu = None if more else find_reader(output, nn.ReLU)
            _replace(form, layer, _Packed(layer, rectifies=relu is not None))
            _replace(form, relu, nn.Identity())
        if not isinstance(layer, nn.Conv2d) or more:
            continue
        norm: Any = find_reader(output, nn.BatchNorm2d)
        if norm is not None and norm.running_mean is not None:
            layer.weight, layer.bias = fuse_conv_bn_weights(
                layer.weight,
                layer.bias,
                norm.running_mean,
                norm.running_var,
                norm.eps,
                norm.weight,
                norm.bias,
            )
            _replace(form, norm, nn.Identity())
            output = calls[norm][0][1]
        relu = find_reader(output, nn.ReLU)
        if relu is not None and _takes_onednn(layer):
            _replace(form, relu, nn.Identity())
            _replace(form, layer, _Rectified(layer))


def _replace(form: nn.Module, layer: nn.Module | None, other: nn.Module) -> None:
    """Put another module in all places of one, if there is one."""
    for name, found in list(form.named_modules(remove_duplicate=False)):
        if found is layer:
            form.set_submodule(name, other)


def _takes_onednn(layer: nn.Linear | nn.Conv2d) -> bool:
    """Whether oneDNN, PyTorch's library for a CPU, can run a layer with packed weights."""
    is_plain = isinstance(layer, nn.Linear) or (
        layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    )
    return (
        is_plain
        and layer.weight.device.type == "cpu"
        and layer.weight.dtype == torch.float32
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    )


class _Packed(nn.Module):
    """A linear layer, and the ReLU behind it, with the weights in oneDNN's own order."""

    def __init__(self, layer: nn.Linear, *, rectifies: bool) -> None:
        super().__init__()
        self._then: Any = ("leaky_relu", [_SLOPE], "") if rectifies else ("none", [], "")
        self._weight = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach())
        self._bias = layer.bias

    def forward(self, x: Tensor) -> Tensor:
        """Multiply, and rectify."""
        run = torch.ops.mkldnn._linear_pointwise
        result: Tensor = run(x, self._weight, self._bias, *self._then)
        return result


class _Rectified(nn.Module):
    """A convolution and the ReLU behind it, with the weights in oneDNN's own order.

    That order differs between one row and several, and oneDNN brings weights of the other order
    into place at every pass, slowly: each is kept once it is needed.
    """

    def __init__(self, layer: nn.Conv2d) -> None:
        super().__init__()
        self._geometry: Any = layer.padding, layer.stride, layer.dilation, layer.groups
        # By whether there is one row; None is their usual order.
        self._weights: dict[bool | None, Tensor] = {None: layer.weight.detach()}
        self._bias = layer.bias

    def forward(self, x: Tensor) -> Tensor:
        """Convolve and rectify."""
        x = x.contiguous(memory_format=torch.channels_last)
        weight = self._weights.get(len(x) == 1)
        if weight is None:
            weight = self._pack(x.shape)
        run = torch.ops.mkldnn._convolution_pointwise
        given = x, weight, self._bias, *self._geometry
        result: Tensor = run(*given, "leaky_relu", [_SLOPE], "")
        return result

    def _pack(self, shape: torch.Size) -> Tensor:
        """Bring the weights into the order for inputs of a shape, and keep them."""
        reorder: Any = torch._C._nn.mkldnn_reorder_conv2d_weight  # type: ignore[attr-defined]
        known, *_ = self._weights.values()  # at once: other threads may pack too
        plain = known.to_dense() if known.is_mkldnn else known
        weight: Tensor = reorder(plain.to_mkldnn(), *self._geometry, list(shape))
        self._weights[shape[0] == 1] = weight
        self._weights.pop(None, None)
        return weight
