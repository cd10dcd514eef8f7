"""The Heads page."""

from __future__ import annotations

CHECKPOINT = "heads-checkpoint"
EXAMPLE = "heads-example"
TEXT = "heads-text"
RUN = "heads-run"
COUNT = "heads-count"
PROMPT = "heads-prompt"  # store: {checkpoint, text}, as submitted
ANALYSIS = "heads-analysis"  # store: {key, layers, heads, tokens}, of what is shown; None when nothing is
HEAD = "heads-head"  # store: [layer, head]
POSITION = "heads-position"  # store: the locked token's position, or None
VIEW = "heads-view"
DIRECTION = "heads-direction"
HIDE_FIRST = "heads-hide-first"
PROMPT_PANEL = "prompt-panel"
TOKENS = "tokens"
STRIP = "tokens-strip"
GRID = "grid"
GRID_PICTURE = "grid-picture"
GRID_BOX = "grid-box"
GRID_CELLS = "grid-cells"
MAP = "map"
MAP_GRAPH = "map-graph"
MOTIFS = "heads-motifs"  # store: {checkpoint, labels and scores by "layer.head"}
MOTIFS_LINE = "heads-motifs-line"
COLUMNS = "heads-columns"
NEXT = "next"
NEXT_TABLE = "next-table"
DOWNLOAD = "download"
OPEN_CIRCUITS = "heads-open-circuits"
OPEN_PATHS = "heads-open-paths"
