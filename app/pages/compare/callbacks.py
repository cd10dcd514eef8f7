"""What the Compare page asks of the server: two runs for a question, and the losses of their tokens."""

from __future__ import annotations

from typing import Any

from dash import no_update

from app.core import Core
from app.core.files import File
from app.pages.compare import captions, files
from app.pages.compare.address import Side
from app.pages.compare.ids import ids
from app.pages.compare.service import Compare, Panes
from app.shell import ids as shell
from app.shell.app import App
from app.shell.callbacks import Answer, guarded
from app.shell.choices import head_switch_buttons
from app.shell.props import children, props, stores, values
from app.shell.sharing import mark_switches, save_files
from app.shell.token_strip import token_strip


def register(app: App, service: Compare) -> None:
    """The callbacks of the form and of the losses."""
    for switches, store in ((ids.LEFT_SWITCHES, ids.LEFT_OFF), (ids.RIGHT_SWITCHES, ids.RIGHT_OFF)):
        mark_switches(app, switches, store)
    _register_panes(app, app.core, service)
    _register_losses(app, service)


def _register_panes(app: App, core: Core, service: Compare) -> None:
    @guarded(
        app,
        panel=ids.FORM,
        inputs=stores(asked=ids.PANES),
        state=stores(shown=ids.SHOWN, positions=ids.POSITIONS) | values(head=ids.HEAD, other_head=ids.OTHER_HEAD),
        output=stores(shown=ids.SHOWN, positions=ids.POSITIONS)
        | stores(left_switches=shell.drawn(ids.LEFT_SWITCHES), right_switches=shell.drawn(ids.RIGHT_SWITCHES))
        | values(head=ids.HEAD, other_head=ids.OTHER_HEAD)
        | props("data", heads=ids.HEAD, other_heads=ids.OTHER_HEAD)
        | children(count=ids.COUNT),
        empty=dict.fromkeys(("positions", "left_switches", "right_switches", "heads", "other_heads"), no_update),
    )
    def run(
        asked: dict[str, Any], shown: dict[str, Any] | None, positions: dict[str, Any], head: Any, other_head: Any
    ) -> Answer:
        panes = service.panes(asked)
        answer: dict[str, Any] = {
            "shown": _shown(core, asked, panes),
            "positions": _positions(panes, shown, positions),
            "count": _count(panes),
        }
        for side, name, chosen in (("left", "head", head), ("right", "other_head", other_head)):
            names = _names(panes, side)  # type: ignore[arg-type]
            first = None if name == "other_head" else names[0]
            answer |= {f"{name}s": names, name: chosen if chosen in names else first}
        for side, result in panes.results.items():
            shape = (result.patterns.n_layers, result.patterns.n_heads)
            if shown is None or (shown[side]["layers"], shown[side]["heads"]) != shape:
                answer[f"{side}_switches"] = head_switch_buttons(*shape)
        return answer


def _register_losses(app: App, service: Compare) -> None:
    @guarded(
        app,
        panel=ids.LOSSES,
        inputs=stores(shown=ids.SHOWN),
        state=stores(asked=ids.PANES),
        output=stores(strip=shell.drawn(ids.STRIP), other=shell.drawn(ids.OTHER_STRIP)),
        parts=("caption",),
    )
    def draw_losses(shown: Any, asked: dict[str, Any]) -> Answer:
        if shown is None:
            return None
        panes = service.panes(asked)
        losses = service.losses(panes)
        caption = captions.losses_line(panes, losses)
        if losses.difference is not None:
            patterns = panes.left.patterns
            strip = token_strip(
                patterns.tokens.tolist(),
                patterns.str_tokens,
                losses.difference.tolist(),
                tips=captions.loss_tips(losses),
            )
            return {"strip": strip, "other": [], "caption": caption}
        strips = [
            token_strip(result.patterns.tokens.tolist(), result.patterns.str_tokens, values.tolist())
            for result, values in zip(panes.results.values(), (losses.left, losses.right), strict=True)
        ]
        return {"strip": strips[0], "other": strips[1], "caption": f"{captions.why_not_aligned(panes)} {caption}"}

    def losses_csv(asked: dict[str, Any]) -> File:
        panes = service.panes(asked)
        return files.losses_csv(panes, service.losses(panes))

    save_files(app, {shell.export(ids.LOSSES, "csv"): losses_csv}, stores(asked=ids.PANES))


def _shown(core: Core, asked: dict[str, Any], panes: Panes) -> dict[str, Any]:
    """What the browser is told of two results: keys and sizes, and the texts as an address says them."""
    sides = {
        side: {"key": result.key, "checkpoint": result.checkpoint, "layers": result.patterns.n_layers,
               "heads": result.patterns.n_heads, "size": result.patterns.n_pos}
        for side, result in panes.results.items()
    }  # fmt: skip
    other = asked.get("other")
    texts = {
        "text": core.corpora.addressed(asked["text"]),
        "other": None if other is None else core.corpora.addressed(other),
    }
    return {"key": panes.key, "aligned": panes.aligned, **sides, **texts}


def _positions(panes: Panes, shown: dict[str, Any] | None, positions: dict[str, Any]) -> dict[str, Any]:
    """The locked tokens that are still there: those of a text that was there before, or of the address."""
    kept = {}
    for side, result in panes.results.items():
        position = positions.get(side)
        fits = position is not None and position < result.patterns.n_pos
        kept[side] = position if fits and (shown is None or shown[side]["size"] == result.patterns.n_pos) else None
    if panes.aligned:
        kept["right"] = kept["left"]
    return {**kept, "own": None if panes.aligned else kept["right"]}


def _names(panes: Panes, side: Side) -> list[str]:
    patterns = panes.results[side].patterns
    return [f"{layer}.{head}" for layer in range(patterns.n_layers) for head in range(patterns.n_heads)]


def _count(panes: Panes) -> str:
    left, right = (result.patterns.n_pos for result in panes.results.values())
    return f"{left} tokens" if panes.aligned else f"{left} and {right} tokens"
