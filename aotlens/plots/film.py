"""A training run as a film: what every head does, step by step, in a figure that plays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from aotlens.conventions import head_name
from aotlens.plots.colours import LINES, Theme, base_layout
from aotlens.plots.labels import plotly_text

if TYPE_CHECKING:
    from aotlens.dynamics import OverTraining


def film_figure(measures: OverTraining, *, theme: Theme = "light") -> go.Figure:
    """Draw a frame a step: what every head does (its motifs, composition, copying), below the losses up to that step.

    Buttons play it and a slider goes to a step; `measures` are those of `aotlens.dynamics.film`.
    """
    first = measures.results[0]
    heads = list(map(head_name, np.ndindex(*first.copying.shape)))
    columns = [*first.motifs, "q composition", "k composition", "v composition", "copying", "OV distance to end"]
    steps = [max(float(step), 0.5) for step in measures.steps]
    titles = [plotly_text(name.replace("_", " ")) for name in columns]

    def frame(place: int) -> list[go.Heatmap | go.Scatter]:
        each = measures.results[place]
        scores = [*each.motif_scores, *each.composition, each.copying, each.ov_distance.clip(max=1)]
        cells = np.stack([np.asarray(score).reshape(-1) for score in scores], axis=1)
        measured = np.flatnonzero(~np.isnan(cells).all(0))
        return [
            go.Heatmap(
                z=cells[:, measured], x=[titles[column] for column in measured], y=heads, zmin=0, zmax=1,
                colorscale="Viridis", colorbar={"len": 0.55, "y": 0.27},
                hovertemplate="head %{y}, %{x}: %{z:.3f}<extra></extra>",
            ),
            go.Scatter(
                x=steps[: place + 1], y=measures["loss"][: place + 1], name="loss", line={"color": LINES[theme][0]},
            ),
            go.Scatter(
                x=steps[: place + 1], y=measures["repeated_gain"][: place + 1], name="gain on repeated tokens",
                line={"color": LINES[theme][1]},
            ),
        ]  # fmt: skip

    figure = make_subplots(rows=2, cols=1, row_heights=[0.35, 0.65], vertical_spacing=0.16)
    heatmap, *losses = frame(len(steps) - 1)
    figure.add_trace(heatmap, row=2, col=1)
    for line in losses:
        figure.add_trace(line, row=1, col=1)
    names = [f"{step:,}" for step in measures.steps]
    figure.frames = [go.Frame(data=frame(place), name=name) for place, name in enumerate(names)]
    still = {"mode": "immediate", "frame": {"duration": 0, "redraw": True}, "transition": {"duration": 0}}
    playing = {"fromcurrent": True, "frame": {"duration": 150, "redraw": True}, "transition": {"duration": 0}}
    figure.update_layout(base_layout(theme), height=720)
    figure.update_layout(
        margin={"b": 120},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"},
        updatemenus=[{
            "type": "buttons", "direction": "left", "x": 0, "y": -0.2, "xanchor": "left",
            "buttons": [{"label": "Play", "method": "animate", "args": [None, playing]},
                        {"label": "Pause", "method": "animate", "args": [[None], still]}],
        }],
        sliders=[{
            "currentvalue": {"prefix": "step "}, "x": 0.18, "len": 0.82, "y": -0.12, "active": len(names) - 1,
            "steps": [{"label": name, "method": "animate", "args": [[name], still]} for name in names],
        }],
    )  # fmt: skip
    figure.update_xaxes(title_text="step", type="log", range=[np.log10(steps[0]), np.log10(steps[-1])], row=1, col=1)
    figure.update_yaxes(title_text="nats a token", row=1, col=1)
    figure.update_yaxes(autorange="reversed", type="category", title={"text": "head", "standoff": 24}, row=2, col=1)
    return figure
