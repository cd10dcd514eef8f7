"""Find (`/` or Ctrl K): heads by what they do, pages and their panels, checkpoints. The browser filters one list
(static/find.js)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import dash_mantine_components as dmc
from dash import html
from flask import Flask, Response, jsonify

from app.core import Core
from app.shell.page import Page

_LIST = "/find.json"


def serve(server: Flask, core: Core, layouts: Iterable[tuple[Page, Any]]) -> None:
    """Answer with all that can be found: pages of the menu and the panels of their layouts, checkpoints, and heads of
    stored atlases."""
    pages = [(page, layout) for page, layout in layouts if page.in_navigation]
    listed = [{"name": page.title, "note": "page", "href": page.path} for page, _ in pages]
    listed += [entry for page, layout in pages for entry in _panels(page, layout)]

    @server.get(_LIST)
    def everything() -> Response:
        return jsonify([*listed, *_checkpoints(core), *_heads(core)])


def _panels(page: Page, layout: Any, opened: Mapping[str, str] | None = None) -> Iterator[dict[str, str]]:
    """The panels of a part of a page, each by its title, at the address that has its tab open."""
    if isinstance(layout, list | tuple):
        for part in layout:
            yield from _panels(page, part, opened)
    elif isinstance(layout, dmc.Tabs):
        own = f"{page.name}-field-"  # of declared pages, whose addresses say what their store holds
        fields = [
            field
            for field, (component, *_) in page.writes.items()
            if component == layout.id or f"{own}{field}" == layout.id
        ]
        for tab in layout.children[1:]:
            yield from _panels(page, tab, {field: tab.value for field in fields})
    elif isinstance(layout, html.H2) and getattr(layout, "className", "") == "panel-title":
        yield {"name": layout.children, "note": f"on {page.title}", "href": page.address.to(**(opened or {}))}
    else:
        yield from _panels(page, getattr(layout, "children", None) or (), opened)


def _checkpoints(core: Core) -> Iterator[dict[str, str]]:
    for info in core.catalog.list():
        if info.problem is None:
            shape = core.catalog.shape(info.name)
            heads = "" if shape is None else f", {shape[0]} layer{'s' * (shape[0] != 1)} × {shape[1]} heads"
            yield {
                "name": info.name,
                "note": f"checkpoint{heads}",
                "href": core.links.to("checkpoints", checkpoint=info.name),
            }


def _heads(core: Core) -> Iterator[dict[str, str]]:
    """The heads of checkpoints whose atlas is stored: what is known without running anything."""
    from aotlens.heads import MOTIFS
    from aotlens.results import find_stored

    for info in core.catalog.list():
        if not core.catalog.reads_text(info):
            continue
        try:
            record = find_stored("atlas", info)
        except ValueError:
            continue
        if record is None:
            continue
        labels = record.atlas.labels
        for layer, names in enumerate(labels.names):
            for head, label in enumerate(names):
                title = MOTIFS[label].title if label in MOTIFS else label.replace("_", " ")
                yield {
                    "name": f"{title}: {layer}.{head} of {info.name}",
                    "note": labels.sentence((layer, head)),
                    "href": core.links.to("heads", checkpoint=info.name, head=(layer, head)),
                }
