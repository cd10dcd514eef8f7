"""The families of decoders that are read: their tensors' names, and the settings of their `config.json` in our words.

The installed `transformers` says what a file leaves out (`settings.completed`). Most settings mean the same in every
family that has them, so that a family is the line of what is fixed in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from aotlens.interop.external.plans import ACTIVATIONS, Names, linears, norms

_LAYER_TYPES = ("full_attention", "sliding_attention")
_ACT_FNS = ("hidden_activation", "hidden_act", "activation_function", "activation")
#: Numbers by how large they may be: shares of a head, and times that a context is extended.
_MOST = {"partial_rotary_factor": 1.0, "rotary_pct": 1.0, "factor": 2.0**20}

#: The embedding, by the names that families give it.
EMBEDDINGS = ("embed_tokens.weight", "wte.weight", "word_embeddings.weight", "embed_in.weight")
#: The norm of BLOOM's embedding.
_EMBEDDING_NORM = "word_embeddings_layernorm"
#: The modules of attention, the projections in them, and the matrices of MLPs.
_ATTENTION = ("self_attn", "self_attention", "attention", "attn", "attn.attention")
_PROJECTIONS = {"q_proj": "Q", "k_proj": "K", "v_proj": "V", "o_proj": "O", "out_proj": "O", "dense": "O"}
_MLPS = {
    "mlp.gate_proj": "gate", "mlp.up_proj": "in", "mlp.down_proj": "out", "mlp.fc1": "in", "mlp.fc2": "out",
    "fc1": "in", "fc2": "out", "mlp.fc_in": "in", "mlp.fc_out": "out", "mlp.c_fc": "in", "mlp.c_proj": "out",
    "mlp.dense_h_to_4h": "in", "mlp.dense_4h_to_h": "out",
}  # fmt: skip
_BUFFERS = ("bias", "masked_bias", "embed_positions", "rotary_emb.inv_freq")
#: A layer's tensors, by the names that families give them; None for those that hold no weights.
LAYER: Names = {
    **linears({f"{module}.{theirs}": f"attn.{part}" for module in _ATTENTION for theirs, part in _PROJECTIONS.items()}),
    **linears({part: f"attn.{part}" for part in "QKV"}),  # what `FUSED` is split into
    **linears({theirs: f"mlp.{part}" for theirs, part in _MLPS.items()}),
    **norms({
        "input_layernorm": "ln1", "ln_attn": "ln1", "ln_1": "ln1", "self_attn_layer_norm": "ln1",
        "post_attention_layernorm": "ln2", "ln_mlp": "ln2", "ln_2": "ln2", "final_layer_norm": "ln2",
        "self_attn.q_norm": "attn.q_norm", "self_attn.k_norm": "attn.k_norm",
    }),
    **{f"{module}.{name}": None for module in _ATTENTION for name in _BUFFERS},
}  # fmt: skip
#: The other names of norms where some follow the layers.
OUTPUT_NORMS: Names = norms({
    "post_attention_layernorm": "ln1_post", "pre_feedforward_layernorm": "ln2", "post_feedforward_layernorm": "ln2_post"
})  # fmt: skip
#: The tensors at both ends.
ENDS: Names = {
    **dict.fromkeys(EMBEDDINGS, "embed.W_E"), "wpe.weight": "pos_embed.W_pos[:{n_ctx}]",
    "embed_positions.weight": "pos_embed.W_pos[2:]", **linears({"lm_head": "unembed.U", "embed_out": "unembed.U"}),
    **norms(dict.fromkeys(("norm", "ln_f", "final_layernorm", "final_layer_norm"), "ln_final")),
}  # fmt: skip
#: A layer's tensors that are several, one under another.
SIDE_BY_SIDE = {
    "self_attn.qkv_proj": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "mlp.gate_up_proj": ("mlp.gate_proj", "mlp.up_proj"),
}
#: A layer's queries, keys and values together: of each group of heads in turn, the queries of its heads, its key and
#: its value.
FUSED = ("attention.query_key_value", "self_attention.query_key_value")
#: The norms of a layer whose MLP is parallel to its attention: one that has the first alone uses it twice.
ALIKE = {"input_layernorm": "post_attention_layernorm", "ln_1": "ln_2"}


def require_bounds(where: object, settings: Mapping[str, Any]) -> None:
    """Raise `ValueError` for settings, or some within others, that `transformers` would take much memory for, or not
    refuse by name."""
    for name, value in settings.items():
        most = _MOST.get(name)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if most is not None and value is not None and not (number and 0 < value <= most):
            raise ValueError(f"{where}: {name}={value!r:.80}: expected a number above 0 and at most {most:g}.")
        if name in _LAYER_TYPES and not isinstance(value, dict | None):
            raise ValueError(f"{where}: {name}={value!r:.80}: expected a dict.")
        if isinstance(value, dict):
            require_bounds(where, value)
    layouts = settings.get("attention_types") or []
    if not isinstance(layouts, list) or not all(
        isinstance(layout, list | tuple) and len(layout) == 2 and isinstance(layout[0], list) and type(layout[1]) is int
        and 0 <= layout[1] <= 10_000 for layout in layouts
    ):  # fmt: skip
        raise ValueError(f"{where}: attention_types={layouts!r:.80}: expected a list of [[kind, …], times].")


@dataclass(frozen=True)
class Settings:
    """`config.json` of a model of so many layers, and what is wrong with it so far."""

    values: Mapping[str, Any]
    n_layers: int
    problems: list[str]
    partial: bool = False
    """Whether the family rotates a share of each head, which its settings state."""

    def get(self, *names: str, default: Any = None) -> Any:
        """Return the first of some settings that is there."""
        return next((self.values[name] for name in names if self.values.get(name) is not None), default)

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
        return int(self.get("hidden_size", "n_embd", default=0))

    @property
    def d_head(self) -> int:
        return int(self.get("head_dim", default=self.d_model // max(self.n_heads, 1)))

    @property
    def n_ctx(self) -> int:
        return int(self.get("max_position_embeddings", "n_positions", "seq_length", default=2048))

    def fields(self) -> dict[str, Any]:
        """Return the fields of `ModelConfig`, besides sizes, of settings that mean the same in each family that has
        them."""
        self.refuse(
            use_bidirectional_attention=False, qk_layernorm=False, do_layer_norm_before=True, enable_bias=True,
            word_embed_proj_dim=self.d_model, _remove_final_layer_norm=False, layer_norm_elementwise_affine=True,
            apply_residual_connection_post_layernorm=False, alibi=False,
        )  # fmt: skip
        act_fn = next((name for name in _ACT_FNS if name in self.values), _ACT_FNS[0])
        if (stated := str(self.values.get(act_fn, "gelu_new"))) not in ACTIVATIONS:  # BLOOM's is not a setting
            self.problems.append(f"{act_fn}={stated!r}")
        qkv_bias, scalar = self.get("use_qkv_bias"), self.values.get("query_pre_attn_scalar", 1)
        if not scalar or scalar < 0:
            self.problems.append(f"query_pre_attn_scalar={scalar!r}")
            scalar = 1
        return {
            "norm": "rms" if "rms_norm_eps" in self.values else "layernorm",
            "norm_eps": self.get("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", default=1e-5),
            "act_fn": ACTIVATIONS.get(stated, "gelu"),
            "bias": any(map(self.get, ("attention_bias", "mlp_bias", "bias"))),
            "qkv_bias": None if qkv_bias is None else bool(qkv_bias),
            "read_out_bias": False,
            "parallel": bool(self.get("use_parallel_residual")),
            "attn_scale": scalar**-0.5 if "query_pre_attn_scalar" in self.values else None,
            "score_cap": self.get("attn_logit_softcapping"),
            "logit_cap": self.get("final_logit_softcapping"),
            "clip_qkv": self.get("clip_qkv"),
            "n_kv_heads": self.get("num_key_value_heads"),
            "n_ctx": self.n_ctx,
            **self._rotary(),
            **self.windows(self.get("sliding_window")),
        }

    def _rotary(self) -> dict[str, Any]:
        """Return the `Rotary` that `rope_parameters` describe; where layers with a window have their own, both."""
        parameters = dict(self.get("rope_parameters", "rope_scaling", default={}))
        if not parameters:
            return {}
        if "full_attention" not in parameters:
            return {"positions": "rotary", "rotary": self._rotary_of(parameters)}
        whole, local = (self._rotary_of(dict(parameters.get(kind) or {})) for kind in _LAYER_TYPES)
        return {"positions": "rotary", "rotary": whole, "rotary_local": local if whole != local else None}

    def _rotary_of(self, parameters: dict[str, Any]) -> dict[str, Any]:
        kind = parameters.get("rope_type", parameters.get("type", "default"))
        share = (parameters.get("partial_rotary_factor") if self.partial else None) or 1.0
        base = self.get("rope_theta", default=10_000.0)  # an older name, which counts only without the newer
        fields = {"base": parameters.get("rope_theta", base), "dim": int(self.d_head * share)}
        if kind == "default":
            return fields
        if kind not in ("linear", "dynamic", "llama3"):
            self.problems.append(f"rope_type={kind!r}")
            return fields
        fields |= {"scaling": kind, "factor": parameters.get("factor")}
        if kind == "dynamic":  # whose `original_max_position_embeddings` transformers never reads
            fields["original_n_ctx"] = self.n_ctx
        if kind == "llama3":
            fields |= {name: parameters.get(name) for name in ("low_freq_factor", "high_freq_factor")}
            fields["original_n_ctx"] = parameters.get("original_max_position_embeddings", self.n_ctx)
        return fields

    def windows(self, window: Any, layers: list[bool] | None = None) -> dict[str, Any]:
        """Return the windows of layers: of those that `layer_types` calls sliding, or else of those that `layers` says
        (None: of all)."""
        kinds = self.get("layer_types")
        if kinds is not None:
            strange = sorted(set(kinds).difference(_LAYER_TYPES))
            self.problems.extend(f"layer_types={kind!r}" for kind in strange)
            layers = [kind == _LAYER_TYPES[1] for kind in kinds]
        layers = [True] * self.n_layers if layers is None else layers[: self.n_layers]
        if window is None or not any(layers):
            return {}
        if type(window) is not int or window < 1 or len(layers) < self.n_layers:
            self.problems.append(f"a window of {window!r} positions for {len(layers)} of {self.n_layers} layers")
            return {}
        return {"windows": [min(window, self.n_ctx) if sliding else None for sliding in layers]}


class Family(NamedTuple):
    """The fields of `ModelConfig` that are a family's own."""

    fixed: Mapping[str, Any] = {}
    """Those of all its models."""
    read: Callable[[Settings], dict[str, Any]] = lambda settings: {}
    """Those that settings of its own state."""
    embedding: Callable[[dict[str, Tensor], Tensor, Settings], Tensor] | None = None
    """The transformation of the embedding before the first layer reads it; tensors that it folds in it removes."""

    def fields(self, s: Settings) -> dict[str, Any]:
        """Return the fields besides the sizes, less windows that hide nothing and what is of layers with one."""
        fields = {**s.fields(), **self.fixed, **self.read(s)}
        same = fields.get("rotary_local") in (None, fields.get("rotary"))
        if same or not fields.get("windows"):
            fields["rotary_local"] = None
        if same and all(window in (None, fields["n_ctx"]) for window in fields.get("windows") or ()):
            fields["windows"] = None
        return fields


