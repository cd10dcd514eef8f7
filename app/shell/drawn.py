"""Many small elements in one component: a text's tokens, a model's heads.

At every step of a callback, Dash's renderer asks each component of the page whether it has changed, so a strip of 250
components slows down every click. The elements come through a store instead, and the browser draws them
(static/drawn.js):

    drawn(ids.STRIP, "strip", "Tokens")            in the layout
    output=stores(strip=shell.drawn(ids.STRIP))    of a callback that answers with elements of dash.html
    Browser("show", inputs=stores(…, strip=shell.drawn(ids.STRIP)))
    aotlens.draw("heads-strip", strip)             in that function of the page's script
"""

from __future__ import annotations

from typing import Any

from dash import dcc, html

from app.shell import ids


def drawn(id: str, class_name: str, label: str, **attributes: Any) -> html.Div:
    """Return an empty group of elements, named `label` for screen readers, and the store that they come through."""
    group = html.Div(id=id, className=class_name, role="group", **{"aria-label": label, **attributes})
    return html.Div([group, dcc.Store(id=ids.drawn(id))], className="drawn")
