"""Adapters that `peft` wrote as checkpoints (LoRA, DoRA, IA³ and others), over one base."""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from snapsure import _files
from snapsure.errors import CorruptFile, InvalidInput
from snapsure.snapshots import _weights
from snapsure.snapshots._adopt import CheckpointFolder, read_json
from snapsure.snapshots._base import Snapshots

# Settings that say where an adapter comes from, or how it was trained, and not what it computes.
_ABOUT = {
    "auto_mapping",
    "base_model_name_or_path",
    "inference_mode",
    "init_lora_weights",
    "lora_dropout",
    "peft_version",
    "revision",
    "task_type",
}


class Adapters(Snapshots):
    """Checkpoints of one adapter. They hold what was trained, under the names of a model's weights.

    Parameters
    ----------
    folder : CheckpointFolder
        The checkpoints.
    model : PeftModel, or a function that makes it
        What they were trained in: the base, and an adapter of the same settings.
    """

    def __init__(
        self, folder: CheckpointFolder, model: nn.Module | Callable[[], nn.Module] | None
    ) -> None:
        self.path, self._folder = folder.path, folder
        configs = folder.adapter_configs
        if len(configs) < len(folder):
            raise InvalidInput(
                f"`folder` must hold adapters or whole networks, got both in {self.path}. Move one "
                "kind away."
            )
        given: Any = model if isinstance(model, nn.Module) or model is None else model()
        network: Any = _weights.unwrap(given)
        if not hasattr(network, "peft_config") or not hasattr(network, "get_base_model"):
            raise InvalidInput(
                f"`model` must be the PeftModel of the adapters in {self.path}, got "
                f"{'none' if network is None else type(network).__name__}. Put one around the base "
                f"model, model = peft.PeftModel.from_pretrained(base, {str(configs[0].parent)!r}), "
                "and pass it: SnapshotStore.adopt(folder, model=model)."
            )
        if any(getattr(module, "merged", False) for module in network.modules()):
            raise InvalidInput(
                "`model` must have its adapter beside the base, got one merged into it, which no "
                "other adapter would change. Call model.unmerge_adapter(), or load the base again."
            )
        for path in configs:
            _refuse_other_settings(path, network)
        from peft import get_peft_model_state_dict

        # With names in place of tensors, it says what each is called in a file.
        own = {name: name for name in network.state_dict()}
        files = get_peft_model_state_dict(
            network, own, network.active_adapter, save_embedding_layers=False
        )
        if not all(isinstance(name, str) for name in files.values()):
            kind = network.peft_config[network.active_adapter].peft_type
            raise InvalidInput(
                "`folder` must hold adapters whose files have the model's own weights, got those "
                f"of {getattr(kind, 'value', kind)} in {self.path}. Train again with "
                "SnapshotCallback, which records any kind."
            )
        self._names: Mapping[str, str] = files
        embeddings = folder.load(folder.epochs[0]).keys() - files.keys()
        self._base = _weights.hash_base(network, {*files.values(), *embeddings})
        self._configs = [_files.sha256(path) for path in configs]

    @property
    def epochs(self) -> list[int]:
        """Epochs of the checkpoints, in order; steps, where one epoch has several."""
        return self._folder.epochs

    def load(self, epoch: int) -> dict[str, Tensor]:
        """Read an adapter, and other layers trained with it, by the names of the model."""
        state = self._folder.load(epoch)
        missing = sorted(self._names.keys() - state.keys())
        if missing:
            raise InvalidInput(
                f"The adapter of epoch {epoch} in {self.path} must have all weights of the model's "
                f"adapter, got no {missing[0]}. Pass the model that it was trained in."
            )
        return {self._names.get(name, name): tensor for name, tensor in state.items()}

    def base(self, epoch: int) -> str:
        """Return the hash of the model's other weights."""
        return self._base

    def sha256(self, epoch: int) -> str:
        """Return the hash of an adapter, its settings, and its base."""
        settings = self._configs[self.epochs.index(epoch)]
        parts = self._folder.sha256(epoch), settings, self._base
        return hashlib.sha256("".join(parts).encode()).hexdigest()


def _refuse_other_settings(path: Path, network: Any) -> None:
    """Refuse an adapter of another base, or of settings that the model's adapter does not have."""
    theirs = read_json(path)
    if not isinstance(theirs, dict):
        raise CorruptFile(
            f"{path} must have the settings of an adapter, got something else. Copy it again."
        )
    base = getattr(network.get_base_model(), "name_or_path", None)
    named = theirs.get("base_model_name_or_path")
    if base and named and base != named:
        raise InvalidInput(
            f"`model` must have the base that {path} names, {named!r}, got {base!r}. Load that "
            "one; or, if both are the same, set model.get_base_model().name_or_path to that name."
        )
    config = network.peft_config[network.active_adapter].to_dict()
    own = json.loads(json.dumps(config, default=lambda v: [*v] if isinstance(v, set) else str(v)))
    for name in sorted((theirs.keys() & own.keys()) - _ABOUT):
        # The order of layers does not matter; `peft` adds some of them twice.
        pair = [sorted({*v}) if _is_names(v) else v for v in (theirs[name], own[name])]
        if pair[0] != pair[1]:
            raise InvalidInput(
                f"`model` must have an adapter of the settings in {path}, {name}={pair[0]!r}, got "
                f"{pair[1]!r}. Make it by peft.PeftModel.from_pretrained(base, "
                f"{str(path.parent)!r})."
            )


def _is_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)
