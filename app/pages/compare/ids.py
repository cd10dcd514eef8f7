"""Ids of the Compare page, and the views of its panels."""

from __future__ import annotations

from aotlens.views import View, compare
from app.shell.ids import Ids

ids = Ids(
    "compare",
    "form left right text other other-box another example run count view hide-first tabs",
    "preset-off preset-mssa-mhsa preset-mhsa-gpt preset-mssa-gpt swap",
    "losses strip other-strip head other-head pair-line pairs similarity gallery",
    "left-map right-map difference left-canvas right-canvas difference-canvas open-left open-right",
    "left-off right-off",  # stores: the heads that are ablated, [[layer, head], …]
    "left-switches right-switches left-off-line right-off-line how corpus",
    "panes",  # store: {left: {checkpoint, off}, right: {…}, text, other}, as submitted; other is None for the same text
    "shown",  # store: what the panes hold (callbacks.py, `choose`); None: nothing
    "matched",  # store: {key, pairs, similarity} of two models' heads; None: nothing
    "pair",  # store: {left, right}, the heads whose maps are shown; None: none
    "positions",  # store: {left, right, own}, the locked tokens; `own` is the right one where it is another
    "drawn paired",  # stores: what the panels' pictures are of
)

VIEWS: dict[str, View] = {
    ids.LOSSES: compare.LOSSES,
    ids.LEFT_MAP: compare.LEFT,
    ids.RIGHT_MAP: compare.RIGHT,
    ids.DIFFERENCE: compare.DIFFERENCE,
    ids.PAIRS: compare.PAIRS,
    ids.SIMILARITY: compare.SIMILARITY,
}

#: The pairs that one click puts side by side, by the button's id: its label, and the bundled checkpoints, whose layers
#: have 393,216 numbers each (docs/atlas.md).
PRESETS: dict[str, tuple[str, str, str]] = {
    ids.PRESET_MSSA_MHSA: ("MSSA | MHSA", "novels-12l-mssa", "novels-6l-mhsa"),
    ids.PRESET_MHSA_GPT: ("MHSA | GPT", "novels-6l-mhsa", "novels-2l-gpt"),
    ids.PRESET_MSSA_GPT: ("MSSA | GPT", "novels-12l-mssa", "novels-2l-gpt"),
}
