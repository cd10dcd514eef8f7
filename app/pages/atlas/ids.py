"""Ids of the Atlas page."""

from __future__ import annotations

from app.shell.ids import Ids

ids = Ids(
    "atlas",
    "form checkpoint corpus pasted tokens tabs table search scatter x y",
    "dossier heads links open-heads open-circuits open-paths examples bin weights partners losses motifs path verdict",
    "asked",  # store: {corpus}, what the address names, until an atlas of it is made
    "made",  # store: the key of the job whose atlas was made last
    "shown",  # store: {checkpoint, corpus, key, name} of the atlas that is shown (Atlases.choose); None when none is
    "head",  # store: [layer, head]
    "chosen",  # store: the same with layer, head, layers and heads: the head whose dossier is open
    "led",  # store: {checkpoint} of the guided path
)

#: Panels that follow the atlas, the chosen head, and the guided path.
LISTS = (ids.TABLE, ids.SCATTER)
DOSSIER = (ids.DOSSIER, ids.EXAMPLES, ids.WEIGHTS, ids.PARTNERS, ids.LOSSES, ids.MOTIFS)
GUIDED = (ids.PATH, ids.VERDICT)
