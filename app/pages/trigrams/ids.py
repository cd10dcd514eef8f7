"""Ids of the Skip-trigrams page, and the views that its panels show."""

from __future__ import annotations

from aotlens.views import View
from aotlens.views.trigrams import BY_HEAD, CHECK, FORCED, KINDS, ONE, PATH, ROWS
from app.shell.ids import Ids

ids = Ids(
    "trigrams",
    "checkpoint heads score end distance delta k fold least within source destination out verdict kind corpus tokens "
    "pasted own after",
    "choice meaning relative rule body rows one kinds forced all-heads path evidence tabs besides",
    "head",  # store: [layer, head], as it was chosen
    "asked",  # store: what the controls say, under the address's names, and the pasted text
    "shown",  # store: {layer, head, layers, heads, corpus}: what is shown of it
    "row",  # store: the rank of the row that is explained, or None
    "open",  # store: the ranks of the rows whose group is listed
    "first",  # store: {whole, rows, count, columns}: the first rows of the table, and what tells it from another
    "drawn",  # store: what each panel shows
    "read",  # store: the same of the panels that read the text
)

VIEWS: dict[str, View] = {
    ids.ROWS: ROWS,
    ids.ONE: ONE,
    ids.KINDS: KINDS,
    ids.FORCED: FORCED,
    ids.ALL_HEADS: BY_HEAD,
    ids.PATH: PATH,
}
#: The views that are started.
STARTED: dict[str, View] = {ids.ROWS: ROWS, ids.EVIDENCE: CHECK, ids.ALL_HEADS: BY_HEAD}
