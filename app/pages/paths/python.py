"""Python for the Paths page's views."""

from __future__ import annotations

from app.core import Core
from app.core.address_values import dotted
from app.pages.paths.address import FIRST, PathsState
from app.pages.paths.ids import PANELS, SCORE_PANELS, ids
from app.pages.paths.score_service import N_PAIRS, question_of
from app.pages.paths.service import Paths, parse_path
from app.shell.page import python_of
from app.shell.python import loading


@python_of(*PANELS, *SCORE_PANELS)
def python(core: Core, service: Paths, state: PathsState, panel: str) -> list[str] | None:
    """The lines that give a panel's numbers."""
    checkpoint = state.checkpoint or core.catalog.default()
    text = FIRST if state.text is None else state.text
    if panel in SCORE_PANELS:
        return _score(core, state, checkpoint, text, panel)
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


_OF_SCORE = {
    ids.BY_HEADS: "score.by_head_pair().values  # [query group, key group] by .names, nats",
    ids.BY_SOURCES: "score.by_source_pair().values  # [query source, key source] by .names, nats",
    ids.BY_ORDERS: "score.by_pair_of_orders()  # [heads on the query side, heads on the key side], nats",
}


def _score(core: Core, state: PathsState, checkpoint: str | None, text: str, panel: str) -> list[str]:
    """The lines for a panel of a score."""
    question, _ = question_of(core, checkpoint, text, state.head, state.query, state.key, state.against)
    score = core.scores.explain(question).score
    cell = f"{question.head}, {question.query}, {question.key}, against={score.against!r}"
    lines = [*loading(checkpoint), f"expansion = aotlens.paths.expand(model, {text!r}, split_sources=True)"]
    if panel == ids.TRACE:
        return [*lines, f"trace = expansion.trace({cell})", "result = trace.to_frame()"]
    lines.append(f"score = expansion.score({cell})")
    if panel == ids.PAIRS:
        search = f"score.top({N_PAIRS}, budget={core.settings.path_budget})"
        return [*lines, f"top = {search}", "result = top.values  # of top.pairs: nats"]
    return [*lines, f"result = {_OF_SCORE[panel]}"]
