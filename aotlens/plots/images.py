"""Maps of patches over their images, and measures of them over many images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float, Shaped, UInt8
from PIL import Image
from plotly.subplots import make_subplots

from aotlens.plots.attention import data_uri, png_of
from aotlens.plots.colours import INK, LINES, Scale, Theme, base_layout
from aotlens.plots.primitives import (
    LEGEND,
    band,
    error_bars,
    head_places,
    line_colour,
    matrix_map,
    names_of_heads,
    plotly_text,
    style_panels,
)

if TYPE_CHECKING:
    from aotlens.heads import ClassPredictions, HeadOnImage, LayerOnImages, SemanticConsistency
    from aotlens.paths import ClassPatches, PatchCurves

#: Red, green and blue of a map's values above 0, and below: distinct without colour vision, and from every grey.
_ABOVE, _BELOW = "86,180,233", "240,130,40"
#: The range of a picture's greys under a map, so that neither black nor white hides it.
_DARKEST, _BRIGHTEST = 30, 205
#: Pixels a side of the grid's tiles on the screen, at most and at least.
_TILE, _LEAST_TILE = 132, 44


def overlay_grid(
    images: UInt8[np.ndarray, "image height width *channel"],
    maps: Shaped[np.ndarray, "image column row patch"],
    *,
    row_titles: Sequence[str],
    column_titles: Sequence[str],
    quantity: str = "attention",
    shared: bool = False,
    theme: Theme = "light",
) -> go.Figure:
    """Draw a grid, row = image, column = map, such as a head's: each map lies over its image, as opaque as its value is
    large.

    `images` are grey `[image, height, width]` or have red, green and blue last; `maps` are `[image, column, row of
    patches, patch]`. Maps with a sign are blue above 0 and orange below. Each map has its own scale, up to its largest
    magnitude, or with `shared` all have one. Exact values are on hover. Raises `ValueError` for other shapes.
    """
    n_images, n_columns, *size = maps.shape
    if len(images) != n_images or len(row_titles) != n_images or len(column_titles) != n_columns:
        raise ValueError(
            f"overlay_grid: expected an image and a title for each of {n_images} rows and a title for each of "
            f"{n_columns} columns, got {len(images)} images, {len(row_titles)} and {len(column_titles)} titles."
        )
    rows, columns = size
    gap = max(1, round(rows / 8))
    height, width = rows + gap, columns + gap
    values = np.full((n_images * height - gap, n_columns * width - gap), np.nan)
    shades = values.copy()
    largest = np.abs(maps).max() if shared else np.abs(maps).max((-2, -1), keepdims=True)
    parts = np.divide(maps, largest, out=np.zeros(maps.shape), where=np.broadcast_to(largest, maps.shape) > 0)
    for image, column in np.ndindex(n_images, n_columns):
        tile = np.s_[image * height : image * height + rows, column * width : column * width + columns]
        values[tile], shades[tile] = maps[image, column], parts[image, column]
    signed = bool((maps < 0).any())
    bar: dict[str, Any] = {"thickness": 10, "outlinewidth": 0, "title": {"text": quantity, "side": "right"}}
    if shared:
        ticks = np.linspace(-1 if signed else 0, 1, 5)
        bar |= {"tickvals": ticks.tolist(), "ticktext": [f"{tick * float(largest):.3g}" for tick in ticks]}
    else:
        bar["title"]["text"] = f"{quantity}, part of each map's largest"
    heatmap = go.Heatmap(
        z=shades.astype(np.float32), customdata=values.astype(np.float32), zmin=-1 if signed else 0, zmax=1,
        colorscale=_see_through("diverging" if signed else "sequential"), colorbar=bar, hoverongaps=False,
        hovertemplate=f"<b>{quantity} %{{customdata:.4g}}</b><extra></extra>",
    )  # fmt: skip
    tile_pixels = float(np.clip(1100 / n_columns, _LEAST_TILE, _TILE))
    plain: dict[str, Any] = {"showgrid": False, "zeroline": False, "showline": False, "ticks": "", "tickangle": 0}
    picture = {
        "source": data_uri(_tiled(images, n_columns, height / rows, width / columns)), "xref": "x", "yref": "y",
        "x": -0.5, "y": -0.5, "sizex": values.shape[1], "sizey": values.shape[0], "sizing": "stretch", "layer": "below",
    }  # fmt: skip
    return go.Figure(
        heatmap,
        layout=base_layout(
            theme,
            images=[picture],
            width=round(tile_pixels * n_columns * width / columns) + 190,
            height=round(tile_pixels * n_images * height / rows) + 60,
            xaxis={
                **plain, "tickvals": [(columns - 1) / 2 + width * n for n in range(n_columns)], "side": "top",
                "ticktext": [plotly_text(title) for title in column_titles], "range": [-0.5, values.shape[1] - 0.5],
            },
            yaxis={
                **plain, "tickvals": [(rows - 1) / 2 + height * n for n in range(n_images)],
                "ticktext": [plotly_text(title) for title in row_titles], "range": [values.shape[0] - 0.5, -0.5],
            },
        ),
    )  # fmt: skip


def contribution_map(
    image: UInt8[np.ndarray, "height width *channel"],
    patches: Float[np.ndarray, "row column"],
    *,
    quantity: str = "logits",
    theme: Theme = "light",
) -> go.Figure:
    """Draw the picture as it is, and what each of its patches adds laid over it: blue for, orange against,
    clear at 0."""
    both = np.stack([np.zeros_like(patches), patches])[None]
    return overlay_grid(
        image[None], both, row_titles=[""], column_titles=["", f"{quantity} that patches add"], quantity=quantity,
        shared=True, theme=theme,
    )  # fmt: skip


def layer_on_images(result: LayerOnImages, *, theme: Theme = "light") -> go.Figure:
    """Draw a grid, row = image, column = head of the layer."""
    names = [f"image {number + 1}" for number in range(len(result.images))]
    heads = [f"{result.layer}.{head}" for head in range(result.values.shape[1])]
    return overlay_grid(
        _channels_last(result.images), result.values, row_titles=names, column_titles=heads,
        quantity=result.quantity.replace("_", "-"), theme=theme,
    )  # fmt: skip


def head_on_image(result: HeadOnImage, *, theme: Theme = "light") -> go.Figure:
    """Draw all maps of one head on its image, side by side."""
    names = [name.replace("_", "-") for name in result.maps]
    maps = np.stack(list(result.maps.values()))[None]
    return overlay_grid(
        _channels_last(result.image[None]), maps, row_titles=[""], column_titles=names, quantity="value", theme=theme
    )


def class_patches(result: ClassPatches, *, theme: Theme = "light") -> go.Figure:
    """Draw the contribution of every patch to the logit of the class, above the mean over classes, as the
    patches lie."""
    rows, columns = ([str(place) for place in range(n)] for n in result.patches.shape)
    quantity = f"logit of class {result.number} above the mean"
    return matrix_map(
        result.patches, rows, columns, quantity=quantity, row_title="row", column_title="column", theme=theme
    )


def class_predictions(result: ClassPredictions, *, theme: Theme = "light") -> go.Figure:
    """Draw a bar per class, the most probable first; next to it that with heads ablated."""
    order = np.argsort(-result.probabilities, kind="stable")
    names = [plotly_text(result.classes[place]) for place in order]
    bars = [go.Bar(x=names, y=result.probabilities[order], name="full model")]
    if result.ablated is not None:
        bars.append(go.Bar(x=names, y=result.ablated[order], name="heads ablated"))
    layout = base_layout(theme, height=360, showlegend=len(bars) > 1, yaxis={"title": {"text": "probability"}})
    return go.Figure(bars, layout=layout)


def _channels_last(images: UInt8[np.ndarray, "image channel height width"]) -> UInt8[np.ndarray, ...]:
    return images[:, 0] if images.shape[1] == 1 else images.transpose(0, 2, 3, 1)


def picture(image: UInt8[np.ndarray, "channel height width"], *, cell: int = 64) -> bytes:
    """Return a PNG of one picture as it is, its pixels as squares: as many times larger as fits in `cell` pixels."""
    times = max(1, cell // max(image.shape[1:]))
    pixels = _channels_last(image[None])[0].repeat(times, axis=0).repeat(times, axis=1)
    return png_of(Image.fromarray(np.ascontiguousarray(pixels)))


def insertion_and_deletion(result: PatchCurves, *, theme: Theme = "light") -> go.Figure:
    """Draw deletion and insertion side by side, a line per method: the mean over images, in a band of one standard
    error."""
    shares = result.shares
    titles = [
        "deletion: patches replaced, first those that matter",
        "insertion: patches put in, first those that matter",
    ]
    figure = make_subplots(rows=1, cols=2, shared_yaxes=True, subplot_titles=titles, horizontal_spacing=0.04)
    for panel, curves in enumerate((result.deletion, result.insertion), 1):
        for index, (name, values) in enumerate(zip(result.methods, curves, strict=True)):
            colour, mean = line_colour(theme, index), values.mean(0)
            error = values.std(0, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.zeros_like(mean)
            line = go.Scatter(
                x=shares, y=mean, name=name, legendgroup=name, showlegend=panel == 1, mode="lines+markers",
                line={"color": colour, "width": 1.8, "dash": "dash" if name == "random" else "solid"},
                marker={"size": 5}, customdata=error, hovertemplate="%{y:.3f} ± %{customdata:.3f}",
            )  # fmt: skip
            figure.add_traces([band(shares, mean - error, mean + error, colour, name), line], rows=1, cols=panel)
    style_panels(figure, theme).update_layout(hovermode="x unified", height=420, margin={"t": 36})
    figure.update_layout(legend={"orientation": "h", "y": -0.2, "yanchor": "top"})
    figure.update_xaxes(title_text="share of patches", tickformat=".0%")  # of both panels
    figure.update_yaxes(title_text="logit above the mean over classes", row=1, col=1)
    return figure.update_annotations(font={"size": 13, "color": INK[theme]})


def consistency(result: SemanticConsistency, *, theme: Theme = "light") -> go.Figure:
    """Draw a point per head, layers across: within − between with its interval, filled where it is beyond chance; and,
    above, the overlap with the head's mean map, which is position alone."""
    beyond, shape, colours = result.adjusted_p <= 0.05, result.within.shape, LINES[theme]
    (x, axis), names = head_places(*shape), names_of_heads(shape)
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.06, row_heights=[0.35, 0.65])
    figure.add_trace(
        go.Scatter(
            x=x, y=result.with_mean.ravel(), mode="markers", text=names, name="IoU with the head's mean map",
            marker={"size": 7, "color": colours[5], "symbol": "diamond"},
            hovertemplate="head %{text}<br>IoU with its mean map %{y:.3f}<extra></extra>",
        ),
        row=1, col=1,
    )  # fmt: skip
    for group, name, symbol in ((beyond, "beyond chance", "circle"), (~beyond, "not", "circle-open")):
        keep = group.ravel()
        (low, high), y = result.intervals.reshape(-1, 2)[keep].T, result.difference.ravel()[keep]
        figure.add_trace(
            go.Scatter(
                x=x[keep], y=y, mode="markers", text=np.array(names)[keep], name=name,
                marker={"size": 8, "color": colours[0], "symbol": symbol},
                error_y=error_bars(y, low, high, width=0, thickness=1.2, color=colours[0]),
                hovertemplate="head %{text}<br>within − between %{y:.3f}<extra></extra>",
            ),
            row=2, col=1,
        )  # fmt: skip
    style_panels(figure, theme).update_layout(height=520, legend=LEGEND)
    figure.update_xaxes(axis).update_xaxes(title_text="layer", row=2, col=1)
    figure.update_yaxes(title_text="IoU with mean map", range=[0, 1.02], row=1, col=1)
    return figure.update_yaxes(title_text="IoU within − between classes", zeroline=True, row=2, col=1)


