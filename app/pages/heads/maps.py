"""Maps of all heads, by a route of their own: once a text, in the widget's packed arrays (aotlens/widget).

    GET /maps?checkpoint=…&text=…&view=…&off=…        every head's map, a byte an entry
    GET /maps/line?…&head=1.0&position=5              a token's row and column, float32
    GET /maps/tile?…&head=1.0&block=4&row=0&column=1  a part of one head's map, where all of it is too large

Of a long text every head's map is a byte a block of entries, so that no answer is over 4 MB. The query is that of the
page's address. Where a text can't be read, which the page says beside the text, there is no content; what else can't be
shown, the answer says as JSON, the notice of a panel.
"""

from __future__ import annotations

from collections.abc import Callable

from flask import Response, request

from aotlens.checkpoints import CheckpointError
from app.core import Core, head_maps
from app.core.errors import RequestError
from app.core.inference import PromptResult
from app.pages.heads.address import ADDRESS, HeadsState
from app.pages.heads.asking import ask, ask_without, says_ablated
from app.shell.app import App
from app.shell.maps import answered


def register(app: App, core: Core) -> None:
    """Register both routes."""

    def of_address(make: Callable[[PromptResult, HeadsState], bytes]) -> Response:
        state = ADDRESS.parse(request.query_string.decode())
        checkpoint = state.checkpoint or core.catalog.default()
        text = None if state.text is None else core.corpora.prompt(state.text)
        prompt = {"checkpoint": checkpoint, "text": core.inference.opening(checkpoint, text)}
        try:
            ask(core, prompt, long=True)
        except (RequestError, CheckpointError):
            return Response(status=204)
        return answered(
            lambda: make(ask_without(core, prompt, state.off, state.how, state.corpus, long=True), state),
            "packing maps",
        )

    @app.server.get("/maps")
    def maps() -> Response:
        def packed(result: PromptResult, state: HeadsState) -> bytes:
            if head_maps.is_long(result):
                off = says_ablated(result) if result.off else ""
                return head_maps.packed_long_maps(core.inference, result, state.view, off)
            if result.off:
                return head_maps.packed_maps(result, state.view, says_ablated(result))
            return head_maps.packed_maps(result, state.view, "", core.inference.clearest(result))

        return of_address(packed)

    @app.server.get("/maps/line")
    def line() -> Response:
        def numbers(result: PromptResult, state: HeadsState) -> bytes:
            return head_maps.line_bytes(result, *(state.head or (0, 0)), state.view, state.position or 0)

        return of_address(numbers)

    @app.server.get("/maps/tile")
    def tile() -> Response:
        def blocks(result: PromptResult, state: HeadsState) -> bytes:
            if not head_maps.is_long(result):
                raise RequestError("The maps of this text come whole, and have no tiles.")
            place = [request.args.get(name, -1, type=int) for name in ("block", "row", "column")]
            return head_maps.tile_bytes(core.inference, result, state.view, state.head or (0, 0), *place)

        return of_address(blocks)
