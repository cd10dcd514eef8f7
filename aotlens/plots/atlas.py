"""Heads as points: any score of the atlas against any other, so that what is rare stands apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go

from aotlens.conventions import HeadLike, as_head, head_name
from aotlens.plots.colours import BACKGROUND, INK, LINES, QUIET_INK, Theme
from aotlens.plots.primitives import LEGEND, axes, line_colour, plotly_text

if TYPE_CHECKING:
    import pandas as pd

    from aotlens.heads import Atlas, FoundHeads

_SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "x", "star", "pentagon")
#: The number of heads up to which they are named at their points.
_MOST_NAMES = 24
#: Columns of the atlas by what they are called in a table and on an axis, and what they are.
COLUMNS: dict[str, tuple[str, str]] = {
    "label": (
        "does",
        "The motif whose attention exceeds chance by most, or “mixed” if none is enough; otherwise at the first token: "
        "with the attention that the first token does not get",
    ),
    "margin": ("margin", "By how much that excess beats the next motif’s"),
    "induction_random": (
        "induction, random tokens",
        "On random tokens that come twice: attention to what followed the first occurrence",
    ),
    "pattern_consistency": (
        "pattern consistency", "1: the same pattern on every text; 0: the mean over other texts predicts nothing of it"
    ),
    "pattern_consistency_without_first": (
        "pattern consistency without key 0", "The same with attention to the start token left out and the rest rescaled"
    ),
    "mean_distance": ("mean distance", "Tokens between query and key, weighted by attention"),
    "entropy": ("entropy", "Of a query’s attention, nats"),
    "copying": ("copying score", "Share of tokens that raise their own logit most through the head"),
    "copying_score": ("copying score (eigenvalues)", "Σ λ ÷ Σ |λ| over the eigenvalues of tokens → logits"),
    "loss_position_mean": (
        "Δ loss, mean output", "Nats that the loss rises by with the output replaced by its mean at each position"
    ),
    "loss_fixed_pattern": (
        "Δ loss, mean pattern", "Nats that the loss rises by with its pattern the mean over other texts"
    ),
    "ffn_error": ("error of its FFN", "Relative error of a feed-forward network of 16 hidden units in its place"),
    "reads": (
        "strongest input composition",
        "The previous head with the largest composition on the text beyond flipped signs, by which input, and z; from "
        "3 on it stands out",
    ),
    "feeds": ("strongest output composition", "The next head that reads it most beyond flipped signs"),
}  # fmt: skip


def column_title(column: str) -> str:
    """Return the title of a column of the atlas."""
    if column in COLUMNS:
        return COLUMNS[column][0]
    if column.startswith("x_"):
        return f"{column_title(column[2:])} − chance"
    return column.replace("_", " ")


def column_help(column: str, sentences: Mapping[str, str] = {}) -> str:
    """Describe a column of the atlas; `sentences` describe its declared scores, by name."""
    if column in COLUMNS:
        return COLUMNS[column][1]
    declared = sentences.get(column.removeprefix("x_"))
    if declared is not None:
        return f"{declared} Less its chance" if column.startswith("x_") else declared
    if column.startswith("x_"):
        return f"Attention to {column[2:].replace('_', ' ')} less what chance gives"
    return f"Mean attention to {column.replace('_', ' ')} on the text"


def score_columns(frame: pd.DataFrame) -> list[str]:
    """Return the columns of an atlas's table that are scores of heads, which a figure can be of."""
    numbers = frame.select_dtypes("number").columns
    return [name for name in numbers if name not in ("layer", "head") and not name.endswith(("_low", "_high"))]


def atlas(
    result: Atlas | FoundHeads,
    *,
    x: str = "previous_token",
    y: str = "induction_random",
    head: HeadLike | None = None,
    theme: Theme = "light",
) -> go.Figure:
    """Draw any two scores of an atlas against each other, a point per head, a colour and a shape for each label;
    "mixed" is grey, `head` has a ring. Heads are named at their points while they are few. After a search, heads that
    do not match are small and faint, so that the axes stay; heads without one of the two numbers are left out. A
    point's customdata is the head's name.

    Raises `ValueError` if the atlas has no such score.
    """
    any_result: Any = result
    whole: Atlas = getattr(any_result, "atlas", any_result)
    frame = whole.to_frame()
    scores = score_columns(frame)
    for name in (x, y):
        if name not in scores:
            raise ValueError(f"{whole.model} has no score {name}. There are: {', '.join(scores)}. Choose one.")
    names = [f"{row.layer}.{row.head}" for row in frame.itertuples()]
    across, up = frame[x].to_numpy(dtype=float), frame[y].to_numpy(dtype=float)
    titles = plotly_text(column_title(x)), plotly_text(column_title(y))
    labels = [label.replace("_", " ") for label in frame["label"]]
    kinds = sorted(set(labels), key=lambda label: (label == "mixed", -labels.count(label), label))
    known = np.isfinite(across) & np.isfinite(up)
    matches = getattr(any_result, "found", np.ones(len(names), dtype=bool))
    many = matches.sum() > _MOST_NAMES
    axis = {"zeroline": False}
    figure = axes(
        theme, *titles, xaxis=axis, yaxis=axis, legend={**LEGEND, "font": {"color": INK[theme]}},
        margin={"l": 8, "r": 8, "t": 44, "b": 8}, hovermode="closest", showlegend=True,
    )  # fmt: skip
    for place, kind in enumerate(kinds):
        own = [i for i, label in enumerate(labels) if label == kind and known[i]]
        figure.add_scatter(
            x=across[own], y=up[own], name=plotly_text(kind), customdata=[names[i] for i in own],
            text=[plotly_text(names[i]) if matches[i] else "" for i in own], textposition="top center",
            mode="markers" if many else "markers+text",
            marker={"size": [10 if matches[i] else 5 for i in own],
                    "opacity": [1.0 if matches[i] else 0.35 for i in own],
                    "symbol": _SYMBOLS[place % len(_SYMBOLS)],
                    "color": QUIET_INK[theme] if kind == "mixed" else line_colour(theme, place),
                    "line": {"width": 0.6, "color": BACKGROUND[theme]}},
            hovertemplate="<b>%{customdata}</b><br>" + titles[0] + " %{x:.3f}<br>"
            + titles[1] + " %{y:.3f}<extra>" + plotly_text(kind) + "</extra>",
        )  # fmt: skip
    ringed = None if head is None else head_name(as_head(head))
    if ringed in names and known[index := names.index(ringed)]:
        ring = {"size": 19, "symbol": "circle-open", "color": LINES[theme][1], "line": {"width": 2.5}}
        figure.add_scatter(
            x=across[[index]], y=up[[index]], mode="markers", showlegend=False, hoverinfo="skip", marker=ring
        )
    return figure
