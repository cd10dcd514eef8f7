"""Figures of a head's circuits: maps of entries and of blocks, eigenvalues, scores over distances, the heads around a
head."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Complex

from aotlens.conventions import Head, HeadLike, as_head, glyphs
from aotlens.plots.colours import INK, LINES, Theme
from aotlens.plots.graphs import Edge, composition_graph
from aotlens.plots.primitives import axes, line_colour, matrix_map

if TYPE_CHECKING:
    from aotlens.circuits import (
        Circuit,
        CircuitBlock,
        CircuitMap,
        Composition,
        DistanceProfile,
        HeadComposition,
        Overview,
        Reach,
        Spectrum,
    )
    from aotlens.circuits.circuit import Lines


#: The number of rows and columns up to which a circuit is drawn entry by entry.
MOST_ENTRIES = 200
#: Lines that a picture of composition has at most; the strongest stay.
MOST_EDGES = 60


def full_labels(lines: Lines) -> list[str]:
    """Label each row (or column), with every character visible: `·the`, `position 221`."""
    return [glyphs(label) for label in lines.labels] if lines.are_texts else list(lines.labels)


def short_labels(lines: Lines) -> list[str]:
    """Label each row (or column) next to a title that says what is counted: `221` for `position 221`."""
    return full_labels(lines) if lines.are_texts or lines.of == "bias" else [str(number) for number in lines.ids]


def circuit_figure(result: Circuit, *, theme: Theme = "light") -> go.Figure:
    """Draw every entry of a small circuit, or of a part of one: `plot(circuit[:40, :40])`."""
    if max(result.shape) > MOST_ENTRIES:
        height, width = result.shape
        raise ValueError(
            f"plot: {height:,} × {width:,} entries are too many to see; plot a part, circuit[:40, :40], or "
            "aotlens.circuits.block_overview(circuit)."
        )
    rows, columns = (result.labels(side) for side in ("left", "right"))
    dense: Any = result.AB
    return matrix_map(
        dense.detach().cpu().float().numpy(), rows, columns, quantity=result.quantity, row_title=result.role("left"),
        column_title=result.role("right"), theme=theme,
    )  # fmt: skip


def map_figure(result: CircuitMap, *, theme: Theme = "light", block: Sequence[int] | None = None) -> go.Figure:
    """Draw entries of some rows and columns; `layout.meta` names them, for clicks."""
    figure = matrix_map(
        result.values, short_labels(result.rows), short_labels(result.columns), quantity=result.unit,
        row_title=result.rows.role, column_title=result.columns.role, theme=theme,
    )  # fmt: skip
    figure.layout.meta = {
        "rows": result.rows.ids.tolist(), "row_names": full_labels(result.rows),
        "columns": result.columns.ids.tolist(), "column_names": full_labels(result.columns), "block": block,
    }  # fmt: skip
    return figure


def block_figure(result: CircuitBlock, *, theme: Theme = "light") -> go.Figure:
    """Draw the map of one block; `layout.meta` has its place in the overview."""
    return map_figure(result.map, theme=theme, block=result.block)


def overview_figure(result: Overview, *, theme: Theme = "light") -> go.Figure:
    """Draw a whole circuit in blocks; `layout.meta` has their sizes, for clicks."""
    rows = _blocks(result.first_rows, result.rows, result.values.shape[0])
    columns = _blocks(result.first_columns, result.columns, result.values.shape[1])
    quantity = result.unit or f"{result.statistic} of each block"
    if result.unit and result.statistic != "extreme":
        quantity = f"{result.unit}, {result.statistic}"
    figure = matrix_map(
        result.values, rows, columns, quantity=quantity, row_title=_by_id(result.first_rows, "rows"),
        column_title=_by_id(result.first_columns, "columns"), theme=theme,
    )  # fmt: skip
    figure.layout.meta = {"row_size": result.row_size, "column_size": result.column_size}
    return figure


def spectrum_figure(result: Spectrum, *, theme: Theme = "light") -> go.Figure:
    """Draw eigenvalues in the complex plane."""
    if result.eigenvalues is None:
        raise ValueError(f"plot: {result.why}")
    return eigenvalue_plane(result.eigenvalues, unit=result.unit, theme=theme)


def composition_figure(
    result: Composition, *, head: HeadLike, above_null: bool = True, theme: Theme = "light"
) -> go.Figure:
    """Draw the heads that one head reads in one mode, and those that read it: pairs above flipped signs, or
    all pairs."""
    n_layers, n_heads = result.values.shape[:2]
    own, edges = as_head(head, SimpleNamespace(n_layers=n_layers, n_heads=n_heads)), []
    for layer in range(n_layers):
        for other in range(n_heads if layer != own[0] else 0):
            pair = (layer, other, *own) if layer < own[0] else (*own, layer, other)
            if above_null and not result.edges[pair]:
                continue
            value, z, rank = float(result.values[pair]), float(result.z_signs[pair]), int(result.rank[pair])
            edges.append(Edge(earlier=pair[:2], later=pair[2:], mode=result.mode, value=value, z=z, rank=rank))
    return composition_graph(edges, own, n_layers, n_heads, theme=theme)


def head_composition_figure(result: HeadComposition, *, z: float = 0.0, theme: Theme = "light") -> go.Figure:
    """Draw the heads that one head reads and those that read it, of the pairs above their null those with at least this
    z: the strongest 60."""
    edges = [
        Edge(
            earlier=_pair(result.earlier[index]), later=_pair(result.later[index]), mode=result.modes[index],
            value=float(result.values[index]), z=float(result.z[index]), rank=int(result.rank[index]),
        )
        for index in result.strongest(z)[:MOST_EDGES].tolist()
    ]  # fmt: skip
    return composition_graph(edges, result.head, result.n_layers, result.n_heads, theme=theme)


def _pair(head: np.ndarray) -> Head:
    return int(head[0]), int(head[1])


def _blocks(first: Lines | None, of: Any, n: int) -> list[str]:
    """`16–31`, or one row's index and name. Each begins with the first index, which a click reads."""
    spans = [of(block) for block in range(n)]
    names = full_labels(first) if first is not None and first.are_texts else None
    return [
        f"{span[0]}–{span[-1]}" if len(span) > 1 else f"{span[0]}" if names is None else f"{span[0]} {names[index]}"
        for index, span in enumerate(spans)
    ]


