"""Every component id. The browser's side (assets/*.js, *.css) uses the same strings."""

from __future__ import annotations

# shell
PROVIDER = "provider"
LOCATION = "location"
PAGE = "page"
NAVIGATION = "navigation"
THEME_CHOICE = "theme-choice"  # light, dark or system
THEME = "theme"  # what that comes to: light or dark

# Checkpoints
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

# Heads
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


def notice(panel: str) -> str:
    """Where a panel says what went wrong or what is missing."""
    return f"{panel}-notice"


def box(graph: str) -> str:
    """What sets the size of a graph."""
    return f"{graph}-box"


def explanation(panel: str) -> str:
    """A panel's paragraph."""
    return f"{panel}-explanation"


def title(panel: str) -> str:
    """A panel's heading."""
    return f"{panel}-title"


def maximise(panel: str) -> str:
    """The button that gives a panel the whole window."""
    return f"{panel}-maximise"


def export(panel: str, kind: str) -> str:
    """The menu entry that saves a panel's content as `kind`: png, svg, csv, json or npz."""
    return f"{panel}-export-{kind}"
