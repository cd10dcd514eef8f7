"""The Compare page's layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html

from aotlens.conventions import head_name
from aotlens.views.compare import RUNS
from aotlens.views.compare_choice import Side
from app.core import Core
from app.core.examples import EXAMPLES
from app.core.switches import HOWS, NEEDS
from app.pages.compare.address import CompareState, Head
from app.pages.compare.ids import PRESETS, VIEWS, ids
from app.pages.compare.service import SIDES, Compare
from app.shell.choices import head_switches
from app.shell.controls import link_button, switch_of
from app.shell.drawn import drawn
from app.shell.graph import caption
from app.shell.panel import panel, tabs
from app.shell.prompt import checkpoint_choice
from app.shell.views import FILES, about_view, view_panel


def layout(core: Core, service: Compare, state: CompareState) -> html.Div:
    """Return the page for an address; with nothing in it, the first checkpoint beside itself on the first example."""
    state = service.first_of(state)
    asked = service.asked_of(state)
    positions = {"left": state.position, "right": state.other_position}
    return html.Div(
        [
            html.H1("Compare", className="sr-only"),
            dcc.Store(id=ids.PANES, data=asked),
            *(dcc.Store(id=id) for id in (ids.SHOWN, ids.MATCHED, ids.PAIR, ids.DRAWN, ids.PAIRED)),
            dcc.Store(id=ids.POSITIONS, data={**positions, "own": state.other_position}),
            *(
                dcc.Store(id=ids.named(f"{side}-off")[f"{side}_off"], data=asked[side]["off"])
                for side in SIDES
            ),
            _form(core, asked, state),
            _panel(
                ids.LOSSES,
                [
                    caption(ids.LOSSES),
                    drawn(ids.STRIP, "strip", "Tokens"),
                    drawn(ids.OTHER_STRIP, "strip other-strip", "Tokens at the right"),
                ],
                follows=ids.PANES,
                always=True,
            ),
            tabs(
                ids.TABS,
                state.tab,
                {"maps": ("A pair of heads", _maps(core, state)), "pairs": ("All pairs", _pairs())},
                label="Of the heads",
            ),
        ],
        className="compare",
        **{"data-max-characters": str(core.settings.max_characters), "data-needs-corpus": " ".join(NEEDS)},
    )  # fmt: skip


def _form(core: Core, asked: dict[str, Any], state: CompareState) -> html.Section:
    texts = html.Div(
        [
            _text(ids.TEXT, "Text", asked["text"]),
            html.Div(
                _text(ids.OTHER, "Text at the right", asked["other"] or ""),
                id=ids.OTHER_BOX, className="" if asked["other"] is not None else "hidden",
            ),
        ],
        className="compare-texts",
    )  # fmt: skip
    example = dmc.Select(
        id=ids.EXAMPLE, label="Take an example", placeholder="Choose one", size="xs",
        data=[{"value": text, "label": name} for name, text in EXAMPLES.items()],
    )  # fmt: skip
    another = dmc.Switch(
        id=ids.ANOTHER, label="Another text at the right", checked=asked["other"] is not None, size="xs"
    )
    run = html.Div(
        [
            dmc.Button("Run", id=ids.RUN, n_clicks=0, size="xs", rightSection=dmc.Kbd("Ctrl ⏎", size="xs")),
            html.Span(id=ids.COUNT, className="count"),
        ],
        className="compare-run",
    )
    content = html.Div(
        [
            *(_pane(core, asked, side) for side in SIDES),
            texts,
            html.Div([example, *_instead(core, state), another, run], className="compare-asking"),
        ],
        className="compare-form",
    )
    about = about_view(RUNS)
    return panel(ids.FORM, RUNS.title, about, content, controls=_presets(core), follows=ids.PANES, always=True)


def _presets(core: Core) -> list[html.Button]:
    """One click each: what is most often put side by side."""
    here = {info.name for info in core.catalog.list() if core.catalog.reads_text(info)}
    own = html.Button(
        "Same model, head ablated", id=ids.PRESET_OFF, n_clicks=0, className="plain-button",
        **{"data-tip": "The left checkpoint at both sides; at the right, the chosen head is ablated."},
    )  # fmt: skip
    swap = html.Button("⇄", id=ids.SWAP, n_clicks=0, className="plain-button", title="Swap the two models")
    bundled = [
        html.Button(
            label, id=preset, n_clicks=0,
            className="plain-button" if {left, right} <= here else "plain-button hidden",
            **{"data-left": left, "data-right": right, "data-tip": f"{left} beside {right}"},
        )
        for preset, (label, left, right) in PRESETS.items()
    ]  # fmt: skip
    return [own, *bundled, swap]


def _pane(core: Core, asked: dict[str, Any], side: Side) -> html.Div:
    named = ids.named(f"{side} {side}-off {side}-switches")
    choice = checkpoint_choice(named[side], core.catalog, asked[side]["checkpoint"], reads_text=True)
    choice.label, choice.size = side.capitalize(), "xs"
    off = html.Details(
        [
            html.Summary(html.Span(id=ids.named(f"{side}-off-line")[f"{side}_off_line"])),
            html.Div(head_switches(named[f"{side}_switches"], named[f"{side}_off"]), className="switches-box"),
        ],
        className="heads-off popover",
    )
    return html.Div([choice, off], className="compare-pane")


def _instead(core: Core, state: CompareState) -> list[Any]:
    """Lay out the choice of the replacement of ablated heads' outputs, and of the corpus from which it is taken."""
    corpora = core.corpora.choices()
    hows = [{"value": how, "label": label, "disabled": how in NEEDS and not corpora} for how, label in HOWS.items()]
    how = dmc.Select(
        id=ids.HOW, label="Replace head output with", data=hows, value=state.how, allowDeselect=False, size="xs",
        **{"data-tip": "Means and other outputs are taken from a text: start the app with --corpus, or upload one."},
    )  # fmt: skip
    corpus = dmc.Select(
        id=ids.CORPUS, label="From the corpus", data=corpora, value=core.corpora.chosen(state.corpus), size="xs",
        allowDeselect=False, className="" if state.how in NEEDS else "hidden",
    )  # fmt: skip
    return [how, corpus]


