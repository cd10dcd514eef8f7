"""The Paths page."""

from __future__ import annotations

PATHS_CHECKPOINT = "paths-checkpoint"
PATHS_EXAMPLE = "paths-example"
PATHS_TEXT = "paths-text"
PATHS_RUN = "paths-run"
PATHS_COUNT = "paths-count"
PATHS_ASKED = "paths-asked"  # store: what the address named, for the target of its own text
PATHS_PROMPT = "paths-prompt"  # store: {checkpoint, text}, as submitted
PATHS_POSITION = "paths-position"  # store: the token after which the target stands, or None
PATHS = "paths"  # store: what is shown, as services/paths.py describes it; None when nothing is
PATHS_WITHOUT = "paths-without"  # store: the head or path that is taken away, as in the address, or None
PATHS_PANEL = "paths-panel"
PATHS_STRIP = "paths-strip"
PATHS_TARGET = "paths-target"
PATHS_VERSUS = "paths-versus"
PATHS_BY = "paths-by"
PATHS_THROUGH = "paths-through"
PATHS_K = "paths-k"
PATHS_SUM = "paths-sum"
PATHS_NOTES = "paths-notes"
PATHS_BODY = "paths-body"
ORDERS = "path-orders"
ORDERS_GRAPH = "path-orders-graph"
ORDERS_CAPTION = "path-orders-caption"
TOP_PATHS = "top-paths"
TOP_PATHS_TABLE = "top-paths-table"
TOP_PATHS_CAPTION = "top-paths-caption"
FLOW = "path-flow"
FLOW_GRAPH = "path-flow-graph"
FLOW_CAPTION = "path-flow-caption"
PATH_HEADS = "path-heads"
PATH_HEADS_TABLE = "path-heads-table"
WITHOUT = "without"
WITHOUT_BODY = "without-body"
PATHS_DOWNLOAD = "paths-download"