def _gemma3(s: Settings) -> dict[str, Any]:
    s.refuse(attn_logit_softcapping=False)  # a setting of theirs that their code leaves alone
    return {}


def _falcon(s: Settings) -> dict[str, Any]:
    new = s.get("new_decoder_architecture")
    groups = s.get("num_kv_heads") if new else 1 if s.get("multi_query") else None
    return {"parallel": bool(new or s.get("parallel_attn")), "n_kv_heads": groups}


def _gptj(s: Settings) -> dict[str, Any]:
    return {"rotary": {"base": 10_000.0, "dim": s.get("rotary_dim"), "pairs": "interleaved"}}


def _gpt_neo(s: Settings) -> dict[str, Any]:
    return s.windows(s.get("window_size"), [kind == "local" for kind in s.get("attention_layers", default=())])


def _normed(tensors: dict[str, Tensor], embedding: Tensor, s: Settings) -> Tensor:
    """Fold BLOOM's norm of the embedding, which is of single tokens, into it."""
    names = [f"{_EMBEDDING_NORM}.{name}" for name in ("weight", "bias")]
    if missing := [name for name in names if name not in tensors]:
        raise ValueError(f"missing tensors {', '.join(missing)} of a 'bloom'. Is it whole?")
    gain, bias = (tensors.pop(name).float() for name in names)
    eps = s.get("layer_norm_epsilon", default=1e-5)
    return torch.nn.functional.layer_norm(embedding.float(), gain.shape, gain, bias, eps)


