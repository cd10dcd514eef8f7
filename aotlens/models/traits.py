"""The traits of some models that some analyses cannot read: each with the sentence that refuses it by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

Trait = Literal[
    "norm_after", "norm_output", "qk_norm", "score_cap", "logit_cap", "clip_qkv", "gated_mlp", "parallel",
    "no_final_norm", "rotary_local",
]  # fmt: skip

TRAITS: dict[Trait, tuple[Callable[[Any], bool], str]] = {
    "norm_after": (
        lambda cfg: cfg.norm_place == "after",
        "its norms stand after what layers write is added (norm_place='after'), so that its stream is no sum of what "
        "was written",
    ),
    "norm_output": (
        lambda cfg: cfg.norms_output,
        "it normalises what a layer writes before that is added (norm_place={cfg.norm_place!r}), so that what one head "
        "adds depends on what the others of its layer write",
    ),
    "qk_norm": (
        lambda cfg: cfg.qk_norm is not None,
        "it normalises queries and keys (qk_norm={cfg.qk_norm!r}), so that a score is not bilinear in what they read",
    ),
    "score_cap": (
        lambda cfg: cfg.score_cap is not None,
        "its scores have a soft cap (score_cap={cfg.score_cap:g}), so that a score is no sum of its parts",
    ),
    "logit_cap": (
        lambda cfg: cfg.logit_cap is not None,
        "its logits have a soft cap (logit_cap={cfg.logit_cap:g}), so that a logit is no sum of its parts",
    ),
    "clip_qkv": (
        lambda cfg: cfg.clip_qkv is not None,
        "it clips queries, keys and values (clip_qkv={cfg.clip_qkv:g}), so that they are not linear in the stream",
    ),
    "gated_mlp": (
        lambda cfg: cfg.gated_mlp,
        "its MLPs multiply what they read by a gate (gated_mlp=True), so that W_in and W_out are not all that they do",
    ),
    "parallel": (
        lambda cfg: cfg.parallel and not cfg.attn_only,
        "its MLPs read the stream next to attention (parallel=True), and not what attention adds to it",
    ),
    "no_final_norm": (
        lambda cfg: cfg.norm is not None and not cfg.has_final_norm,
        "it has norms and none before the read-out (final_norm={cfg.final_norm})",
    ),
    "rotary_local": (
        lambda cfg: cfg.rotary_local is not None,
        "its layers with a window rotate queries and keys in another way (rotary_local), so that positions have no one "
        "rotation",
    ),
}
#: The traits that stand against circuits and paths of any kind, whose scores and outputs are no sums of products.
NOT_PRODUCTS: tuple[Trait, ...] = ("norm_after", "norm_output", "qk_norm", "score_cap", "logit_cap", "clip_qkv")
#: The traits that stand against logits as sums of paths, with patterns and scales frozen.
NOT_LINEAR: tuple[Trait, ...] = ("norm_after", "norm_output", "logit_cap", "clip_qkv")


def refusal(cfg: Any, purpose: str, traits: Iterable[Trait]) -> str:
    """Return why a purpose is not defined for a model that has one of some traits; empty where it has none."""
    reasons = [TRAITS[trait][1].format(cfg=cfg) for trait in traits if TRAITS[trait][0](cfg)]
    if not reasons:
        return ""
    return (
        f"{purpose}: not defined for this model: {'; '.join(reasons)}. Patterns, motifs, ablations and everything else "
        "that reads hooks take it (docs: Analyses and models)."
    )


def require_without(cfg: Any, purpose: str, traits: Iterable[Trait]) -> None:
    """Raise `ValueError`, naming the purpose and every reason, for a model that has one of some traits."""
    if why := refusal(cfg, purpose, traits):
        raise ValueError(why)