def _text(id: str, label: str, value: str) -> dmc.Textarea:
    return dmc.Textarea(
        id=id, label=label, value=value, autosize=True, minRows=2, maxRows=4, spellCheck=False, size="xs",
        className="prompt-text",
    )  # fmt: skip


def _maps(core: Core, state: CompareState) -> html.Div:
    views = {"attention": "Attention", "weighted": "Value-weighted", "scores": "Scores"}
    bar = html.Div(
        [
            switch_of(ids.VIEW, "Quantity on the maps", state.view, views),
            dmc.Switch(
                id=ids.HIDE_FIRST, label="Hide position 0", checked=state.hide_first, size="sm",
                **{"data-tip": "Attention to the first token drowns the rest of a colour scale."},
            ),
            html.P(id=ids.PAIR_LINE, className="pair-line", role="status"),
        ],
        className="compare-bar",
    )  # fmt: skip
    heads = {
        "left": _head(ids.HEAD, "Left head", state.head or (0, 0)),
        "right": _head(ids.OTHER_HEAD, "Right head", state.other_head),
    }
    panes = [
        _panel(
            ids.named(f"{side}-map")[f"{side}_map"], _canvas(side),
            controls=[heads[side], link_button(link, "On Heads", core.links.to("heads"))], pictured=True,
        )
        for side, link in (("left", ids.OPEN_LEFT), ("right", ids.OPEN_RIGHT))
    ]  # fmt: skip
    difference = _panel(ids.DIFFERENCE, [_canvas("difference"), caption(ids.DIFFERENCE)], pictured=True)
    return html.Div([bar, html.Div([*panes, difference], className="compare-maps")])


def _canvas(name: str) -> html.Div:
    return html.Div(id=ids.named(f"{name}-canvas")[f"{name}_canvas"], className="large")


def _panel(id: str, content: Any, *, pictured: bool = False, **rest: Any) -> html.Section:
    """The panel of a view whose picture the browser draws."""
    view = VIEWS[id]
    exports = (*(FILES if pictured else ("csv", "python")), "json")
    kind = {"class_name": "compare-map"} if pictured else {}
    return panel(id, view.title, about_view(view), content, exports=exports, **kind, **rest)


def _head(id: str, label: str, head: Head | None) -> dmc.Select:
    value = None if head is None else head_name(head)
    data: Sequence[str] = [] if value is None else [value]
    return dmc.Select(
        id=id, data=data, value=value, placeholder="match", allowDeselect=head is None or id == ids.OTHER_HEAD,
        clearable=id == ids.OTHER_HEAD, searchable=True, size="xs", w=84, **{"aria-label": label},
    )  # fmt: skip


def _pairs() -> html.Div:
    label = {"role": "group", "aria-label": "Pairs of heads"}
    gallery = html.Div(id=ids.GALLERY, className="pairs", **label)
    return html.Div(
        [
            _panel(ids.PAIRS, [caption(ids.PAIRS), gallery], follows=ids.PANES),
            view_panel(
                ids.SIMILARITY, VIEWS[ids.SIMILARITY], "graph-similarity", exports=(*FILES, "json"), follows=ids.PANES
            ),
        ],
        className="compare-pairs",
    )  # fmt: skip
