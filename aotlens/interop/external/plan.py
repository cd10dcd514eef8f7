"""The plan by which a source becomes a model of ours: its configuration, and what its tensors' names mean."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from aotlens.data.images import ImageProcessor
from aotlens.interop.external.key_map import KeyMap
from aotlens.interop.external.material import Material
from aotlens.models import ModelConfig

#: Hugging Face's activations by our names.
ACTIVATIONS = {
    "gelu_new": "gelu_new",
    "gelu_pytorch_tanh": "gelu_new",
    "gelu_fast": "gelu_new",
    "gelu": "gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The plan that a format makes of a source."""

    format: str
    """The name of the format, for people."""
    cfg: ModelConfig
    key_map: KeyMap = field(default_factory=dict)
    may_lack: tuple[str, ...] = ("b",)
    """Tensors that may be absent, by how the last part of our name begins: biases, folded gains."""
    note: str = ""
    """The reason why a tensor may be missing, for the error."""
    doubt: str = ""
    """The reason why the same tensors may be another model: warned of where no logits of the source are given."""
    image_processor: ImageProcessor | None = None
    """The processor by which pixels are read, of a model of images."""


class Unsaid(ValueError):
    """The tensors do not tell something that the model hangs on; the message asks for it by name."""


def asked(where: object, names: Mapping[str, str]) -> Unsaid:
    """Return the error that asks for `names`, each with what it may be."""
    wanted = "; ".join(f"{name} ({meaning})" for name, meaning in names.items())
    example = next(iter(names))
    return Unsaid(
        f"{where}: sizes come from the tensors' shapes, but these do not tell {wanted}. Say it with "
        f"config={{{example!r}: …}} (on the command line --config {example}=…), or put config.json beside the weights."
    )


def is_tied(tensors: Mapping[str, Tensor], embedding: str, read_out: str, stated: bool) -> bool:
    """Return whether the read-out is the embedding: as `stated` if the file has one of the two matrices, and whether
    they are equal if it has both, as `transformers` does."""
    head, table = tensors.get(read_out), tensors[embedding]
    return stated if head is None else head.dtype == table.dtype and torch.equal(head, table)


def require_sizes(where: object, settings: Mapping[str, Any], names: Iterable[str]) -> None:
    """Raise `ValueError` for a size among `settings` that is no whole number from 1 to 2³¹.

    None is a size that is not said, and so is −1, TransformerLens's word for it.
    """
    for name in names:
        size = dict(settings).get(name)  # a check asks for nothing
        if size is not None and size != -1 and (type(size) is not int or not 1 <= size <= 2**31):
            raise ValueError(f"{where}: {name}={reprlib.repr(size)}: expected a whole number from 1 on.")


def n_layers(material: Material, before: str) -> int:
    """Count the numbers, from 0 on, that stand behind `before` in the tensors' names."""
    numbers = {name.removeprefix(before).split(".", 1)[0] for name in material.tensors if name.startswith(before)}
    return 1 + max((int(number) for number in numbers if number.isdecimal()), default=-1)


def refuse(material: Material, problems: list[str]) -> None:
    """Raise `ValueError`, naming every reason, where there are problems; of a folder of Hugging Face's, with the line
    that opens it as a bridge."""
    if problems:
        advice = f" {bridge(material)}" if material.model_type else ""
        raise ValueError(f"{material.path}: outside the family of aotlens models: {'; '.join(problems)}.{advice}")


def bridge(material: Material) -> str:
    """Return the advice to read a folder of Hugging Face's by a bridge."""
    return (
        "As a bridge (where TransformerLens knows it) it has motifs, atlas, value norms and distillation: from "
        "transformer_lens.model_bridge import TransformerBridge; bridge = "
        f"TransformerBridge.boot_transformers({str(material.folder)!r}); aotlens.heads.motif_scores(bridge)."
    )


def build_config(where: object, **fields: Any) -> ModelConfig:
    """Return the configuration; an error of it begins with `where`."""
    try:
        return ModelConfig(**fields)
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"{where}: {error}") from error
