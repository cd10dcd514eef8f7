"""Heads: where they look, what they are for, and what the model loses without them.

patterns.py   attention patterns, scores and value norms on one prompt
motifs.py     previous-token, current-token, first-token and induction scores
masks.py      how different the same [MASK] becomes in different contexts
places.py     attention to neighbours, to the token itself, to the first and last position
reading.py    hooks of every layer, of our models and of TransformerLens bridges
values.py     lengths of value vectors, by kind of token
targeted.py   attention to chosen keys, beside what distance alone predicts
source_code.py   the keys of program code: open brackets, indentation, earlier uses of a word
ablation.py   the loss with some heads' outputs replaced
"""

from __future__ import annotations

from aotlens.heads.ablation import Ablation, ablate
from aotlens.heads.masks import MaskSimilarity, mask_similarity
from aotlens.heads.motifs import MOTIFS, MotifScores, motif_scores
from aotlens.heads.patterns import AttentionPatterns, attention_patterns
from aotlens.heads.places import PLACES, AttentionByPlace, attention_by_place
from aotlens.heads.source_code import open_bracket, previous_indentation, previous_use
from aotlens.heads.targeted import TargetedAttention, targeted_attention
from aotlens.heads.values import ValueNorms, value_norms

__all__ = [
    "MOTIFS",
    "PLACES",
    "Ablation",
    "AttentionByPlace",
    "AttentionPatterns",
    "MaskSimilarity",
    "MotifScores",
    "TargetedAttention",
    "ValueNorms",
    "ablate",
    "attention_by_place",
    "attention_patterns",
    "mask_similarity",
    "motif_scores",
    "open_bracket",
    "previous_indentation",
    "previous_use",
    "targeted_attention",
    "value_norms",
]
