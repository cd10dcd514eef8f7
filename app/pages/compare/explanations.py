"""What is behind the "?" of the Compare page's panels."""

from __future__ import annotations

from app.shell.panel import about

FORM = about(
    "Two panes, each a checkpoint, a text and a set of heads that are switched off. Both have one text unless you give "
    "the right one its own. The address in your browser holds all of it: heads as 1.0,1.3, and of a text of more than "
    "600 characters, which is then kept on this machine, its hash.",
    source="What takes a head's place: docs/atlas.md and the library's aotlens.heads.ablation",
)
LOSSES = about(
    "How much more a token costs at the right than at the left, in nats: blue where the right pane does worse, orange "
    "where it does better; the number is under the token, both losses are in its tooltip. Point at a token to mark its "
    "row in the maps, click to lock it. Where the panes have other tokens, each has a strip of its own, coloured by "
    "its loss.",
    formula="ℓᵢ = −log p(xᵢ | x₁ … xᵢ₋₁);  Δᵢ = ℓᵢ(right) − ℓᵢ(left)",
    source="A masked language model is asked for each token with a mask in its place",
)
PANE_MAP = about(
    "The map of one head of the pane, with the heads switched off that the pane leaves out. Left and right have one "
    "colour scale. Point at an entry to see it in the other maps too, where the panes have the same tokens; click to "
    "lock that query. A head that is switched off still has a pattern: it is what it writes that is replaced.",
    formula="A(i, j) = φ(score(i, j))",
    source="A Mathematical Framework for Transformer Circuits (2021); φ, MSSA: Attention-Only Transformers, Eq. 4",
)
DIFFERENCE = about(
    "Right − left, entry by entry: blue where the right head attends more, orange where the left one does. Two texts "
    "with equally many tokens are compared position by position, others where they have the same tokens in the same "
    "order (a longest common subsequence), at the left text’s places. A softmax does not see a "
    "constant along a row, so differences of scores are to be compared along rows only.",
    formula="D(i, j) = A_right(i, j) − A_left(i, j)",
)
PAIRS = about(
    "Of one checkpoint, each head stands beside itself. Heads of two checkpoints are matched by what they do to "
    "tokens, whatever the bases of their weights: the cosines of the OV circuits and of the QK circuits between "
    "tokens, and, where both panes have the same tokens, of the patterns on this text. The pairs have the largest sum "
    "of mean cosines; the margin is by how much a pair beats the left head's best other one. The first matching of two "
    "checkpoints takes up to some seconds, and is kept. Heads that are switched off are matched as they are in the "
    "whole model.",
    formula="⟨M, N⟩ = Σ pᵢ pⱼ M(i, j) N(i, j),  M = W_E W_OV W_U or W_E W_QK W_Eᵀ,  p: shares of the tokens",
    source="Assignment: Kuhn 1955; docs/atlas.md, The heads of two models",
)
SIMILARITY = about(
    "How alike every left head is to every right one: the mean of the cosines. Click an entry to see these two heads.",
    formula="(cos OV + cos QK + cos pattern) / 3, of those that there are",
    source="docs/atlas.md, The heads of two models",
)
