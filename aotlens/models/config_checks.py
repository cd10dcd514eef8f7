"""The rules for a `ModelConfig`: every one with a message that names what to change."""

from __future__ import annotations

from typing import Any

from aotlens.conventions import require_between, require_choice
from aotlens.models.norms import NORM_PLACES, NORMS
from aotlens.models.phi import PHIS, checked_mask
from aotlens.models.positions import POSITIONS

ACTIVATIONS = ("gelu", "gelu_new", "relu", "silu")
_CHOICES: dict[str, tuple[object, ...]] = {
    "attention": ("mhsa", "mssa"),
    "fixed_pattern": ("given", "random", "learned", None),
    "act_fn": ACTIVATIONS,
    "norm": (*NORMS, None),
    "norm_place": NORM_PLACES,
    "qk_norm": ("head", "layer", None),
    "positions": tuple(POSITIONS),
    "read_in": ("tokens", "patches", "vectors"),
    "read_out": ("tokens", "classes", "vectors"),
    "pooling": ("first", "last", "mean", None),
}
REQUIRED_SIZES = ("n_layers", "d_model", "n_heads", "d_head", "n_ctx")
_SIZES = (*REQUIRED_SIZES, "n_kv_heads", "d_vocab", "d_mlp", "d_in", "d_out", "image_size", "patch_size", "n_channels")

_SWITCHES = (
    "tied_output",
    "causal",
    "bias",
    "tied_embeddings",
    "class_token",
    "distillation_token",
    "gated_mlp",
    "parallel",
)
_OPTIONAL_SWITCHES = ("read_out_bias", "qkv_bias", "final_norm")
_OPTIONAL_NUMBERS = ("attn_scale", "threshold", "init_std", "position_init_std", "score_cap", "logit_cap", "clip_qkv")
_NUMBERS = ("step_size", "norm_eps", "norm_gain_offset", *_OPTIONAL_NUMBERS)
_POSITIVE = ("attn_scale", "norm_eps", "score_cap", "logit_cap", "clip_qkv")
_DEVIATIONS = ("init_std", "position_init_std")


def check(cfg: Any) -> None:
    """Raise `ValueError` for fields that are not what they should be or do not fit together; those that may be given as
    lists, tensors or dictionaries become what they are kept as."""
    _check_fields(cfg)
    _check_attention(cfg)
    _check_ends(cfg)


def _check_fields(cfg: Any) -> None:
    for name, choices in {**_CHOICES, "phi": tuple(PHIS)}.items():
        require_choice(name, getattr(cfg, name), choices)
    for name in _SIZES:
        value = getattr(cfg, name)
        if value is None and name not in REQUIRED_SIZES:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name}={value!r}: expected a whole number of at least 1.")
    for name in _SWITCHES:
        if not isinstance(getattr(cfg, name), bool):
            raise ValueError(f"{name}={getattr(cfg, name)!r}: expected True or False.")
    for name in _OPTIONAL_SWITCHES:
        if (value := getattr(cfg, name)) is not None and not isinstance(value, bool):
            raise ValueError(f"{name}={value!r}: expected True, False or None.")
    for name in _NUMBERS:
        value = getattr(cfg, name)
        if value is None and name in _OPTIONAL_NUMBERS:
            continue
        if not isinstance(value, int | float):
            raise ValueError(f"{name}={value!r}: expected a finite number.")
        require_between(name, value, above=0 if name in _POSITIVE else None, least=0 if name in _DEVIATIONS else None)
    if isinstance(cfg.seed, bool) or not isinstance(cfg.seed, int) or cfg.seed < 0:
        raise ValueError(f"seed={cfg.seed!r}: expected a whole number of at least 0.")


def _check_attention(cfg: Any) -> None:
    if cfg.tied_output and cfg.attention != "mssa":
        raise ValueError("tied_output=True needs attention='mssa': only MSSA has a U_k to tie W_O to.")
    if cfg.step_size != 1.0 and not cfg.tied_output:
        raise ValueError(f"step_size={cfg.step_size} acts only on a tied output; set tied_output=True or leave it 1.")
    _check_parameters(cfg, "phi", PHIS)
    PHIS[cfg.phi].check(cfg)
    if cfg.n_kv_heads is not None and cfg.n_heads % cfg.n_kv_heads:
        raise ValueError(f"n_kv_heads={cfg.n_kv_heads} does not divide n_heads={cfg.n_heads}.")
    if cfg.n_kv_heads is not None and cfg.attention != "mhsa":
        raise ValueError(
            f"n_kv_heads={cfg.n_kv_heads} needs attention='mhsa': an MSSA head has one matrix for queries, keys "
            "and values, so heads that share it are one head."
        )
    if cfg.attn_mask is not None:
        mask = checked_mask(cfg.attn_mask, cfg.n_heads, cfg.n_ctx, PHIS[cfg.phi].normalises)
        object.__setattr__(cfg, "attn_mask", mask)
    _check_parameters(cfg, "positions", POSITIONS)
    cfg.position_kind.check(cfg)
    _check_layers(cfg)