def _scaled(tensors: dict[str, Tensor], embedding: Tensor, s: Settings) -> Tensor:
    """Gemma's embedding, as long as √d_model of its rows."""
    return embedding.float() * math.sqrt(s.d_model)


_GATED = {"gated_mlp": True}
_GEMMA = {**_GATED, "norm_gain_offset": 1.0}
_OLMO2 = Family({**_GATED, "norm_place": "output", "qk_norm": "layer"})
_PARALLEL = {"bias": True, "parallel": True, "read_out_bias": None}
_LEARNED = {"bias": True, "positions": "learned"}
#: The families by `model_type`.
FAMILIES: dict[str, Family] = {
    **dict.fromkeys(("llama", "mistral", "cwm", "olmo", "stablelm", "phi3"), Family(_GATED)),
    "qwen2": Family({**_GATED, "qkv_bias": True}),
    "qwen3": Family({**_GATED, "qk_norm": "head"}),
    "gemma": Family(_GEMMA, embedding=_scaled),
    "gemma2": Family({**_GEMMA, "norm_place": "both"}, embedding=_scaled),
    "gemma3_text": Family({**_GEMMA, "norm_place": "both", "qk_norm": "head"}, _gemma3, _scaled),
    **dict.fromkeys(("olmo2", "olmo3"), _OLMO2),
    "falcon": Family(read=_falcon),
    "phi": Family(_PARALLEL),
    "gpt_neox": Family({"bias": True}, lambda s: {"qkv_bias": bool(s.get("attention_bias"))}),
    "gptj": Family({**_PARALLEL, "qkv_bias": False, "positions": "rotary"}, _gptj),
    "gpt_neo": Family({**_LEARNED, "qkv_bias": False, "attn_scale": 1.0}, _gpt_neo),
    "opt": Family(_LEARNED),
    "bloom": Family({"bias": True, "positions": "alibi"}, embedding=_normed),
}
