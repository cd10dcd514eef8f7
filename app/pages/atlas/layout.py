"""The Atlas page's layout."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html

from app.core import Core
from app.pages.atlas import explanations, words
from app.pages.atlas.address import AtlasState
from app.pages.atlas.ids import ids
from app.pages.atlas.service import Atlases
from app.pages.atlas.service_path import CHECKPOINT
from app.shell import ids as shell
from app.shell.background import job_bar
from app.shell.choices import head_picker
from app.shell.controls import link_button
from app.shell.graph import caption, figure
from app.shell.own_texts import own_text, text_choice
from app.shell.panel import panel, tabs
from app.shell.prompt import checkpoint_choice
from app.shell.tables import grid

_TABLES = ("csv", "python")
#: How much of a text may be read, in tokens.
TOKENS = (16_384, 65_536, 200_000)


def layout(core: Core, service: Atlases, state: AtlasState) -> html.Div:
    """The page for an address; with nothing in it, the stored atlas of the first checkpoint."""
    return html.Div(
        [
            html.H1("Atlas", className="sr-only"),
            dcc.Store(id=ids.ASKED, data={"corpus": state.corpus}),
            dcc.Store(id=ids.MADE),
            dcc.Store(id=ids.SHOWN),
            dcc.Store(id=ids.HEAD, data=state.head),
            dcc.Store(id=ids.CHOSEN),
            dcc.Store(id=ids.LED, data={"checkpoint": CHECKPOINT}),
            _form(core, state),
            tabs(
                ids.TABS,
                state.tab,
                {
                    "heads": ("All heads", _all_heads(state)),
                    "head": ("One head", _dossier(core, state)),
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
            dmc.Button("Make the atlas", id=shell.start(ids.FORM), n_clicks=0, size="sm"),
        ],
        className="atlas-make",
    )  # fmt: skip
    return panel(
        ids.FORM,
        "What every head does",
        explanations.FORM,
        [
            html.Div(
                [
                    checkpoint_choice(ids.CHECKPOINT, core.catalog, checkpoint, reads_text=True),
                    html.Div(
                        [
                            html.Div(id=shell.body(ids.FORM), className="meaning", role="status"),
                            html.Details(
                                [
                                    html.Summary("On another text"),
                                    make,
                                    own_text(ids.CORPUS, ids.PASTED, core.settings),
                                ],
                                className="atlas-another",
                                open=state.corpus is not None,
                            ),
                        ],
                        className="atlas-about",
                    ),
                ],
                className="atlas-choices",
            ),
            job_bar(ids.FORM),
        ],
    )


def _all_heads(state: AtlasState) -> html.Div:
    search = dmc.TextInput(
        id=ids.SEARCH, value=state.where or "", placeholder="induction_random > 0.4 and layer = 1", size="xs",
        debounce=400, className="atlas-search", **{"aria-label": "Heads where"},
    )  # fmt: skip
    axes = [
        dmc.Select(
            id=id, data=[{"value": value, "label": words.title(value)}], value=value, allowDeselect=False,
            searchable=True, size="xs", w=190, **{"aria-label": label},
        )
        for id, value, label in ((ids.Y, state.y, "Vertical axis"), (ids.X, state.x, "Horizontal axis"))
    ]  # fmt: skip
    table = grid(shell.table(ids.TABLE), key="name", height=470, header=64)
    return html.Div(
        [
            panel(
                ids.TABLE, "All heads", explanations.TABLE, [caption(ids.TABLE), table], controls=search,
                exports=_TABLES, follows=ids.SHOWN,
            ),
            panel(
                ids.SCATTER, "Two scores", explanations.SCATTER, figure(ids.SCATTER, "graph-atlas"),
                controls=[axes[0], html.Span("against"), axes[1]], exports=("png", "svg", *_TABLES), follows=ids.SHOWN,
            ),
        ],
        className="atlas-lists",
    )  # fmt: skip


def _dossier(core: Core, state: AtlasState) -> html.Div:
    links = [
        link_button(ids.OPEN_HEADS, "On a text", core.links.to("heads")),
        link_button(ids.OPEN_CIRCUITS, "Its circuits", core.links.to("circuits")),
        link_button(ids.OPEN_PATHS, "Paths through it", core.links.to("paths")),
    ]
    bins = dmc.SegmentedControl(
        id=ids.BIN, data=[str(place) for place in range(10)], value="" if state.bin is None else str(state.bin),
        size="xs", **{"aria-label": "Attention away from key 0"},
    )  # fmt: skip
    return html.Div(
        [
            panel(
                ids.DOSSIER, "One head", explanations.DOSSIER,
                html.Div(
                    [head_picker(ids.HEADS, ids.HEAD), html.Div(id=shell.body(ids.DOSSIER), className="atlas-says")],
                    className="atlas-head",
                ),
                controls=links, follows=ids.CHOSEN,
            ),
            html.Div(
                [
                    _of_head(
                        ids.EXAMPLES, "In the text", explanations.EXAMPLES,
                        [caption(ids.EXAMPLES), _body(ids.EXAMPLES)], controls=bins,
                    ),
                    _of_head(ids.MOTIFS, "Motifs beside chance", explanations.MOTIFS, _body(ids.MOTIFS)),
                ],
                className="stack",
            ),
            _of_head(ids.WEIGHTS, "In the weights", explanations.WEIGHTS, _body(ids.WEIGHTS)),
            html.Div(
                [
                    _of_head(ids.LOSSES, "Without it", explanations.LOSSES, _body(ids.LOSSES)),
                    _of_head(ids.PARTNERS, "Reads and feeds", explanations.PARTNERS, _body(ids.PARTNERS)),
                ],
                className="stack",
            ),
        ],
        className="atlas-dossier",
    )  # fmt: skip


def _path() -> html.Div:
    return html.Div(
        [
            panel(ids.PATH, "To the induction circuit in six views", explanations.PATH, _body(ids.PATH),
                  follows=ids.LED),
            panel(ids.VERDICT, "Verdict", explanations.VERDICT, _body(ids.VERDICT), exports=_TABLES, follows=ids.LED),
        ],
        className="atlas-path",
    )  # fmt: skip


def _of_head(id: str, title: str, explanation: Any, content: Any, *, controls: Any = None) -> html.Section:
    return panel(id, title, explanation, content, controls=controls, exports=_TABLES, follows=ids.CHOSEN)


def _body(id: str) -> html.Div:
    return html.Div(id=shell.body(id))
