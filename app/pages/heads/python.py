"""Python for the Heads page's views."""

from __future__ import annotations

from app.core import Core
from app.core.inference import PromptResult
from app.pages.heads.address import HeadsState
from app.pages.heads.ids import VIEWS, ids
from app.pages.heads.service import Heads
from app.shell.page import python_of
from app.shell.python import loading, switched
from app.shell.views import python_lines


@python_of(*VIEWS, ids.GRID, ids.CONTINUE)
def python(core: Core, service: Heads, state: HeadsState, panel: str) -> list[str]:
    """Write the lines that give a panel's numbers."""
    if panel == ids.WHY:
        return python_lines(VIEWS[panel], service.score_of_address(state))
    if panel == ids.CONTINUE:
        return _continued(core, service, state)
    chosen = service.of_address(state)
    return chosen.quantities().python().splitlines() if panel == ids.GRID else python_lines(VIEWS[panel], chosen)


def _continued(core: Core, service: Heads, state: HeadsState) -> list[str]:
    """Write the lines for both texts of the tab in which the text is continued."""
    from aotlens.heads.replacement import reference_length

    prompt = service.prompt_of(state)
    result: PromptResult = core.inference.analyse(**prompt, off=state.off, how=state.how, corpus=state.corpus)
    drawn, n_new = f"temperature={state.temperature}, top_k={state.top_k}, seed={state.seed}", 0
    if core.catalog.load(result.checkpoint).model.sees_later_keys:
        go_on = f"aotlens.models.fill(model, text, {drawn})"
    else:
        stop = f", stop_token={state.stop!r}" if state.stop else ""
        go_on, n_new = f"model.generate(text, {state.new}, {drawn}{stop})", state.new
    length = reference_length(result.how, result.patterns.n_pos, n_new)
    without = switched(core, result, f"result['without'] = {go_on}", length=length) if result.off else []
    start = [*loading(result.checkpoint), f"text = {prompt['text']!r}"]
    return [*start, f"result = {{'whole': {go_on}}}", *without]
