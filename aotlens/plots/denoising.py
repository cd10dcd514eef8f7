"""Attention as denoising: overlaps of subspaces, SNR by layer, training and Bayes, the loss over α and β; and
in-context regression: errors by the number of examples, of models, baselines and layers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go

from aotlens.conventions import several
from aotlens.plots.attention import QUANTITIES, all_heads_maps, attention_map
from aotlens.plots.colours import INK, LINES, Theme, base_layout, colorscale
from aotlens.plots.primitives import (
    add_level,
    axes,
    band,
    colour_bar,
    head_points,
    line_colour,
    line_of,
    matrix_map,
    names_of_heads,
    plotly_text,
    seed_curves,
)

if TYPE_CHECKING:
    from aotlens.denoise import (
        DenoiserTraining,
        DenoisingAudit,
        DenoisingRates,
        FoundScales,
        Landscape,
        RunMatrices,
        TrainedLayers,
    )
    from aotlens.denoise.regression import LayerReadings, PromptMaps, RegressionComparison, SupportScores
    from aotlens.evaluate import RegressionErrors
    from aotlens.heads import HeadSubspaces


def subspace_overlaps(result: HeadSubspaces, *, behind_gain: bool = False, theme: Theme = "light") -> go.Figure:
    """Draw log₂ of every pair's overlap ÷ that of random subspaces: 0 as random, above it shared directions. With
    `behind_gain` ÷ that of random weights behind the same norms.

    A head with itself is left at 0, and a head whose subspace is zero too.
    """
    names = names_of_heads(result.bases.shape[:2])
    square = (len(names), len(names))
    null = result.behind_gain_mean if behind_gain else result.random_mean
    overlap, random = result.overlap.reshape(square), null.reshape(square)
    known = (overlap > 0) & (random > 0) & ~np.eye(len(names), dtype=bool)
    values = np.log2(np.divide(overlap, random, out=np.ones(square), where=known))
    quantity = f"log₂ of overlap ÷ random {'weights behind the norms' if behind_gain else 'subspaces'}"
    return matrix_map(values, names, names, quantity=quantity, row_title="head", column_title="head", theme=theme)


def snr_curves(result: DenoisingRates, *, theme: Theme = "light") -> go.Figure:
    """Draw SNR after every layer ÷ SNR at the start, the mean over clusters, a line per δ with the band of all seeds,
    and the theorem's (1 + ητ)^l where φ has a threshold. Layers whose numbers are no longer finite are left out."""
    gain = np.asarray(result.gains)
    layers = np.arange(gain.shape[-1])
    curves = {f"δ = {noise:g}": values for noise, values in zip(result.noises, gain, strict=True)}
    theory = "(1 + ητ)^l"
    if math.isfinite(result.rate):
        curves[theory] = result.rate ** layers[None].astype(np.float64)
    return seed_curves(
        layers, curves, x_title="layer", y_title="SNR ÷ SNR at the start", log_y=True, quiet=(theory,), theme=theme
    )


def rate_map(result: DenoisingRates, *, theme: Theme = "light") -> go.Figure:
    """Draw measured ratio ÷ (1 + ητ) − 1 of every δ (down) and layer (across), the mean over seeds and clusters: 0
    where the theorem holds; −1 where numbers were no longer finite. Raises `ValueError` without a threshold."""
    if not math.isfinite(result.rate):
        raise ValueError("rate_map: the theorem has no rate for a φ without a threshold.")
    excess = np.nan_to_num(np.asarray(result.ratios) / result.rate - 1, nan=-1.0).mean((1, 3))
    layers = [str(layer) for layer in range(1, excess.shape[1] + 1)]
    noises = [f"{noise:g}" for noise in result.noises]
    return matrix_map(
        np.clip(excess, -1, 1), noises, layers, quantity="ratio ÷ (1 + ητ) − 1", row_title="δ", column_title="layer",
        theme=theme,
    )  # fmt: skip