def _see_through(scale: Scale) -> list[list[Any]]:
    """A scale that is clear at 0 and covers at ±1."""
    steps = [(part, f"rgba({_ABOVE},{0.92 * part:.3f})") for part in np.linspace(0, 1, 9)]
    if scale == "sequential":
        return [[float(part), colour] for part, colour in steps]
    below = [(-part, f"rgba({_BELOW},{0.92 * part:.3f})") for part in np.linspace(1, 1 / 8, 8)]
    return [[float((part + 1) / 2), colour] for part, colour in [*below, *steps]]


def _tiled(images: UInt8[np.ndarray, ...], n_columns: int, taller: float, wider: float) -> bytes:
    """A PNG with a row per image, `n_columns` times side by side, clear between: tiles are so much `taller` and
    `wider`."""
    pictures = images if images.ndim == 4 and images.shape[-1] == 3 else np.repeat(_grey(images)[..., None], 3, -1)
    n_images, height, width, _ = pictures.shape
    scale = max(1, round(56 / height))  # so that gaps are whole pixels to within a hundredth of a tile
    pictures = pictures.repeat(scale, 1).repeat(scale, 2)
    height, width = height * scale, width * scale
    down, across = round(height * taller), round(width * wider)
    canvas = np.zeros(((n_images - 1) * down + height, (n_columns - 1) * across + width, 4), dtype=np.uint8)
    values = (_DARKEST + pictures.astype(np.float32) * ((_BRIGHTEST - _DARKEST) / 255)).astype(np.uint8)
    for image, column in np.ndindex(n_images, n_columns):
        tile = canvas[image * down : image * down + height, column * across : column * across + width]
        tile[..., :3], tile[..., 3] = values[image], 255
    return png_of(Image.fromarray(canvas), compress_level=3)


def _grey(images: UInt8[np.ndarray, ...]) -> UInt8[np.ndarray, "image height width"]:
    return images[..., 0] if images.ndim == 4 else images
