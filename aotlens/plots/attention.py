"""Maps of attention: one head's, several side by side, all heads in one large figure or in one small picture.

144 heat maps as subplots take a browser 587 ms, one PNG 49 ms. The small picture is a grid without gaps, row = layer,
column = head, with one byte a pixel and a palette; cells where a query can't see a key are transparent.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Bool, Float, Int16, Shaped, UInt8
from PIL import Image
from plotly.subplots import make_subplots

from aotlens.conventions import HeadLike, as_head
from aotlens.plots.colours import BACKGROUND, INK, QUIET_INK, Scale, Theme, base_layout, colorscale, lookup
from aotlens.plots.primitives import CELL_AXIS, axis_labels, colour_bar, names_of_heads, plotly_text

if TYPE_CHECKING:
    from aotlens.heads import AttentionPatterns, ComparedMaps, HeadMap

#: The number of heads up to which their patterns are drawn side by side.
MOST_PATTERNS = 24
#: The titles of a map's numbers, by the names that `AttentionPatterns.quantity` takes.
QUANTITIES: Mapping[str, str] = {
    "attention": "attention", "weighted": "attention · ‖v‖", "scores": "score (nats)"
}  # fmt: skip
#: The number of tokens up to which each has its label.
_ALL_LABELS = 44


def attention_map(
    values: Float[np.ndarray, "query key"],
    str_tokens: Sequence[str],
    *,
    visible: Bool[np.ndarray, "query key"] | None = None,
    quantity: str = "attention",
    theme: Theme = "light",
    span: tuple[float, float] | None = None,
) -> go.Figure:
    """Draw a heatmap, queries down and keys across, with exact values on hover.

    `visible` blanks the rest: keys in a query's future, or a key left out so as not to drown the scale. Values with a
    sign (scores) get a diverging scale around 0. `span`, the least and the greatest value of several maps, gives each
    of them the scale of all. The array goes to the browser as float32, never as a list: 10 to 100
    times smaller, and as much faster.
    """
    n_pos = len(str_tokens)
    if values.shape != (n_pos, n_pos):
        raise ValueError(f"attention_map: expected {n_pos} × {n_pos} values for {n_pos} tokens, got {values.shape}.")
    cells = values.astype(np.float32)
    if visible is not None:
        cells[~visible] = np.nan
    least, most = span_of(cells) if span is None else span
    scale: Scale = "diverging" if least < 0 else "sequential"
    top = max(most, -least) or 1.0
    labels = axis_labels(str_tokens)
    hover = f"query  %{{y}}<br>key  %{{x}}<br><b>{quantity} %{{z:.4f}}</b><extra></extra>"
    heatmap = go.Heatmap(
        x=labels, y=labels, z=cells, zmin=-top if least < 0 else 0.0, zmax=top, colorscale=colorscale(scale, theme),
        colorbar=colour_bar(quantity, len=1.0), hoverongaps=False, hovertemplate=hover,
    )  # fmt: skip
    # Every label while they can be read; beyond, plotly leaves some out.
    ticks = {"tickfont": {"size": 11 if n_pos <= 32 else 9, "color": INK[theme]}}
    axis = {**CELL_AXIS, **ticks, **({"dtick": 1} if n_pos <= _ALL_LABELS else {}), "constrain": "domain"}
    keys = {**axis, "tickangle": -90, "title": {"text": "key (source)"}}
    queries = {**axis, "autorange": "reversed", "title": {"text": "query (destination)"}}
    return go.Figure(heatmap, layout=base_layout(theme, xaxis=keys, yaxis=queries))


def patterns_figure(patterns: AttentionPatterns, *, head: HeadLike | None = None, theme: Theme = "light") -> go.Figure:
    """Draw one head's attention pattern, or those of all heads side by side."""
    names = [plain or f"{place}" for place, plain in enumerate(patterns.str_tokens)] or [
        str(token) for token in patterns.tokens
    ]
    n_layers, n_heads = patterns.pattern.shape[:2]
    if head is not None:
        layer, number = as_head(head, SimpleNamespace(n_layers=n_layers, n_heads=n_heads))
        visible = patterns.visible[min(number, len(patterns.visible) - 1)]
        return attention_map(patterns.pattern[layer, number], names, visible=visible, theme=theme)
    if n_layers * n_heads > MOST_PATTERNS:
        raise ValueError(f"plot: {n_layers * n_heads} heads are too many for one figure; give head='layer.head'.")
    titles = names_of_heads((n_layers, n_heads))
    maps = [pattern for layer in patterns.pattern for pattern in layer]
    return pattern_gallery(maps, titles, [names] * len(titles), columns=n_heads, theme=theme)


