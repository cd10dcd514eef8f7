"""One frozen configuration for every model of the papers.

`ModelConfig` says what a model *is*: which attention operator, which φ, which norm, positions,
read-in and read-out. It holds no weights. Fields that could contradict each other are checked when
the configuration is made, and the message names what to change.
"""

from __future__ import annotations

import copy
import dataclasses
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from aotlens.models import config_checks
from aotlens.models.norms import NORMS
from aotlens.models.phi import PHIS
from aotlens.models.positions import POSITIONS, PositionKind, Rotary

if TYPE_CHECKING:
    import torch

AttentionKind = Literal["mhsa", "mssa"]
FixedPattern = Literal["given", "random", "learned"]
Positions = Literal["learned", "qk", "rotary", "alibi"]
NormName = Literal["layernorm", "rms"]
NormPlace = Literal["before", "after", "output", "both"]
ReadIn = Literal["tokens", "patches", "vectors"]
ReadOut = Literal["tokens", "classes", "vectors"]
Pooling = Literal["first", "last", "mean"]

Mask = tuple[tuple[tuple[bool, ...], ...], ...]


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The configuration of an `AttentionOnlyTransformer`.

    Residual stream: `x[position, d_model]`; head output: `pattern @ x @ W_V @ W_O`
    (`aotlens.conventions`). Raises `ValueError` for values that do not fit together.
    """

    # Everything is checked in __post_init__, with messages for people. A type checker at run time (as in our
    # tests) would come before it, and refuse the nested lists and tensors that attn_mask may be given as.
    __no_type_check__ = True

    n_layers: int
    """Attention layers."""
    d_model: int
    """Width of the residual stream."""
    n_heads: int
    """Heads in each layer."""
    d_head: int
    """Width of a head's queries, keys and values (its subspace, for MSSA)."""
    n_kv_heads: int | None = None
    """Groups of heads that share keys and values (MHSA only): head h reads those of group h · n_kv_heads ÷ n_heads.
    `None` is one for each head."""
    n_ctx: int
    """Longest sequence, in positions."""
    d_vocab: int | None = None
    """Tokens in the vocabulary; needed when tokens are read in or out."""

    attention: AttentionKind = "mhsa"
    """`"mssa"` shares one matrix U_k for query, key and value (aot Eq. 4); `"mhsa"` has three (aot Eq. 5)."""
    attn_scale: float | None = None
    """Multiplier of scores; `None` is 1/√d_head, 1.0 is aot Eq. (4) as printed."""
    attn_mask: Mask | None = None
    """`[n_heads or 1, query, key]` (or a tensor), True where a query sees a key; replaces the causal mask."""
    windows: tuple[int | None, ...] | None = None
    """The number of positions, for each layer, that a query sees, its own and those before it (None: all that are
    visible); `None` is all for every layer."""
    qk_norm: Literal["head", "layer"] | None = None
    """An RMS norm of queries and of keys before they are rotated: of each head (Qwen3), or of all heads of a layer
    together (OLMo 2)."""
    score_cap: float | None = None
    """c of scores c · tanh(score / c), applied before masking (Gemma 2)."""
    clip_qkv: float | None = None
    """Queries, keys and values are clipped to ± this (OLMo 1)."""
    tied_output: bool = False
    """W_O = step_size · U_kᵀ (MSSA only) instead of a learned W_O."""
    step_size: float = 1.0
    """η of aot Eq. (3); acts only on a tied output."""
    phi: str = "softmax"
    """The φ that turns scores into a pattern: a name in `aotlens.models.PHIS`."""
    threshold: float | None = None
    """τ of h(x) = τ·1{x > τ}, for a thresholded φ."""
    fixed_pattern: FixedPattern | None = None
    """The origin of a fixed pattern: `given` to the constructor, `random` (frozen) or `learned`."""
    d_mlp: int | None = None
    """Width of an MLP after each attention layer (baselines only); `None` for attention-only models."""
    act_fn: str = "gelu"
    """The MLP's activation."""
    gated_mlp: bool = False
    """Whether the MLP is act(x W_gate) · (x W_in) W_out, as Llama's, instead of act(x W_in) W_out."""
    parallel: bool = False
    """Whether the MLP reads the stream that attention reads, as GPT-NeoX's, instead of that with attention added."""
    norm: NormName | None = "layernorm"
    """The norm of the stream (`aotlens.models.norms.NORMS`), or none at all."""
    norm_place: NormPlace = "before"
    """The place of norms: `"before"` each layer, `"after"` what it writes is added (RoBERTa), on its `"output"` before
    that is added (OLMo 2), or `"both"`, before it and on its output (Gemma 2)."""
    final_norm: bool | None = None
    """Whether a norm stands before the read-out; `None` is as `norm_place` says, not where norms stand after."""
    norm_eps: float = 1e-5
    """The term added to the mean square inside the norm."""
    norm_gain_offset: float = 0.0
    """The term added to the norms' stored gains: 1.0 for Gemma, whose stored gains are less by 1."""
    causal: bool = True
    """Whether a query sees only itself and earlier keys."""
    positions: Positions | None = "learned"
    """The way in which the order of tokens enters: a name in `aotlens.models.positions.POSITIONS`, or none."""
    rotary: Rotary | None = None
    """Frequencies and pairs of `positions="rotary"`; the fields of a `Rotary`, as a dictionary, are taken too."""
    rotary_local: Rotary | None = None
    """Frequencies and pairs of layers that have a window, where theirs differ (Gemma 3)."""
    alibi_slopes: tuple[float, ...] | None = None
    """Slope of each head, in nats a position, of `positions="alibi"`; `None` is Press et al.'s."""
    bias: bool = False
    """Biases in attention, MLP, read-in and read-out. A layer norm always has a gain and a bias, an RMS norm a gain."""
    qkv_bias: bool | None = None
    """Biases of queries, keys and values, whatever `bias` says of the rest (Qwen2 has these alone); `None` is as
    `bias`."""
    read_out_bias: bool | None = None
    """The read-out's bias of its own, whatever `bias` says of the layers (GPT-2's have biases, its read-out has none);
    `None` is as `bias`."""
    tied_embeddings: bool = False
    """W_U = W_Eᵀ, without a bias of the read-out."""

    read_in: ReadIn = "tokens"
    """Token ids, image patches, or vectors."""
    read_out: ReadOut = "tokens"
    """Logits over tokens, logits over classes (`pooling` says where), or a vector at each position."""
    d_in: int | None = None
    """Width of input vectors; `None` reads vectors of d_model straight into the stream."""
    d_out: int | None = None
    """Classes, or width of output vectors; `None` writes the stream itself (vectors only)."""
    image_size: int | None = None
    """Side of a square image, in pixels."""
    patch_size: int | None = None
    """Side of a square patch, in pixels."""
    n_channels: int = 1
    """Channels of an image."""
    class_token: bool = False
    """Prepend a learned [CLS] vector (patches and vectors only)."""
    distillation_token: bool = False
    """A second learned vector after [CLS], as DeiT has."""
    logit_cap: float | None = None
    """c of logits c · tanh(logit / c) (Gemma 2)."""
    pooling: Pooling | None = "first"
    """The positions that classes are read from: one, the mean of all, or (None) every position by itself."""

    init_std: float | None = None
    """Standard deviation of initial matrices; `None` is 1/√(input width)."""
    position_init_std: float | None = None
    """Standard deviation of initial positions; `None` is the scale of what they are added to."""
    seed: int = field(default=0)
    """Seed of the initial weights (and of a random pattern)."""

    def __post_init__(self) -> None:
        config_checks.check(self)

    # Properties that the rest of the code asks for, derived once.

    @property
    def n_before(self) -> int:
        """Positions before the first patch or vector: [CLS] and the distillation token, where there are these."""
        return self.class_token + self.distillation_token

    @property
    def score_scale(self) -> float:
        """The multiplier of scores that the model applies: attn_scale, or 1/√d_head."""
        return self.d_head**-0.5 if self.attn_scale is None else self.attn_scale

    @property
    def reads_normed(self) -> bool:
        """Whether a norm stands before each layer."""
        return self.norm is not None and self.norm_place in ("before", "both")

    @property
    def norms_output(self) -> bool:
        """Whether a norm stands between what a layer writes and the stream."""
        return self.norm is not None and self.norm_place in ("output", "both")

    @property
    def has_final_norm(self) -> bool:
        """Whether a norm stands before the read-out."""
        has_norm = self.norm_place != "after" if self.final_norm is None else self.final_norm
        return self.norm is not None and has_norm

    @property
    def shortest_window(self) -> int:
        """The number of positions up to which every layer sees all that are visible."""
        return min(self.n_ctx, *(window for window in self.windows or () if window is not None), self.n_ctx)

    def window(self, layer: int) -> int | None:
        """Return how many positions a layer's queries see, own and earlier ones; None for all that are visible."""
        return None if self.windows is None else self.windows[layer]

    def is_local(self, layer: int) -> bool:
        """Return whether a layer has the rotation of layers with a window."""
        return self.rotary_local is not None and self.window(layer) is not None

    def at_layer(self, layer: int) -> ModelConfig:
        """Return this configuration if all layers are alike, else that of one layer, with its window and rotation."""
        if self.windows is None:
            return self
        rotary = self.rotary_local if self.is_local(layer) else self.rotary
        return dataclasses.replace(self, n_layers=1, windows=(self.window(layer),), rotary=rotary, rotary_local=None)

    @property
    def has_read_out_bias(self) -> bool:
        """Whether the read-out has a bias: `read_out_bias`, or as the layers."""
        return self.bias if self.read_out_bias is None else self.read_out_bias

    @property
    def has_qkv_bias(self) -> bool:
        """Whether queries, keys and values have biases: `qkv_bias`, or as the rest."""
        return self.bias if self.qkv_bias is None else self.qkv_bias

    @property
    def position_kind(self) -> PositionKind:
        """The kind of this model's positions: what the library has to know of them."""
        return POSITIONS[self.positions]

    @property
    def centres(self) -> bool:
        """Whether norms take the mean of the stream away, so that its mean direction is read by nothing."""
        return self.norm is not None and NORMS[self.norm].centres

    @property
    def sees_later_keys(self) -> bool:
        """True where some query sees a key after it, so that its next token is not hidden from it."""
        if self.attn_mask is None:
            return not self.causal
        return any(any(row[query + 1 :]) for head in self.attn_mask for query, row in enumerate(head))

    @property
    def attn_only(self) -> bool:
        """True for a model without MLPs."""
        return self.d_mlp is None

    @property
    def normalization_type(self) -> str | None:
        """TransformerLens's name of the norm: `"LN"`, `"RMS"` or None."""
        return None if self.norm is None else NORMS[self.norm].transformer_lens

    @property
    def has_query_key(self) -> bool:
        """False for fixed patterns, which need neither queries nor keys."""
        return PHIS[self.phi].needs_query_key

    # TransformerLens's functions ask a model's configuration where the model is.

    @property
    def device(self) -> torch.device | None:
        """The device of the weights of the model with this configuration now; None for one without a model.

        It is neither saved nor compared, and follows `model.to(…)`.
        """
        model = self._model()
        return None if model is None else model.device

    @property
    def dtype(self) -> torch.dtype | None:
        """The floating-point type of the model's weights, as `device`."""
        model = self._model()
        return None if model is None else model.dtype

    @property
    def n_key_value_heads(self) -> None:
        """None: at the hooks every head has keys and values of its own. TransformerLens's `patching` asks for it."""
        return None

    def of_model(self, model: Any) -> ModelConfig:
        """Return the same configuration, whose `device` and `dtype` are those of `model`."""
        own = copy.copy(self)
        object.__setattr__(own, "_owner", weakref.ref(model))
        return own

    def _model(self) -> Any:
        owner = self.__dict__.get("_owner")
        return None if owner is None else owner()

    def __getstate__(self) -> dict[str, Any]:
        """The fields: a copy belongs to no model until `of_model` says so."""
        return {name: value for name, value in self.__dict__.items() if name != "_owner"}

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dictionary with every field; `from_dict` undoes it."""
        return {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> ModelConfig:
        """Return the configuration that `to_dict` gave. Raises `ValueError` naming unknown or missing keys."""
        fields = dataclasses.fields(cls)
        known = {f.name for f in fields}
        unknown = sorted(set(values) - known)
        if unknown:
            raise ValueError(
                f"unknown model configuration keys: {', '.join(unknown)}. Known: {', '.join(sorted(known))}."
            )
        required = {f.name for f in fields if f.default is dataclasses.MISSING}
        missing = sorted(required - set(values))
        if missing:
            raise ValueError(f"missing model configuration keys: {', '.join(missing)}.")
        return cls(**values)


def _plain(value: Any) -> Any:
    if isinstance(value, Rotary):
        return dataclasses.asdict(value)
    return [_plain(item) for item in value] if isinstance(value, tuple) else value
