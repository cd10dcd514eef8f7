"""A model as a TransformerLens bridge, and our tokenizer as the Hugging Face one that a bridge expects.

TransformerLens 4 has no `HookedTransformer`; an attention-only model there is
`TransformerBridge.boot_native(TransformerBridgeConfig(attn_only=True, …))`. It differs from ours in three
ways:

- It divides scores by √d_head and refuses 1 (`attn_scale=1.0`). With our multiplier s, W_Q and b_Q are
  multiplied by s·√d_head, so that the scores are the same.
- It always adds positions to the stream. A model without any gets W_pos = 0, which adds nothing.
- It has MHSA only. MSSA's three equal matrices, and its tied W_O, are just weights.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tokenizers
import torch

from aotlens.data import Tokenizer
from aotlens.models import PHIS, AttentionOnlyTransformer, ModelConfig, require_ours
from aotlens.untrusted import read_regular, strict_json

if TYPE_CHECKING:
    from transformer_lens.model_bridge import TransformerBridge as TransformerBridge
else:  # who makes or reads a bridge imports it: that takes as long as PyTorch
    TransformerBridge = Any


@torch.no_grad()
def to_transformer_lens(model: AttentionOnlyTransformer) -> TransformerBridge:
    """Return a TransformerLens bridge that computes the same logits (to 1e-5 in float32), on the same device.

    Weights are copied. The tokenizer goes along, if it is an `aotlens.data.Tokenizer`. `bridge.cfg.aotlens`
    keeps the model's configuration for `from_transformer_lens`. A bridge has no pooling: of a model of classes it
    writes them at every position, `[batch, pos, d_out]`, and `cfg.pooling` says which of them (or their mean) are the
    model's own.

    Raises `ValueError`, naming every reason, where a native bridge cannot express the model: φ other than
    softmax, positions in queries and keys only, an `attn_mask`, or anything but tokens in, tokens or classes out.
    """
    from transformer_lens.model_bridge.sources.native import boot
    from transformer_lens.utilities.tl_checkpoint_conversion import convert_tl_checkpoint

    require_ours(model, "to_transformer_lens")
    cfg = model.cfg
    reasons = _cannot_express(cfg)
    if reasons:
        raise ValueError(
            f"TransformerLens's native bridge cannot express this model: {'; '.join(reasons)}. "
            "It has softmax over all (earlier) keys, positions added to the stream, layer norms, keys for every head, "
            "tokens in, and tokens or classes out."
        )
    bridge_cfg = bridge_config(cfg)
    tokenizer = to_hugging_face(model.tokenizer, cfg.n_ctx) if isinstance(model.tokenizer, Tokenizer) else None
    with torch.random.fork_rng(devices=[]):  # the bridge draws initial weights, which are then replaced
        bridge = boot(bridge_cfg, tokenizer=tokenizer, device=model.device, dtype=model.dtype)
    bridge.load_state_dict(convert_tl_checkpoint(_old_style_weights(model), bridge_cfg), strict=True)
    bridge.cfg.aotlens = cfg.to_dict()
    bridge.train(model.training)
    return bridge


def query_factor(cfg: ModelConfig) -> float:
    """Return the factor of W_Q and b_Q in the export: s·√d_head, 1 for the standard scale."""
    return 1.0 if cfg.attn_scale is None else cfg.attn_scale * math.sqrt(cfg.d_head)


def _cannot_express(cfg: ModelConfig) -> list[str]:
    reasons = []
    if not PHIS[cfg.phi].sdpa:
        reasons.append(f"phi={cfg.phi!r}")
    if cfg.positions == "qk":
        reasons.append(
            "positions='qk' (shortformer): they are added to the inputs of queries and keys and not of values, while a "
            "bridge's one stream feeds all three, so adding them there would change what every head writes, and a bias "
            "that stood for them would be another one at each position"
        )
    if cfg.position_kind.rotates or cfg.position_kind.biases:
        reasons.append(f"positions={cfg.positions!r}")
    usual = {"gated_mlp": False, "parallel": False, "norm_place": "before", "read_in": "tokens"}
    usual |= dict.fromkeys(("n_kv_heads", "qk_norm", "score_cap", "logit_cap", "clip_qkv", "windows"))
    reasons += [f"{name}={getattr(cfg, name)!r}" for name, value in usual.items() if getattr(cfg, name) != value]
    others = {
        f"norm={cfg.norm!r}": cfg.norm == "rms",
        "final_norm=False": cfg.final_norm is False,
        "attn_mask": cfg.attn_mask is not None,
        "read_out='vectors'": cfg.read_out == "vectors",
    }
    return reasons + [reason for reason, holds in others.items() if holds]


def bridge_config(cfg: ModelConfig, **changes: Any) -> Any:
    """Return the configuration of a native bridge of the model's sizes and options, with changes."""
    from transformer_lens.config import TransformerBridgeConfig

    assert cfg.d_vocab is not None
    same = ("n_layers", "d_model", "n_heads", "d_head", "n_ctx", "d_vocab", "d_mlp", "act_fn", "attn_only")
    fields = {
        **{name: getattr(cfg, name) for name in (*same, "normalization_type")},
        "d_vocab_out": cfg.d_vocab if cfg.read_out == "tokens" or cfg.d_out is None else cfg.d_out,
        "eps": cfg.norm_eps,
        "attention_dir": "causal" if cfg.causal else "bidirectional",
    }
    return TransformerBridgeConfig(
        positional_embedding_type="standard",
        default_padding_side="right",
        init_weights=False,
        model_name="aotlens",
        **(fields | changes),
    )


