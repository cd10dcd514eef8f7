"""What the Images page's panels show, for who asks."""

from __future__ import annotations

from app.shell.panel import about

PANEL = about(
    "Images of the data's test set, on which aotlens trains nothing, one of each class in turn; yours come first. "
    "Below each stands what the whole model takes it for, and with what probability. A PNG or JPEG that you upload, "
    "or a drawing, is kept on the machine that runs the app, scaled down and without anything but its pixels; its "
    "middle square goes to the model. The address in your browser holds everything you choose here."
)
GRID = about(
    "Row = head of the layer, column = image. Blue covers the patches that the query attends to: [CLS], or the "
    "mean over all patches in a model without one, or the patch that you click in the tab Maps. Each map has its "
    "own scale, up to its largest value. Value-weighted: attention times the length of the patch's value vector, "
    "what the head really moves. Heads stand in the order of their consistency (the tab Consistency says what "
    "that is) or of their numbers. The button at the left of a row, or x, switches the head off: all maps are "
    "then of a run without it.",
    formula="attention A(query, patch); value-weighted A(query, patch) · ‖x W_V‖",
    source="Attention-Only Transformers, Section 4.1 and Figure 7",
)
MAPS = about(
    "One head on one image beside all heads at once. Click a patch of the image to see where it looks; click it "
    "again to go back. Rollout follows attention through all layers, the mean over heads and the skip connection "
    "included; it knows neither values nor what is read out. Patch by patch: what each adds to the logit of the "
    "predicted class above the mean over classes, along all paths (the tab Paths).",
    formula="rollout: the query's row of Â_L ⋯ Â_1, Â = (mean over heads of A + 1), rows divided by their sums",
    source="Quantifying Attention Flow in Transformers (Abnar and Zuidema 2020)",
)
PATHS = about(
    "With its attention and its norms frozen as they are on this image, an attention-only model is linear: its "
    "logit is a sum over patches, [CLS], positions and biases, along all paths through its heads. The map shows "
    "the patches' part of the chosen class's logit, above the mean over classes: blue speaks for the class, "
    "orange against it. It is of the whole model, whichever heads are switched off. What MLPs write is a term of "
    "its own, held as it is: it has read the patches, and the map leaves it out.",
    formula="logit(c) = Σ patches + [CLS] + positions + MLPs + biases; map: Σ paths patch → c, less its mean over c",
    source="A Mathematical Framework for Transformer Circuits (2021)",
)
PREDICTIONS = about(
    "Probabilities of the classes for the chosen image, of the whole model and without the heads that are switched "
    "off. Means and other outputs that stand in a head's place are those of the head on 32 training images of the "
    "same data, or on test images of a sample that has no others.",
    formula="p = softmax(logits)",
)
CONSISTENCY = about(
    "A head's region on an image is the smallest set of patches with half its attention. Within: the mean overlap"
    " (IoU) of its regions on two images of one class; between: on images of two classes. Their difference is "
    "what the class has to do with where the head looks: a head that always looks at the same place has 1 and 1, "
    "and no difference. Chance: the same with class labels permuted over images, adjusted for the number of heads"
    " (Benjamini and Hochberg). Intervals are bootstraps over images. Of the whole model, queries [CLS] or the "
    "mean over patches. Click a head to see its layer.",
    formula="consistency = within − between; IoU = |a ∩ b| ÷ |a ∪ b|",
    source="Attention-Only Transformers, Figure 7, without picking by hand",
)
