"""Python for the Heads page's views."""

from __future__ import annotations

from aotlens.views.scores import N_PAIRS
from app.core import Core
from app.core.inference import PromptResult
from app.pages.heads.address import HeadsState
from app.pages.heads.ids import ids
from app.pages.heads.service import Continuations
from app.pages.heads.why import asked_of
from app.shell.page import python_of
from app.shell.python import loading, switched

_VIEWS = {"attention": "pattern", "weighted": "value_weighted()", "scores": "scores"}


_WHOLE = (ids.MAP, ids.NEXT, ids.WHY)


@python_of(ids.MAP, ids.GRID, ids.NEXT, ids.MAP_OFF, ids.NEXT_OFF, ids.LOSSES, ids.CONTINUE, ids.WHY)
def python(core: Core, service: Continuations, state: HeadsState, panel: str) -> list[str]:
    """The lines that give a panel's numbers."""
    checkpoint = state.checkpoint or core.catalog.default()
    text = core.inference.opening(checkpoint, state.text)
    off = () if panel in _WHOLE else state.off
    result = core.inference.analyse(checkpoint, text, off=off, how=state.how, corpus=state.corpus)
    start = [*loading(checkpoint), f"text = {text!r}"]
    if panel in (ids.NEXT, ids.NEXT_OFF):
        position = core.inference.expected(result, state.position).position
        predict = "masked_predictions" if _sees_both_sides(core, result) else "next_token_predictions"
        asked = f"model, model.to_tokens(text)[0], {position}, {core.settings.n_predictions}"
        return [*start, *switched(core, result, f"result = aotlens.evaluate.{predict}({asked}).to_frame()")]
    if panel == ids.LOSSES:
        lines = [*start, "result = {'loss': aotlens.evaluate.token_losses(model, text)}"]
        without = switched(core, result, "result['loss_without'] = aotlens.evaluate.token_losses(model, text)")
        return [*lines, *(without if result.off else [])]
    if panel == ids.WHY:
        return [*start, *_why(core, result, text, state)]
    if panel == ids.CONTINUE:
        return [*start, *_continued(core, result, state)]
    start += switched(core, result, "patterns = aotlens.heads.attention_patterns(model, text)")
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


def _why(core: Core, result: PromptResult, text: str, state: HeadsState) -> list[str]:
    """Lines for the largest pairs of paths to a score."""
    prompt = {"checkpoint": result.checkpoint, "text": text}
    question, _ = asked_of(core, prompt, state.head, state.cell, state.position, state.direction, state.against)
    score = core.scores.explain(question).score
    cell = f"{question.head}, {question.query}, {question.key}, against={score.against!r}"
    return [
        "expansion = aotlens.paths.expand(model, text, split_sources=True)",
        f"score = expansion.score({cell})",
        f"top = score.top({N_PAIRS}, budget={core.settings.path_budget})",
        "result = top.values  # of top.pairs: nats",
    ]


def _continued(core: Core, result: PromptResult, state: HeadsState) -> list[str]:
    """Lines for both texts of the tab in which the text is continued."""
    from aotlens.heads.without import reference_length

    drawn, n_new = f"temperature={state.temperature}, top_k={state.top_k}, seed={state.seed}", 0
    if _sees_both_sides(core, result):
        go_on = f"aotlens.models.fill(model, text, {drawn})"
    else:
        stop = f", stop_token={state.stop!r}" if state.stop else ""
        go_on, n_new = f"model.generate(text, {state.new}, {drawn}{stop})", state.new
    length = reference_length(result.how, result.patterns.n_pos, n_new)
    without = switched(core, result, f"result['without'] = {go_on}", length=length) if result.off else []
    return [f"result = {{'whole': {go_on}}}", *without]


def _sees_both_sides(core: Core, result: PromptResult) -> bool:
    return core.catalog.load(result.checkpoint).model.sees_later_keys
