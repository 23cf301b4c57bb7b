"""Snapshots from a Keras 3 training on PyTorch, and Keras models that `score` can run."""

import copy
from pathlib import Path
from typing import Any

import keras
import torch
from keras import activations
from keras.src.models.functional import Functional as _Functional  # keras has no name for it
from torch import Tensor, nn

from snapsure._types import Precision
from snapsure.errors import InvalidInput
from snapsure.integrations._recording import Recording
from snapsure.snapshots import Schedule, SnapshotStore

__all__ = ["Classifier", "SnapshotCallback"]


class SnapshotCallback(Recording, keras.callbacks.Callback):  # type: ignore[misc]
    """Takes a snapshot after each epoch that the schedule wants.

    Epochs count from 1. A resumed training (`fit(..., initial_epoch=)`) continues in the same
    store. To score the snapshots, wrap the model in a `Classifier`.

    Parameters
    ----------
    store, schedule, dtype
        As for `Recorder`. A new training needs a new or empty folder.
    """

    def __init__(
        self,
        store: SnapshotStore | str | Path,
        schedule: Schedule | None = None,
        *,
        dtype: Precision | None = None,
    ) -> None:
        _refuse_other_backends()
        super().__init__(store, schedule, dtype=dtype)
        self._has_begun = False

    def on_train_begin(self, logs: Any = None) -> None:
        """Note that `fit` was called again."""
        self._has_begun = False

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Check that this training and the store belong together, before its first epoch."""
        if not self._has_begun:
            self._begin(epoch, new=epoch == 0)
            self._has_begun = True

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Take the snapshot."""
        self._recorder.record(Classifier(self.model), epoch + 1)

    def on_train_end(self, logs: Any = None) -> None:
        """Print the size of the store."""
        self._end()


class Classifier(nn.Module):
    """A Keras classifier as a network that maps a batch to logits, which `score` needs.

    A final softmax or sigmoid is left out, not inverted: probabilities that float32 rounds to 1
    keep their order. One sigmoid unit becomes two classes. Weights are named by place and kind
    (`weights.000_kernel`), because Keras's own names depend on what else the process has built.

    The input of a last `Dense` layer passes through the module `embedding`, so that
    `NNDistance(train, layer="embedding")` finds it. Keras's dropout layers are no `nn.Dropout`, so
    `MCDropout` refuses the model.

    Parameters
    ----------
    model : keras.Model
        Built, on the torch backend. A model that is neither sequential nor functional must return
        logits itself.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        _refuse_other_backends()
        if not isinstance(model, keras.Model) or not model.built:
            raise InvalidInput(
                f"`model` must be a Keras model that is built, got {type(model).__name__}. Give "
                "it an Input, or call it once on a batch."
            )
        # In a tuple, where PyTorch does not look: Keras's modules name each weight in other ways.
        self._keras = (model, *_split_head(model))
        self.weights = nn.ParameterDict(
            {f"{i:03d}_{variable.name}": variable.value for i, variable in enumerate(model.weights)}
        )
        if self._keras[-1] is not None:
            self.embedding = nn.Identity()

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Compute logits, (examples, classes)."""
        model, body, last = self._keras
        output = body(kwargs or (args[0] if len(args) == 1 else list(args)), training=False)
        if last is not None:
            output = keras.ops.matmul(self.embedding(output), last.kernel)
            output = output if last.bias is None else output + last.bias.value
        if output.shape[-1] > 1:
            return output  # type: ignore[no-any-return]
        if body is model:
            raise InvalidInput(
                "`model` must end in a Dense layer or an activation to have one output, got "
                "another layer there, whose output may be a logit or a probability. Give it two "
                "outputs."
            )
        return torch.cat((torch.zeros_like(output), output), dim=-1)  # its logit is against 0

    def __deepcopy__(self, memo: Any) -> "Classifier":
        """Copy the Keras model as a whole: its parts share weights."""
        try:
            return Classifier(copy.deepcopy(self._keras[0], memo))
        except TypeError as error:
            raise InvalidInput(
                f"`model` must be one that Keras can copy, got an error "
                f"({str(error).splitlines()[0]}). Give its class get_config and "
                "@keras.saving.register_keras_serializable()."
            ) from None

    def load_weights(self, filepath: str) -> None:
        """Take the weights of a `.weights.h5` or a `.keras` file."""
        self._keras[0].load_weights(filepath)


def _split_head(model: Any) -> tuple[Any, Any]:
    """Split a model before its last Dense layer, or cut it at its logits, with None for a head."""
    if not isinstance(model, keras.Sequential | _Functional):
        return model, None
    inputs = model.inputs[0] if isinstance(model, keras.Sequential) else model.input
    if len(model.outputs) != 1:
        raise InvalidInput(
            f"`model` must have one output, got {len(model.outputs)}. Make a keras.Model of the "
            "one that classifies."
        )
    last = model.layers[-1]
    squashes = (activations.softmax, activations.sigmoid)
    if isinstance(last, keras.Sequential | _Functional):
        body, dense = _split_head(last)
        return (model, None) if body is last else (keras.Model(inputs, body(last.input)), dense)
    if last.output is not model.outputs[0]:
        return model, None
    if isinstance(last, keras.layers.Dense) and last.activation in (*squashes, activations.linear):
        return keras.Model(inputs, last.input), last
    activation = isinstance(last, keras.layers.Activation) and last.activation in squashes
    if activation or isinstance(last, keras.layers.Softmax):
        return keras.Model(inputs, last.input), None
    return model, None


def _refuse_other_backends() -> None:
    if keras.backend.backend() != "torch":
        raise InvalidInput(
            f"Keras must run on PyTorch, got the backend {keras.backend.backend()!r}. Set "
            "KERAS_BACKEND=torch before Keras is imported, or pass each epoch's probabilities to "
            "ScoreTable.from_probabilities."
        )
