"""What each circuit took off the loss, as areas over training that stack to its change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go

from aotlens.plots.colours import INK, LINES, Theme, base_layout
from aotlens.plots.labels import plotly_text

if TYPE_CHECKING:
    from aotlens.dynamics import Ledger


def ledger_areas(result: Ledger, *, log: bool = True, theme: Theme = "light") -> go.Figure:
    """Each entry's part of the change so far, those that lower the loss stacked downwards and the others upwards, with
    the change itself as a line. With `log` the axis is logarithmic, and step 0 is left of step 1."""
    steps = [max(float(step), 0.5) if log else float(step) for step in result.steps]
    so_far = np.vstack([np.zeros(len(result.entries)), result.parts.cumsum(0)])
    figure = go.Figure(layout=base_layout(theme))
    for index, place in enumerate(np.argsort(so_far[-1], kind="stable")):
        for sign, values in ((-1, np.minimum(so_far[:, place], 0)), (1, np.maximum(so_far[:, place], 0))):
            if not values.any() and (sign == 1 or so_far[:, place].any()):
                continue
            figure.add_scatter(
                x=steps, y=values, name=plotly_text(result.entries[place]), stackgroup=str(sign), mode="lines",
                line={"width": 0.5, "color": LINES[theme][index % len(LINES[theme])]}, customdata=result.steps.tolist(),
                legendgroup=result.entries[place], hovertemplate="step %{customdata:,}: %{y:+.4f} nats a token",
            )  # fmt: skip
    figure.add_scatter(
        x=steps, y=result.losses - result.losses[0], name="change of the loss", mode="lines",
        line={"color": INK[theme], "width": 1.6, "dash": "dot"}, customdata=result.steps.tolist(),
        hovertemplate="step %{customdata:,}: %{y:+.4f} nats a token",
    )  # fmt: skip
    figure.update_xaxes(title_text="step", type="log" if log else "linear")
    figure.update_yaxes(title_text="change of the loss (nats a token)")
    return figure
