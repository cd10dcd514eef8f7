"""What is behind the "?" of the Atlas page's panels."""

from __future__ import annotations

from app.shell.panel import about

_FRAMEWORK = "A Mathematical Framework for Transformer Circuits (Elhage et al. 2021)"

FORM = about(
    "Everything that is measured of every head of a checkpoint, from one pass over windows spread over a text, the "
    "weights, and runs without each head. Of training text only the documents that were held out are read. The "
    "atlases of the bundled checkpoints are stored with aotlens; on another text one is made in the background, and "
    "what is done is kept on disk.",
    source="aotlens.heads.atlas; docs/atlas.md",
)
TABLE = about(
    "A row a head. Click a column’s name to sort, a head for its dossier. “does” is the motif that its attention "
    "exceeds chance by most; chance is even attention for motifs of position, and the head’s mean pattern over other "
    "texts for motifs of content. In the search line, compare columns with numbers and join with and, or: "
    "induction_random > 0.4 and layer = 1; or write a part of a label: previous token. Columns that you name are "
    "listed too; in the file all are.",
    formula="excess = attention to the motif’s keys − chance;  constancy = 1 − Σ(A − Ā)² ÷ Σ(A − 1/v)²",
    source="Motifs: Olsson et al. 2022, Kovaleva et al. 2019; constancy: Non-linearity in attention, Figure 1",
)
SCATTER = about(
    "Any two scores against each other, a point a head: colour and shape say what it does. Heads that the search does "
    "not find are faint. Click a point for the head’s dossier.",
)
DOSSIER = about(
    "What the head does, in a sentence made from its scores: the motif, its share of the attention beside chance, how "
    "constant the pattern is over texts, and what the loss rises by without it, with the 95% interval over documents.",
)
EXAMPLES = about(
    "Of every query, what its attention has away from the start token (key 0) is cut in ten equal bins. Of each bin "
    "four queries are kept, each as likely as any other. The framed token is the query; shaded ones are where it "
    "attends, with the share of its attention; what stands behind the query is what the model should say next. … "
    "leaves text out.",
    formula="away = 1 − A(query, 0)",
    source="A seeded reservoir a bin, one pass over the text (aotlens.heads.examples)",
)
WEIGHTS = about(
    "Read from the weights alone. Among the 512 most frequent tokens, those rows of the head’s full circuits whose "
    "largest entry stands out most, and these entries. Looks for: which keys a query token scores highest, above the "
    "level of its row. Through another head: the same where keys (or queries) are what that head writes; it is shown "
    "where the head reads one beyond flipped signs (z ≥ 3). Writes: which next tokens attending to a token makes "
    "likelier.",
    formula="QK: W_E W_QK W_Eᵀ − log-mean-exp of the row, nats;  OV: W_E W_OV W_U − mean of the row, logits",
    source=_FRAMEWORK,
)
PARTNERS = about(
    "Which earlier heads this one reads most, by its queries, keys or values, and which later ones read it: by how "
    "many standard deviations the composition lies above that of the same heads turned at random. Click a head for "
    "its dossier.",
    formula="‖W_first W_second‖ ÷ (‖W_first‖ ‖W_second‖), Frobenius norms",
    source=_FRAMEWORK,
)
LOSSES = about(
    "What the loss rises by, in nats a token, with this head’s output or pattern replaced, all other heads as they "
    "are; 95% interval over documents (CR2; over windows where they are not known). Beside it: all heads at once. A "
    "head whose mean pattern costs nothing does the same on every text.",
    source="aotlens.heads.ablate_each; the practical test of where contextual patterns are needed: Non-linearity in "
    "attention, §5",
)
MOTIFS = about(
    "Attention to each motif’s keys, mean over queries that have such a key, beside chance; the interval is that of "
    "the difference, over documents. Beside induction and duplicate tokens stands what other tokens that occurred as "
    "often get from the same query.",
)
PATH = about(
    "Six views, in order, that find the circuit by which a small model continues what it has read before. Every number "
    "is measured: from the stored atlas, from the text that the step opens, or from runs without the heads.",
    source="In-context Learning and Induction Heads (Olsson et al. 2022)",
)
VERDICT = about(
    "Five claims that an induction circuit makes, and what was measured of each. Losses are on 16 sequences of the "
    "start token and twice the same 50 random tokens, with heads replaced by their means at each position.",
    formula="gain = loss on the first half − loss on the second;  lost = rise without the heads ÷ gain",
    source="aotlens.heads.induction_circuit",
)
