"""One frozen configuration for every model of the papers.

`ModelConfig` says what a model *is*: which attention operator, which φ, which norm, positions,
read-in and read-out. It holds no weights. Fields that could contradict each other are checked when
the configuration is made, and the message names what to change.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from aotlens.models.norms import NORMS
from aotlens.models.phi import PHIS
from aotlens.models.positions import POSITIONS, PositionKind, Rotary

if TYPE_CHECKING:
    import torch

AttentionKind = Literal["mhsa", "mssa"]
FixedPattern = Literal["given", "random", "learned"]
Positions = Literal["learned", "qk", "rotary", "alibi"]
NormName = Literal["layernorm", "rms"]
ReadIn = Literal["tokens", "patches", "vectors"]
ReadOut = Literal["tokens", "classes", "vectors"]
Pooling = Literal["first", "last", "mean"]

ACTIVATIONS = ("gelu", "gelu_new", "relu", "silu")
_CHOICES: dict[str, tuple[object, ...]] = {
    "attention": ("mhsa", "mssa"),
    "fixed_pattern": ("given", "random", "learned", None),
    "act_fn": ACTIVATIONS,
    "norm": (*NORMS, None),
    "positions": tuple(POSITIONS),
    "read_in": ("tokens", "patches", "vectors"),
    "read_out": ("tokens", "classes", "vectors"),
    "pooling": ("first", "last", "mean", None),
}
REQUIRED_SIZES = ("n_layers", "d_model", "n_heads", "d_head", "n_ctx")
_SIZES = (*REQUIRED_SIZES, "n_kv_heads", "d_vocab", "d_mlp", "d_in", "d_out", "image_size", "patch_size", "n_channels")

_SWITCHES = ("tied_output", "causal", "bias", "tied_embeddings", "class_token", "gated_mlp", "parallel")
_OPTIONAL_SWITCHES = ("read_out_bias", "qkv_bias")
_NUMBERS = ("attn_scale", "step_size", "threshold", "norm_eps", "norm_gain_offset", "init_std", "position_init_std")
_OPTIONAL_NUMBERS = ("attn_scale", "threshold", "init_std", "position_init_std")

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
    tied_output: bool = False
    """W_O = step_size · U_kᵀ (MSSA only) instead of a learned W_O."""
    step_size: float = 1.0
    """η of aot Eq. (3); acts only on a tied output."""
    phi: str = "softmax"
    """What turns scores into a pattern: a name in `aotlens.models.PHIS`."""
    threshold: float | None = None
    """τ of h(x) = τ·1{x > τ}, for a thresholded φ."""
    fixed_pattern: FixedPattern | None = None
    """Where a fixed pattern comes from: `given` to the constructor, `random` (frozen) or `learned`."""
    d_mlp: int | None = None
    """Width of an MLP after each attention layer (baselines only); `None` for attention-only models."""
    act_fn: str = "gelu"
    """The MLP's activation."""
    gated_mlp: bool = False
    """Whether the MLP is act(x W_gate) · (x W_in) W_out, as Llama's, instead of act(x W_in) W_out."""
    parallel: bool = False
    """Whether the MLP reads the stream that attention reads, as GPT-NeoX's, instead of that with attention added."""
    norm: NormName | None = "layernorm"
    """Pre-norm before each layer and before the read-out (`aotlens.models.norms.NORMS`), or none at all."""
    norm_eps: float = 1e-5
    """Added to the mean square inside the norm."""
    norm_gain_offset: float = 0.0
    """Added to the norms' stored gains: 1.0 for Gemma, whose stored gains are less by 1."""
    causal: bool = True
    """Whether a query sees only itself and earlier keys."""
    positions: Positions | None = "learned"
    """Where the order of tokens enters: a name in `aotlens.models.positions.POSITIONS`, or none."""
    rotary: Rotary | None = None
    """Frequencies and pairs of `positions="rotary"`; the fields of a `Rotary`, as a dictionary, are taken too."""
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
    pooling: Pooling | None = "first"
    """Where classes are read: at one position, from the mean of all, or (None) at every position by itself."""

    init_std: float | None = None
    """Standard deviation of initial matrices; `None` is 1/√(input width)."""
    position_init_std: float | None = None
    """Standard deviation of initial positions; `None` is the scale of what they are added to."""
    seed: int = field(default=0)
    """Seed of the initial weights (and of a random pattern)."""

    def __post_init__(self) -> None:
        for name, choices in {**_CHOICES, "phi": tuple(PHIS)}.items():
            value = getattr(self, name)
            if value not in choices:
                raise ValueError(f"{name}={value!r}: expected one of {', '.join(map(repr, choices))}.")
        for name in _SIZES:
            value = getattr(self, name)
            if value is None and name not in REQUIRED_SIZES:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name}={value!r}: expected a whole number of at least 1.")
        for name in _SWITCHES:
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name}={getattr(self, name)!r}: expected True or False.")
        for name in _OPTIONAL_SWITCHES:
            if (value := getattr(self, name)) is not None and not isinstance(value, bool):
                raise ValueError(f"{name}={value!r}: expected True, False or None.")
        for name in _NUMBERS:
            value = getattr(self, name)
            if value is None and name in _OPTIONAL_NUMBERS:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise ValueError(f"{name}={value!r}: expected a finite number.")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or self.seed < 0:
            raise ValueError(f"seed={self.seed!r}: expected a whole number of at least 0.")
        self._check_attention()
        self._check_ends()

    def _check_attention(self) -> None:
        if self.tied_output and self.attention != "mssa":
            raise ValueError("tied_output=True needs attention='mssa': only MSSA has a U_k to tie W_O to.")
        if self.step_size != 1.0 and not self.tied_output:
            raise ValueError(
                f"step_size={self.step_size} acts only on a tied output; set tied_output=True or leave it 1."
            )
        if self.attn_scale is not None and self.attn_scale <= 0:
            raise ValueError(f"attn_scale={self.attn_scale}: expected a positive multiplier, or None.")
        self._check_parameters("phi", PHIS)
        PHIS[self.phi].check(self)
        if self.n_kv_heads is not None and self.n_heads % self.n_kv_heads:
            raise ValueError(f"n_kv_heads={self.n_kv_heads} does not divide n_heads={self.n_heads}.")
        if self.n_kv_heads is not None and self.attention != "mhsa":
            raise ValueError(
                f"n_kv_heads={self.n_kv_heads} needs attention='mhsa': an MSSA head has one matrix for queries, keys "
                "and values, so heads that share it are one head."
            )
        if self.norm_eps <= 0:
            raise ValueError(f"norm_eps={self.norm_eps}: expected a positive number.")
        for name in ("init_std", "position_init_std"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ValueError(f"{name}={value}: expected a standard deviation of at least 0.")
        if self.attn_mask is not None:
            mask = _as_mask(self.attn_mask, self.n_heads, self.n_ctx, PHIS[self.phi].normalises)
            object.__setattr__(self, "attn_mask", mask)
        self._check_parameters("positions", POSITIONS)
        self.position_kind.check(self)
        self._check_layers()

    def _check_parameters(self, field_name: str, table: dict[Any, Any]) -> None:
        """Refuse fields that belong to other entries of a table than the one that is named."""
        own = getattr(self, field_name)
        for name, kind in table.items():
            for parameter in set(kind.parameters) - set(table[own].parameters):
                if (value := getattr(self, parameter)) is not None:
                    raise ValueError(f"{parameter}={value!r} needs {field_name}={name!r}, got {own!r}.")

    def _check_layers(self) -> None:
        for name in ("gated_mlp", "parallel"):
            if getattr(self, name) and self.d_mlp is None:
                raise ValueError(f"{name}=True needs d_mlp, the width of an MLP.")
        if self.norm_gain_offset and self.norm is None:
            raise ValueError(f"norm_gain_offset={self.norm_gain_offset} needs a norm, got norm=None.")

    def _check_ends(self) -> None:
        if "tokens" in (self.read_in, self.read_out) and self.d_vocab is None:
            raise ValueError("d_vocab is needed when tokens are read in or out.")
        if self.tied_embeddings and (self.read_in, self.read_out) != ("tokens", "tokens"):
            raise ValueError("tied_embeddings=True needs read_in='tokens' and read_out='tokens'.")
        if self.tied_embeddings and self.has_read_out_bias:
            raise ValueError(
                "tied_embeddings=True has no room for a bias of the read-out; set read_out_bias=False, which leaves "
                "the "
                "layers' biases, or untie."
            )
        if self.read_out == "classes" and self.d_out is None:
            raise ValueError("read_out='classes' needs d_out, the number of classes.")
        if self.read_out == "tokens" and self.d_out is not None:
            raise ValueError(f"d_out={self.d_out}: read_out='tokens' has d_vocab outputs; leave d_out=None.")
        if self.d_in is not None and self.read_in != "vectors":
            raise ValueError(f"d_in={self.d_in} needs read_in='vectors', got {self.read_in!r}.")
        if self.class_token and self.read_in == "tokens":
            raise ValueError("class_token=True needs read_in='patches' or 'vectors'.")
        if self.read_in == "patches":
            if self.image_size is None or self.patch_size is None:
                raise ValueError("read_in='patches' needs image_size and patch_size.")
            if self.image_size % self.patch_size:
                raise ValueError(f"image_size={self.image_size}: not a multiple of patch_size={self.patch_size}.")
            needed = (self.image_size // self.patch_size) ** 2 + self.class_token
            if self.n_ctx != needed:
                raise ValueError(f"n_ctx={self.n_ctx}: {needed} positions are needed (patches and [CLS]).")

    # What the rest of the code asks, derived once.

    @property
    def score_scale(self) -> float:
        """The multiplier of scores that the model applies: attn_scale, or 1/√d_head."""
        return self.d_head**-0.5 if self.attn_scale is None else self.attn_scale

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
        """What the library has to know of this model's positions."""
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
        """Where the weights of the model with this configuration are now; None for one without a model.

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
        """The same configuration, whose `device` and `dtype` are those of `model`."""
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
        """A JSON-able dictionary with every field; `from_dict` undoes it."""
        return {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> ModelConfig:
        """The configuration that `to_dict` gave. Raises `ValueError` naming unknown or missing keys."""
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


def _as_mask(mask: Any, n_heads: int, n_ctx: int, needs_key: bool) -> Mask:
    """Nested tuples of bools, so that configurations compare, hash and serialise."""
    rows = mask.tolist() if hasattr(mask, "tolist") else mask
    expected = f"attn_mask: expected [1 or {n_heads} heads, {n_ctx} queries, {n_ctx} keys]"
    if not isinstance(rows, Sequence) or len(rows) not in (1, n_heads):
        got = f"{len(rows)} heads" if isinstance(rows, Sequence) else type(rows).__name__
        raise ValueError(f"{expected}, got {got}.")
    for head in rows:
        if not isinstance(head, Sequence) or not all(isinstance(row, Sequence) for row in head):
            raise ValueError(f"{expected}, got heads that are not tables.")
        if len(head) != n_ctx or any(len(row) != n_ctx for row in head):
            widths = sorted({len(row) for row in head})
            raise ValueError(f"{expected}, got a head of {len(head)} queries with {widths} keys.")
        strange = next((seen for row in head for seen in row if seen not in (0, 1)), None)
        if strange is not None:
            raise ValueError(f"{expected}, True where a query sees a key, got an entry {strange!r}.")
    if needs_key:
        for h, head in enumerate(rows):
            for query, row in enumerate(head):
                if not any(row):
                    raise ValueError(
                        f"attn_mask hides every key from query {query} of head {h}; a softmax over nothing "
                        "is undefined. Let it see at least itself."
                    )
    return tuple(tuple(tuple(bool(seen) for seen in row) for row in head) for head in rows)
