"""Ids of the Compare page."""

from __future__ import annotations

from app.shell.ids import Ids

ids = Ids(
    "compare",
    "form left right text other other-box another example run count view hide-first tabs",
    "preset-off preset-mssa-mhsa preset-mhsa-gpt preset-mssa-gpt swap",
    "losses strip other-strip head other-head pair-line pairs similarity gallery",
    "left-map right-map difference open-left open-right",
    "left-off right-off",  # stores: the heads that are switched off, [[layer, head], …]
    "left-switches right-switches left-off-line right-off-line how corpus",
    "panes",  # store: {left: {checkpoint, off}, right: {…}, text, other}, as submitted; other is None for the same text
    "shown",  # store: {left: {key, layers, heads, size}, right: {…}, aligned, same, text, other}; None: nothing
    "pair",  # store: {key, left, right}, the heads whose maps are shown; None: none
    "positions",  # store: {left, right}, the locked tokens; both are one where the panes have the same tokens
)