def _old_style_weights(model: AttentionOnlyTransformer) -> dict[str, torch.Tensor]:
    """Return the weights that TransformerLens's own converter reads: `blocks.0.attn.W_Q` and so on, biases included."""
    cfg = model.cfg
    factor = query_factor(cfg)
    weights = {"embed.W_E": model.W_E, "unembed.W_U": model.W_U, "unembed.b_U": model.b_U}
    weights["pos_embed.W_pos"] = (
        torch.zeros(cfg.n_ctx, cfg.d_model, dtype=model.dtype, device=model.device)
        if cfg.positions is None
        else model.W_pos
    )
    attention = {"W_Q": model.W_Q * factor, "b_Q": model.b_Q * factor}
    attention |= {name: getattr(model, name) for name in ("W_K", "W_V", "W_O", "b_K", "b_V", "b_O")}
    parts = {"attn": attention}
    if not cfg.attn_only:
        parts["mlp"] = {name: getattr(model, name) for name in ("W_in", "b_in", "W_out", "b_out")}
    for layer in range(cfg.n_layers):
        for part, tensors in parts.items():
            weights |= {f"blocks.{layer}.{part}.{name}": tensor[layer] for name, tensor in tensors.items()}
    norms = {name: t for name, t in model.state_dict().items() if name.startswith("ln_final.") or ".ln" in name}
    return weights | norms


def to_hugging_face(tokenizer: Tokenizer, n_ctx: int) -> Any:
    """Return a `transformers` tokenizer with the same ids for every text.

    It puts the start token first by itself, and a special token typed in a text stays text, as in ours.
    """
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer.from_str(tokenizer.to_json()),
        bos_token=tokenizer.start,
        eos_token=tokenizer.start,
        pad_token=tokenizer.start,
        # TransformerLens looks a tokenizer without these two up on the Hugging Face hub.
        name_or_path="aotlens",
        add_bos_token=tokenizer.start is not None,
        split_special_tokens=True,
        clean_up_tokenization_spaces=False,
        padding_side="right",
        model_max_length=n_ctx,
    )


def read_hugging_face(path: Path, d_vocab: int | None = None) -> Tokenizer:
    """Return the `Tokenizer` of a `tokenizer.json` next to a model of `d_vocab` tokens that somebody else saved, with
    the start token that a `tokenizer_config.json` there names. Raises `ValueError`."""
    beside = path.with_name("tokenizer_config.json")
    try:
        settings = strict_json(read_regular(beside, kind="config.json")) if beside.is_file() else {}
        named = [settings.get(f"{kind}_token") for kind in ("bos", "cls")] if isinstance(settings, dict) else []
        names = [name.get("content") if isinstance(name, dict) else name for name in named]
        return Tokenizer.of(read_regular(path, kind="tokenizer.json").decode(), *names, d_vocab=d_vocab)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error
