"""Hugging Face's weight files, whose names may be older than those in its models."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from snapsure.snapshots._weights import StateDict


def renamed(model: nn.Module, state: StateDict) -> StateDict:
    """A checkpoint's weights by the model's own names, where Transformers knows how; else as is.

    Transformers 5 writes many models (ViT among them) with the names of earlier versions, and
    translates on loading.
    """
    transformers: Any = sys.modules.get("transformers")
    if transformers is None or not isinstance(model, transformers.PreTrainedModel):
        return state
    with _quiet(transformers.utils.logging):
        try:
            loaded, told = type(model).from_pretrained(
                None, config=model.config, state_dict=dict(state), output_loading_info=True
            )
        except (RuntimeError, TypeError):  # other shapes, or a class that is made otherwise
            return state
    return state if any(told.values()) else dict(loaded.state_dict())


@contextmanager
def _quiet(logging: Any) -> Iterator[None]:
    """Without a progress bar for each snapshot, and without a report on what does not fit."""
    level, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    try:
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        yield
    finally:
        logging.set_verbosity(level)
        if bar:
            logging.enable_progress_bar()
