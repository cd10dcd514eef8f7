"""Heads as feed-forward networks, feed-forward networks as heads.

compile/   FFN → attention: `compile_ffn`
heads/     head → FFN: `distill_heads`, and the model with FFNs in heads' places: `substitute`
"""

from aotlens.distill.compile import CompiledFFN, FeedForward, compile_ffn, read_ffn
from aotlens.distill.heads import (
    Distillation,
    SubstitutionCosts,
    distill_heads,
    held_out_windows,
    load_distillation,
    save_distillation,
    substitute,
    substitution_costs,
    substitution_hooks,
    token_errors,
)

__all__ = [
    "CompiledFFN",
    "Distillation",
    "FeedForward",
    "SubstitutionCosts",
    "compile_ffn",
    "distill_heads",
    "held_out_windows",
    "load_distillation",
    "read_ffn",
    "save_distillation",
    "substitute",
    "substitution_costs",
    "substitution_hooks",
    "token_errors",
]
