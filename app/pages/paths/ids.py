"""Ids of the Paths page."""

from __future__ import annotations

from app.shell.ids import Ids

ids = Ids(
    "paths",
    "checkpoint example text run count panel strip target versus by through k sum notes body orders top flow",
    "heads without views besides of score score-top pairs pair-lines trace trace-lines by-heads by-sources by-orders",
    "score-views score-sums score-body",
    "asked",  # store: what the address named, for the target of its own text
    "prompt",  # store: {checkpoint, text}, as submitted
    "position",  # store: the token after which the target stands, or None
    "shown",  # store: what is shown, a `service.Question`; None when nothing is
    "cell",  # store: {head, query, key, against} of the score that is asked for; None each: what the server takes
    "score-shown",  # store: what is explained, a `ScoreQuestion`; None while a logit is
    "taken",  # store: the head or path that is taken away, as in the address, or None
)

#: Panels that are asked for once they are in view.
PANELS = (ids.TOP, ids.ORDERS, ids.HEADS, ids.WITHOUT, ids.FLOW)
#: Those of a score.
SCORE_PANELS = (ids.PAIRS, ids.TRACE, ids.BY_HEADS, ids.BY_SOURCES, ids.BY_ORDERS)
