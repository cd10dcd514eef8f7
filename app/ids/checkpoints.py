"""The Checkpoints page."""

from __future__ import annotations

CHECKPOINTS_TABLE = "checkpoints-table"
CHECKPOINTS_CHOSEN = "checkpoints-chosen"
CHECKPOINTS_OPEN = "checkpoints-open"
CARD = "card"
CARD_BODY = "card-body"
CURVE = "curve"
CURVE_GRAPH = "curve-graph"
CURVE_EMPTY = "curve-empty"
PARAMETERS = "parameters"
PARAMETERS_TABLE = "parameters-table"
CATALOG = "catalog"
