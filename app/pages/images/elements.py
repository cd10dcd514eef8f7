"""What the browser draws on the Images page: the gallery, the cells over all maps, one image's maps, tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from dash import html

from aotlens.plots import data_uri, image_sprite, picture
from app.core.errors import RequestError
from app.pages.images.service import Batch, Run, said

if TYPE_CHECKING:
    from aotlens.heads import SemanticConsistency
    from aotlens.paths import PatchContributions

#: Pixels a side of an image in the gallery, of one of all maps, and of a map of one image.
GALLERY_CELL, SMALL_CELL, LARGE_CELL = 96, 84, 196


def gallery(batch: Batch, run: Run, classes: Sequence[str], known: bool) -> list[html.Button]:
    """A button an image: what it is, and what the whole model takes it for."""
    buttons = []
    for number, label in enumerate(batch.labels):
        best = int(run.logits[number].argmax())
        what = "yours" if label is None else f"class {batch.names[label]}"
        verdict = "" if label is None or not known else " gallery-right" if best == label else " gallery-wrong"
        shown = picture(batch.images[number].numpy(), cell=GALLERY_CELL)
        buttons.append(
            html.Button(
                [
                    html.Img(src=data_uri(shown), alt=f"Image {number + 1}, {what}, taken for "),
                    html.Span(f"{classes[best]} · {run.probabilities[number, best]:.2f}", className="gallery-says"),
                ],
                className=f"gallery-image{verdict}",
                title=f"{what}, taken for {classes[best]} with probability {run.probabilities[number, best]:.2f}",
                tabIndex=-1,
                **{"data-image": str(number)},
            )
        )
    return buttons


def cells(layer: int, heads: Sequence[int], n_images: int) -> list[html.Button]:
    """A row a head: its name, its switch, and a button an image; arrows move, so that the Tab key stops once a kind."""
    buttons = []
    for row, head in enumerate(heads, start=1):
        place = {"data-layer": str(layer), "data-head": str(head)}
        name = f"{layer}.{head}"
        buttons += [
            html.Span(name, className="row-name", style={"grid-area": f"{row} / 1"}, **place),
            html.Button(
                className="head-switch", tabIndex=-1, style={"grid-area": f"{row} / 2"}, **place,
                **{"aria-label": f"Switch off head {name}"},
            ),
        ]  # fmt: skip
        buttons += [
            html.Button(
                className="map-cell", tabIndex=-1, style={"grid-area": f"{row} / {image + 3}"}, **place,
                **{"data-image": str(image), "data-row": str(row - 1), "aria-label": f"Head {name}, image {image + 1}"},
            )
            for image in range(n_images)
        ]  # fmt: skip
    return buttons


def pictures(
    batch: Batch, run: Run, image: int, layer: int, head: int, patch: tuple[int, int] | None,
    paths: PatchContributions | str, classes: Sequence[str],
) -> list[html.Figure]:  # fmt: skip
    """One image and its maps beside it; a sentence in the place of one that there isn't."""
    shown = batch.images[image].numpy()
    rows, columns = run.maps.grid.rows, run.maps.grid.columns
    name = f"{layer}.{head}"
    figures = [
        _figure(
            [html.Img(src=data_uri(picture(shown, cell=LARGE_CELL)), alt=f"Image {image + 1}"),
             html.Div(_patches(rows, columns, patch), className="patches", style={"--patches": columns})],
            "The image: click a patch to see where it looks",
        )
    ]  # fmt: skip
    one = _map(shown, run.maps.attention(patch)[image, layer, head])
    figures.append(_figure([html.Img(src=one, alt=f"Attention of head {name}")], f"Attention of {name}"))
    one = _map(shown, run.maps.value_weighted(patch)[image, layer, head])
    figures.append(_figure([html.Img(src=one, alt=f"Value-weighted, {name}")], f"Value-weighted, {name}"))
    try:
        rolled = said(lambda: run.maps.rollout(patch)[image])
    except RequestError as error:
        figures.append(_figure([html.P(str(error))], "Rollout"))
    else:
        figures.append(
            _figure([html.Img(src=_map(shown, rolled), alt="Attention rollout")], "Rollout through all layers")
        )
    if isinstance(paths, str):
        return [*figures, _figure([html.P(paths)], "Patch by patch")]
    best = int(run.logits[image].argmax())
    signed = paths.of_class()[0]
    label = f"What patches add to ‹{classes[best]}›"
    return [*figures, _figure([html.Img(src=_map(shown, signed), alt=label)], label)]


