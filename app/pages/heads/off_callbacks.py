"""What the page shows of the model with some heads ablated, beside the full model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from app.core import Core
from app.core.errors import RequestError
from app.core.files import File
from app.core.head_maps import View
from app.core.switches import HOWS, NEEDS, How
from app.pages.heads import captions, files
from app.pages.heads.asking import ask, ask_without
from app.pages.heads.browser import SWITCHED
from app.pages.heads.ids import ids
from app.pages.heads.predictions import predictions_table
from app.shell import ids as shell
from app.shell.app import App
from app.shell.callbacks import Answer, guarded
from app.shell.props import children, props, stores, values
from app.shell.sharing import save_files, when_seen
from app.shell.token_strip import token_strip


def how_options(corpus: str | None) -> list[dict[str, Any]]:
    """What a head may be ablated by; what other texts decide can't be chosen without a corpus."""
    lacking = {how: corpus is None and how in NEEDS for how in HOWS}
    return [
        {"value": how, "label": f"{label} (needs a corpus)" if lacking[how] else label, "disabled": lacking[how]}
        for how, label in HOWS.items()
    ]


#: The outputs of `predicted_without`, in the callback of the whole model's predictions: a choice asks once.
PREDICTED_WITHOUT = children(off_body=shell.body(ids.NEXT_OFF), off_title=shell.title(ids.NEXT_OFF))


def predicted_without(core: Core, prompt: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """The predictions in the run without the heads that are off; nothing where none is, and their panel is hidden."""
    nothing = {"off_body": None, "off_title": "Ablation"}
    try:
        result = ask_without(core, prompt, wanted["off"], wanted["how"], wanted["corpus"])
    except RequestError:  # said above the grid
        return nothing
    if not result.off:
        return nothing
    found = core.inference.expected(result, wanted["position"])
    return {
        "off_body": predictions_table(found, result.patterns.str_tokens[found.position]),
        "off_title": f"Ablation of {captions.names(result.off)}",
    }


def register(app: App, core: Core) -> None:
    """The callbacks of losses with and without some heads, and of files."""
    when_seen(app, ids.RUN_OF, (ids.LOSSES,))
    prompt = stores(prompt=ids.PROMPT)

    @guarded(
        app, panel=ids.GRID, inputs=values(corpus=ids.CORPUS), output=props("data", options=ids.HOW), at_first=False,
        shares_notice=True,
    )  # fmt: skip
    def offer(corpus: str | None) -> Answer:
        return {"options": how_options(corpus)}

    @guarded(
        app,
        panel=ids.LOSSES,
        inputs=stores(wanted=shell.seen(ids.LOSSES)),
        state=prompt,
        parts=("caption",),
        output=stores(whole=shell.drawn(ids.LOSSES_WHOLE), change=shell.drawn(ids.LOSSES_CHANGE))
        | children(heading=ids.LOSSES_CHANGE_HEADING),
    )
    def measure(wanted: Any, prompt: dict[str, Any]) -> Answer:
        if wanted is None:
            return None
        result = ask(core, prompt)
        whole = core.inference.losses(result)
        tokens, names = result.patterns.tokens.tolist(), result.patterns.str_tokens
        both_sides = core.catalog.load(result.checkpoint).model.sees_later_keys
        answer = {
            "caption": captions.of_losses(whole, both_sides),
            "whole": token_strip(tokens, names, whole.tolist(), tips=captions.tips(whole)),
        }
        lesser = ask_without(core, prompt, wanted["off"], wanted["how"], wanted["corpus"])
        if not lesser.off:
            return {**answer, "heading": None, "change": []}
        losses = core.inference.losses(lesser)
        strip = token_strip(tokens, names, (losses - whole).tolist(), tips=captions.tips(whole, losses))
        return {**answer, "heading": captions.of_change(lesser, losses, whole), "change": strip}

    _register_files(app, core)


def _register_files(app: App, core: Core) -> None:
    def of_head(make: Callable[..., File]) -> Callable[..., File]:
        def file(
            prompt: Any, head: list[int] | None, view: View, hide_first: bool, off: Any, how: How, corpus: str | None,
            **_: Any,
        ) -> File:  # fmt: skip
            if head is None:
                raise RequestError("No head is chosen: click one in the grid first.")
            result = ask_without(core, prompt, off, how, corpus)
            return make(result, int(head[0]), int(head[1]), view, hide_first)

        return file

    def of_predictions(make: Callable[..., File]) -> Callable[..., File]:
        def file(prompt: Any, position: int | None, off: Any, how: How, corpus: str | None, **_: Any) -> File:
            result = ask_without(core, prompt, off, how, corpus)
            return make(result, core.inference.expected(result, position))

        return file

    def of_losses(make: Callable[..., File]) -> Callable[..., File]:
        def file(prompt: Any, off: Any, how: How, corpus: str | None, **_: Any) -> File:
            whole, lesser = ask(core, prompt), ask_without(core, prompt, off, how, corpus)
            losses: np.ndarray | None = core.inference.losses(lesser) if lesser.off else None
            return make(lesser, core.inference.losses(whole), losses)

        return file

    save_files(
        app,
        {
            shell.export(ids.MAP_OFF, "csv"): of_head(files.head_csv),
            shell.export(ids.MAP_OFF, "json"): of_head(files.head_json),
            shell.export(ids.NEXT_OFF, "csv"): of_predictions(files.predictions_csv),
            shell.export(ids.NEXT_OFF, "json"): of_predictions(files.predictions_json),
            shell.export(ids.LOSSES, "csv"): of_losses(files.losses_csv),
            shell.export(ids.LOSSES, "json"): of_losses(files.losses_json),
        },
        stores(prompt=ids.PROMPT, head=ids.HEAD, position=ids.POSITION)
        | values(view=ids.VIEW)
        | props("checked", hide_first=ids.HIDE_FIRST)
        | SWITCHED,
    )
