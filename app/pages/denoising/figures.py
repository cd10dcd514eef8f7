"""What of a prompt in the plane is drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotlens.plots import Theme, energy_landscape, errors_by_step
from app.pages.denoising.address import DenoisingState
from app.pages.denoising.service import Denoising

if TYPE_CHECKING:
    import plotly.graph_objects as go


def plane_figure(service: Denoising, state: DenoisingState, theme: Theme) -> go.Figure:
    """The energy with the tokens, the query, and where it goes."""
    made, descent = service.plane(state), service.descent(state)
    figure = energy_landscape(
        made.plane.x.numpy(), made.plane.y.numpy(), made.plane.energy.numpy(),
        context=made.prompts.context[0].numpy(), path=descent.states[:, 0].numpy(),
        attention=descent.attention[0].numpy(),
        points={"Bayes": descent.bayes[0].numpy(), "clean": made.prompts.target[0].numpy()}, theme=theme,
    )  # fmt: skip
    figure.layout.meta = {"name": "Energy of the context", "key": f"{state} {theme}"}
    return figure


def errors_figure(service: Denoising, state: DenoisingState, theme: Theme) -> go.Figure:
    """Errors by step, of many prompts and of this query."""
    mean, descent = service.plane(state).mean, service.descent(state)
    levels = {"attention": float(mean.attention_errors.mean()), "Bayes": float(mean.bayes_errors.mean())}
    figure = errors_by_step(
        mean.errors.mean(1).numpy(), levels=levels, single=descent.errors[:, 0].numpy(), theme=theme
    )
    figure.layout.meta = {"name": "Errors by step", "key": f"{state} {theme}"}
    return figure
