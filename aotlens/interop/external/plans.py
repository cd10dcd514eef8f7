"""The plan by which a source becomes a model of ours: its configuration, and what its tensors' names mean; the settings
that a reader asked for, and Hugging Face's as the installed `transformers` reads them."""

from __future__ import annotations

import copy
import dataclasses
import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
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


_DEPTHS = ("num_hidden_layers", "n_layer", "num_layers")


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


Names = Mapping[str, str | None]


def linears(names: Mapping[str, str]) -> Names:
    """Map the weight, `[out, in]`, and the bias of `Linear`s to ours, by their parts: "attn.Q", "mlp.in"."""
    both: dict[str, str | None] = {}
    for theirs, ours in names.items():
        module, _, part = ours.rpartition(".")
        both |= {f"{theirs}.weight": f"{module}.W_{part}.T", f"{theirs}.bias": f"{module}.b_{part}"}
    return both


def norms(names: Mapping[str, str]) -> Names:
    """Map the gain and the bias of norms to ours."""
    marks = {"weight": "w", "bias": "b"}
    return {f"{theirs}.{kind}": f"{ours}.{mark}" for theirs, ours in names.items() for kind, mark in marks.items()}


def in_layers(stack: str, names: Names) -> Names:
    """Map the tensors of each layer, whose numbers stand behind `stack`, to those of ours."""
    return {f"{stack}*.{theirs}": ours and f"blocks.*.{ours}" for theirs, ours in names.items()}


def require_stated(where: object, settings: Mapping[str, Any], meanings: Mapping[str, str]) -> None:
    """Raise `ValueError` that asks for settings that neither tensors nor `settings` tell, each with what it may be."""
    unsaid = {name: meaning for name, meaning in meanings.items() if settings.get(name) is None}
    if unsaid:
        wanted = "; ".join(f"{name} ({meaning})" for name, meaning in unsaid.items())
        example = next(iter(unsaid))
        raise ValueError(
            f"{where}: sizes come from the tensors' shapes, but these do not tell {wanted}. Say it with "
            f"config={{{example!r}: …}} (on the command line --config {example}=…), or put config.json beside the "
            "weights."
        )


def is_tied(tensors: Mapping[str, Tensor], embedding: str, read_out: str, stated: bool) -> bool:
    """Return whether the read-out is the embedding: as `stated` if the file has one of the two matrices, and whether
    they are equal if it has both, as `transformers` does."""
    head, table = tensors.get(read_out), tensors[embedding]
    return stated if head is None else head.dtype == table.dtype and torch.equal(head, table)


#: The settings of every format that are sizes.
_SIZES = (
    "n_layers", "d_model", "n_heads", "d_head", "n_ctx", "d_vocab", "d_mlp", "d_vocab_out", "n_head", "n_embd",
    "n_positions", "num_attention_heads", "num_heads", "hidden_size", "head_dim", "num_key_value_heads", "num_kv_heads",
    "max_position_embeddings", "seq_length", "sliding_window", "nhead", "max_len", "heads", "max_seq_len",
)  # fmt: skip


def require_sizes(where: object, settings: Mapping[str, Any], names: Iterable[str] = _SIZES) -> None:
    """Raise `ValueError` for a size among `settings` that is no whole number from 1 to 2³¹.

    None is a size that is not said, and so is −1, TransformerLens's word for it.
    """
    for name in names:
        size = dict(settings).get(name)  # a check asks for nothing
        if size is not None and size != -1 and (type(size) is not int or not 1 <= size <= 2**31):
            raise ValueError(f"{where}: {name}={reprlib.repr(size)}: expected a whole number from 1 on.")


def n_layers(material: Material, before: str, settings: Mapping[str, Any] | None = None) -> int:
    """Count the numbers, from 0 on, that stand behind `before` in the tensors' names. Raises `ValueError` for more of
    them than tensors, and for another number than `settings` state."""
    numbers = {name.removeprefix(before).split(".", 1)[0] for name in material.tensors if name.startswith(before)}
    depth = require_layers(material, 1 + max((int(number) for number in numbers if number.isdecimal()), default=-1))
    for name in _DEPTHS if depth else ():
        if (stated := (settings or {}).get(name)) not in (None, depth):
            raise ValueError(
                f"{material.path}: {name}={stated!r:.40}, and its tensors are of {depth} layers. Is it whole?"
            )
    return depth


def require_layers(material: Material, number: int) -> int:
    """Return a number of layers. Raises `ValueError` for more than tensors: each would be built before it is missed."""
    if number > len(material.tensors):
        raise ValueError(
            f"{material.path}: expected tensors of each of {number:,} layers, found {len(material.tensors)} in all."
        )
    return number


def refuse(material: Material, reasons: Mapping[str, object] | list[str]) -> None:
    """Raise `ValueError`, naming every reason that holds, if there is one; of a folder of Hugging Face's, with the line
    that opens it as a bridge."""
    holds = reasons if isinstance(reasons, Mapping) else dict.fromkeys(reasons, True)
    problems = [reason for reason in holds if holds[reason]]
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
    """Return the configuration; an error of it begins with `where`, and ends with the advice for a `Material`."""
    try:
        return ModelConfig(**fields)
    except (ValueError, TypeError, OverflowError) as error:
        if isinstance(where, Material):
            refuse(where, [str(error).rstrip(".")])
        raise ValueError(f"{where}: {error}") from error


