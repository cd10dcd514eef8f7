"""Settings of a source: those that a reader asked for, and Hugging Face's as installed `transformers` reads them."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from aotlens.models import ModelConfig

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
    return (
        f"config.json names a model that is none of the {kind} family, architectures={others!r:.200}" if others else ""
    )


def field_names(settings: Mapping[str, Any]) -> Iterable[str]:
    """Return the names that the configuration of the settings' `model_type` has in `transformers`; none without it."""
    kind_class = config_class(dict(settings).get("model_type"))
    if kind_class is None:
        return ()
    return (*(each.name for each in dataclasses.fields(kind_class)), *kind_class.attribute_map)


def _matters(settings: Stated, name: str) -> bool:
    """Whether `transformers` makes another configuration without a setting: an older name of another."""
    kind, plain = dict(settings).get("model_type"), dict(settings)
    try:
        each = [completed(kind, {key: plain[key] for key in plain if key != left_out}) for left_out in ("", name)]
    except ValueError:
        return False
    fields = [{key: value for key, value in (vars(config) if config else {}).items() if key != name} for config in each]
    return fields[0] != fields[1]
