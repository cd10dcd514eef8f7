"""Heads as feed-forward networks, feed-forward networks as heads.

compile/   FFN → attention: `compile_ffn`
masked/    masked tokens told apart and recovered by construction: `masked_lm`
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
from aotlens.distill.masked import (
    DistinguishedMasks,
    MaskedLanguageModel,
    MaskedSequences,
    PointFit,
    check_assumption,
    distinguish_mask,
    masked_lm,
    point_fit,
)

__all__ = [
    "CompiledFFN",
    "Distillation",
    "DistinguishedMasks",
    "FeedForward",
    "MaskedLanguageModel",
    "MaskedSequences",
    "PointFit",
    "SubstitutionCosts",
    "check_assumption",
    "compile_ffn",
    "distill_heads",
    "distinguish_mask",
    "held_out_windows",
    "load_distillation",
    "masked_lm",
    "point_fit",
    "read_ffn",
    "save_distillation",
    "substitute",
    "substitution_costs",
    "substitution_hooks",
    "token_errors",
]
