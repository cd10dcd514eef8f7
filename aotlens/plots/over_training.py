"""What an analysis gave of each snapshot of a training run, as lines over training."""

from __future__ import annotations

from typing import TYPE_CHECKING

import plotly.graph_objects as go

from aotlens.plots.colours import LINES, Theme, base_layout
from aotlens.plots.labels import plotly_text

if TYPE_CHECKING:
    from aotlens.dynamics import OverTraining

#: More lines than this are not told apart.
MOST_LINES = 64


def training_lines(
    result: OverTraining, *, of: str | None = None, log: bool = True, theme: Theme = "light"
) -> go.Figure:
    """Every number of the results over training, or with `of` the entries of that array.

    With `log` the axis is logarithmic, and step 0 is left of step 1. Raises `ValueError` for an unknown name and for
    more than `MOST_LINES` lines.
    """
    curves = result.curves(of)
    if len(curves) > MOST_LINES:
        raise ValueError(
            f"plot: {len(curves)} curves are too many for one figure; expected at most {MOST_LINES}. Choose another "
            f"of {', '.join(result.names)} with of=."
        )
    steps = [max(float(step), 0.5) if log else float(step) for step in result.steps]
    figure = go.Figure(layout=base_layout(theme))
    for index, (name, values) in enumerate(curves.items()):
        figure.add_scatter(
            x=steps, y=values, name=plotly_text(name.replace("_", " ")), customdata=result.steps.tolist(),
            mode="lines+markers" if len(steps) <= 30 else "lines", marker={"size": 4},
            line={"color": LINES[theme][index % len(LINES[theme])], "width": 1.6},
            hovertemplate="step %{customdata:,}: %{y:.4g}",
        )  # fmt: skip
    figure.update_xaxes(title_text="step", type="log" if log else "linear")
    figure.update_yaxes(title_text=plotly_text((of or "").replace("_", " ")))
    figure.update_layout(legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"})
    return figure
