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

OPEN_CIRCUITS = "heads-open-circuits"

# Circuits
CIRCUITS_CHECKPOINT = "circuits-checkpoint"
CIRCUITS_HEAD = "circuits-head"  # store: [layer, head]
CIRCUITS_HEADS = "circuits-heads"
CIRCUITS_KIND = "circuits-kind"
CIRCUITS_LEFT = "circuits-left"
CIRCUITS_RIGHT = "circuits-right"
CIRCUITS_BIASES = "circuits-biases"
CIRCUITS_ASKED = "circuits-asked"  # store: what the address named, until it is checked
CIRCUIT = "circuit"  # store: the circuit that is shown, as services/circuits.py describes it; None when none is
CIRCUIT_PANEL = "circuit-panel"
CIRCUIT_MEANING = "circuit-meaning"
CIRCUIT_EXACTNESS = "circuit-exactness"
OPEN_HEADS = "circuits-open-heads"
CIRCUITS_BODY = "circuits-body"
ENTRIES = "entries"
ENTRIES_GRAPH = "entries-graph"
ENTRIES_ROWS = "entries-rows"
ENTRIES_COLUMNS = "entries-columns"
OVERVIEW = "overview"
OVERVIEW_GRAPH = "overview-graph"
OVERVIEW_STATISTIC = "overview-statistic"
OVERVIEW_CAPTION = "overview-caption"
BLOCK = "circuits-block"  # store: [row block, column block], or None
BLOCK_PANEL = "one-block"
BLOCK_GRAPH = "block-graph"
BLOCK_CAPTION = "block-caption"
BLOCK_TABLE = "block-table"
TOP = "top-entries"
TOP_LARGEST = "top-largest"
TOP_SMALLEST = "top-smallest"
ROW = "one-row"
ROW_CHOICE = "row-choice"
ROW_CAPTION = "row-caption"
ROW_LARGEST = "row-largest"
ROW_SMALLEST = "row-smallest"
COLUMN = "one-column"
COLUMN_CHOICE = "column-choice"
COLUMN_CAPTION = "column-caption"
COLUMN_LARGEST = "column-largest"
COLUMN_SMALLEST = "column-smallest"
EIGENVALUES = "eigenvalues"
EIGENVALUES_GRAPH = "eigenvalues-graph"
EIGENVALUES_CAPTION = "eigenvalues-caption"
SINGULAR = "singular"
SINGULAR_TABLE = "singular-table"
SINGULAR_CAPTION = "singular-caption"
COMPOSITION = "composition"
COMPOSITION_GRAPH = "composition-graph"
COMPOSITION_Z = "composition-z"
COMPOSITION_CAPTION = "composition-caption"
COMPOSITION_TABLE = "composition-table"
COPYING = "copying"
COPYING_TABLE = "copying-table"
COPYING_CAPTION = "copying-caption"
CIRCUITS_DOWNLOAD = "circuits-download"

# Paths
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

# Skip-trigrams
TRIGRAMS_CHECKPOINT = "trigrams-checkpoint"
TRIGRAMS_HEAD = "trigrams-head"  # store: [layer, head]
TRIGRAMS_HEADS = "trigrams-heads"
TRIGRAMS_SCORE = "trigrams-score"
TRIGRAMS_END = "trigrams-end"
TRIGRAMS_DISTANCE = "trigrams-distance"
TRIGRAMS_DELTA = "trigrams-delta"
TRIGRAMS_K = "trigrams-k"
TRIGRAMS_READING = "trigrams-reading"  # store: {text, tokens} that the rows are held against; None: no text
TRIGRAMS = "trigrams"  # store: which table is asked for, as services/trigrams.py describes it
TRIGRAMS_FOUND = "trigrams-found"  # store: {choice, reading, rows, checked}, of the table that is there
TRIGRAMS_PANEL = "trigrams-panel"
TRIGRAMS_MEANING = "trigrams-meaning"
TRIGRAMS_RELATIVE = "trigrams-relative"
TRIGRAMS_PROGRESS = "trigrams-progress"
TRIGRAMS_TIMER = "trigrams-timer"
TRIGRAMS_STOP = "trigrams-stop"
TRIGRAMS_BODY = "trigrams-body"
TRIGRAMS_DOWNLOAD = "trigrams-download"
TRIGRAM_ROWS = "trigram-rows"
TRIGRAM_GRID = "trigram-grid"
TRIGRAM_COUNT = "trigram-count"
TRIGRAM_SOURCE = "trigram-source"
TRIGRAM_DESTINATION = "trigram-destination"
TRIGRAM_OUT = "trigram-out"
TRIGRAM_WITHIN = "trigram-within"
TRIGRAM_VERDICT = "trigram-verdict"
TRIGRAM_KIND = "trigram-kind"
TRIGRAM_ROW = "trigram-row"  # store: the rank of the row that is explained, or None
TRIGRAM = "one-trigram"
TRIGRAM_BODY = "one-trigram-body"
EVIDENCE = "evidence"
EVIDENCE_CORPUS = "evidence-corpus"
EVIDENCE_TOKENS = "evidence-tokens"
EVIDENCE_PASTED = "evidence-pasted"
EVIDENCE_CHECK = "evidence-check"
EVIDENCE_CHECK_ALL = "evidence-check-all"
EVIDENCE_ABOUT = "evidence-about"
EVIDENCE_RULE = "evidence-rule"
TRIGRAM_KINDS = "trigram-kinds"
TRIGRAM_KINDS_GRAPH = "trigram-kinds-graph"
TRIGRAM_KINDS_CAPTION = "trigram-kinds-caption"
TRIGRAM_KINDS_RULES = "trigram-kinds-rules"
TRIGRAM_HEADS = "trigram-heads"
TRIGRAM_HEADS_TABLE = "trigram-heads-table"


def notice(panel: str) -> str:
    """Where a panel says what went wrong or what is missing."""
    return f"{panel}-notice"


def box(graph: str) -> str:
    """What sets the size of a graph."""
    return f"{graph}-box"


def heading(table: str) -> str:
    """What a table among several lists."""
    return f"{table}-heading"


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
