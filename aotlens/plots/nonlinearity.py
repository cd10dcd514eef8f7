"""A feed-forward network compiled into attention: its error over the inputs, a head as a gate, who sees whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float
from plotly.subplots import make_subplots

from aotlens.conventions import several
from aotlens.plots.attention import attention_map
from aotlens.plots.colours import BACKGROUND, INK, LINES, QUIET, QUIET_INK, Theme, colorscale
from aotlens.plots.primitives import LEGEND, cell_texts, faint, style_panels

if TYPE_CHECKING:
    from aotlens.distill.compile.curves import ErrorCurve, ErrorSurface
    from aotlens.distill.compile.described import CompiledMasks
    from aotlens.distill.compile.one_head import HeadAtInput, HeadGate

#: The number of kinks above which no line marks them; and the number of kink lines over a surface.
_MOST_KINKS, _KINK_LINES = 120, 40
#: Points at which a network of one number is compared with another.
_EVEN = 64


def error_lines(
    curve: ErrorCurve, *, at: float | int | None = None, log: bool = False, theme: Theme = "light"
) -> go.Figure:
    """Draw the network (wide, pale) and the model that it was compiled into (thin) above, |model − network| below.

    Dotted uprights are the network's kinks, the dashed line is the proven bound, the solid upright is at x = `at`. With
    `log`, the error's axis is logarithmic; an error of exactly 0 is then a gap. A zoom stays while only η changes.
    """
    figure = make_subplots(rows=2, shared_xaxes=True, vertical_spacing=0.09, row_heights=[0.52, 0.48])
    blue, orange, green = LINES[theme][:3]
    if curve.target is not None:
        figure.add_trace(_line(curve.x, curve.target, "fitted to", QUIET_INK[theme], 1.4, dash="dot"), row=1, col=1)
    figure.add_trace(_line(curve.x, curve.ffn[:, 0], "FFN", green, 6).update(opacity=0.5), row=1, col=1)
    figure.add_trace(_line(curve.x, curve.model[:, 0], "attention model", blue, 1.6), row=1, col=1)
    error = np.where(curve.error > 0, curve.error, np.nan) if log else curve.error
    figure.add_trace(_line(curve.x, error, "|model − FFN|", orange, 1.6, form=".3e"), row=2, col=1)
    line = {"dash": "dash", "width": 1.6, "color": INK[theme]}
    ends, bound = curve.x[[0, -1]], [curve.proven, curve.proven]
    level = go.Scatter(x=ends, y=bound, mode="lines", name="proven bound", line=line, hoverinfo="skip")
    figure.add_trace(level, row=2, col=1)
    if len(curve.kinks.x) <= _MOST_KINKS:
        for x in np.unique(curve.kinks.x):
            figure.add_vline(x=float(x), line={"dash": "dot", "width": 1, "color": QUIET_INK[theme]}, opacity=0.55)
    if at is not None:
        figure.add_vline(x=at, line={"width": 1.5, "color": INK[theme]})
    style_panels(figure, theme)
    figure.update_xaxes(title_text="x", row=2, col=1)
    figure.update_yaxes(title_text="f(x)", row=1, col=1)
    figure.update_yaxes(title_text="error", exponentformat="power", row=2, col=1)
    scale = {"type": "log", "dtick": _decades(error, curve.proven)} if log else {"rangemode": "tozero"}
    figure.update_yaxes(scale, row=2, col=1)
    even = np.linspace(curve.x[0], curve.x[-1], _EVEN)  # since the curve's own points move with η
    zoom = _zoom(log, even, np.interp(even, curve.x, curve.ffn[:, 0]))
    return figure.update_layout(legend=LEGEND, hovermode="x unified", uirevision=zoom)


def error_surfaces(
    surface: ErrorSurface, *, at: tuple[float, float] | None = None, log: bool = False, theme: Theme = "light"
) -> go.Figure:
    """Draw the network's first output, and |model − network| with the proven bound at the top of its scale.

    Dotted lines are kinks of the first layer; a ring is at the point `at`. With `log`, the error's scale is log₁₀. A
    zoom stays while only η changes.
    """
    figure = make_subplots(cols=2, horizontal_spacing=0.14, subplot_titles=["f(x₁, x₂)", "|model − FFN|"])
    top = float(np.abs(surface.ffn).max(initial=0.0)) or 1.0
    figure.add_trace(
        _heat(surface.x, surface.ffn, colorscale("diverging", theme), -top, top, "f", "f %{z:.4f}", 0.215), row=1, col=1
    )
    proven = surface.proven
    error, least, most, title, form = surface.error, 0.0, proven, "error", "%{z:.3e}"
    if log:
        floor = max(float(surface.error[surface.error > 0].min(initial=proven)), 1e-17)
        error, least, most = np.log10(np.maximum(surface.error, floor)), float(np.log10(floor)), float(np.log10(proven))
        title, form = "log₁₀ error", "10^%{z:.2f}"
        least = min(least, most - 1)
    figure.add_trace(
        _heat(surface.x, error, colorscale("sequential", theme), least, most, title, f"error {form}", 0.785),
        row=1, col=2,
    )  # fmt: skip
    for column in (1, 2):
        for x, y in surface.kinks[:_KINK_LINES].transpose(0, 2, 1).tolist():
            line = {"dash": "dot", "width": 1, "color": INK[theme]}
            figure.add_trace(
                go.Scatter(x=x, y=y, mode="lines", line=line, opacity=0.5, hoverinfo="skip"), row=1, col=column
            )
        if at is not None:
            marker = {"symbol": "circle-open", "size": 12, "color": LINES[theme][1], "line": {"width": 2.5}}
            here = go.Scatter(x=[at[0]], y=[at[1]], mode="markers", marker=marker, hoverinfo="skip")
            figure.add_trace(here, row=1, col=column)
    style_panels(figure, theme)
    reach = [float(surface.x[0]), float(surface.x[-1])]
    figure.update_xaxes(title_text="x₁", range=reach, constrain="domain", zeroline=False)
    figure.update_yaxes(title_text="x₂", range=reach, constrain="domain", zeroline=False, scaleratio=1)
    figure.update_yaxes(scaleanchor="x", row=1, col=1)
    figure.update_yaxes(scaleanchor="x2", row=1, col=2)
    figure.update_annotations(font={"size": 13, "color": INK[theme]})
    return figure.update_layout(showlegend=False, margin={"t": 30}, uirevision=_zoom(log, surface.x, surface.ffn))


def gate(result: HeadGate, *, theme: Theme = "light") -> go.Figure:
    """Draw a head as a function of what it reads, t: above, t · weight and ReLU(t); below, the softmax weight.

    The band is how far below ReLU(t) the result of a ReLU unit may lie (0.2785·η), which is drawn once more for
    |t| ≤ 8η. Circles are the model's own results; the upright is at the input.
    """
    t, weight, eta, gap, t_at_input = result.t, result.weight, result.eta, result.gap, result.at
    order = np.argsort(result.read)
    measured = result.read[order], result.result[order]
    as_relu = gap is not None
    titles = ["all that it reads", f"near 0: |t| ≤ 8η = {8 * eta:.3g}"] if as_relu else None
    figure = make_subplots(
        rows=2, cols=2 if as_relu else 1, shared_xaxes=True, vertical_spacing=0.08, horizontal_spacing=0.13,
        row_heights=[0.62, 0.38], column_widths=[0.55, 0.45] if as_relu else None, subplot_titles=titles,
    )  # fmt: skip
    for column in (1, 2) if as_relu else (1,):
        for trace, row in _gate_traces(t, weight, gap, measured, theme):
            figure.add_trace(trace.update(showlegend=column == 1), row=row, col=column)
        if column == 1 or abs(t_at_input) <= 8 * eta:
            figure.add_vline(x=t_at_input, line={"width": 1.5, "color": INK[theme]}, col=column)
    style_panels(figure, theme)
    figure.update_xaxes(title_text="t", row=2)
    figure.update_xaxes(range=[float(t.min()), float(t.max())], col=1)
    if as_relu:
        near = min(8 * eta, float(np.abs(t).max()))
        figure.update_xaxes(range=[-near, near], col=2)
        figure.update_yaxes(range=[-0.1 * near, 0.6 * near], row=1, col=2)
    # Not 400µ: these numbers have no unit.
    figure.update_xaxes(exponentformat="power")
    figure.update_yaxes(exponentformat="power")
    figure.update_yaxes(title_text="its result", row=1, col=1)
    figure.update_yaxes(range=[-0.04, 1.04], row=2)
    figure.update_yaxes(title_text="weight on itself", row=2, col=1)
    figure.update_annotations(font={"size": 12, "color": INK[theme]})
    return figure.update_layout(legend={**LEGEND, "y": 1.08 if as_relu else 1.02}, hovermode="x unified")


def _gate_traces(
    t: Float[np.ndarray, " point"],
    weight: Float[np.ndarray, " point"],
    gap: float | int | None,
    measured: tuple[Float[np.ndarray, " input"], Float[np.ndarray, " input"]],
    theme: Theme,
) -> list[tuple[go.Scatter, int]]:
    """Each line with its row."""
    blue, orange, green = LINES[theme][:3]
    relu = np.maximum(t, 0.0)
    traces: list[tuple[go.Scatter, int]] = []
    if gap is not None:
        band = {"x": np.concatenate([t, t[::-1]]), "y": np.concatenate([relu, relu[::-1] - gap])}
        shade = go.Scatter(
            **band, fill="toself", mode="lines", line={"width": 0}, fillcolor=faint(green, 0.22), hoverinfo="skip",
            name="ReLU(t) − 0.2785·η … ReLU(t)",
        )  # fmt: skip
        traces += [(shade, 1), (_line(t, relu, "ReLU(t)", green, 6).update(opacity=0.5), 1)]
    traces.append((_line(t, t * weight, "SiLU(t)" if gap is None else "η·SiLU(t/η)", blue, 1.8), 1))
    marker = {"size": 6, "color": BACKGROUND[theme], "line": {"width": 1.4, "color": INK[theme]}}
    name = "the model's head"
    points = go.Scatter(x=measured[0], y=measured[1], mode="markers", name=name, hoverinfo="skip", marker=marker)
    traces.append((points, 1))
    return [*traces, (_line(t, weight, "weight σ(t/η)", orange, 1.8), 2)]


def head_pattern(result: HeadAtInput, *, theme: Theme = "light") -> go.Figure:
    """Draw the head's attention pattern on its sequence, with its numbers."""
    figure = attention_map(result.pattern, result.str_tokens, visible=result.visible, theme=theme)
    cells = figure.data[0]
    texts = [["" if np.isnan(value) else f"{value:.3f}" for value in row] for row in np.asarray(cells.z)]
    figure.add_trace(cell_texts(cells.z, texts, theme, x=cells.x, y=cells.y, low=0.0, high=1.0, size=11))
    figure.update_xaxes(tickangle=0, title_text="key")
    return figure.update_yaxes(title_text="query", scaleanchor="x", constrain="domain")


