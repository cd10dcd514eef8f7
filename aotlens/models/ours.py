"""Whether a model is one of ours: bridges around other people's models are read by some functions, not by all."""

from __future__ import annotations

from typing import Any


def require_ours(model: Any, purpose: str) -> None:
    """Raise `ValueError`, naming the purpose, for a model that is no `AttentionOnlyTransformer`."""
    from aotlens.models.transformer import AttentionOnlyTransformer  # whose `generate` asks this too

    if isinstance(model, AttentionOnlyTransformer):
        return
    kind = type(model).__name__
    bridge = kind == "TransformerBridge"
    advice = (
        "what takes a bridge says so, as aotlens.heads.motif_scores, atlas and value_norms and aotlens.distill do; a "
        "native bridge becomes one of ours by aotlens.interop.from_transformer_lens."
        if bridge
        else "aotlens.load(source) opens one."
    )
    raise ValueError(f"{purpose}: expected a model of aotlens, got a {kind}; {advice}")
