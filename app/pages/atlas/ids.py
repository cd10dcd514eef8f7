"""Ids of the Atlas page."""

from __future__ import annotations

from aotlens.views import atlas as views
from app.shell.ids import Ids

ids = Ids(
    "atlas",
    "form checkpoint corpus pasted tokens tabs table search scatter x y shapley",
    "summary heads links open-heads open-circuits open-paths examples bin weights partners losses motifs path verdict",
    "asked",  # store: {corpus}, what the address names, until an atlas of it is made
    "made",  # store: the key of the job whose atlas was made last
    "shown",  # store: {checkpoint, corpus, key, name, layers, heads} of the atlas that is shown; None when none is
    "head",  # store: [layer, head]
    "chosen",  # store: `shown` with layer, head, and whether somebody picked that head
    "drawn weighed walked",  # stores: what the panels' pictures are of
)

#: Panels by what they show: of the atlas and the chosen head, and of the guided path.
VIEWS = {
    ids.TABLE: views.HEADS, ids.SCATTER: views.SCORES, ids.SHAPLEY: views.SHAPLEY, ids.SUMMARY: views.SUMMARY,
    ids.EXAMPLES: views.EXAMPLES, ids.MOTIFS: views.MOTIFS, ids.WEIGHTS: views.WEIGHTS, ids.LOSSES: views.LOSSES,
    ids.PARTNERS: views.PARTNERS,
}  # fmt: skip
GUIDED = {ids.VERDICT: views.CIRCUIT}