def mask_maps(result: CompiledMasks, *, theme: Theme = "light") -> go.Figure:
    """Draw the keys that each query sees, filled, in a panel for each kind of head."""
    titles = [f"{several(n, 'head')}:<br>{kind}" for n, kind in zip(result.n_heads, result.kinds, strict=True)]
    str_tokens, masks = result.str_tokens, result.masks
    figure = make_subplots(cols=len(masks), subplot_titles=titles, horizontal_spacing=0.16)
    for column, mask in enumerate(masks, start=1):
        heat = go.Heatmap(
            z=mask.astype(np.float32), x=list(str_tokens), y=list(str_tokens), zmin=0, zmax=1, showscale=False,
            xgap=2, ygap=2, colorscale=[[0, QUIET[theme]], [1, LINES[theme][0]]],
            customdata=np.where(mask, "sees", "does not see"),
            hovertemplate="%{y} %{customdata} %{x}<extra></extra>",
        )  # fmt: skip
        figure.add_trace(heat, row=1, col=column)
    style_panels(figure, theme)
    figure.update_xaxes(type="category", showgrid=False, title_text="key", tickangle=0, constrain="domain")
    figure.update_yaxes(type="category", showgrid=False, autorange="reversed", constrain="domain")
    figure.update_yaxes(title_text="query", col=1)
    for column in range(1, len(masks) + 1):
        figure.update_yaxes(scaleanchor=f"x{column if column > 1 else ''}", row=1, col=column)
    return figure.update_annotations(font={"size": 12, "color": INK[theme]}).update_layout(margin={"t": 44})