#: Names of sizes that tensors' shapes tell, by our names of them.
SIZES = {
    "n_layer": "n_layers", "num_layers": "n_layers", "num_hidden_layers": "n_layers", "n_embd": "d_model",
    "hidden_size": "d_model", "vocab_size": "d_vocab", "block_size": "n_ctx", "n_positions": "n_ctx",
    "intermediate_size": "d_mlp", "n_inner": "d_mlp",
}  # fmt: skip
#: The reason to doubt settings that nothing could complete.
NO_CODE = "no installed transformers knows {}, so that settings left out have the values that are most common"
#: Classes up to which `transformers` may name each.
_MOST_LABELS = 100_000


class Stated(dict[str, Any]):
    """Settings by name, which remember the names that a reader asked for."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self.asked: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.asked.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.asked.add(name)
        return super().get(name, default)

    def __contains__(self, name: object) -> bool:
        self.asked.add(str(name))
        return super().__contains__(name)


def require_known(where: object, names: Iterable[str], settings: Stated, cfg: ModelConfig) -> None:
    """Raise `ValueError` for a setting among `names`, which a user stated, that the reader never asked for, with the
    nearest name that it did; and for a size that is another than the tensors have."""
    known = settings.asked | set(field_names(settings)) | SIZES.keys()
    problems = []
    for name in sorted(set(names) - settings.asked):
        if name not in known and not _matters(settings, name):
            problems.append(name)
        elif name in SIZES and settings[name] not in (None, actual := getattr(cfg, SIZES[name])):
            raise ValueError(f"{where}: config= says {name}={settings[name]!r}, and the tensors say {actual}.")
    if problems:
        raise ValueError(
            f"{where}: config= has settings that this reader does not know: {with_nearest(problems, known)}."
        )


def with_nearest(names: Iterable[str], known: Iterable[str]) -> str:
    """List unknown names, each with the known one that is nearest."""
    near = {name: get_close_matches(name, [*known], 1, 0.5) for name in names}
    return ", ".join(name + (f" (did you mean {match[0]}?)" if match else "") for name, match in near.items())


def config_class(kind: object) -> Any:
    """Return the class of configurations that the installed `transformers` has for a `model_type`; None without one."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    return CONFIG_MAPPING[kind] if isinstance(kind, str) and kind in CONFIG_MAPPING else None


def completed(kind: object, settings: Mapping[str, Any], n_layers: int | None = None) -> Any:
    """Return a `config.json` of family `kind` as the installed `transformers` reads it: with the family's defaults, and
    older names and values as newer ones; None if it is not installed or does not know the family.

    `n_layers`, the number that the file has, replaces the one that is stated. Raises `ValueError` for settings that
    `transformers` refuses.
    """
    kind_class = config_class(kind)
    if kind_class is None:
        return None
    stated = {name: copy.deepcopy(value) for name, value in settings.items()}
    if not isinstance(number := stated.get("num_labels", 0), int) or number > _MOST_LABELS:
        del stated["num_labels"]
    if n_layers is not None:
        stated[kind_class.attribute_map.get("num_hidden_layers", "num_hidden_layers")] = n_layers
        stated["decoder_layers"] = n_layers
    try:
        return kind_class.from_dict(stated)
    except Exception as error:  # of many kinds, such as KeyError and those of its own checks
        raise ValueError(f"transformers refuses these settings ({' '.join(str(error).split())})") from error


def own_code(settings: Mapping[str, Any]) -> str:
    """Return what in a `config.json` names code that `transformers` does not have: an `auto_map`, or `architectures`
    that are none of its `model_type`; empty without any."""
    from transformers.models.auto import modeling_auto

    kind, stated = settings.get("model_type"), settings.get("architectures") or []
    if not isinstance(kind, str):
        return ""
    if settings.get("auto_map"):
        return f"config.json names code of its own, auto_map={settings['auto_map']!r:.200}"
    families = [value for name, value in vars(modeling_auto).items() if name.endswith("_MAPPING_NAMES")]
    known = str([family[kind] for family in families if kind in family]).lower()
    others = [name for name in stated if repr(name).lower() not in known] if isinstance(stated, list) else [stated]
    return f"config.json names a model outside the {kind} family, architectures={others!r:.200}" if others else ""


def field_names(settings: Mapping[str, Any]) -> Iterable[str]:
    """Return the names that the configuration of the settings' `model_type` has in `transformers`; none without it."""
    kind_class = config_class(dict(settings).get("model_type"))
    if kind_class is None:
        return ()
    return (*(field.name for field in dataclasses.fields(kind_class)), *kind_class.attribute_map)


def _matters(settings: Stated, name: str) -> bool:
    """Whether `transformers` makes another configuration without a setting: an older name of another."""
    kind, plain = dict(settings).get("model_type"), dict(settings)
    try:
        variants = [completed(kind, {key: plain[key] for key in plain if key != left_out}) for left_out in ("", name)]
    except ValueError:
        return False
    fields = [{key: value for key, value in (vars(read) if read else {}).items() if key != name} for read in variants]
    return fields[0] != fields[1]
