"""What is behind the "?" of the In-context regression page's panels."""

from __future__ import annotations

from app.pages.regression.service import N_HEADS, N_PROMPTS, N_READ, N_SUPPORT
from app.shell.panel import about

ERRORS = about(
    "A prompt x1, y1, x2, y2, … labels random inputs by one random linear function; at every x the model says what its "
    f"label is. A line is the mean squared error over {N_PROMPTS} prompts by the number of labelled examples before "
    "the query, divided by what saying 0 gets; its band is a 95% interval over prompts, and says nothing of "
    "other trainings. Dashed: least squares, averaging (the mean of y·x as weights) and the mean label of the 3 "
    "nearest inputs, on the same prompts; a linear axis cuts them off where they rise above all models. Sliders move "
    "prompts away from those that the models were trained on. A skew s makes the i-th eigenvalue of the inputs' "
    "covariance go as i to the −s, in a basis that each prompt draws for itself; inputs stay as long on average.",
    formula="error(i) = E (ŷ − y)² ÷ E y² after i examples; without noise and with inputs N(0, I) least squares has "
    "max(0, 1 − i/d), averaging (d + 1)/i",
    source="Attention-Only Transformers, §4.2.2 and Figure 6; What Can Transformers Learn In-Context? (Garg et al. "
    "2022), §4 for shifted prompts",
)
LAYERS = about(
    "After each layer the answer is read off the stream at every x by one linear map, fitted by least squares on "
    f"{N_READ} other prompts, and measured on {N_READ}. Dashed: for each layer the algorithm whose answers are nearest "
    "to it, of 1 to 6 steps of gradient descent from 0, of descent preconditioned by I − γH, and least squares; step "
    "sizes are the best for every number of examples. That two agree does not say that the layer computes it that way.",
    formula="distance = mean (probe's answer − algorithm's answer)² ÷ E y²",
    source="Transformers Learn In-Context by Gradient Descent (von Oswald et al. 2023)",
)
GRID = about(
    "Row = layer, column = head; in each map, queries go down and keys across, in the order x1, y1, x2, y2, … Each map "
    "has its own colour scale, up to its largest value. Click one, or move with the arrow keys.",
)
MAP = about(
    "One head on one of the prompts that errors are measured on. Click an entry to lock its query's row, again or "
    "Escape to let it go; point at an entry for its exact value.",
    formula="A(i, j) = φ(score(i, j)); attention · ‖v‖ weighs it by the length of the key's value vector",
    source="A Mathematical Framework for Transformer Circuits (2021); MSSA: Attention-Only Transformers, Eq. 4",
)
WITHOUT = about(
    f"What the mean squared error over all queries of a prompt grows by when one head gives way, on {N_HEADS} prompts; "
    "labels are not asked for and do not count. Means are those of the head over the same prompts. Intervals are "
    "Student's t of the paired differences, the prompt being the unit.",
    formula="change = mean over prompts of (error without the head − error)",
)
MOTIFS = about(
    "Mean attention beyond even attention: own input: from a label to its x; all labels, all inputs: from an x to the "
    "labels, or inputs, before it; last label: from an x to the label before it; current token: to itself. "
    f"On {N_HEADS} prompts; the file has each score, even attention's, and 95% intervals over prompts.",
    formula="excess = mean over queries of Σ A(query, keys of the motif) − the same of even attention",
)
SUPPORT = about(
    "On a sparse task only some coordinates count, others in each prompt, which no weight of the model can know. For "
    "queries x and the labels before them, a head's scores are regressed on the products of coordinates that count and "
    "of those that do not. A head that compares inputs whatever the prompt has the same slope for both; one that has "
    "found the support has a larger one for those that count. Labels are sums over the support: a third term takes off "
    f"what a head's scores owe to comparing the answer with them. On {N_SUPPORT} prompts, with 95% intervals.",
    formula="score(xᵢ, yⱼ) = aᵢ + β_on Σ over the support xᵢₖxⱼₖ + β_off Σ over the others xᵢₖxⱼₖ + β_labels (w·xᵢ) yⱼ",
)