def consistency_table(found: SemanticConsistency) -> list[html.Table]:
    """Every head, the most consistent first."""
    titles = ("head", "within", "between", "difference", "95%", "with mean", "p adjusted")
    rows = []
    for layer, head in found.ranking():
        at = (layer, head)
        low, high = found.intervals[at]
        button = html.Button(
            f"{layer}.{head}", className="ranked-row", **{"data-layer": str(layer), "data-head": str(head)}
        )
        numbers = [found.within[at], found.between[at], found.difference[at]]
        rest = [f"{low:.3f} to {high:.3f}", f"{found.with_mean[at]:.3f}", f"{found.adjusted_p[at]:.3f}"]
        rows.append(
            html.Tr(
                [html.Td(button), *(html.Td(text) for text in [*(f"{number:.3f}" for number in numbers), *rest])],
                className="beyond-chance" if found.adjusted_p[at] <= 0.05 else "",
            )
        )
    header = html.Tr([html.Th(title, scope="col") for title in titles])
    return [html.Table([html.Thead(header), html.Tbody(rows)], className="images-numbers")]


def predictions_table(run: Run, whole: Run, image: int, classes: Sequence[str], most: int) -> html.Table:
    """The likeliest classes, with bars; in a second column those of the run without some heads."""
    order = np.argsort(-whole.probabilities[image], kind="stable")[:most]
    rows = [
        html.Tr(
            [
                html.Td(classes[one]),
                *(_probability(each.probabilities[image, one]) for each in ([whole, run] if run.off else [whole])),
                html.Td(f"{whole.logits[image, one]:.2f}"),
            ]
        )
        for one in order.tolist()
    ]
    titles = ["class", "probability", *(["without"] if run.off else []), "logit"]
    header = html.Tr([html.Th(title, scope="col") for title in titles])
    return html.Table([html.Thead(header), html.Tbody(rows)], className="images-numbers")


def grid_sprite(batch: Batch, run: Run, layer: int, heads: Sequence[int], view: str, patch: Any) -> bytes:
    """A PNG of all maps of a layer, a row a head in that order."""
    maps = run.maps.value_weighted(patch) if view == "weighted" else run.maps.attention(patch)
    return image_sprite(batch.images.numpy(), maps[:, layer, list(heads)].swapaxes(0, 1), cell=SMALL_CELL)


def signed_picture(batch: Batch, image: int, patches: np.ndarray) -> bytes:
    """A PNG of one image beneath what its patches add."""
    return image_sprite(batch.images[image : image + 1].numpy(), patches[None, None], cell=2 * LARGE_CELL)


def _map(image: np.ndarray, patches: np.ndarray) -> str:
    return data_uri(image_sprite(image[None], patches[None, None], cell=LARGE_CELL))


def _figure(content: list[Any], label: str) -> html.Figure:
    return html.Figure([html.Div(content, className="one-map"), html.Figcaption(label)])


def _patches(rows: int, columns: int, chosen: tuple[int, int] | None) -> list[html.Button]:
    first = chosen or (0, 0)
    return [
        html.Button(
            className="patch", tabIndex=0 if (row, column) == first else -1,
            **{"data-row": str(row), "data-column": str(column), "aria-label": f"Patch {row}.{column}",
               "aria-pressed": str((row, column) == chosen).lower()},
        )
        for row in range(rows)
        for column in range(columns)
    ]  # fmt: skip


def _probability(value: float) -> html.Td:
    bar = html.Span(className="bar", style={"width": f"{100 * value:.1f}%"})
    return html.Td([html.Span(f"{value:.4f}", className="number"), html.Span(bar, className="track")])
