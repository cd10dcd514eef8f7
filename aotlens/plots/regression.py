"""In-context regression: errors by the number of examples, of models, baselines and layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go

from aotlens.plots.all_heads import all_heads_maps
from aotlens.plots.attention import QUANTITIES, attention_map
from aotlens.plots.colours import INK, LINES, Theme, base_layout
from aotlens.plots.head_points import head_points
from aotlens.plots.labels import plotly_text

if TYPE_CHECKING:
    from aotlens.denoise.regression import LayerReadings, PromptMaps, RegressionComparison, SupportScores
    from aotlens.evaluate import RegressionErrors

#: Errors below this are left out where the axis is logarithmic: least squares' are 0 but for rounding.
_LEAST = 1e-5


def regression_curves(
    results: RegressionErrors | Sequence[RegressionErrors],
    *,
    quiet: Sequence[str] = (),
    log: bool = False,
    theme: Theme = "light",
) -> go.Figure:
    """Draw squared error ÷ the zero predictor's by the number of examples, a line and its 95% band a result; those
    named in `quiet`, such as baselines, are dashed and have no band, and where they rise above all others a linear axis
    cuts them off. Raises `ValueError` for none."""
    listed = list(results) if isinstance(results, Sequence) else [results]
    if not listed:
        raise ValueError("regression_curves: expected at least one result.")
    figure = _figure(log, theme)
    for index, result in enumerate(listed):
        dashed = result.name in quiet
        _add_line(figure, index, result.name, result.mean, None if dashed else result.bands, dashed, log, theme)
    loud = [result.bands for result in listed if result.name not in quiet]
    _cut_off(figure, loud, log)
    return figure


def compared_regression(result: RegressionComparison, *, log: bool = False, theme: Theme = "light") -> go.Figure:
    """Draw errors by the number of examples: models with their bands, baselines dashed."""
    return regression_curves(result.errors, quiet=result.baselines, log=log, theme=theme)


def layer_curves(result: LayerReadings, *, log: bool = False, theme: Theme = "light") -> go.Figure:
    """Draw the error of the answer read off after each layer by the number of examples, beside least squares and the
    algorithm that is nearest to each layer (dashed)."""
    figure = _figure(log, theme)
    n_layers = len(result.probe_errors) - 1
    names = ["before layer 0", *(f"after layer {layer}" for layer in range(n_layers))]
    for index, (name, errors) in enumerate(zip(names, result.probe_errors, strict=True)):
        _add_line(figure, index, name, errors, None, False, log, theme)
    algorithms = dict.fromkeys([*result.nearest[1:], ("least squares", 1)])
    for index, algorithm in enumerate(algorithms):
        kind, steps = algorithm
        name = kind if kind == "least squares" else f"{kind} descent, {steps} step{'s' if steps > 1 else ''}"
        errors = result.algorithm_errors[result.algorithms.index(algorithm)]
        _add_line(figure, len(names) + index, name, errors, None, True, log, theme)
    _cut_off(figure, [result.probe_errors], log)
    return figure


def regression_maps(
    result: PromptMaps, *, quantity: str = "attention", all_heads: bool = False, theme: Theme = "light"
) -> go.Figure:
    """Draw the map of the result's head, or of `all_heads`, in one of `AttentionPatterns.quantity`."""
    patterns, unit = result.patterns, QUANTITIES[quantity]
    if all_heads:
        title = f"{unit} of every head, prompt {result.number}"
        return all_heads_maps(patterns.quantity(quantity), patterns.seen(), quantity=unit, title=title, theme=theme)
    return attention_map(patterns.of_head(result.head, quantity), patterns.str_tokens, quantity=unit, theme=theme)


def support_points(result: SupportScores, *, theme: Theme = "light") -> go.Figure:
    """Draw the degree to which every head's scores go with the coordinates on which a sparse prompt's labels depend
    rather than with the others, β_on − β_off, with 95% intervals over prompts."""
    difference, reach = result.on - result.off, 1.96 * result.standard_error
    intervals = np.stack([difference - reach, difference + reach], -1)
    return head_points(difference, intervals, quantity="β_on − β_off, nats a unit of x·x", theme=theme)


def _cut_off(figure: go.Figure, loud: Sequence[np.ndarray], log: bool) -> None:
    """Ends a linear axis a little above the largest of `loud` and the zero predictor, if anything goes beyond."""
    if log or not loud:
        return
    top = 1.08 * max(1.0, max(float(np.max(values)) for values in loud))
    if max(float(np.max(trace.y)) for trace in figure.data if len(trace.y)) > top:
        figure.update_yaxes(range=[0, top])


def _figure(log: bool, theme: Theme) -> go.Figure:
    figure = go.Figure(layout=base_layout(theme))
    figure.add_hline(
        y=1.0, line={"dash": "dot", "width": 1.2, "color": INK[theme]},
        annotation={"text": "zero predictor", "font": {"size": 11, "color": INK[theme]}},
        annotation_position="top right",
    )  # fmt: skip
    figure.update_xaxes(title_text="examples before the query")
    figure.update_yaxes(title_text="squared error ÷ E y²", type="log" if log else "linear", exponentformat="power")
    figure.update_layout(hovermode="x unified", legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"})
    return figure


def _add_line(
    figure: go.Figure,
    index: int,
    name: str,
    mean: np.ndarray,
    bands: np.ndarray | None,
    dashed: bool,
    log: bool,
    theme: Theme,
) -> None:
    colour = LINES[theme][index % len(LINES[theme])]
    is_drawn = mean >= (_LEAST if log else 0.0)
    examples, y = np.arange(len(mean))[is_drawn], mean[is_drawn]
    label = plotly_text(name)
    if bands is not None:
        low, high = np.maximum(bands[is_drawn], _LEAST if log else 0.0).T
        figure.add_scatter(
            x=np.concatenate([examples, examples[::-1]]), y=np.concatenate([high, low[::-1]]), fill="toself",
            fillcolor=colour, opacity=0.16, line={"width": 0}, mode="lines", hoverinfo="skip", showlegend=False,
            legendgroup=label,
        )  # fmt: skip
    figure.add_scatter(
        x=examples, y=y, name=label, legendgroup=label, mode="lines+markers" if len(mean) <= 30 else "lines",
        marker={"size": 5}, line={"color": colour, "width": 1.8, "dash": "dash" if dashed else "solid"},
        hovertemplate="%{y:.4g}",
    )  # fmt: skip
