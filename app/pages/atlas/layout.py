"""The Atlas page's layout."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html

from aotlens.plots.atlas import column_title
from app.core import Core
from app.pages.atlas.address import AtlasState
from app.pages.atlas.ids import GUIDED, VIEWS, ids
from app.pages.atlas.service import Atlases
from app.shell import ids as shell
from app.shell.background import job_bar
from app.shell.choices import head_picker
from app.shell.controls import link_button
from app.shell.graph import caption
from app.shell.own_texts import own_text, text_choice
from app.shell.panel import about, panel, tabs
from app.shell.prompt import checkpoint_choice
from app.shell.tables import grid
from app.shell.views import about_view, view_panel

_EXPLAIN_FORM = about(
    "Everything that is measured of every head of a checkpoint, from one pass over windows spread over a text, the "
    "weights, and runs without each head. Of training text only the documents that were held out are read. The "
    "atlases of the bundled checkpoints are stored with aotlens; on another text one is made in the background, and "
    "what is done is kept on disk.",
    source="aotlens.heads.atlas; docs/atlas.md",
)
_EXPLAIN_PATH = about(
    "Six views, in order, that find the circuit by which a small model continues what it has read before. Every number "
    "is measured: from the stored atlas, from the text that the step opens, or from runs without the heads.",
    source="In-context Learning and Induction Heads (Olsson et al. 2022)",
)
#: The lengths of text that may be read, in tokens.
TOKENS = (16_384, 65_536, 200_000)


def layout(core: Core, service: Atlases, state: AtlasState) -> html.Div:
    """Return the page for an address; with nothing in it, the stored atlas of the first checkpoint."""
    return html.Div(
        [
            html.H1("Atlas", className="sr-only"),
            dcc.Store(id=ids.ASKED, data={"corpus": state.corpus}),
            dcc.Store(id=ids.MADE),
            dcc.Store(id=ids.SHOWN),
            dcc.Store(id=ids.HEAD, data=state.head),
            dcc.Store(id=ids.CHOSEN),
            *(dcc.Store(id=keys) for keys in (ids.DRAWN, ids.WEIGHED, ids.WALKED)),
            _form(core, state),
            tabs(
                ids.TABS,
                state.tab,
                {
                    "heads": ("All heads", _all_heads(state)),
                    "head": ("One head", _summary(core, state)),
                    "path": ("Guided path", _path()),
                },
                label="Atlas",
            ),
        ],
        className="atlas-page",
    )


def _form(core: Core, state: AtlasState) -> html.Section:
    checkpoint = state.checkpoint or core.catalog.default()
    make = html.Div(
        [
            text_choice(ids.CORPUS, core.corpora, core.corpora.chosen(state.corpus), size="sm", w=260),
            dmc.Select(
                id=ids.TOKENS, label="Read at most", allowDeselect=False, w=170, size="sm", value=str(TOKENS[0]),
                data=[{"value": str(n), "label": f"{n:,} tokens"} for n in TOKENS],
            ),
            dmc.Button("Run", id=shell.start(ids.FORM), n_clicks=0, size="sm"),
        ],
        className="atlas-make",
    )  # fmt: skip
    another = html.Details(
        [html.Summary("On another text"), make, own_text(ids.CORPUS, ids.PASTED, core.settings)],
        className="atlas-another",
        open=state.corpus is not None,
    )
    body = html.Div(id=shell.body(ids.FORM), className="meaning", role="status")
    choices = [
        checkpoint_choice(ids.CHECKPOINT, core.catalog, checkpoint, reads_text=True),
        html.Div([body, another], className="atlas-about"),
    ]
    content = [html.Div(choices, className="atlas-choices"), job_bar(ids.FORM)]
    return panel(ids.FORM, "What every head does", _EXPLAIN_FORM, content)


def _all_heads(state: AtlasState) -> html.Div:
    search = dmc.TextInput(
        id=ids.SEARCH, value=state.where or "", placeholder="induction_random > 0.4 and layer = 1", size="xs",
        debounce=400, className="atlas-search", **{"aria-label": "Heads where"},
    )  # fmt: skip
    axes = [
        dmc.Select(
            id=id, data=[{"value": value, "label": column_title(value)}], value=value, allowDeselect=False,
            searchable=True, size="xs", w=190, **{"aria-label": label},
        )
        for id, value, label in ((ids.Y, state.y, "Vertical axis"), (ids.X, state.x, "Horizontal axis"))
    ]  # fmt: skip
    table = grid(shell.table(ids.TABLE), key="name", height=470, header=64)
    return html.Div(
        [
            _panel(ids.TABLE, [caption(ids.TABLE), table], controls=search),
            view_panel(
                ids.SCATTER, VIEWS[ids.SCATTER], "graph-atlas", captioned=False, follows=ids.CHOSEN,
                controls=[axes[0], html.Span("against"), axes[1]],
            ),
            view_panel(
                ids.SHAPLEY, VIEWS[ids.SHAPLEY], "graph-view", follows=ids.CHOSEN, before=[caption(ids.SHAPLEY)],
                after=[grid(shell.table(ids.SHAPLEY), key="name", height=290)],
            ),
        ],
        className="atlas-lists",
    )  # fmt: skip


def _summary(core: Core, state: AtlasState) -> html.Div:
    links = [
        link_button(ids.OPEN_HEADS, "On a text", core.links.to("heads")),
        link_button(ids.OPEN_CIRCUITS, "Its circuits", core.links.to("circuits")),
        link_button(ids.OPEN_PATHS, "Paths through it", core.links.to("paths")),
    ]
    bins = dmc.SegmentedControl(
        id=ids.BIN, data=[str(place) for place in range(10)], value="" if state.bin is None else str(state.bin),
        size="xs", **{"aria-label": "Attention away from key 0"},
    )  # fmt: skip
    head = [head_picker(ids.HEADS, ids.HEAD), html.Div(id=shell.body(ids.SUMMARY), className="atlas-says")]
    examples = [caption(ids.EXAMPLES), html.Div(id=shell.body(ids.EXAMPLES))]
    return html.Div(
        [
            _panel(ids.SUMMARY, html.Div(head, className="atlas-head"), controls=links, exports=()),
            html.Div([_panel(ids.EXAMPLES, examples, controls=bins), _panel(ids.MOTIFS)], className="stack"),
            _panel(ids.WEIGHTS),
            html.Div([_panel(ids.LOSSES), _panel(ids.PARTNERS)], className="stack"),
        ],
        className="atlas-summary",
    )


def _path() -> html.Div:
    body = html.Div(id=shell.body(ids.PATH))
    path = panel(ids.PATH, "To the induction circuit in six views", _EXPLAIN_PATH, body, follows=ids.SHOWN)
    return html.Div([path, _panel(ids.VERDICT, follows=ids.SHOWN)], className="atlas-path")


def _panel(id: str, content: Any = None, *, follows: str = ids.CHOSEN, **rest: Any) -> html.Section:
    """The panel of a view that the page draws itself; its body alone for no content."""
    view, inside = {**VIEWS, **GUIDED}[id], content or html.Div(id=shell.body(id))
    rest = {"exports": ("csv", "python"), **rest}
    return panel(id, view.title, about_view(view), inside, follows=follows, **rest)
