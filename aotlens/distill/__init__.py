"""Heads as feed-forward networks, feed-forward networks as heads.

compile/     FFN → attention: `compile_ffn`
masked/      masked tokens distinguished and recovered by construction: `masked_lm`
heads/       head → FFN: `distill_heads`, and the model with FFNs in place of heads: `substitute`
records.py   distillations with their origin, on disk and bundled
compared.py  distillations side by side; the errors of an FFN along a text
"""

from aotlens.distill.compared import ComparedDistillations, TextErrors, compare_distillations, text_errors
from aotlens.distill.compile import CompiledFFN, FeedForward, compile_ffn, load_ffn, read_ffn
from aotlens.distill.heads import (
    Distillation,
    SubstitutionCosts,
    distill_heads,
    held_out_windows,
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
from aotlens.distill.records import (
    Record,
    bundled_distillations,
    compress,
    distillations_folder,
    load_record,
    named_record,
    record_distillation,
    record_paths,
)
