"""Python for the Paths page's views."""

from __future__ import annotations

from app.core import Core
from app.core.address import dotted
from app.pages.paths.address import FIRST, PathsState
from app.pages.paths.ids import PANELS, ids
from app.pages.paths.service import Paths, parse_path
from app.shell.python import loading, python_of


@python_of(*PANELS)
def python(core: Core, service: Paths, state: PathsState, panel: str) -> list[str] | None:
    """The lines that give a panel's numbers."""
    checkpoint = state.checkpoint or core.catalog.default()
    text = FIRST if state.text is None else state.text
    question = service.question(
        service.expand(checkpoint, text), state.position, state.target, state.versus, state.by, state.k,
        dotted(state.through) or None,
    )  # fmt: skip
    at, logit = question.position, question.logit
    lines = [
        *loading(checkpoint),
        f"expansion = aotlens.paths.expand(model, {text!r}, split_sources=True)",
        f"position, target = {at}, {logit}",
    ]
    if panel == ids.ORDERS:
        return [*lines, "result = expansion.by_order(target)[:, position]  # by number of heads, in logits"]
    if panel == ids.HEADS:
        return [*lines, "result = expansion.through_each(position, target)  # [layer, head], all paths through it"]
    if panel == ids.FLOW:
        most = core.settings.flow_links
        return [*lines, f"result = expansion.sankey(position, target, max_links={most}).to_frame()"]
    if panel == ids.TOP:
        through = f", through={question.through!r}" if question.through else ""
        budget = f"budget={core.settings.path_budget}"
        return [
            *lines,
            f"top = expansion.top({question.k}, position, target, {question.by!r}{through}, {budget})",
            "result = top.values  # of top.paths",
        ]
    if state.without is None:
        return None
    path = parse_path(state.without)
    if path is None:
        call = f"without_head(expansion, {state.without!r})"
    else:
        call = f"without_path(expansion, aotlens.paths.Path({path.start!r}, {path.heads}, {path.source_position}))"
    return [*lines, f"result = aotlens.paths.{call}.to_frame(position, target)"]
