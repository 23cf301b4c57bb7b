"""Snapshots from a Keras 3 training on PyTorch, and Keras models that `score` can run."""

import copy
from pathlib import Path
from typing import Any

import keras
import torch
from keras.src.models.functional import Functional as _Functional  # keras has no name for it
from torch import Tensor, nn

from snapsure._types import Precision
from snapsure.errors import InvalidInput
from snapsure.integrations._recording import Recording
from snapsure.snapshots import SnapshotStore
from snapsure.snapshots._schedule import Schedule

__all__ = ["Classifier", "SnapshotCallback"]

_linear = keras.activations.linear


class SnapshotCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Takes a snapshot after each epoch that the schedule wants.

    Epochs count from 1. A training that resumes (`fit(..., initial_epoch=)`) does so in the same
    store. Score the snapshots with the model in a `Classifier`.

    Parameters
    ----------
    store : SnapshotStore, str or Path
        Where snapshots go: an empty or new folder for a new training.
    schedule : Schedule, optional
        `EveryEpoch()` by default.
    dtype : "bfloat16", "float16" or "float32", optional
        As for `SnapshotStore.save`.
    """

    def __init__(
        self,
        store: SnapshotStore | str | Path,
        schedule: Schedule | None = None,
        *,
        dtype: Precision | None = None,
    ) -> None:
        super().__init__()
        _on_torch()
        self._recording = Recording(store, schedule, dtype)
        self._begun = False

    @property
    def store(self) -> SnapshotStore:
        """Where snapshots go."""
        return self._recording.store

    def on_train_begin(self, logs: Any = None) -> None:
        """A new call of `fit`."""
        self._begun = False

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Check that this training and the store belong together, before its first epoch."""
        if not self._begun:
            self._recording.begin(epoch, new=epoch == 0)
            self._begun = True

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Take the snapshot."""
        self._recording.take(Classifier(self.model), epoch + 1)


class Classifier(nn.Module):
    """A Keras classifier as a network that maps a batch to logits, which `score` needs.

    A last softmax or sigmoid is left out, not undone: probabilities that float32 rounds to 1 keep
    their order. One sigmoid unit becomes two classes. Weights are named by their place and kind
    (`weights.000_kernel`), because Keras names layers by what else was built in the process.

    The input of a last `Dense` layer passes through the module `embedding`, so that
    `NNDistance(train, layer="embedding")` finds it. Keras's dropout layers are no `nn.Dropout`:
    `MCDropout` refuses.

    Parameters
    ----------
    model : keras.Model
        Built, on the torch backend. A model that is no Sequential or functional one must give
        logits itself.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        _on_torch()
        if not isinstance(model, keras.Model) or not model.built:
            raise InvalidInput(
                f"`model` must be a Keras model that is built, got {type(model).__name__}: give "
                "it an Input, or call it once on a batch"
            )
        # In a tuple, where PyTorch does not look: Keras's modules name each weight in other ways.
        self._parts = (model, *_cut(model))
        self.weights = nn.ParameterDict(
            {f"{i:03d}_{variable.name}": variable.value for i, variable in enumerate(model.weights)}
        )
        if self._parts[-1] is not None:
            self.embedding = nn.Identity()

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Logits, (rows, classes)."""
        _, body, last = self._parts
        output = body(kwargs or (args[0] if len(args) == 1 else list(args)), training=False)
        if last is not None:
            output = keras.ops.matmul(self.embedding(output), last.kernel)
            output = output if last.bias is None else output + last.bias.value
        if output.shape[-1] > 1:
            return output  # type: ignore[no-any-return]
        if body is self._parts[0]:
            raise InvalidInput(
                "`model` must end in a Dense layer or an activation to have one output, got "
                "another layer there: logits and probabilities look alike; give two outputs"
            )
        return torch.cat((torch.zeros_like(output), output), dim=-1)  # its logit is against 0

    def __deepcopy__(self, memo: Any) -> "Classifier":
        """A Classifier of a copy: copied one by one, its parts would share no weights."""
        try:
            return Classifier(copy.deepcopy(self._parts[0], memo))
        except TypeError as error:
            raise InvalidInput(
                f"`model` must be one that Keras can copy, got an error "
                f"({str(error).splitlines()[0]}): give its class get_config and "
                "@keras.saving.register_keras_serializable()"
            ) from None

    def load_weights(self, filepath: str) -> None:
        """Take the weights of a `.weights.h5` or a `.keras` file."""
        self._parts[0].load_weights(filepath)


def _cut(model: Any) -> tuple[Any, Any]:
    """The model up to its last Dense layer, and that layer; else up to its logits, and None."""
    if not isinstance(model, keras.Sequential | _Functional):
        return model, None
    inputs = model.inputs[0] if isinstance(model, keras.Sequential) else model.input
    if len(model.outputs) != 1:
        raise InvalidInput(
            f"`model` must have one output, got {len(model.outputs)}: make a keras.Model of the "
            "one that classifies"
        )
    last = model.layers[-1]
    squashes = (keras.activations.softmax, keras.activations.sigmoid)
    if isinstance(last, keras.Sequential | _Functional):
        body, dense = _cut(last)
        return (model, None) if body is last else (keras.Model(inputs, body(last.input)), dense)
    if last.output is not model.outputs[0]:
        return model, None
    if isinstance(last, keras.layers.Dense) and last.activation in (*squashes, _linear):
        return keras.Model(inputs, last.input), last
    activation = isinstance(last, keras.layers.Activation) and last.activation in squashes
    if activation or isinstance(last, keras.layers.Softmax):
        return keras.Model(inputs, last.input), None
    return model, None


def _on_torch() -> None:
    if keras.backend.backend() != "torch":
        raise InvalidInput(
            f"Keras must run on PyTorch, got the backend {keras.backend.backend()!r}: set "
            "KERAS_BACKEND=torch before Keras is imported, or pass each epoch's probabilities to "
            "ScoreTable.from_probabilities"
        )
