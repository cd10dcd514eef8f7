"""Callbacks of the Compare page: two runs and their losses in one answer, and matched heads alone."""

from __future__ import annotations

from functools import partial
from typing import Any

from dash import no_update

from aotlens.views.compare import RUNS
from aotlens.views.compare_captions import each_pair, loss_tips, says_pairs, says_positions
from aotlens.views.compare_choice import CompareParameters
from app.core import Core
from app.pages.compare import maps
from app.pages.compare.address import CompareState
from app.pages.compare.ids import VIEWS, ids
from app.pages.compare.service import SIDES, Compare
from app.shell import ids as shell
from app.shell.app import App
from app.shell.choices import head_switch_buttons
from app.shell.page import python_of
from app.shell.props import children, props, stores, values
from app.shell.sharing import mark_switches, save_files
from app.shell.token_strip import token_strip
from app.shell.views import Own, python_lines, record, show_views, tables


def register(app: App, core: Core, service: Compare) -> None:
    """Register the page's callbacks, and the route of its maps."""
    maps.register(app, service)
    for switches, store in ((ids.LEFT_SWITCHES, ids.LEFT_OFF), (ids.RIGHT_SWITCHES, ids.RIGHT_OFF)):
        mark_switches(app, switches, store)
    panes = {
        ids.FORM: Own(
            view=RUNS, draw=partial(choose, service), parts=(),
            outputs=stores(shown=ids.SHOWN, left=shell.drawn(ids.LEFT_SWITCHES), right=shell.drawn(ids.RIGHT_SWITCHES))
            | children(count=ids.COUNT),
            empty={"left": no_update, "right": no_update},
        ),
        ids.LOSSES: Own(
            view=VIEWS[ids.LOSSES], draw=partial(draw_losses, service), parts=("caption",),
            outputs=stores(strip=shell.drawn(ids.STRIP), other=shell.drawn(ids.OTHER_STRIP)),
        ),
    }  # fmt: skip
    matched = {
        ids.PAIRS: Own(
            view=VIEWS[ids.PAIRS], draw=partial(list_pairs, service), parts=("caption",),
            outputs=stores(matched=ids.MATCHED), quiet=True,
        ),
        ids.SIMILARITY: Own(view=VIEWS[ids.SIMILARITY], parts=("figure", "caption"), quiet=True),
    }  # fmt: skip
    for panels, keys in ((panes, ids.DRAWN), (matched, ids.PAIRED)):
        show_views(app, service.workshop, panels, service.values, shown=ids.PANES, keys=keys, inputs={})
    files = tables(service.workshop, VIEWS, service.values)
    files |= tables(service.workshop, VIEWS, service.values, "json", record)
    choices = stores(pair=ids.PAIR) | values(view=ids.VIEW) | props("checked", hide_first=ids.HIDE_FIRST)
    save_files(app, files, stores(shown=ids.PANES) | choices)


def choose(service: Compare, chosen: CompareParameters, runs: Any) -> dict[str, Any]:
    """Return what both panes hold, for the browser: it asks for their maps, and knows which positions correspond."""
    core, panes = service.core, {}
    for side in SIDES:
        pane, patterns = chosen.panes[side], getattr(runs, side).patterns
        panes[side] = {"checkpoint": pane.checkpoint, "text": core.corpora.addressed(pane.text),
                       "off": [list(head) for head in pane.ablated], "layers": patterns.n_layers,
                       "heads": patterns.n_heads, "size": patterns.n_pos}  # fmt: skip
    other = None if chosen.panes["right"].text == chosen.panes["left"].text else panes["right"]["text"]
    panes |= {
        "key": service.key(chosen), "one_model": chosen.one_model, "unmatched": chosen.unmatched,
        "aligned": runs.aligned, "places": [list(place) for place in runs.positions], "text": panes["left"]["text"],
        "other": other, "says": says_positions(runs),
    }  # fmt: skip
    sizes = [panes[side]["size"] for side in SIDES]
    switches = {side: head_switch_buttons(panes[side]["layers"], panes[side]["heads"]) for side in SIDES}
    count = f"{sizes[0]} tokens" if runs.aligned else f"{sizes[0]} and {sizes[1]} tokens"
    return {"shown": panes, **switches, "count": count}


def draw_losses(service: Compare, chosen: CompareParameters, result: Any) -> dict[str, Any]:
    """Return one strip of differences; where the panes have different tokens, a strip of losses each."""
    runs = service.workshop.result(RUNS, chosen)
    if result.difference is None:
        shades, tips = {"strip": (runs.left, result.left), "other": (runs.right, result.right)}, None
    else:
        shades, tips = {"strip": (runs.left, result.difference)}, loss_tips(result)
    strips = {
        name: token_strip(run.patterns.tokens.tolist(), run.patterns.str_tokens, losses.tolist(), tips=tips)
        for name, (run, losses) in shades.items()
    }
    return {"other": [], **strips, "caption": VIEWS[ids.LOSSES].caption(chosen, result)}


def list_pairs(service: Compare, chosen: CompareParameters, result: Any) -> dict[str, Any]:
    """List which heads are alike, for the browser, which draws their maps."""
    similarity = [[round(value, 3) for value in row] for row in result.similarity.tolist()]
    matched = {"key": service.key(chosen), "pairs": list(each_pair(result)), "similarity": similarity}
    return {"matched": matched, "caption": f"{says_pairs(chosen, result)} Click a pair to see its maps."}


@python_of(*VIEWS)
def python(core: Core, service: Compare, state: CompareState, panel: str) -> list[str]:
    """Return the lines that give a panel's numbers."""
    return python_lines(VIEWS[panel], service.of_address(state))
