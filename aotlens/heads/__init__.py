"""Heads: where they look, what they are for, and what the model loses without them.

patterns.py   attention patterns, scores and value norms on one prompt
motifs.py     previous-token, current-token, first-token and induction scores
places.py     attention to neighbours, to the token itself, to the first and last position
targeted.py   attention to chosen keys, beside what distance alone predicts
source_code.py   the keys of program code: open brackets, indentation, earlier uses of a word
ablation.py   the loss with some heads' outputs replaced
"""

from __future__ import annotations

from aotlens.heads.ablation import Ablation, ablate
from aotlens.heads.motifs import MOTIFS, MotifScores, motif_scores
from aotlens.heads.patterns import AttentionPatterns, attention_patterns
from aotlens.heads.places import PLACES, AttentionByPlace, attention_by_place
from aotlens.heads.source_code import open_bracket, previous_indentation, previous_use
from aotlens.heads.targeted import TargetedAttention, targeted_attention

__all__ = [
    "MOTIFS",
    "PLACES",
    "Ablation",
    "AttentionByPlace",
    "AttentionPatterns",
    "MotifScores",
    "TargetedAttention",
    "ablate",
    "attention_by_place",
    "attention_patterns",
    "motif_scores",
    "open_bracket",
    "previous_indentation",
    "previous_use",
    "targeted_attention",
]
