"""Heads: where they look, what they are for, and what the model loses without them.

patterns.py   attention patterns, scores and value norms on one prompt
long_prompts.py   the same of thousands of tokens: rows when they are asked for, the largest entry of each block
runs.py       a prompt's run, whole or with heads ablated, and two runs compared
motifs.py     what a head may attend to: previous token, first token, induction, … (a new one is one entry)
    image_motifs.py   neighbours, border and foreground of images
inputs.py     what a motif may know of the sequences, or images
attention_to.py   the attention of every head to motifs, beside chance (tally.py: the sums)
head_scores.py  scores of what heads do with what they attend to, beside chance (a new one is one entry)
    key_logits.py     what heads add to logits through single keys: anti-induction, copy suppression
    inactive.py       heads that write little compared with their layer, and those that a first-token score misses
    name_movers.py    name movers and negative name movers on pairs of prompts
    vocabulary_scores.py, score_variance.py   copy suppression and successors in OV circuits; positions and content
    score_inputs.py   what a score may read
labels.py     one label a head, from random tokens and text together
scores.py     motif scores on repeated random tokens, attention by place, attention to chosen keys
prompts.py    attention in prompts of in-context regression: label to input, input to labels
source_code.py   keys that words decide: punctuation, open brackets, indentation, earlier uses of a word
same_patterns.py  how far a pattern is the same on every text, and which heads share one
matching.py   the heads of one model paired with those of another
universality.py   which heads recur across models: matched on one evidence, tested on another (likeness.py,
    assignments.py, kinds.py)
reader.py     what heads read and write, in our models and in TransformerLens bridges
masks.py      how different the same [MASK] becomes in different contexts
values.py     lengths of value vectors, by kind of token
image_maps.py what every head looks at in an image (patch_grid.py: an image as positions)
image_run.py  the same and the logits, whole or with heads ablated, and what is read off them
consistency.py   whether it looks at the same part across images of a class
subspaces.py  the subspaces that heads read, and the angles between them
ablation.py    a loss, or any measure of logits, with some heads replaced (replacement.py: by what)
without.py    a model without some heads, for whatever it is asked
each_head.py   the same for each head alone, without computing earlier layers again
atlas.py       a row a head of all of it (examples.py: where it attends)
    atlas_stages.py, atlas_file.py   measured in stages, kept on disk
    head_search.py          "induction > 0.4 and layer = 1" among its columns
    atlas_records.py        atlases in files, and those of the bundled checkpoints
    summary.py              the heads that it finds, and one closely (sharpest.py: what its circuits are sharpest about)
clearest.py    the head whose behaviour on one text is clearest, and why, in a sentence
induction.py   the induction circuit of a model, found in its atlas and put to the test
sufficient.py  a small set of heads that does what the model does
"""

from __future__ import annotations

from aotlens.heads.ablation import Ablation, Metric, ablate
from aotlens.heads.assignments import HeadGroup
from aotlens.heads.atlas import Atlas, atlas
from aotlens.heads.atlas_records import AtlasRecord, find_atlas, stored_atlas
from aotlens.heads.attention_to import MotifScores, attention_to
from aotlens.heads.consistency import SemanticConsistency, semantic_consistency
from aotlens.heads.each_head import EachHead, ablate_each
from aotlens.heads.examples import HeadExample, HeadExamples
from aotlens.heads.examples import HeadExample as Example
from aotlens.heads.head_scores import HEAD_SCORES, HeadScore, HeadScores, head_scores
from aotlens.heads.image_maps import ImageMaps, image_maps
from aotlens.heads.image_run import ClassPredictions, HeadOnImage, ImageRun, LayerOnImages, image_run
from aotlens.heads.inactive import InactiveHeads, inactive_heads
from aotlens.heads.induction import InductionCircuit, induction_circuit, induction_pairs
from aotlens.heads.induction_steps import InductionSteps, induction_steps
from aotlens.heads.inputs import Inputs, Targets
from aotlens.heads.kinds import KindComparison
from aotlens.heads.labels import HeadLabels, head_labels, label_words
from aotlens.heads.long_prompts import BlockMaxima, LongPatterns, long_patterns
from aotlens.heads.masks import MaskSimilarity, mask_similarity
from aotlens.heads.matching import HeadMatching, match_heads
from aotlens.heads.motifs import MOTIFS, PLACES, Motif, motifs_of
from aotlens.heads.patch_grid import PatchGrid
from aotlens.heads.patterns import AttentionPatterns, attention_patterns
from aotlens.heads.prompts import attention_in_prompts
from aotlens.heads.runs import ComparedLosses, ComparedMaps, ComparedRuns, HeadMap, PromptRun, compare_runs, run_prompt
from aotlens.heads.same_patterns import PatternConsistency, RepeatedPatterns, pattern_consistency, repeated_patterns
from aotlens.heads.scores import TargetedAttention, attention_by_place, motif_scores, targeted_attention
from aotlens.heads.shapley import ShapleyValues, shapley_heads
from aotlens.heads.sharpest import SharpestCircuits, SharpestRows, sharpest_circuits
from aotlens.heads.source_code import open_bracket, previous_indentation, previous_use
from aotlens.heads.subspaces import HeadSubspaces, subspaces
from aotlens.heads.sufficient import SufficientHeads, sufficient_heads
from aotlens.heads.summary import FoundHeads, HeadSummary, ablated_tokens, find_heads, head_summary
from aotlens.heads.universality import Universality, universality
from aotlens.heads.values import ValueNorms, value_norms
from aotlens.heads.without import HeadSwitches, reference_windows, without
