"""Panels in which the browser moves by itself: maps of all heads, figures with a frame for each step, a page's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from dash import dcc, html

from aotlens.views import View
from app.shell import ids
from app.shell.arrange import Layout, Panel
from app.shell.graph import caption
from app.shell.panel import QUIET
from app.shell.views import FILES, Own


@dataclass(frozen=True)
class Steps(Panel):
    """What is true of all steps of a view, and the slider that goes through them, with a sentence for each: panels with
    this parameter as their `frames` go along, without the server."""

    _: KW_ONLY
    step: str
    sentences: Callable[[Any], Sequence[str]]
    """`sentences(result)`, a sentence for each step."""
    exports = ("csv", "json", "python")

    @property
    def moves(self) -> Sequence[str]:
        return (self.step,)

    def drawn(self, id: str) -> Own:
        def says(params: Any, result: Any) -> dict[str, Any]:
            lines = [html.Div(line, hidden=True) for line in self.sentences(result)]
            return {"caption": self.view.caption(params, result), "body": lines}

        return Own(view=self.view, draw=says, parts=("caption", "body"))

    def lay(self, page: Layout) -> Any:
        id = page.panel_id(self)
        step = page.control(self.step)
        return page.frame(self, [caption(id), step, html.Div(id=ids.body(id), className="step-caption", role="status")])


@dataclass(frozen=True)
class _AllHeads(Panel):
    """The maps of all heads, which come by a route of their own (static/view_page.js draws them)."""

    exports = ("png", "svg", "python")

    def drawn(self, id: str) -> None:
        return None

    def content(self, id: str) -> list[Any]:
        cells = html.Div(id=f"{id}-cells", className="grid", role="group", **{"aria-label": "Heads", **QUIET})
        return [cells, html.Div(dcc.Store(id=ids.paper(id)), className="paper-figure")]


@dataclass(frozen=True)
class _OneHead(Panel):
    """The large map of one head, and the caption of its view."""

    exports = FILES

    def drawn(self, id: str) -> Own:
        def says(values: Any, result: Any) -> dict[str, Any]:
            return {"caption": self.view.caption(values, result)}

        return Own(
            view=self.view, draw=says, parts=("caption",), reads=lambda values: (values.head, values.query)
        )  # fmt: skip

    def content(self, id: str) -> list[Any]:
        return [caption(id), html.Div(id=f"{id}-canvas", className="large", **QUIET)]


@dataclass(frozen=True)
class HeadMaps:
    """The widget's maps of all heads next to a large one. Both views' results have `patterns`; the family has the
    parameters `head`, `query` (the locked row) and `quantity`."""

    every: View
    one: View
    _: KW_ONLY
    controls: Sequence[str] = ()
    """Parameters of both, in the header of all heads."""

    @property
    def parts(self) -> tuple[Panel, Panel]:
        """The two panels."""
        return (
            _AllHeads(self.every, controls=self.controls, reads=("quantity",)),
            _OneHead(self.one, controls=("quantity", "query"), reads=(*self.controls, "head")),
        )

    def lay(self, page: Layout) -> html.Div:
        """Lay both panels out."""
        return html.Div([panel.lay(page) for panel in self.parts], className="head-maps")


@dataclass(frozen=True)
class Custom:
    """A panel of the page's own, for a script of the page: `draw` lays it out on an `app.shell.view_laid.Laid`."""

    draw: Callable[[Any], Any]

    def lay(self, page: Layout) -> Any:
        """Lay the panel out."""
        return self.draw(page)
