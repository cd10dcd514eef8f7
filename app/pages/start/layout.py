"""The start page's layout."""

from __future__ import annotations

import numpy as np
from dash import dcc, html

from aotlens.plots import Theme, sprite
from aotlens.plots.attention import data_uri
from app.core import Core
from app.pages.start.finding import Finding, Findings, Picture

#: Characters of a token beside a map.
_LONGEST = 9
_THEMES: tuple[Theme, Theme] = ("light", "dark")


def layout(core: Core, service: Findings, state: object) -> html.Div:
    """Lay out what aotlens is, one finished finding where there is one, and four ways in."""
    finding = service.finding()
    return html.Div(
        [
            html.H1("See what every attention head does", className="start-title"),
            html.P(
                "aotlens reads attention-only transformers head by head: where a head attends, which circuit makes it "
                "do so, what the model loses without it, and how MSSA heads compare with standard heads and with the "
                "feed-forward networks that can replace them.",
                className="start-lead",
            ),
            *([] if finding is None else [_finding(finding)]),
            html.Div([_own_text(core), _own_model(), _tutorial(core), _continue()], className="start-ways"),
        ],
        className="start",
    )


def _finding(finding: Finding) -> html.Section:
    return html.Section(
        [
            html.H2("For example: how a model copies a name"),
            html.P(finding.sentence),
            html.Div([_picture(picture) for picture in finding.pictures], className="start-maps"),
        ],
        className="panel start-finding",
    )


def _picture(picture: Picture) -> html.Figure:
    labels = [token if len(token) <= _LONGEST else f"{token[: _LONGEST - 1]}…" for token in picture.tokens]
    values = np.asarray(picture.values, dtype=np.float32)[None, None]
    scale = "diverging" if bool((values < 0).any()) else "sequential"
    row, column = picture.marked
    place = {"--row": str(row), "--column": str(column), "--n": str(len(labels))}
    return html.Figure(
        [
            html.H3(picture.title),
            html.Div(
                [
                    html.Div([html.Span(token) for token in labels], className="start-rows"),
                    html.Div(
                        [
                            html.Img(
                                src=data_uri(sprite(values, scale=scale, theme=theme)),
                                alt=picture.sentence,
                                className=f"start-{theme}",
                            )
                            for theme in _THEMES
                        ]
                        + [html.Span(className="start-mark", style=place)],
                        className="start-map",
                    ),
                    html.Div([html.Span(token) for token in labels], className="start-columns"),
                ],
                className="start-picture",
            ),
            html.Figcaption([picture.sentence, " ", dcc.Link("Look into it", href=picture.link)]),
        ]
    )


def _own_text(core: Core) -> html.Section:
    return html.Section(
        [
            html.H2("Try your sentence"),
            html.Form(
                [
                    html.Label("A sentence in which something comes twice shows most.", htmlFor="start-text"),
                    html.Textarea(id="start-text", maxLength=600, rows=2, className="start-text", name="text"),
                    html.Button("See its heads", type="submit", className="button-link"),
                ],
                action=core.links.to("heads"),
                method="GET",
            ),
        ],
        className="panel",
    )


def _own_model() -> html.Section:
    return html.Section(
        [
            html.H2("Open your own model"),
            html.P(
                "A GPT-2, a nanoGPT, a TransformerLens model or any state dict becomes a checkpoint by one command, "
                "and is then in every page’s list:"
            ),
            html.Pre("aotlens checkpoints import FOLDER --name mine", tabIndex=0),
            html.P("Nothing in its files is executed."),
        ],
        className="panel",
    )


def _tutorial(core: Core) -> html.Section:
    return html.Section(
        [
            html.H2("Take the tutorial"),
            html.P(
                "Six steps from an attention map to an induction circuit that is put to the test: each ends in "
                "something measured."
            ),
            dcc.Link("Begin", href=core.links.to("atlas", tab="path"), className="button-link"),
        ],
        className="panel",
    )


def _continue() -> html.Section:
    """Lay out what the browser fills, which remembers the last page (static/shell.js)."""
    return html.Section(
        [
            html.H2("Continue where you were"),
            html.P("This browser has no view to go back to yet.", className="start-none"),
            html.A("", href="/heads", className="button-link start-last hidden", **{"data-in-app": ""}),
        ],
        className="panel",
    )