def head_map_figure(result: HeadMap, *, theme: Theme = "light") -> go.Figure:
    """Draw one head's map, blank where it is NaN."""
    return attention_map(result.values, result.str_tokens, quantity=QUANTITIES[result.quantity], theme=theme)


def compared_maps(result: ComparedMaps, *, theme: Theme = "light") -> go.Figure:
    """Draw right − left, entry by entry, with zero in the middle of the scale."""
    values = result.difference
    top = float(np.abs(np.nan_to_num(values)).max()) or 1.0
    quantity = f"Δ {QUANTITIES[result.left.quantity]}"
    return attention_map(values, result.left.str_tokens, quantity=quantity, theme=theme, span=(-top, top))


def to_levels(values: Float[np.ndarray, "*shape"], top: float, scale: Scale) -> UInt8[np.ndarray, "*shape"]:
    """Return values from 0 to `top` as 0 to 255, or, if diverging, from −`top` to `top` as 1 to 255. NaN is drawn as 0
    is."""
    zero, steps = (128, 127) if scale == "diverging" else (0, 255)
    return np.rint(zero + steps * np.where(np.isnan(values), np.float32(0), values) / top).astype(np.uint8)


def span_of(*maps: Float[np.ndarray, "_ _"]) -> tuple[float, float]:
    """Return the least and the greatest value of maps; (0, 0) where they show nothing."""
    finite = np.concatenate([values[np.isfinite(values)] for values in maps])
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)


