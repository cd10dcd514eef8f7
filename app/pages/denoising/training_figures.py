"""What of trained layers is drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotlens.plots import Theme, denoiser_curves, loss_landscape, scaled_identities
from app.pages.denoising.service_training import BEST, Trainings, scales

if TYPE_CHECKING:
    import plotly.graph_objects as go


def curves_figure(service: Trainings, name: str, run: int, theme: Theme) -> go.Figure:
    """Losses by epoch."""
    return _named(denoiser_curves(service.record(name), theme=theme), f"Loss by epoch: {name}")


def matrices_figure(service: Trainings, name: str, run: int, theme: Theme) -> go.Figure:
    """The run's matrices beside scaled identities."""
    layers = service.record(name).layers
    place = layers.seeds.index(run)
    W_QK, W_OV = (weights[place].numpy() for weights in layers.plain)
    figure = scaled_identities({"W_QK": W_QK, "W_OV": W_OV}, {"W_QK": "β", "W_OV": "α"}, theme=theme)
    return _named(figure, f"Matrices of {name}, seed {run}")


def scales_figure(service: Trainings, name: str, run: int, theme: Theme) -> go.Figure:
    """The loss over α and β, with what the runs found."""
    everything = scales(service.record(name))
    runs = {label: point for label, point in everything.items() if label != BEST}
    points = {label: everything[label] for label in (BEST, f"seed {run}") if label in everything}
    if len(runs) > 1:
        alphas, betas = zip(*runs.values(), strict=True)
        points["mean of the runs"] = (sum(alphas) / len(runs), sum(betas) / len(runs))
    return _named(loss_landscape(service.landscape(name), points=points, theme=theme), f"Loss over α and β: {name}")


def _named(figure: go.Figure, name: str) -> go.Figure:
    figure.layout.meta = {"name": name}
    return figure
