"""Ids of the Paths page."""

from __future__ import annotations

from aotlens.views import paths, scores
from app.shell.ids import Ids

ids = Ids(
    "paths",
    "checkpoint example text run count panel strip target versus by through k sum notes body orders top paths flow",
    "heads without views besides of score score-top pairs pair-lines trace trace-lines by-heads by-sources by-orders",
    "score-views score-sums score-body",
    "asked",  # store: what the address named, for the target of its own text
    "prompt",  # store: {checkpoint, text}, as submitted; panels of a logit follow it
    "score-prompt",  # store: the same while a score is explained, else None; panels of a score follow it
    "position",  # store: the token after which the target stands, or None
    "shown",  # store: the logit that is explained, with the prompt's tokens and key; None when none is
    "cell",  # store: {head, query, key, against} of the score that is asked for; None each: what the server takes
    "taken",  # store: the head or path that is taken away, as in the address, or None
    "drawn scored",  # stores: what the panels' pictures are of; of a logit, and of a score
)

#: Panels by what they show: of a logit, and of a score.
VIEWS = {
    ids.PANEL: paths.SOURCES, ids.TOP: paths.TOP, ids.HEADS: paths.HEADS, ids.FLOW: paths.FLOW,
    ids.ORDERS: paths.ORDERS, ids.WITHOUT: paths.WITHOUT,
}  # fmt: skip
SCORE_VIEWS = {
    ids.SCORE: scores.SCORE, ids.PAIRS: scores.PAIRS, ids.TRACE: scores.TRACE, ids.BY_HEADS: scores.BY_HEADS,
    ids.BY_SOURCES: scores.BY_SOURCES, ids.BY_ORDERS: scores.BY_ORDERS,
}  # fmt: skip