def _line(
    x: Float[np.ndarray, " point"], y: Float[np.ndarray, " point"], name: str, colour: str, width: float | int, *,
    dash: str = "solid", form: str = ".5g",
) -> go.Scatter:  # fmt: skip
    return go.Scatter(
        x=x, y=y, mode="lines", name=name, line={"width": width, "color": colour, "dash": dash},
        hovertemplate=f"%{{y:{form}}}",
    )  # fmt: skip


def _heat(x: Any, z: Any, scale: Any, least: float, most: float, title: str, hover: str, where: float) -> go.Heatmap:
    return go.Heatmap(
        x=x, y=x, z=z.astype(np.float32), zmin=least, zmax=most, colorscale=scale,
        colorbar={"thickness": 10, "outlinewidth": 0, "title": {"text": title, "side": "bottom"}, "orientation": "h",
                  "x": where, "xanchor": "center", "y": -0.2, "yanchor": "top", "len": 0.42, "exponentformat": "power"},
        hovertemplate=f"x₁ %{{x:.3g}}<br>x₂ %{{y:.3g}}<br><b>{hover}</b><extra></extra>",
    )  # fmt: skip


def _decades(error: Float[np.ndarray, " point"], proven: float) -> int:
    """Decades between ticks, for about six of them."""
    known = error[np.isfinite(error)]
    span = np.log10(proven) - np.log10(known.min()) if known.size else 1.0
    return max(1, int(span / 6))


def _zoom(log: bool, *arrays: np.ndarray) -> str:
    """Return the key that plotly keeps a zoom by: the same network on the same range, whatever its η."""
    return f"{log} {crc32(b''.join((np.round(array, 6) + 0.0).tobytes() for array in arrays))}"
