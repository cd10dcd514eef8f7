"""Python for the Heads page's views."""

from __future__ import annotations

from app.core import Core
from app.core.examples import FIRST
from app.pages.heads.address import HeadsState
from app.pages.heads.ids import ids
from app.shell.python import loading, python_of

_VIEWS = {"attention": "pattern", "weighted": "value_weighted()", "scores": "scores"}


@python_of(ids.MAP, ids.GRID, ids.NEXT)
def python(core: Core, service: None, state: HeadsState, panel: str) -> list[str]:
    """The lines that give a panel's numbers."""
    checkpoint = state.checkpoint or core.catalog.default()
    text = FIRST if state.text is None else state.text
    start = [*loading(checkpoint), f"text = {text!r}"]
    if panel == ids.NEXT:
        position = core.inference.predictions(checkpoint, text, state.position).position
        masked = core.catalog.load(checkpoint).model.sees_later_keys
        predict = "masked_predictions" if masked else "next_token_predictions"
        asked = f"model, model.to_tokens(text)[0], {position}, {core.settings.n_predictions}"
        return [*start, f"result = aotlens.evaluate.{predict}({asked}).to_frame()"]
    start += ["patterns = aotlens.heads.attention_patterns(model, text)"]
    if panel == ids.GRID:
        return [*start, f"result = patterns.{_VIEWS[state.view]}  # [layer, head, query, key]"]
    layer, head = state.head or (0, 0)
    return [
        "import numpy as np",
        *start,
        f"visible = patterns.visible[{head} % len(patterns.visible)]  # one mask for all heads, or one each",
        f"result = np.where(visible, patterns.{_VIEWS[state.view]}[{layer}, {head}], np.nan)  # [query, key]",
        *(["result[:, 0] = np.nan"] if state.hide_first else []),
    ]
