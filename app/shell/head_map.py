"""The large map of a head: a picture in steps of a colour scale, and exact numbers of the token that is pointed at.

core/head_maps.py makes both; static/head_map.js asks for a token's numbers and says them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dash import dcc, html
from dash.exceptions import PreventUpdate

from app.core import head_maps
from app.core.inference import PromptResult
from app.shell import ids
from app.shell.app import App
from app.shell.browser import Browser
from app.shell.callbacks import Answer, guarded
from app.shell.graph import figure
from app.shell.props import Props, props, stores


def head_map(panel: str, class_name: str) -> list[Any]:
    """Return the figure of a panel that shows `head_maps.head_figure(…, levels=True)`; `class_name` sets its size."""
    return [
        figure(panel, class_name),
        dcc.Store(id=ids.wanted(panel)),
        dcc.Store(id=ids.line(panel)),
        html.Div(id=ids.tip(panel), className="map-tip", hidden=True),
    ]


def tell_lines(app: App, panel: str, result_of: Callable[..., PromptResult], state: Props) -> None:
    """Register the callback that gives a token's numbers, of the prompt that `result_of(**state)` is."""
    panel_id = props("id", id=panel)
    drawn = Browser("mapDrawn", inputs=props("figure", figure=ids.graph(panel)), state=panel_id)
    told = Browser("lineTold", inputs=stores(line=ids.line(panel)), state=panel_id)
    whose = {
        "key": "",
        "layer": 0,
        "head": 0,
        "view": frozenset(head_maps.QUANTITIES),
        "hide_first": False,
        "position": 0,
    }
    app.asked.declare({ids.wanted(panel): whose})
    for entry in (drawn, told):
        app.wiring.register(app, "shell", entry)

    @guarded(
        app, panel=panel, inputs=stores(wanted=ids.wanted(panel)), state=state, output=stores(line=ids.line(panel)),
        at_first=False, shares_notice=True,
    )  # fmt: skip
    def tell(wanted: Any, **given: Any) -> Answer:
        if wanted is None or None in given.values():
            raise PreventUpdate
        result = result_of(**given)
        if wanted["key"] != result.key:  # another text has been run
            raise PreventUpdate
        of_map = (int(wanted["layer"]), int(wanted["head"]), wanted["view"], bool(wanted["hide_first"]))
        return {"line": head_maps.head_line(result, *of_map, int(wanted["position"]))}
