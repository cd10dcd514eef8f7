"""Heads: where they look, what they are for, and what the model loses without them.

reader.py     what heads read and write, here and in TransformerLens bridges (patch_grid.py: images as positions)
patterns.py   patterns, scores and value norms on one prompt, and the head whose behaviour is clearest there
    long_prompts.py   patterns of thousands of tokens: rows on demand, the largest entry of each block
    runs.py           a prompt's run, whole or with heads ablated, and two runs compared
motifs.py     what a head may attend to: previous token, first token, induction, … (a new one is one entry)
    source_code.py    keys that words decide, such as brackets; in images neighbours, border, foreground
    inputs.py         what a motif or a score may read
attention_to.py   the attention of every head to motifs, compared with chance (tally.py: the sums)
    same_answer.py, label_rule.py   the control with other tokens at the query, and the one rule of labels
    scores.py         motif scores on random tokens, attention by place, to marked keys, in prompts of regression
    labels.py         one label per head, from random tokens and text together
head_scores.py  scores of what heads do with what they attend to, compared with chance (a new one is one entry)
    key_logits.py     anti-induction, copy suppression, name movers, function vectors
    score_measures.py   inactive heads, shares of attention, positional share, OV circuits over the vocabulary
same_patterns.py  how far a pattern is the same on every text, and which heads share one
matching.py   the heads of one model paired with those of another
universality.py   which heads recur across models: matched on one evidence, tested on another (likeness.py: evidence;
    assignments.py: pairs and groups; kinds.py: kinds of models and layers compared)
image_maps.py what every head looks at in an image, and whether that is the same part across images of a class
    image_run.py      maps and logits of images, whole or with heads ablated
subspaces.py  the subspaces that heads read, and the angles between them
ablation.py   a loss, or any measure of logits, without some heads together, or each head alone
    replacement.py    what replaces a head's output, and runs without heads
    sufficient.py     a small set of heads that does what the model does
    shapley.py        the contribution of each head, averaged over all orders
atlas.py      a table of all of it with one row per head (examples.py: where heads attend; atlas_stages.py: the stages)
    head_search.py    "induction > 0.4 and layer = 1" among its columns
    atlas_records.py  atlases in files, and those of the bundled checkpoints
    summary.py        the heads that a search finds, and one head closely
induction.py  the induction circuit of a model, found in its atlas and tested (induction_steps.py: in six steps)
"""

from __future__ import annotations

from aotlens.heads.ablation import Ablation, EachHead, Metric, ablate, ablate_each
from aotlens.heads.assignments import HeadGroup
from aotlens.heads.atlas import Atlas, atlas
from aotlens.heads.atlas_records import AtlasRecord, find_atlas, stored_atlas
from aotlens.heads.attention_to import MotifScores, attention_to
from aotlens.heads.examples import HeadExample, HeadExamples
from aotlens.heads.examples import HeadExample as Example
from aotlens.heads.head_scores import HEAD_SCORES, HeadScore, HeadScores, head_scores
from aotlens.heads.image_maps import ImageMaps, SemanticConsistency, image_maps, semantic_consistency
from aotlens.heads.image_run import ClassPredictions, HeadOnImage, ImageRun, LayerOnImages, image_run
from aotlens.heads.induction import InductionCircuit, induction_circuit, induction_pairs
from aotlens.heads.induction_steps import InductionSteps, induction_steps
from aotlens.heads.inputs import Inputs, Targets
from aotlens.heads.kinds import KindComparison
from aotlens.heads.labels import HeadLabels, head_labels, label_words
from aotlens.heads.long_prompts import BlockMaxima, LongPatterns, long_patterns
from aotlens.heads.matching import HeadMatching, match_heads
from aotlens.heads.motifs import MOTIFS, PLACES, Motif, motifs_of
from aotlens.heads.patterns import AttentionPatterns, ValueNorms, attention_patterns, value_norms
from aotlens.heads.replacement import HeadSwitches, reference_windows, without
from aotlens.heads.runs import ComparedLosses, ComparedMaps, ComparedRuns, HeadMap, PromptRun, compare_runs, run_prompt
from aotlens.heads.same_patterns import PatternConsistency, RepeatedPatterns, pattern_consistency, repeated_patterns
from aotlens.heads.score_measures import InactiveHeads, inactive_heads
from aotlens.heads.scores import (
    TargetedAttention,
    attention_by_place,
    attention_in_prompts,
    motif_scores,
    targeted_attention,
)
from aotlens.heads.shapley import ShapleyValues, shapley_heads
from aotlens.heads.source_code import open_bracket, previous_indentation, previous_use
from aotlens.heads.subspaces import HeadSubspaces, subspaces
from aotlens.heads.sufficient import SufficientHeads, sufficient_heads
from aotlens.heads.summary import (
    FoundHeads,
    HeadSummary,
    SharpestCircuits,
    SharpestRows,
    ablated_tokens,
    find_heads,
    head_summary,
    sharpest_circuits,
)
from aotlens.heads.universality import Universality, universality
