"""Panel kinds of two runs next to each other: maps of a head of each, pairs of heads, tokens shaded by values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

from dash import html
from flask import Response, request

from aotlens.conventions import head_name
from aotlens.views import View
from app.core import head_maps
from app.core.address import Address
from app.core.inference import PromptResult
from app.shell import ids
from app.shell.app import App
from app.shell.arrange import Layout, Panel, facts_of, facts_store
from app.shell.browser import Browser
from app.shell.graph import caption
from app.shell.maps import answered
from app.shell.page_links import leading
from app.shell.panel import QUIET
from app.shell.props import stores
from app.shell.tables import value_tables
from app.shell.views import FILES, Own

if TYPE_CHECKING:
    from app.shell.view_declared import Declared
    from app.shell.view_service import Views

SIDES = ("left", "right")
#: Parameters of all three maps.
_OF_MAPS = ("quantity", "first", "head", "other_head", "position", "other_position")


@dataclass(frozen=True)
class _Map(Panel):
    """A map that the browser draws without the server (static/pair_maps.js)."""

    asked = False
    exports = (*FILES, "json")

    def lay(self, page: Layout) -> html.Section:
        id = page.panel_id(self)
        link = leading("On Heads", "/heads", id=f"{id}-open")
        canvas = html.Div(id=f"{id}-canvas", className="large", **{"data-side": self.view.name, **QUIET})
        return page.frame(self, [caption(id), canvas], links=[link] if self.controls else [])


@dataclass(frozen=True)
class PairMaps:
    """The maps of a head of each of two runs, on one colour scale, and their difference. `pane` is the left run by
    itself, whose result has `patterns`; `runs` and `pairs` are the views of the panels whose `facts` are `of_runs`
    and `of_pairs`.

    The family has `sides` and the parameters `text`, `other`, `left` and `right` (ablated heads), `how`, `corpus`,
    `head`, `other_head`, `position` and `other_position` (locked tokens), `quantity` and `first`.
    """

    left: View
    right: View
    difference: View
    _: KW_ONLY
    pane: View
    runs: View
    pairs: View

    @property
    def parts(self) -> tuple[Panel, ...]:
        """The three panels."""
        return (
            _Map(self.left, controls=("head",), over=("quantity", "first"), reads=_OF_MAPS),
            _Map(self.right, controls=("other_head",), reads=_OF_MAPS),
            _Map(self.difference, reads=_OF_MAPS),
        )

    def lay(self, page: Layout) -> html.Div:
        """Lay out the controls of all maps above them."""
        left, *rest = self.parts
        bar = html.Div([page.control(field, small=True) for field in left.over], className="pair-controls")
        return html.Div([bar, html.Div([part.lay(page) for part in (left, *rest)], className="pair-maps")])

    def register(self, app: App, page: Declared, service: Views, address: Address[Any]) -> None:
        """Serve the maps of all heads of a pane, and let the browser draw what is selected.

        GET /PAGE/maps?…    the query is that of the page's address, of which the left pane counts
        """

        @app.server.get(f"/{page.name}/maps", endpoint=f"{page.name}_maps")
        def maps() -> Response:
            state = address.parse(request.query_string.decode())
            return answered(lambda: self._packed(service, service.of_address(state)), "packing maps of a pane")

        facts = stores(**{name: ids.facts(f"{page.name}-{getattr(self, name).name}") for name in ("runs", "pairs")})
        app.wiring.register(app, page.name, Browser("show", inputs=stores(shown=page.shown) | facts), script="pairMaps")

    def _packed(self, service: Views, params: Any) -> bytes:
        run = service.workshop.result(self.pane, params)
        result = PromptResult(key="", checkpoint=params.checkpoint, patterns=run.patterns, logits=())
        off = f"{', '.join(map(head_name, run.ablated))} ablated" if run.ablated else ""
        return head_maps.packed_maps(result, params.quantity, off, finer=True)


def of_runs(params: Any, runs: Any) -> dict[str, Any]:
    """Return which positions of two runs correspond, and what they are of."""
    of = [*(params.info(side).name for side in SIDES), *(params.text_of(side) for side in SIDES)]
    return {"of": of, "aligned": runs.aligned, "places": runs.positions}


@dataclass(frozen=True)
class PairList(Panel):
    """Pairs of heads with both maps, a click on which selects them: those of the view's `facts`, or each head with
    itself (static/pair_maps.js)."""

    exports = ("csv", "json", "python")

    def drawn(self, id: str) -> Own:
        def says(params: Any, result: Any) -> dict[str, Any]:
            assert self.facts is not None
            return {"caption": self.view.caption(params, result), "facts": self.facts(params, result)}

        return Own(view=self.view, draw=says, parts=("caption",), outputs=facts_of(self, id), quiet=True)

    def lay(self, page: Layout) -> html.Section:
        id = page.panel_id(self)
        pairs = html.Div(id=f"{id}-list", className="pairs", role="group", **{"aria-label": "Pairs of heads", **QUIET})
        return page.frame(self, [caption(id), pairs, *facts_store(self, id)], always=True)


@dataclass(frozen=True)
class Strips(Panel):
    """Tokens shaded by a value each, in a strip for the left or for both sides; pointing at one and locking it are one
    with the page's maps."""

    _: KW_ONLY
    strips: Callable[[Any, Any], Mapping[str, list[Any]]]
    """`strips(params, result)`: by side, the tokens (`app.shell.tables.chips`)."""

    def drawn(self, id: str) -> Own:
        def says(params: Any, result: Any) -> dict[str, Any]:
            strips = {"left": [], "right": [], **self.strips(params, result)}
            return {"caption": self.view.caption(params, result), **strips}

        outputs = stores(**{side: ids.drawn(f"{id}-{side}") for side in SIDES})
        return Own(view=self.view, draw=says, parts=("caption",), outputs=outputs, quiet=True)

    def figure(self, id: str) -> list[Any]:
        names = {"left": "Tokens", "right": "Tokens at the right"}
        return [value_tables(f"{id}-{side}", names[side], f"tokens-{side}") for side in SIDES]

    def register(self, app: App, page: Declared, service: Views, address: Address[Any]) -> None:
        """Let the browser draw the tokens."""
        id = f"{page.name}-{self.view.name}"
        strips = stores(**{side: ids.drawn(f"{id}-{side}") for side in SIDES})
        app.wiring.register(app, page.name, Browser("drawStrips", inputs=strips), script="pairMaps")
