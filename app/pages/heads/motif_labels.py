"""Known motifs of heads, as the browser shows them: badges, sentences, and scores by which they are ranked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from aotlens.heads import HeadLabels, MotifScores


def motif_labels(scores: MotifScores, labels: HeadLabels) -> dict[str, Any]:
    """Return for the browser, by "layer.head": scores of each motif that the model can show; the badge of a head's
    strongest motif, if any, and a sentence that explains it.
    """
    from aotlens.heads import MOTIFS

    badges, says, by_motif = {}, {}, {}
    for motif in scores.motifs:
        finite = {_name(head): float(value) for head, value in np.ndenumerate(scores[motif]) if np.isfinite(value)}
        if finite:
            by_motif[motif] = finite
    for of_head, label in np.ndenumerate(np.array(labels.names)):
        motif = MOTIFS.get(str(label))
        if motif is not None:
            badges[_name(of_head)] = motif.badge
            says[_name(of_head)] = f"{motif.badge}: {motif.title}. {labels.sentence(of_head)}"
    return {"badges": badges, "says": says, "scores": by_motif}


def _name(head: tuple[int, ...]) -> str:
    return f"{head[0]}.{head[1]}"
