"""Curves of several kinds over seeds: the mean, and the band from the least to the greatest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float, Integer

from aotlens.plots.colours import INK, LINES, Theme, base_layout


def seed_curves(
    x: Float[np.ndarray, " point"] | Integer[np.ndarray, " point"],
    curves: Mapping[str, Float[np.ndarray, ...]],
    *,
    x_title: str,
    y_title: str,
    log_y: bool = False,
    references: Mapping[str, float] | None = None,
    quiet: Sequence[str] = (),
    theme: Theme = "light",
) -> go.Figure:
    """Draw a line a name (`[seed, point]`): the mean over seeds, in a band that holds them all. A NaN leaves its point
    out.

    `references` are levels to compare with, `quiet` names of curves that are dashed. With few points each is marked.
    Raises `ValueError` for no curves, for shapes that don't fit `x`, and for values that a logarithm does not have.
    """
    if not curves:
        raise ValueError("seed_curves: expected at least one curve.")
    figure = go.Figure(layout=base_layout(theme))
    for index, (name, values) in enumerate(curves.items()):
        if values.ndim != 2 or values.shape[1] != len(x):
            raise ValueError(f"seed_curves: expected {name!r} as [seed, {len(x)}], got {list(values.shape)}.")
        is_number = ~np.isnan(values).any(0)
        if log_y and (values[:, is_number] <= 0).any():
            raise ValueError(f"seed_curves: expected positive values of {name!r} for a logarithmic axis.")
        colour = LINES[theme][index % len(LINES[theme])]
        here, y = x[is_number], values[:, is_number]
        if len(values) > 1:
            figure.add_trace(
                go.Scatter(
                    x=np.concatenate([here, here[::-1]]), y=np.concatenate([y.max(0), y.min(0)[::-1]]),
                    fill="toself", fillcolor=colour, opacity=0.16, line={"width": 0}, mode="lines", hoverinfo="skip",
                    showlegend=False, legendgroup=name,
                )
            )  # fmt: skip
        figure.add_trace(
            go.Scatter(
                x=here, y=y.mean(0), name=name, legendgroup=name,
                mode="lines+markers" if len(here) <= 30 else "lines", marker={"size": 5},
                line={"color": colour, "width": 1.8, "dash": "dash" if name in quiet else "solid"},
                customdata=np.stack([y.min(0), y.max(0)], 1),
                hovertemplate="%{y:.4g} (%{customdata[0]:.4g} to %{customdata[1]:.4g})",
            )
        )  # fmt: skip
    for name, level in (references or {}).items():
        figure.add_hline(
            y=level, line={"dash": "dot", "width": 1.2, "color": INK[theme]},
            annotation={"text": f"{name} {level:.3g}", "font": {"size": 11, "color": INK[theme]}},
            annotation_position="top right",
        )  # fmt: skip
    figure.update_xaxes(title_text=x_title)
    figure.update_yaxes(title_text=y_title, type="log" if log_y else "linear", exponentformat="power")
    figure.update_layout(hovermode="x unified", legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"})
    return figure
