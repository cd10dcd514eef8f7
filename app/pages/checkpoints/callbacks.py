"""A checkpoint's card, its training curve and its parameters."""

from __future__ import annotations

import re
from typing import Any

import dash_mantine_components as dmc
from dash import Output, dcc, html

from aotlens.checkpoints import CheckpointInfo
from aotlens.plots import Theme
from app.core import Core
from app.pages.checkpoints.ids import ids
from app.pages.checkpoints.service import Checkpoints
from app.pages.checkpoints.tables import parameters_table
from app.shell import ids as shell
from app.shell.app import App
from app.shell.callbacks import Answer, guarded
from app.shell.notices import empty, problem
from app.shell.props import children, props, stores
from app.shell.sharing import when_seen


def register(app: App, core: Core, service: Checkpoints) -> None:
    """Register the page's callbacks."""
    when_seen(app, ids.CHOSEN, (ids.CURVE, ids.PARAMETERS))

    @guarded(
        app,
        panel=ids.CARD,
        inputs=stores(chosen=ids.CHOSEN),
        parts=("body", "title"),
        output={"href": Output(ids.OPEN, "href"), "link": Output(ids.OPEN, "className"), **children(opens=ids.OPEN)},
        empty={
            "body": empty("Choose a checkpoint above."),
            "title": "Card",
            "link": "page-link hidden",
            "opens": "Open in Heads",
        },
    )
    def show_card(chosen: str | None) -> Answer:
        if chosen is None:
            return None
        info = core.catalog.info(chosen)
        page = core.catalog.page_of(info)
        return {
            "body": _card(info),
            "title": info.name,
            "href": core.links.to(page or "heads", checkpoint=info.name),
            "opens": f"Open in {(page or 'heads').capitalize()}",
            "link": "page-link hidden" if page is None else "page-link",
        }

    @guarded(
        app,
        panel=ids.PARAMETERS,
        inputs=stores(chosen=shell.seen(ids.PARAMETERS)),
        parts=("caption",),
        output=stores(tensors=shell.drawn(ids.TENSORS)),
    )
    def show_parameters(chosen: str | None) -> Answer:
        if not chosen:
            return None
        caption, tensors = parameters_table(service.tensors(core.catalog.info(chosen)))
        return {"caption": caption, "tensors": tensors}

    @guarded(
        app,
        panel=ids.CURVE,
        inputs=stores(chosen=shell.seen(ids.CURVE), theme=shell.THEME),
        parts=("figure",),
        output=props("className", box=shell.box(shell.graph(ids.CURVE)), nothing=ids.CURVE_EMPTY),
        empty={"box": "hidden", "nothing": "empty"},
    )
    def show_curve(chosen: str | None, theme: Theme) -> Answer:
        figure = service.curve(chosen, theme) if chosen else None
        return figure and {"figure": figure, "box": "graph-curve", "nothing": "hidden"}


def _card(info: CheckpointInfo) -> Any:
    if info.problem is not None:
        return problem(info.problem, "This checkpoint can't be opened")
    note = [dmc.Alert(info.note, color="blue", variant="light")] if info.note else []
    # The panel's title is the name already.
    text = re.sub(r"\A# .*\n", "", info.card or info.description or "It has no card.")
    return html.Div([*note, dcc.Markdown(text, className="markdown")])
