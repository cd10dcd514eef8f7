"""What an address says, as values; pure functions, a file a page.

    /heads?checkpoint=novels-2l-mhsa&text=The+cat&head=1.3&position=4&view=scores&direction=from&sink=hide
    /circuits?checkpoint=novels-2l-mhsa&head=1.0&left=tokens&right=0.3&rows=12-262&block=3.17
    /paths?checkpoint=novels-2l-mhsa&text=Then+Harriet&position=17&target=262&versus=11&by=pos&k=40&without=1.0
    /trigrams?checkpoint=novels-1l-mhsa&head=0.2&score=sum&end=bottom&distance=mean&k=200&out=%C2%B7thou&verdict=confirmed
    /distillation?results=novels-12l-mssa,novels-2l-gpt&width=64&across=previous&of=novels-2l-gpt&head=0.3&text=Then+Harriet
    /nonlinearity?preset=sawtooth&depth=3&tolerance=0.001&construction=paper&eta=0.05&head=1.2&x=0.4
    /checkpoints?checkpoint=novels-2l-mhsa

Addresses are typed, cut and pasted, so parsing never fails: what can't be understood is left out, which the page reads
as "not chosen". The browser writes the same form (`writeAddress` in the page's script). query.py is what they share.
"""

from __future__ import annotations

from app.urlstate.checkpoints import CHECKPOINTS_PATH, format_checkpoints, parse_checkpoints
from app.urlstate.circuits import (
    CIRCUITS_PATH,
    FIRST_Z,
    MAX_CHOSEN,
    SIDES,
    CircuitsState,
    Kind,
    Statistic,
    format_circuits,
    parse_circuits,
)
from app.urlstate.distillation import (
    DISTILLATION_PATH,
    MAX_RESULTS,
    Across,
    DistillationState,
    format_distillation,
    parse_distillation,
)
from app.urlstate.heads import HEADS_PATH, Direction, HeadsState, View, format_heads, parse_heads
from app.urlstate.nonlinearity import (
    MAX_DEPTH,
    MAX_KNOTS,
    MAX_WIDTH,
    NONLINEARITY_PATH,
    NonlinearityState,
    Preset,
    format_nonlinearity,
    parse_nonlinearity,
    real,
)
from app.urlstate.paths import FIRST_K, MAX_K, PATHS_PATH, PathsState, Ranking, format_paths, parse_paths
from app.urlstate.query import parse_query
from app.urlstate.trigrams import (
    FIRST_ROWS,
    FIRST_TOKENS,
    MAX_ROWS,
    TRIGRAM_KINDS,
    TRIGRAMS_PATH,
    VERDICTS,
    End,
    Score,
    TrigramsState,
    Verdict,
    Within,
    format_trigrams,
    parse_trigrams,
)

__all__ = [
    "CHECKPOINTS_PATH",
    "CIRCUITS_PATH",
    "DISTILLATION_PATH",
    "FIRST_K",
    "FIRST_ROWS",
    "FIRST_TOKENS",
    "FIRST_Z",
    "HEADS_PATH",
    "MAX_CHOSEN",
    "MAX_DEPTH",
    "MAX_K",
    "MAX_KNOTS",
    "MAX_RESULTS",
    "MAX_ROWS",
    "MAX_WIDTH",
    "NONLINEARITY_PATH",
    "PATHS_PATH",
    "SIDES",
    "TRIGRAMS_PATH",
    "TRIGRAM_KINDS",
    "VERDICTS",
    "Across",
    "CircuitsState",
    "Direction",
    "DistillationState",
    "End",
    "HeadsState",
    "Kind",
    "NonlinearityState",
    "PathsState",
    "Preset",
    "Ranking",
    "Score",
    "Statistic",
    "TrigramsState",
    "Verdict",
    "View",
    "Within",
    "format_checkpoints",
    "format_circuits",
    "format_distillation",
    "format_heads",
    "format_nonlinearity",
    "format_paths",
    "format_trigrams",
    "parse_checkpoints",
    "parse_circuits",
    "parse_distillation",
    "parse_heads",
    "parse_nonlinearity",
    "parse_paths",
    "parse_query",
    "parse_trigrams",
    "real",
]