def audit_curves(result: DenoisingAudit, *, principal: bool = False, theme: Theme = "light") -> go.Figure:
    """Draw SNR after ÷ before every layer over relative depth, a line per grouping; dashed the same with the layer's
    writes randomly rotated, in the band of all draws. `principal`: in principal directions of the heads' tokens."""
    ratios, null = (result.pca_ratios, result.pca_null_ratios) if principal else (result.ratios, result.null_ratios)
    null_name = "writes rotated"
    curves: dict[str, np.ndarray] = {}
    for index, grouping in enumerate(result.groupings[1:] if principal else result.groupings, int(principal)):
        curves[grouping] = np.asarray(ratios)[None, index]
        curves[f"{grouping}, {null_name}"] = np.asarray(null)[:, index]
    return seed_curves(
        np.asarray(result.relative_depth), curves, x_title="relative depth", y_title="SNR after ÷ before",
        references={"unchanged": 1.0}, quiet=[name for name in curves if name.endswith(null_name)], theme=theme,
    )  # fmt: skip


def denoiser_curves(
    result: DenoiserTraining | TrainedLayers, *, log: bool = False, theme: Theme = "light"
) -> go.Figure:
    """Draw loss a prompt by epoch, in training and on other prompts, the mean over runs in the band of all; beside
    Bayes and the zero predictor where the result knows them."""
    layers: Any = getattr(result, "layers", result)
    train, test = np.asarray(layers.train_loss), np.asarray(layers.test_loss)
    before = np.full((len(train), 1), np.nan)  # epoch 0 has a test loss only
    curves = {"other prompts": test, "training": np.concatenate([before, train], axis=1)}
    references: dict[str, float] = {}
    if hasattr(result, "baselines"):
        references = {"Bayes": result.baselines["Bayes"], "zero": result.baselines["zero"]}
    return seed_curves(
        np.arange(test.shape[1]), curves, x_title="epoch", y_title="squared error a prompt", log_y=log,
        references=references, theme=theme,
    )  # fmt: skip


def loss_landscape(
    result: Landscape,
    *,
    points: Mapping[str, tuple[float | int, float | int]] | None = None,
    theme: Theme = "light",
) -> go.Figure:
    """Draw log₁₀ of the loss over β (across) and α (up), with the best α of every β as a line; `points` are named (α,
    β)."""
    alphas, betas, loss = (np.asarray(values) for values in (result.alphas, result.betas, result.loss))
    best = np.asarray(result.best_alpha)
    inside = (best >= alphas.min()) & (best <= alphas.max())
    across, up = ({"showgrid": False, "range": [values.min(), values.max()]} for values in (betas, alphas))
    figure = axes(theme, "β of W_QK = β I", "α of W_OV = α I", xaxis=across, yaxis=up)
    figure.add_heatmap(
        x=betas, y=alphas, z=np.log10(loss).astype(np.float32), customdata=loss.astype(np.float32),
        colorscale=colorscale("sequential", theme), reversescale=True,
        hovertemplate="β %{x:.3g}<br>α %{y:.3g}<br><b>loss %{customdata:.4g}</b><extra></extra>",
        colorbar=colour_bar("log₁₀ of the loss"),
    )  # fmt: skip
    figure.add_scatter(
        x=np.where(inside, betas, np.nan), y=best, mode="lines", name="best α at each β",
        line={"color": LINES[theme][1], "width": 1.5, "dash": "dot"}, hoverinfo="skip",
    )  # fmt: skip
    symbols = ("circle", "diamond", "square", "cross", "x", "star")
    for index, (name, (alpha, beta)) in enumerate((points or {}).items()):
        figure.add_scatter(
            x=[beta], y=[alpha], mode="markers", name=plotly_text(name),
            marker={
                "size": 11, "symbol": symbols[index % len(symbols)], "color": line_colour(theme, index + 1),
                "line": {"color": INK[theme], "width": 1.2},
            },
            hovertemplate=f"{plotly_text(name)}<br>β %{{x:.4g}}<br>α %{{y:.4g}}<extra></extra>",
        )  # fmt: skip
    return figure


