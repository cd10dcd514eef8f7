"""All pairs of heads: a button a pair, with the pictures of both maps, parts of one picture a pane."""

from __future__ import annotations

import numpy as np
from dash import html

from aotlens.plots import Theme, data_uri, sprite
from app.core import head_maps
from app.core.head_maps import View
from app.pages.compare.address import Side
from app.pages.compare.captions import head_name
from app.pages.compare.service import HeadPair, Panes

#: Pixels a side of a picture.
_CELL = 48


def gallery(panes: Panes, pairs: list[HeadPair], view: View, hide_first: bool, theme: Theme) -> list[html.Div]:
    """The buttons; arrows move between them, so the Tab key stops once."""
    pictures = {
        f"--{side}-maps": f'url("{data_uri(_picture(panes, pairs, side, view, hide_first, theme))}")'
        for side in panes.results
    }
    buttons = [_button(panes, pair, place, len(pairs)) for place, pair in enumerate(pairs)]
    return [html.Div(buttons, className="pairs", style={"--pairs": len(pairs), **pictures})]


def _picture(panes: Panes, pairs: list[HeadPair], side: Side, view: View, hide_first: bool, theme: Theme) -> bytes:
    """The maps of a pane's heads in one row, in the order of the pairs; each on a scale of its own."""
    result = panes.results[side]
    heads = [getattr(pair, side) for pair in pairs]
    shown = np.stack([head_maps.values(result, view)[head] for head in heads])[None]
    seen = head_maps.visible(result, hide_first)
    if len(seen) > 1:
        seen = np.stack([seen[head] for _, head in heads])
    signed = bool((np.where(seen[None], shown, 0) < 0).any())
    return sprite(shown, seen, cell=_CELL, scale="diverging" if signed else "sequential", theme=theme)


def _button(panes: Panes, pair: HeadPair, place: int, n: int) -> html.Button:
    left, right = head_name(pair.left), head_name(pair.right)
    name = left if pair.why == "same" else f"{left} · {right}"
    similarity = pair.cosines.get("similarity")
    said = [] if similarity is None else [html.Span(f"{similarity:.2f}", className="pair-similarity")]
    where = f"{100 * place / max(n - 1, 1):.4f}%"
    maps = [
        html.Span(
            className=f"pair-map pair-{side}" + (" pair-off" if getattr(pair, side) in result.off else ""),
            style={"--at": where},
        )
        for side, result in panes.results.items()
    ]
    label = f"Head {left}" if pair.why == "same" else f"Head {left} and head {right}"
    return html.Button(
        [html.Span([html.Span(name), *said], className="pair-name"), html.Span(maps, className="pair-maps")],
        className="pair",
        tabIndex=0 if place == 0 else -1,
        title=label if similarity is None else f"{label}: similarity {similarity:.3f}",
        **{"data-position": str(place), "data-left": left, "data-right": right, "aria-pressed": "false"},
    )
