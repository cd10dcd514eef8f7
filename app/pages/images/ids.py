"""Ids of the Images page."""

from __future__ import annotations

from app.shell.ids import Ids

ids = Ids(
    "images",
    "page columns panel checkpoint data of earlier later upload remove canvas draw clear use",
    "gallery grid grid-picture cells layer view order off-heads off-line how all-on",
    "tabs maps pictures paths paths-picture target predictions consistency ranked open-circuits open-card",
    "start",  # store: which of the test images is the first that is shown
    "own",  # store: keys of a person's own images
    "sent",  # store: {name, contents}, an image on its way to the server
    "shown",  # store: {checkpoint, data, of, start, own, n, layers, heads, rows, columns}; None when nothing is shown
    "image",  # store: which of those shown is looked at
    "head",  # store: the head of the layer that is looked at
    "patch",  # store: [row, column] of the query patch, or None
    "off",  # store: [[layer, head], …] of the heads that are switched off
    "ranking",  # store: {checkpoint, data, heads}: [layer, head] by consistency, the most consistent first
    "picked",  # store: {…shown, image, layer, head, patch, off, how, target}, what the tabs show; None for nothing
)

#: Panels of one image, which are asked for once they are in view.
PANELS = (ids.MAPS, ids.PATHS, ids.PREDICTIONS)