def run_matrices(result: RunMatrices, *, theme: Theme = "light") -> go.Figure:
    """Draw each matrix of a run in a row: it, and the identity times the mean of its diagonal, on one colour scale with
    0 in the middle."""
    matrices = {"W_QK": (np.asarray(result.W_QK), "β"), "W_OV": (np.asarray(result.W_OV), "α")}
    across, down = 0.1, 0.16  # gaps between maps, in shares of the figure
    height, width = (1 - down) / 2, (1 - across) / 2
    traces: list[dict[str, Any]] = []
    panels: dict[str, Any] = {}
    titles: list[dict[str, Any]] = []
    for row, (name, (matrix, letter)) in enumerate(matrices.items()):
        scale = float(np.diagonal(matrix).mean())
        top = float(np.abs(matrix).max()) or 1.0
        low = 1 - (row + 1) * height - row * down
        pictures = {name: matrix, f"{letter} I, {letter} = {scale:.3g}": scale * np.eye(len(matrix))}
        for column, (title, values) in enumerate(pictures.items()):
            place = "" if not traces else str(len(traces) + 1)
            left = column * (width + across)
            traces.append(
                {
                    "type": "heatmap", "z": values.astype(np.float32), "xaxis": f"x{place}", "yaxis": f"y{place}",
                    "zmin": -top, "zmax": top, "colorscale": colorscale("diverging", theme), "showscale": column == 1,
                    "colorbar": {"thickness": 10, "outlinewidth": 0, "len": height, "y": low + height / 2},
                    "hovertemplate": f"{title}<br>%{{y}}, %{{x}}<br><b>%{{z:.4f}}</b><extra></extra>",
                }
            )  # fmt: skip
            quiet = {"showgrid": False, "zeroline": False, "ticks": "", "showticklabels": False, "constrain": "domain"}
            panels[f"xaxis{place}"] = {**quiet, "domain": [left, left + width], "anchor": f"y{place}"}
            panels[f"yaxis{place}"] = {
                **quiet, "domain": [low, low + height], "anchor": f"x{place}", "autorange": "reversed",
                "scaleanchor": f"x{place}",
            }  # fmt: skip
            titles.append(
                {
                    "text": f"<b>{title}</b>", "x": left + width / 2, "y": low + height, "xref": "paper",
                    "yref": "paper", "xanchor": "center", "yanchor": "bottom", "showarrow": False,
                    "font": {"color": INK[theme]},
                }
            )  # fmt: skip
    layout = {**base_layout(theme, annotations=titles, margin={"l": 8, "r": 8, "t": 26, "b": 8}), **panels}
    return go.Figure(traces, layout)


def found_scales(result: FoundScales, *, run: int | None = None, theme: Theme = "light") -> go.Figure:
    """Draw the loss over α and β with what the runs found; of several runs with their mean, and only that of the seed
    `run`, where it is given."""
    others = [name for name in result.points if name.startswith("seed ") and run not in (None, int(name[5:]))]
    points = {name: point for name, point in result.points.items() if name not in others}
    return loss_landscape(result.landscape, points=points, theme=theme)


#: Errors below this are left out where the axis is logarithmic: least squares' are 0 but for rounding.
_LEAST = 1e-5


def regression_curves(
    results: RegressionErrors | Sequence[RegressionErrors],
    *,
    quiet: Sequence[str] = (),
    log: bool = False,
    theme: Theme = "light",
) -> go.Figure:
    """Draw squared error ÷ the zero predictor's by the number of examples, a line and its 95% band per result; those
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
    """Draw the error of the answer read off after each layer by the number of examples, with least squares and the
    algorithm that is nearest to each layer (dashed)."""
    figure = _figure(log, theme)
    n_layers = len(result.probe_errors) - 1
    names = ["before layer 0", *(f"after layer {layer}" for layer in range(n_layers))]
    for index, (name, errors) in enumerate(zip(names, result.probe_errors, strict=True)):
        _add_line(figure, index, name, errors, None, False, log, theme)
    algorithms = dict.fromkeys([*result.nearest[1:], ("least squares", 1)])
    for index, algorithm in enumerate(algorithms):
        kind, steps = algorithm
        name = kind if kind == "least squares" else f"{kind} descent, {several(steps, 'step')}"
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
    up = {"type": "log" if log else "linear", "exponentformat": "power"}
    figure = axes(theme, "examples before the query", "squared error ÷ E y²", yaxis=up, hovermode="x unified")
    add_level(figure, 1.0, "zero predictor", theme)
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
    is_drawn = mean >= (_LEAST if log else 0.0)
    examples, y = np.arange(len(mean))[is_drawn], mean[is_drawn]
    label = plotly_text(name)
    if bands is not None:
        low, high = np.maximum(bands[is_drawn], _LEAST if log else 0.0).T
        figure.add_trace(band(examples, low, high, line_colour(theme, index), label))
    look = line_of(mean, index, dashed, theme)
    figure.add_scatter(x=examples, y=y, name=label, legendgroup=label, hovertemplate="%{y:.4g}", **look)
