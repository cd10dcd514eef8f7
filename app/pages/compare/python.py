"""Python for the Compare page's views."""

from __future__ import annotations

from typing import Any

from app.core import Core
from app.core.inference import PromptResult
from app.pages.compare.address import CompareState, Side
from app.pages.compare.ids import ids
from app.pages.compare.service import Compare
from app.shell.page import python_of
from app.shell.python import switched

_VIEWS = {"attention": "pattern", "weighted": "value_weighted()", "scores": "scores"}
#: The right head's entries at the left positions that correspond.
_ALIGNED = (
    "here, there = np.array(aotlens.data.common_positions(left_tokens, right_tokens)).T",
    "result = np.full_like(left, np.nan)",
    "result[np.ix_(here, here)] = right[np.ix_(there, there)] - left[np.ix_(here, here)]",
)


@python_of(ids.LOSSES, ids.LEFT_MAP, ids.RIGHT_MAP, ids.DIFFERENCE, ids.PAIRS)
def python(core: Core, service: Compare, state: CompareState, panel: str) -> list[str] | None:
    """The lines that give a panel's numbers."""
    state = service.first_of(state)
    asked = service.asked_of(state)
    panes = service.panes(asked)
    if panel == ids.PAIRS:
        if panes.one_model:
            return None
        tokens = [f"tokens = left.to_tokens({asked['text']!r})"] if panes.aligned else []
        last = "result = aotlens.heads.match_heads(left, right" + (", tokens).pairs" if panes.aligned else ").pairs")
        loads = [f"{side} = aotlens.load({result.checkpoint!r})" for side, result in panes.results.items()]
        return ["import aotlens", "", *loads, *tokens, last]
    sides: tuple[Side, ...] = ("left", "right")
    if panel in (ids.LEFT_MAP, ids.RIGHT_MAP):
        sides = ("left",) if panel == ids.LEFT_MAP else ("right",)
    start = ["import aotlens"]
    if panel != ids.LOSSES:
        start.append("import numpy as np")
    pair = service.pair(panes, state.head, state.other_head)
    lines: list[str] = []
    for side in sides:
        head = getattr(pair, side)
        measured = (
            f"{side} = aotlens.evaluate.token_losses(model, model.to_tokens(text)[0])"
            if panel == ids.LOSSES
            else "patterns = aotlens.heads.attention_patterns(model, text)"
        )
        lines += ["", *_run(core, asked, panes.results[side], side, measured)]
        if panel != ids.LOSSES:
            lines += _map(side, head, state)
            if panel == ids.DIFFERENCE and not panes.aligned:
                lines.append(f"{side}_tokens = patterns.str_tokens")
    n_left, n_right = panes.left.patterns.n_pos, panes.right.patterns.n_pos
    if panel == ids.LOSSES and panes.aligned:
        last = "result = right - left"
    elif panel == ids.DIFFERENCE:
        if not panes.places:
            return None
        if len(panes.places) == n_left == n_right:
            return [*start, *lines, "result = right - left"]
        return [*start, *lines, *_ALIGNED]
    else:
        last = f"result = {sides[0]}" if len(sides) == 1 else "result = left, right"
    return [*start, *lines, last]


def _run(core: Core, asked: dict[str, Any], result: PromptResult, side: Side, measure: str) -> list[str]:
    """A pane's model and text, and what is measured with its heads switched off."""
    text = asked["right_text" if side == "right" else "text"]
    return [f"model = aotlens.load({result.checkpoint!r})", f"text = {text!r}", *switched(core, result, measure)]


def _map(side: Side, head: tuple[int, int], state: CompareState) -> list[str]:
    layer, number = head
    return [
        f"visible = patterns.visible[{number} % len(patterns.visible)]  # one mask for all heads, or one each",
        f"{side} = np.where(visible, patterns.{_VIEWS[state.view]}[{layer}, {number}], np.nan)  # [query, key]",
        *([f"{side}[:, 0] = np.nan"] if state.hide_first else []),
    ]
