"""Ids of the Images page."""

from __future__ import annotations

from aotlens.views import images
from app.shell.ids import Ids

ids = Ids(
    "images",
    "page columns panel checkpoint data of previous next upload remove canvas draw clear use",
    "gallery grid grid-cells layer view order off-line how all-on",
    "tabs maps pictures paths paths-picture target predictions likeliest consistency ranked open-circuits open-card",
    "start",  # store: which of the test images is the first that is shown
    "own",  # store: keys of a person's own images
    "sent",  # store: {name, contents}, an image on its way to the server
    "chosen",  # store: what the form says; panels follow it
    "shown",  # store: which images are shown, as callbacks.py describes them; None when none are
    "image",  # store: which of those shown is looked at
    "head",  # store: the head of the layer that is looked at
    "patch",  # store: [row, column] of the query patch, or None
    "off",  # store: [[layer, head], …] of the heads that are ablated
    "added taken",  # stores: what patches add to the predicted class, and to the class whose logit is taken apart
    "measured",  # store: {checkpoint, data} whose heads' consistency is measured
    "ranking",  # store: {checkpoint, data, heads}: [layer, head] by consistency, the most consistent first
    "drawn ranked-of",  # stores: what the panels show; of consistency, which takes longer, by itself
)

#: Panels by what they show.
VIEWS = {
    ids.GRID: images.LAYER, ids.MAPS: images.HEAD, ids.PATHS: images.PATCHES, ids.PREDICTIONS: images.PREDICTIONS,
    ids.CONSISTENCY: images.CONSISTENCY,
}  # fmt: skip