def _by_id(lines: Lines | None, otherwise: str) -> str:
    if lines is None:
        return otherwise
    return f"{lines.role}, by id" if lines.of == "token" else lines.role


#: The number of frequencies that have a line of their own; the others share one.
_FREQUENCIES = 4


def distance_curve(profile: DistanceProfile, *, theme: Theme = "light") -> go.Figure:
    """Draw the score of one pair of tokens over distances, and what the frequencies of the largest amplitude add to
    it."""
    figure = _over_distances(f"score of {profile.destination} for {profile.source}, nats", theme)
    parts, order = profile.by_frequency, np.argsort(-profile.amplitude, kind="stable")
    for place, pair in enumerate(order[:_FREQUENCIES], 1):
        name = f"wavelength {2 * np.pi / profile.theta[pair]:.3g} tokens"
        _line(figure, profile.distances, parts[pair], name, line_colour(theme, place), 1.2)
    if len(order) > _FREQUENCIES:
        others = parts[order[_FREQUENCIES:]].sum(0)
        name = f"{len(order) - _FREQUENCIES} other frequencies"
        _line(figure, profile.distances, others, name, INK[theme], 1.0, "dot")
    _line(figure, profile.distances, profile.scores, "score", LINES[theme][0], 2.4)
    return figure


def reach_curve(result: Reach, *, theme: Theme = "light") -> go.Figure:
    """Draw the mean score of a head over pairs of tokens at each distance."""
    figure = _over_distances("mean score over pairs of tokens, nats", theme)
    _line(figure, result.distances, result.mean_scores, "mean score", LINES[theme][0], 2.4)
    figure.add_annotation(
        text=", ".join(f"{name} {share:.0%}" for name, share in result.shares.items()) + " of the variance",
        xref="paper", yref="paper", x=1, y=1.02, yanchor="bottom", showarrow=False, font={"color": INK[theme]},
    )  # fmt: skip
    return figure


def _over_distances(y_title: str, theme: Theme) -> go.Figure:
    return axes(theme, "distance from destination back to source, tokens", y_title, hovermode="x unified")


def _line(
    figure: go.Figure, x: np.ndarray, y: np.ndarray, name: str, colour: str, width: float, dash: str = "solid"
) -> None:
    line = {"color": colour, "width": width, "dash": dash}
    figure.add_trace(go.Scatter(x=x, y=y, name=name, mode="lines", line=line, hovertemplate="%{y:+.3f}"))


def eigenvalue_plane(
    eigenvalues: Complex[np.ndarray, " inner"], *, unit: str = "", theme: Theme = "light"
) -> go.Figure:
    """Draw a point an eigenvalue; blue where the real part is positive, orange where it is negative.

    Both axes have the same scale, so that a phase is an angle. A positive real part means that what goes in along the
    eigenvector comes out with the same sign: copying, if rows and columns are the same tokens.
    """
    reach = 1.12 * float(np.abs(eigenvalues).max(initial=0.0)) or 1.0
    axis = {"range": [-reach, reach], "zeroline": True, "zerolinewidth": 1.5}
    across, up = {**axis, "constrain": "domain"}, {**axis, "scaleanchor": "x"}
    figure = axes(theme, "real part", "imaginary part", xaxis=across, yaxis=up)
    for name, group, colour in (
        ("real part ≥ 0", eigenvalues.real >= 0, LINES[theme][0]),
        ("real part < 0", eigenvalues.real < 0, LINES[theme][1]),
    ):
        points = eigenvalues[group]
        figure.add_scatter(
            x=points.real.astype(np.float32),
            y=points.imag.astype(np.float32),
            mode="markers",
            customdata=np.abs(points).astype(np.float32),
            name=f"{name}: {int(group.sum())}",
            marker={"size": 9, "color": colour, "opacity": 0.75, "line": {"width": 1, "color": INK[theme]}},
            hovertemplate=f"real %{{x:.4g}}<br>imaginary %{{y:.4g}}<br>size %{{customdata:.4g}} {unit}<extra></extra>",
        )
    return figure
