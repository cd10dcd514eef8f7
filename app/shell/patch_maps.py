"""Panel kinds of maps over images: the widget's heads × images, the maps of one image, and what patches add to a class.

The parameters of such a family have `image`, `head`, `patch` (the locked query), `quantity`, `order` and `ablated`, and
the calls `run` and `full` of `aotlens.heads.image_run`, with and without the ablated heads (`app.shell.maps`). A page's
script is static/patch_maps.js.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

from dash import dcc, html

from aotlens.views import View
from aotlens.views.images import class_name
from app.shell import ids
from app.shell.app import App
from app.shell.arrange import Panel
from app.shell.browser import Browser
from app.shell.graph import caption
from app.shell.maps import serve_patch_maps
from app.shell.panel import QUIET
from app.shell.props import stores
from app.shell.views import FILES, Own

if TYPE_CHECKING:
    from app.core.address import Address
    from app.shell.view_declared import Declared
    from app.shell.view_service import Views


@dataclass(frozen=True)
class _Drawn(Panel):
    """A panel that the widget draws from maps, which come by a route of their own."""

    asked = False

    def part(self, id: str, name: str, label: str, class_name: str = "") -> html.Div:
        """Lay out the place of a part of the widget (aotlens/widget/patches.js)."""
        named = {"aria-label": label, "data-part": name, **QUIET}
        return html.Div(id=f"{id}-{name}", className=class_name, role="group", **named)


@dataclass(frozen=True)
class PatchGrid(_Drawn):
    """Every head of a layer on every image, and below them the images with what the model predicts."""

    _: KW_ONLY
    patches: View
    """The view of the panel with what patches add (`SignedMap`)."""
    ranking: View
    """The view whose table (`Linked`) lists the heads in an order."""

    def register(self, app: App, page: Declared, service: Views, address: Address[Any]) -> None:
        """Serve the maps, and let the browser draw them."""
        serve_patch_maps(app, page.name, self.view, service, address)
        inputs = stores(
            shown=page.shown, patches=ids.drawn(f"{page.name}-{self.patches.name}"),
            ranked=ids.drawn(f"{page.name}-{self.ranking.name}-lines"),
        )  # fmt: skip
        app.wiring.register(app, page.name, Browser("showPatches", inputs=inputs), script="patchMaps")

    def content(self, id: str) -> list[Any]:
        label = "Heads and images. Arrow keys move, x ablates a head."
        cells = self.part(id, "PatchGrid", label, "patch-cells patch-maps")
        return [html.Div([cells, self.part(id, "Gallery", "Images", "patch-gallery")], className="patch-grid")]


@dataclass(frozen=True)
class ImageMaps(_Drawn):
    """One image: its patches, of which one may be the query, and the maps of one head."""

    exports = ("csv", "json", "python")

    def content(self, id: str) -> list[Any]:
        return [self.part(id, "ImageMaps", "Maps of one image", "patch-pictures")]


@dataclass(frozen=True)
class SignedMap(_Drawn):
    """What patches add to a class, on one image (`aotlens.paths.ClassPatches`)."""

    asked = True
    exports = (*FILES, "json")
    always: bool = True

    def drawn(self, id: str) -> Own:
        def draw(params: Any, result: Any) -> dict[str, Any]:
            values = {"image": params.image, "name": class_name(params, result.number)}
            patches = {**values, "patches": result.patches.ravel().tolist()}
            return {"patches": patches, "caption": self.view.caption(params, result)}

        return Own(
            view=self.view, draw=draw, parts=("caption",), outputs=stores(patches=ids.drawn(id)), quiet=True,
            reads=lambda params: params.image,
        )  # fmt: skip

    def content(self, id: str) -> list[Any]:
        picture = self.part(id, "SignedMap", self.view.title, "patch-large patch-maps")
        return [caption(id), dcc.Store(id=ids.drawn(id)), picture]
