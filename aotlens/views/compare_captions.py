"""Sentences about two runs side by side."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from aotlens.conventions import describe, head_name, minus, several
from aotlens.views.compare_choice import CompareParameters, Side

if TYPE_CHECKING:
    from aotlens.heads import ComparedLosses, ComparedMaps, ComparedRuns, HeadMatching

_MEASURES = {"ov": "OV", "qk": "QK", "pattern": "pattern"}


def pane_name(params: CompareParameters, side: Side) -> str:
    """Name a pane's checkpoint, and which of its heads are ablated."""
    name, ablated = params.info(side).name, getattr(params, side)
    if not ablated:
        return name
    instead = f" (replaced with {params.instead})" if params.instead else ""
    return f"{name} without {', '.join(map(head_name, ablated))}{instead}"


def says_losses(params: CompareParameters, result: ComparedLosses) -> str:
    """Say both losses, their difference, and where it is largest."""
    parts = []
    sides: tuple[Side, Side] = ("left", "right")
    for side in sides:
        values = getattr(result, side)
        known, name = values[np.isfinite(values)], pane_name(params, side)
        parts.append(f"{name}: {known.mean():.3f} nats per token" if known.size else name)
    line, difference = "; ".join(parts) + ".", result.difference
    if difference is None:
        if params.text_of("left") != params.text_of("right"):
            return f"{line} The panes have different texts, so no losses correspond."
        sums = [float(np.nansum(values)) for values in (result.left, result.right)]
        return (
            f"{line} The panes have different tokens of this text, so no losses correspond. Over all its tokens: "
            f"{sums[0]:.1f} and {sums[1]:.1f} nats."
        )
    known = difference[np.isfinite(difference)]
    if not known.size:
        return line
    if not known.any():
        return f"{line} Right − left: 0 on every token."
    largest = int(np.nanargmax(np.abs(difference)))
    token = describe(result.left_tokens[largest])
    return (
        f"{line} Right − left: {minus(known.mean(), '+.3f')} nats per token, the most at {token} (position {largest}), "
        f"{minus(difference[largest], '+.2f')}."
    )


def says_runs(params: CompareParameters, runs: ComparedRuns) -> str:
    """Say how many tokens the texts have, and which of their positions correspond, or why none does."""
    if runs.aligned:
        return f"{runs.left.patterns.n_pos} tokens."
    if not runs.positions:
        return runs.why_nothing_corresponds()
    sizes, n = (runs.left.patterns.n_pos, runs.right.patterns.n_pos), len(runs.positions)
    if sizes == (n, n):
        return f"Two texts of {n} tokens: position by position."
    return (
        f"{n} tokens that both texts have in this order are compared, of {sizes[0]} and {sizes[1]}; rows and columns "
        "of the others are empty."
    )


def says_maps(params: CompareParameters, result: ComparedMaps) -> str:
    """Say which heads' maps are compared, and where they differ most."""
    heads = f"Head {head_name(result.right.head)} at the right − head {head_name(result.left.head)} at the left"
    return f"{heads}: {result.headline or 'no entry differs'}."


def says_pairs(params: CompareParameters, result: HeadMatching) -> str:
    """Say how many heads are matched, and how well."""
    clear = int((result.margins > 0).sum())
    mean = float(result.to_frame()["similarity"].mean())
    pairs, verb = several(len(result.pairs), "pair"), "is" if clear == 1 else "are"
    return f"{pairs}, mean similarity {mean:.2f}; {clear} {verb} the left head's best choice by itself."


def says_similarity(params: CompareParameters, result: HeadMatching) -> str:
    """Say what the cosines are of."""
    return f"Mean of the cosines of {', '.join(_MEASURES[name] for name in result.measured)}."


def each_pair(result: HeadMatching) -> Iterator[dict[str, Any]]:
    """Yield for each left head the right one that it is paired with, and a sentence that says why."""
    rows = {(row["left_layer"], row["left_head"]): row for row in result.to_frame().to_dict("records")}
    for place, left in enumerate(result.left):
        right = result.beside(left)
        column = result.right.index(right)
        measures = ", ".join(
            f"{_MEASURES[measure]} {getattr(result, measure)[place, column]:.2f}" for measure in result.measured
        )
        similarity = float(result.similarity[place, column])
        alike = f"similarity {similarity:.2f}: cosines of {measures}"
        names = head_name(left), head_name(right)
        says = f"Head {names[0]} has no partner of its own; most like it is head {names[1]} ({alike})."
        if left in rows:
            margin = float(rows[left]["margin"])
            beats = f"; {abs(margin):.2f} {'above' if margin >= 0 else 'below'} the left head's best other one"
            says = f"Head {names[0]} is matched with head {names[1]} ({alike}{'' if margin != margin else beats})."
        pair = {"left": list(left), "right": list(right), "matched": left in rows}
        yield {**pair, "says": says, "similarity": similarity}
