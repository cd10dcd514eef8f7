"""Figures of plotly in the gallery: drawn by the one plotly.js of the site, in the page's theme.

A page carries the numbers of its figures as JSON (arrays as base64, as plotly writes them); `_static/figures.js` draws
them, and again in other colours where the page turns dark. plotly.js is copied from the installed package at every
build, and only pages with figures load it.

    scrape                       what sphinx-gallery asks after each block of code
    setup                        the scripts, for Sphinx
    thumbnail.py                 the small picture of an example
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import plotly
import plotly.graph_objects as go
from sphinx.application import Sphinx
from thumbnail import draw_thumbnail

from aotlens.notebook import HeadGrid
from aotlens.plots import colours, sprite
from aotlens.plots.results import DISPLAY

PLOTLY = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
#: What a page with a figure contains.
MARK = 'class="aotlens-figure"'
#: Pixels, of figures that do not say how high they are.
HEIGHT = 420


def scrape(block: tuple[str, str, int], block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    """The figure that a block of code ends in, as HTML; and a PNG of it, from which its thumbnail is made.

    What ends in `aotlens.show` has HTML of its own, and only the PNG is made here.
    """
    statements = ast.parse(block[1]).body
    if not statements or not isinstance(statements[-1], ast.Expr):
        return ""
    shown = block_vars["example_globals"].get("___")
    if isinstance(shown, HeadGrid):
        Path(next(block_vars["image_path_iterator"])).write_bytes(sprite(shown.maps.values, shown.maps.visible))
    if not isinstance(shown, go.Figure):
        return ""
    draw_thumbnail(shown, next(block_vars["image_path_iterator"]))
    return ".. raw:: html\n\n    " + figure_html(shown) + "\n"


def figure_html(figure: go.Figure) -> str:
    """One line of HTML with the figure's data and layout; frames are left out."""
    whole = json.loads(figure.to_json())
    parts = json.dumps({"data": whole["data"], "layout": whole["layout"]}, separators=(",", ":"))
    height = figure.layout.height or HEIGHT
    # No text within can end the element.
    safe = parts.replace("<", "\\u003c")
    return f'<div {MARK} style="height: {height}px"><script type="application/json">{safe}</script></div>'


def dark_colours() -> dict[str, str]:
    """The colour on a dark page for each colour that our figures have on a light one."""
    named = [colours.BACKGROUND, colours.INK, colours.QUIET, colours.QUIET_INK]
    pairs = {each["light"]: each["dark"] for each in named}
    pairs |= zip(colours.LINES["light"], colours.LINES["dark"], strict=True)
    for scale in ("sequential", "diverging"):
        pairs |= zip(colours.stops(scale, "light"), colours.stops(scale, "dark"), strict=True)
    return pairs


def _add_scripts(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: object) -> None:
    """plotly.js and what draws, on pages that have figures."""
    if MARK not in context.get("body", ""):
        return
    settings = {"display": DISPLAY, "dark": dark_colours()}
    app.add_js_file(None, body=f"const aotlensFigures = {json.dumps(settings)};")
    app.add_js_file("plotly.min.js", loading_method="defer")
    app.add_js_file("figures.js", loading_method="defer")


def _add_plotly(app: Sphinx, config: Any) -> None:
    config.html_static_path.append(str(PLOTLY))


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("config-inited", _add_plotly)
    app.connect("html-page-context", _add_scripts)
    app.add_css_file("figures.css")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