def _check_parameters(cfg: Any, field_name: str, table: dict[Any, Any]) -> None:
    """Refuse fields that belong to other entries of a table than the one that is named."""
    own = getattr(cfg, field_name)
    for name, kind in table.items():
        for parameter in set(kind.parameters) - set(table[own].parameters):
            if (value := getattr(cfg, parameter)) is not None:
                raise ValueError(f"{parameter}={value!r} needs {field_name}={name!r}, got {own!r}.")


def _check_layers(cfg: Any) -> None:
    for name in ("gated_mlp", "parallel"):
        if getattr(cfg, name) and cfg.d_mlp is None:
            raise ValueError(f"{name}=True needs d_mlp, the width of an MLP.")
    if cfg.norm is None:
        for name, default in (("norm_gain_offset", 0.0), ("norm_place", "before"), ("final_norm", None)):
            if (value := getattr(cfg, name)) != default:
                raise ValueError(f"{name}={value!r} needs a norm, got norm=None.")
    if cfg.parallel and cfg.norm_place in ("after", "output"):
        raise ValueError(f"parallel=True needs norms before the layers, got norm_place={cfg.norm_place!r}.")
    _check_scores(cfg)


def _check_scores(cfg: Any) -> None:
    for name in ("qk_norm", "score_cap"):
        if getattr(cfg, name) is not None and not cfg.has_query_key:
            raise ValueError(f"{name}={getattr(cfg, name)!r}: phi={cfg.phi!r} has no queries and keys.")
    if cfg.score_cap is not None and cfg.position_kind.biases:
        raise ValueError("score_cap: expected scores without biases by distance, got positions='alibi'.")
    if cfg.qk_norm is not None and (cfg.attention != "mhsa" or cfg.has_qkv_bias or cfg.centres):
        raise ValueError(
            f"qk_norm={cfg.qk_norm!r} needs attention='mhsa' without biases of queries and keys, and norm='rms' or "
            "None: a bias would be divided by a scale that the token decides."
        )
    if cfg.qk_norm is not None and cfg.positions == "qk":
        raise ValueError("qk_norm: expected positions that are not added to queries and keys, got positions='qk'.")
    if cfg.windows is not None:
        windows = cfg.windows if isinstance(cfg.windows, list | tuple) else (cfg.windows,)
        whole = all(each is None or (type(each) is int and each >= 1) for each in windows)
        if len(windows) != cfg.n_layers or not whole or cfg.attn_mask is not None or not cfg.causal:
            raise ValueError(
                f"windows={cfg.windows!r}: expected {cfg.n_layers} whole numbers of at least 1 or None, one a "
                "layer, of a causal model without an attn_mask."
            )
        object.__setattr__(cfg, "windows", tuple(windows))
    if cfg.rotary_local is not None and cfg.windows is None:
        raise ValueError("rotary_local: it is of the layers with a window; give windows.")


def _check_ends(cfg: Any) -> None:
    if "tokens" in (cfg.read_in, cfg.read_out) and cfg.d_vocab is None:
        raise ValueError("d_vocab is needed when tokens are read in or out.")
    if cfg.tied_embeddings and (cfg.read_in, cfg.read_out) != ("tokens", "tokens"):
        raise ValueError("tied_embeddings=True needs read_in='tokens' and read_out='tokens'.")
    if cfg.tied_embeddings and cfg.has_read_out_bias:
        raise ValueError(
            "tied_embeddings=True has no room for a bias of the read-out; set read_out_bias=False, which leaves the "
            "layers' biases, or untie."
        )
    if cfg.read_out == "classes" and cfg.d_out is None:
        raise ValueError("read_out='classes' needs d_out, the number of classes.")
    if cfg.read_out == "tokens" and cfg.d_out is not None:
        raise ValueError(f"d_out={cfg.d_out}: read_out='tokens' has d_vocab outputs; leave d_out=None.")
    if cfg.d_in is not None and cfg.read_in != "vectors":
        raise ValueError(f"d_in={cfg.d_in} needs read_in='vectors', got {cfg.read_in!r}.")
    if cfg.class_token and cfg.read_in == "tokens":
        raise ValueError("class_token=True needs read_in='patches' or 'vectors'.")
    if cfg.distillation_token and not cfg.class_token:
        raise ValueError("distillation_token=True comes after [CLS]; set class_token=True as well.")
    if cfg.read_in == "patches":
        if cfg.image_size is None or cfg.patch_size is None:
            raise ValueError("read_in='patches' needs image_size and patch_size.")
        if cfg.image_size % cfg.patch_size:
            raise ValueError(f"image_size={cfg.image_size}: not a multiple of patch_size={cfg.patch_size}.")
        needed = (cfg.image_size // cfg.patch_size) ** 2 + cfg.n_before
        if cfg.n_ctx != needed:
            raise ValueError(
                f"n_ctx={cfg.n_ctx}: {needed} positions are needed (patches, and what stands before them)."
            )
