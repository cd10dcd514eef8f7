"""Heads: where they look, what they are for, and what the model loses without them.

    patterns.py   attention patterns, scores and value norms on one prompt
    motifs.py     previous-token, current-token, first-token and induction scores
    ablation.py   the loss with some heads' outputs replaced
"""

from __future__ import annotations

from aotlens.heads.ablation import Ablation, ablate
from aotlens.heads.motifs import MOTIFS, MotifScores, motif_scores
from aotlens.heads.patterns import AttentionPatterns, attention_patterns

__all__ = [
    "MOTIFS",
    "Ablation",
    "AttentionPatterns",
    "MotifScores",
    "ablate",
    "attention_patterns",
    "motif_scores",
]
