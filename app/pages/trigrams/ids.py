"""Ids of the Skip-trigrams page."""

from __future__ import annotations

from app.shell.ids import Ids

ids = Ids(
    "trigrams",
    "checkpoint heads score end distance delta k least choice meaning relative body rows",
    "source destination out within verdict kind one evidence corpus tokens pasted check check-all rule kinds",
    "forced all-heads tabs besides fold path own after",
    "head",  # store: [layer, head]
    "reading",  # store: {text, tokens} that the rows are held against; None: no text
    "asked",  # store: which table is asked for, as service.py describes it
    "shown",  # store: {choice, reading, rows, checked}, of the table that is there
    "asked-path",  # store: {checkpoint, k, own, after, reading}, of the direct path
    "open",  # store: the ranks of the rows whose group is unfolded
    "heard",  # store: clicks that were answered, of Check the rows, Check every head and Stop
    "row",  # store: the rank of the row that is explained, or None
)

#: Panels about the table that is shown, which are asked for once they are in view.
PANELS = (ids.ONE, ids.KINDS, ids.FORCED)
