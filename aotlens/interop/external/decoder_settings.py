"""The settings in a decoder's `config.json`, in our words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aotlens.interop.external.plan import ACTIVATIONS

_SLIDING = "sliding_attention"
#: The types of the settings that are no sizes, where they are there at all.
_KINDS: dict[str, type] = {
    "rope_parameters": dict, "rope_scaling": dict, "full_attention": dict, _SLIDING: dict, "layer_types": list,
    "attention_types": list, "max_window_layers": int,
}  # fmt: skip
#: Numbers by how large they may be: shares of a head, and times that a context is extended.
_MOST = {"partial_rotary_factor": 1.0, "rotary_pct": 1.0, "factor": 2.0**20}


def require_kinds(where: object, settings: Mapping[str, Any]) -> None:
    """Raise `ValueError` for a setting, or one within another, of another kind than a decoder's, or out of bounds."""
    for name, value in settings.items():
        kind, most = _KINDS.get(name), _MOST.get(name)
        if value is None:
            continue
        if kind is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            raise ValueError(f"{where}: {name}={value!r:.80}: expected a {kind.__name__}.")
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if most is not None and not (number and 0 < value <= most):
            raise ValueError(f"{where}: {name}={value!r:.80}: expected a number above 0 and at most {most:g}.")
        if isinstance(value, dict) and kind is dict:
            require_kinds(where, value)
    layouts = settings.get("attention_types") or []
    if not all(
        isinstance(each, list | tuple) and len(each) == 2 and isinstance(each[0], list) and type(each[1]) is int
        and 0 <= each[1] <= 10_000 for each in layouts
    ):  # fmt: skip
        raise ValueError(f"{where}: attention_types={layouts!r:.80}: expected a list of [[kind, …], times].")


@dataclass(frozen=True)
class Settings:
    """`config.json` of a model of so many layers, and what is wrong with it so far."""

    values: Mapping[str, Any]
    n_layers: int
    problems: list[str]

    def get(self, *names: str, default: Any = None) -> Any:
        """Return the first of some settings that is there."""
        return next((self.values[name] for name in names if self.values.get(name) is not None), default)

    def positive(self, *names: str, default: float | int) -> float | int:
        """Return a positive number, or the default beside a problem."""
        number = self.get(*names, default=default)
        if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number < math.inf:
            self.problems.append(f"{names[0]}={number!r}")
            return default
        return number

    def refuse(self, **wanted: Any) -> None:
        """Note as problems the settings that have to be what is given here, where they are there and are not."""
        for name, value in wanted.items():
            if (actual := self.values.get(name)) not in (None, value):
                self.problems.append(f"{name}={actual!r}")

    @property
    def n_heads(self) -> int:
        return int(self.get("num_attention_heads", "n_head", "num_heads", default=0))

    @property
    def d_model(self) -> int:
        return int(self.get("hidden_size", "n_embd", "n_embed", default=0))

    @property
    def d_head(self) -> int:
        return int(self.get("head_dim", default=self.d_model // max(self.n_heads, 1)))

    def act_fn(self, *names: str, default: str) -> str:
        name = str(self.get(*names, default=default))
        if name not in ACTIVATIONS:
            self.problems.append(f"{names[0]}={name!r}")
        return ACTIVATIONS.get(name, "gelu")

    def rotary(self, share: float | None = None) -> dict[str, Any]:
        """Return the `Rotary` that `rope_theta` and `rope_scaling`, or `rope_parameters`, describe; where layers with a
        window have their own, both. `share` of a head is rotated by default (None: all of it, whatever is stated)."""
        parameters = dict(self.get("rope_parameters", "rope_scaling", default={}))
        if "full_attention" in parameters:
            each = [self._rotary(dict(parameters.get(kind) or {}), share) for kind in ("full_attention", _SLIDING)]
            return {"positions": "rotary", "rotary": each[0], "rotary_local": each[1] if each[0] != each[1] else None}
        fields = {"positions": "rotary", "rotary": self._rotary(parameters, share)}
        local = self.get("rope_local_base_freq")
        return fields if local is None else {**fields, "rotary_local": self._rotary({"rope_theta": local}, share)}

    def _rotary(self, parameters: dict[str, Any], share: float | None) -> dict[str, Any]:
        kind = parameters.get("rope_type", parameters.get("type", "default"))
        stated = parameters.get("partial_rotary_factor") or self.get("partial_rotary_factor", "rotary_pct")
        share = 1.0 if share is None else stated or share
        base = parameters.get("rope_theta")  # older names count only without it
        base = self.get("rope_theta", "rotary_emb_base", default=10_000.0) if base is None else base
        fields: dict[str, Any] = {"base": base, "dim": int(self.d_head * share)}
        original = parameters.get("original_max_position_embeddings", self.get("max_position_embeddings"))
        if kind == "default":
            return fields
        if kind not in ("linear", "dynamic", "llama3"):
            self.problems.append(f"rope_type={kind!r}")
            return fields
        fields |= {"scaling": kind, "factor": parameters.get("factor")}
        fields |= {} if kind == "linear" else {"original_n_ctx": original}
        if kind == "llama3":
            fields |= {name: parameters.get(name) for name in ("low_freq_factor", "high_freq_factor")}
        return fields

    def n_ctx(self, *names: str) -> int:
        return int(self.get(*names, default=2048))

    def windows(self, window: Any, layers: Sequence[bool] | None = None, *, kept: bool = False) -> dict[str, Any]:
        """Return the windows of layers: of those that `layer_types` calls sliding, or else of those that `layers` says
        (None: of all). One as long as the context is none, unless it is `kept` since its layers rotate otherwise."""
        kinds = self.get("layer_types")
        if kinds is not None:
            strange = sorted(set(map(str, kinds)) - {_SLIDING, "full_attention"})
            self.problems.extend(f"layer_types={kind!r}" for kind in strange)
            layers = [kind == _SLIDING for kind in kinds]
        layers = [True] * self.n_layers if layers is None else list(layers)[: self.n_layers]
        if window is None or not any(layers):
            return {}
        if type(window) is not int or window < 1 or len(layers) < self.n_layers:
            self.problems.append(f"a window of {window!r} positions for {len(layers)} of {self.n_layers} layers")
            return {}
        n_ctx = self.n_ctx("max_position_embeddings")
        if window >= n_ctx and not kept:
            return {}
        return {"windows": [min(window, n_ctx) if sliding else None for sliding in layers]}