def pattern_gallery(
    patterns: Sequence[Float[np.ndarray, ...]],
    titles: Sequence[str],
    str_tokens: Sequence[Sequence[str]],
    *,
    columns: int = 3,
    theme: Theme = "light",
) -> go.Figure:
    """Draw heatmaps in a grid, queries down and keys across, all on one scale from 0 to 1.

    `str_tokens` has the tokens of each pattern. Raises `ValueError` for no patterns, and names that don't fit them.
    """
    if not patterns or not len(patterns) == len(titles) == len(str_tokens):
        raise ValueError(
            "pattern_gallery: expected as many titles and token lists as patterns, at least one, got "
            f"{len(patterns)}, {len(titles)}, {len(str_tokens)}."
        )
    columns = min(columns, len(patterns))
    rows = -(-len(patterns) // columns)
    figure = make_subplots(
        rows=rows, cols=columns, subplot_titles=[plotly_text(title) for title in titles], horizontal_spacing=0.12,
        vertical_spacing=0.16 / rows + 0.06,
    )  # fmt: skip
    for index, (pattern, tokens) in enumerate(zip(patterns, str_tokens, strict=True)):
        if pattern.shape != (len(tokens), len(tokens)):
            raise ValueError(f"pattern_gallery: expected {len(tokens)} × {len(tokens)} values, got {pattern.shape}.")
        labels = axis_labels(tokens)
        figure.add_trace(
            go.Heatmap(
                z=pattern.astype(np.float32), x=labels, y=labels, coloraxis="coloraxis",
                hovertemplate="query  %{y}<br>key  %{x}<br><b>attention %{z:.4f}</b><extra></extra>",
            ),
            row=index // columns + 1, col=index % columns + 1,
        )  # fmt: skip
    figure.update_layout(base_layout(theme))
    font = {"size": 8, "color": QUIET_INK[theme]}
    axis = {"type": "category", "showgrid": False, "ticks": "", "tickfont": font, "dtick": 1, "automargin": True}
    figure.update_xaxes(**axis, tickangle=-90)
    figure.update_yaxes(**axis, autorange="reversed")
    figure.update_layout(
        coloraxis={"colorscale": colorscale("sequential", theme), "cmin": 0, "cmax": 1,
                   "colorbar": {"title": {"text": "attention", "side": "right"}, "thickness": 10}},
        height=360 * rows,
    )  # fmt: skip
    return figure


#: The palette's last entry: nothing to see here.
TRANSPARENT = 255


def sprite(
    values: Float[np.ndarray, "layer head query key"],
    visible: Bool[np.ndarray, "mask query key"] | None = None,
    *,
    cell: int = 64,
    scale: Scale = "sequential",
    theme: Theme = "light",
) -> bytes:
    """Return a PNG of every head's map, at most `cell` pixels a side. `visible` (one mask, or one per head) hides the
    rest.

    About 20 ms for 144 heads of 128 tokens.
    """
    if visible is not None:
        values = np.where(visible[None], values, np.float32(0))
    # The entry of a block that is largest before it is shaded is largest afterwards; and few are left to shade.
    shaded = shade(pool(values, cell), scale)
    if visible is not None:
        seen = pool(visible.astype(np.int16), cell)[None].astype(bool)
        shaded = np.where(seen, shaded, np.int16(TRANSPARENT))
    layers, heads, rows, columns = shaded.shape
    offset = 0 if scale == "sequential" else (TRANSPARENT - 1) // 2
    shaded = np.where(shaded == TRANSPARENT, shaded, shaded + offset).astype(np.uint8)
    return _png(shaded.transpose(0, 2, 1, 3).reshape(layers * rows, heads * columns), scale, theme)


def shade(values: Float[np.ndarray, "layer head query key"], scale: Scale) -> Int16[np.ndarray, "layer head query key"]:
    """Return palette steps, each head on its own scale: 0 to 254, or −127 to 127 if diverging, at its largest
    magnitude.

    The grid is for finding shapes; sizes are read off the large map, which has a colour bar.
    """
    top = np.maximum(values.max(axis=(-2, -1), keepdims=True), -values.min(axis=(-2, -1), keepdims=True))
    steps = TRANSPARENT - 1 if scale == "sequential" else (TRANSPARENT - 1) // 2
    factor = np.divide(steps, top, out=np.zeros_like(top), where=top > 0)
    shaded = np.rint(values * factor).astype(np.int16)
    return np.maximum(shaded, 0) if scale == "sequential" else shaded


def pool(maps: Shaped[np.ndarray, "*stack query key"], cell: int) -> Shaped[np.ndarray, "*stack row column"]:
    """Return maps shrunk by a whole factor to at most `cell` a side, by the entry largest in magnitude of each block.

    A mean would fade a previous-token head's one-pixel line as the text grows.
    """
    factor = -(-maps.shape[-1] // cell)
    if factor == 1:
        return maps
    signed = bool((maps < 0).any())
    for axis in (maps.ndim - 2, maps.ndim - 1):
        short = -maps.shape[axis] % factor
        if short:
            maps = np.pad(maps, [(0, short if a == axis else 0) for a in range(maps.ndim)])
        every = (slice(None),) * axis
        parts = [maps[(*every, slice(start, None, factor))] for start in range(factor)]
        maps = parts[0]
        for part in parts[1:]:
            maps = np.where(np.abs(part) > np.abs(maps), part, maps) if signed else np.maximum(maps, part)
    return maps


def data_uri(png: bytes) -> str:
    """Return a PNG as the `src` of an image."""
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")


def _png(picture: UInt8[np.ndarray, "height width"], scale: Scale, theme: Theme) -> bytes:
    image = Image.fromarray(np.ascontiguousarray(picture))
    palette = np.zeros((256, 3), dtype=np.uint8)
    palette[:TRANSPARENT] = lookup(scale, theme, TRANSPARENT)
    image.putpalette(palette.tobytes())
    return png_of(image, transparency=TRANSPARENT)


def png_of(image: Image.Image, *, compress_level: int = 1, **options: Any) -> bytes:
    """Return an image as a PNG."""
    buffer = io.BytesIO()
    image.save(buffer, format="PNG", compress_level=compress_level, **options)
    return buffer.getvalue()


#: Pixels of a head in the figure, with the line of text above its map; the most entries a side; the map's share.
_PITCH, _CELL, _MAP = 118, 96, 0.8


def all_heads_maps(
    values: Float[np.ndarray, "layer head query key"],
    visible: Bool[np.ndarray, "mask query key"] | None = None,
    *,
    quantity: str,
    title: str,
    theme: Theme = "light",
) -> go.Figure:
    """Draw a grid, row = layer, column = head; in each map, queries go down and keys across.

    Each map has its own scale, up to its largest magnitude, which stands above it in the unit that `quantity` names;
    the colour bar is in parts of that. `visible` (one mask, or one per head) hides the rest. Maps longer than 96 tokens
    are shrunk by a whole factor, by the entry largest in magnitude of each block.
    """
    n_layers, n_heads = values.shape[:2]
    seen = values if visible is None else np.where(visible[None], values, np.float32(0))
    signed = bool((seen < 0).any())
    maps = shade(pool(seen, _CELL), "diverging" if signed else "sequential")
    side = maps.shape[-1]
    pitch = round(side / _MAP) if side > 8 else side + 2
    z = np.zeros((n_layers * pitch, n_heads * pitch), dtype=np.int8 if signed else np.uint8)
    shapes, annotations = [], []
    for layer, head in np.ndindex(n_layers, n_heads):
        top, left = layer * pitch + pitch - side, head * pitch
        z[top : top + side, left : left + side] = maps[layer, head]
        frame = {"x0": left - 0.5, "x1": left + side - 0.5, "y0": top - 0.5, "y1": top + side - 0.5}
        shapes.append({"type": "rect", **frame, "line": {"width": 0.7, "color": QUIET_INK[theme]}})
        largest = float(np.abs(seen[layer, head]).max())
        annotations.append(
            {"text": f"<b>{layer}.{head}</b> {largest:.2g}", "x": left - 0.5, "y": top - 0.5, "xanchor": "left",
             "yanchor": "bottom", "showarrow": False, "font": {"size": 12}, "borderpad": 1}
        )  # fmt: skip
    steps = (TRANSPARENT - 1) // 2 if signed else TRANSPARENT - 1
    ticks = {-1.0: "−1", -0.5: "−½", 0.0: "0", 0.5: "½", 1.0: "1"}
    parts = [part for part in ticks if signed or part >= 0]
    figure = go.Figure(
        go.Heatmap(
            z=z,
            zmin=-steps if signed else 0,
            zmax=steps,
            colorscale=colorscale("diverging" if signed else "sequential", theme),
            hoverinfo="skip",
            colorbar={
                "title": {"text": f"{quantity},<br>part of the head's<br>largest (printed<br>above its map)"},
                "tickvals": [part * steps for part in parts], "ticktext": [ticks[part] for part in parts],
                "thickness": 14, "len": 1.0 if n_layers < 3 else 0.5, "outlinewidth": 0.5,
            },
        )
    )  # fmt: skip
    plain: dict[str, Any] = {"showgrid": False, "zeroline": False, "showline": False, "ticks": ""}
    middle = pitch - side / 2
    figure.update_layout(
        **{**base_layout(theme), "paper_bgcolor": BACKGROUND[theme], "margin": {"l": 64, "r": 16, "t": 56, "b": 56}},
        width=_PITCH * n_heads + 240,
        height=max(_PITCH * n_layers + 120, 250),
        title={"text": title, "font": {"size": 16, "color": INK[theme]}, "x": 0, "xref": "container", "xanchor": "left",
               "pad": {"l": 16}},
        shapes=shapes,
        annotations=annotations,
    )  # fmt: skip
    figure.update_xaxes(
        **plain, title="head", tickvals=[head * pitch + side / 2 for head in range(n_heads)],
        ticktext=list(map(str, range(n_heads))), range=[-0.5, n_heads * pitch - 0.5],
    )  # fmt: skip
    figure.update_yaxes(
        **plain, title="layer", tickvals=[layer * pitch + middle for layer in range(n_layers)],
        ticktext=list(map(str, range(n_layers))), range=[n_layers * pitch - 0.5, -0.5],
    )  # fmt: skip
    return figure
