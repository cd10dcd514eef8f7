"""Heads: where they look, what they are for, and what the model loses without them.

patterns.py   attention patterns, scores and value norms on one prompt
motifs.py     what a head may attend to: previous token, first token, induction, … (a new one is one entry)
inputs.py     what a motif may know of the sequences
attention_to.py   the attention of every head to motifs
scores.py     motif scores on repeated random tokens, attention by place, attention to chosen keys
source_code.py   the keys of program code: open brackets, indentation, earlier uses of a word
variation.py  how much a pattern depends on the text
reader.py     what heads read and write, in our models and in TransformerLens bridges
masks.py      how different the same [MASK] becomes in different contexts
values.py     lengths of value vectors, by kind of token
subspaces.py  the subspaces that heads read, and the angles between them
ablation.py    a loss, or any measure of logits, with some heads replaced (replacement.py: by what)
"""

from __future__ import annotations

from aotlens.heads.ablation import Ablation, ablate
from aotlens.heads.attention_to import MotifScores, attention_to
from aotlens.heads.inputs import Inputs, Targets
from aotlens.heads.masks import MaskSimilarity, mask_similarity
from aotlens.heads.motifs import MOTIFS, PLACES, Motif
from aotlens.heads.patterns import AttentionPatterns, attention_patterns
from aotlens.heads.scores import TargetedAttention, attention_by_place, motif_scores, targeted_attention
from aotlens.heads.source_code import open_bracket, previous_indentation, previous_use
from aotlens.heads.subspaces import HeadSubspaces, subspaces
from aotlens.heads.values import ValueNorms, value_norms
from aotlens.heads.variation import pattern_variation

__all__ = [
    "MOTIFS",
    "PLACES",
    "Ablation",
    "AttentionPatterns",
    "HeadSubspaces",
    "Inputs",
    "MaskSimilarity",
    "Motif",
    "MotifScores",
    "TargetedAttention",
    "Targets",
    "ValueNorms",
    "ablate",
    "attention_by_place",
    "attention_patterns",
    "attention_to",
    "mask_similarity",
    "motif_scores",
    "open_bracket",
    "pattern_variation",
    "previous_indentation",
    "previous_use",
    "subspaces",
    "targeted_attention",
    "value_norms",
]
