"""The page's picture before Dash has started: its panels without controls, in which heads.js draws the first maps.

Dash's own panels take their places (heads.css gives both the same sizes), with the same maps, so that nothing jumps.
"""

from __future__ import annotations

import json
from html import escape
from typing import Any

from app.core import Core
from app.pages.heads.address import HeadsState
from app.pages.heads.ids import ids


def first(core: Core, service: Any, state: HeadsState) -> str:
    """Write the HTML for an address; `data-choice` is what the first maps are of, and what is chosen among them."""
    checkpoint = state.checkpoint or core.catalog.default()
    text = core.inference.opening(checkpoint, state.text)
    choice = {
        "prompt": {"checkpoint": checkpoint, "text": text}, "view": state.view, "off": state.off, "how": state.how,
        "corpus": state.corpus, "head": state.head, "position": state.position, "cell": state.cell,
        "direction": state.direction, "hide": state.hide_first,
    }  # fmt: skip
    form = "".join(
        f'<div class="{name}"><div class="first-label">{label}</div>'
        f'<div class="first-box">{escape(content)}</div></div>'
        for name, label, content in (
            ("prompt-checkpoint", "Checkpoint", checkpoint or ""), ("prompt-example", "Take an example", ""),
            ("prompt-text", "Your text", text),
        )
    )  # fmt: skip
    grid = f'<div class="grid-row">{_part(ids.GRID_CELLS, "grid")}<div class="ranked"></div></div>'
    maps = [_panel("first-map", "One head", f'<p class="motifs"></p>{_part(ids.MAP_CANVAS, "large")}')]
    if state.off:
        maps.append(_panel("first-map", "Ablation", f'<p class="motifs"></p>{_part(ids.MAP_OFF_CANVAS, "large")}'))
    tab = f'<div class="beside">{"".join(maps)}</div>' if state.tab == "map" else _panel("", "", "")
    columns = "".join(
        [
            _panel("first-tokens", "Tokens", _part(ids.STRIP, "strip")),
            _panel("first-grid", "All heads", f'<div class="off-line"></div>{grid}'),
            f'<div class="tabs first-tabs"><div class="first-tab-list"></div>{tab}</div>',
        ]
    )
    prompt = _panel("first-prompt", "Text", f'<div class="prompt">{form}<div></div></div>')
    off = " data-off" if state.off else ""
    content = f'{prompt}<div class="heads-columns"{off}>{columns}</div>'
    return f'<div class="heads" data-choice="{escape(json.dumps(choice))}">{content}</div>'


def _panel(name: str, title: str, content: str, control: str = "") -> str:
    control = control and f'<div class="panel-controls">{control}</div>'
    header = f'<div class="panel-header"><div class="panel-title">{title}</div>{control}</div>'
    return f'<section class="panel {name}">{header}<div class="panel-content">{content}</div></section>'


def _part(id: str, name: str) -> str:
    """The place of a part of the widget, which later is the element `id` of Dash's page."""
    return f'<div class="{name}" data-part="{id}"></div>'
