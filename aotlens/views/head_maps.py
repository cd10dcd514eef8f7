"""The sentence about one row of a head's map, which several families say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from aotlens.conventions import Head, head_name

if TYPE_CHECKING:
    from aotlens.heads import AttentionPatterns

#: Keys that are named.
_N_KEYS = 3


def maps_sentence(patterns: AttentionPatterns, head: Head, query: int) -> str:
    """Say which keys a head attends to most from a query."""
    row = patterns.pattern[head[0], head[1], query, : query + 1]
    order = np.argsort(-np.abs(row))[:_N_KEYS]
    keys = ", ".join(f"{patterns.str_tokens[key]} {row[key]:.3f}" for key in order)
    return f"From {patterns.str_tokens[query]} head {head_name(head)} attends to {keys}, most first."
