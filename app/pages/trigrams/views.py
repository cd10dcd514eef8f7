"""The Skip-trigrams page's panels about what has been found: one row, kinds, and what rows force."""

from __future__ import annotations

from typing import Any

from dash import Dash, Input, Output, html

from aotlens.plots import Theme, describe
from aotlens.plots.kinds import stacked_counts
from app import ids
from app.components.graph import EMPTY
from app.components.occurrence_list import occurrence_list
from app.components.trigram_tables import bugs_height
from app.pages.guard import guarded
from app.pages.trigrams.callbacks import chosen, reading_of
from app.services import Services, trigram_rows
from app.services import trigram_words as words
from app.services.occurrences import occurrences
from app.services.trigrams import Choice, Reading


def register(app: Dash, services: Services) -> None:
    """The panels' callbacks."""
    _register_forced(app, services)

    @app.callback(
        Output(ids.TRIGRAM_BODY, "children"),
        Output(ids.title(ids.TRIGRAM), "children"),
        Output(ids.notice(ids.TRIGRAM), "children"),
        Input(ids.TRIGRAMS_FOUND, "data"),
        Input(ids.TRIGRAM_ROW, "data"),
    )
    @guarded(None, "One row")
    def explain(found: Any, rank: int | None) -> tuple[Any, ...]:
        choice = chosen((found or {}).get("choice"))
        if choice is None or not found["rows"]:
            return (None if choice is None else "No triple qualifies."), "One row"
        row = min(max(int(rank or 1), 1), found["rows"]) - 1
        return one_row(services, choice, reading_of(found["reading"]), row), f"Row {row + 1:,}"

    @app.callback(
        Output(ids.TRIGRAM_KINDS_GRAPH, "figure"),
        Output(ids.TRIGRAM_KINDS_CAPTION, "children"),
        Output(ids.title(ids.TRIGRAM_KINDS), "children"),
        Output(ids.TRIGRAM_KINDS_RULES, "children"),
        Output(ids.notice(ids.TRIGRAM_KINDS), "children"),
        Input(ids.TRIGRAMS_FOUND, "data"),
        Input(ids.THEME, "data"),
    )
    @guarded(EMPTY, "", "Kinds", None)
    def draw_kinds(found: Any, theme: Theme | None) -> tuple[Any, ...]:
        choice = chosen((found or {}).get("choice"))
        if choice is None:
            return EMPTY, "", "Kinds", None
        reading = reading_of(found["reading"])
        counts = trigram_rows.count(services.trigrams, choice, reading)
        figure = stacked_counts(
            counts.counts, counts.kinds, counts.verdicts, title="rows",
            quiet=("not confirmed", "too rare", "not checked"), theme=theme or "light",
        )  # fmt: skip
        figure.update_layout(meta={"name": f"{choice.name} · kinds"})
        said = words.verdicts(services.trigrams.evidence(choice, reading), about(services, choice, reading))
        rules = [html.Li([html.B(name), f": {rule}"]) for name, rule in words.RULES.items()]
        return figure, said, f"Kinds in head {choice.layer}.{choice.head}", rules


def _register_forced(app: Dash, services: Services) -> None:
    @app.callback(
        Output(ids.TRIGRAM_BUGS_TABLE, "rowData"),
        Output(ids.TRIGRAM_BUGS_TABLE, "style"),
        Output(ids.TRIGRAM_BUGS_CAPTION, "children"),
        Output(ids.notice(ids.TRIGRAM_BUGS), "children"),
        Input(ids.TRIGRAMS_FOUND, "data"),
    )
    @guarded([], bugs_height(0), "")
    def force(found: Any) -> tuple[Any, ...]:
        choice = chosen((found or {}).get("choice"))
        if choice is None:
            return [], bugs_height(0), ""
        reading, trigrams = reading_of(found["reading"]), services.trigrams
        held = trigrams.evidence(choice, reading)
        said = words.forced(trigrams.bugs(choice, reading), 0 if held is None else held.n_confirmed)
        rows = trigram_rows.forced_rows(trigrams, choice, reading)
        return rows, bugs_height(len(rows)), said


def one_row(services: Services, choice: Choice, reading: Reading | None, row: int) -> Any:
    """What weights and text say of one row, and where it happens."""
    frame = trigram_rows.found_frame(services.trigrams, choice, reading)
    table, found = services.trigrams.table(choice), services.trigrams.evidence(choice, reading)
    assert table is not None
    record = frame.iloc[row]
    shown = (record["source_shown"], record["destination_shown"], record["out_shown"])
    texts = (table.source_token[row], table.destination_token[row], table.out_token[row])
    numbers = (table.source[row], table.destination[row], table.out[row])
    chips = [
        html.Span(one, className="token", title=f"{describe(text)} · id {number}")
        for one, text, number in zip(shown, texts, numbers, strict=True)
    ]
    body: list[Any] = [
        html.Div([chips[0], "…", chips[1], "→", chips[2]], className="trigram-big"),
        html.H3("In the weights", className="trigram-side"),
        *_paragraphs([*words.weights(table, row, shown), words.kind(str(record["kind"]))]),
        html.H3("In text", className="trigram-side"),
    ]
    if found is None or reading is None:
        return [*body, *_paragraphs(["Not checked. Check the rows against text to see whether it is so, and where."])]
    body += _paragraphs(words.in_text(found, row, shown, about(services, choice, reading)))
    listed = occurrences(services.trigrams, services.catalog, services.inference, choice, reading, row)
    if listed:
        legend = ["source", "destination", "out", "what came instead"]
        roles = ("source", "destination", "out", "instead")
        marks = [html.Span(one, className=f"role-{role}") for one, role in zip(legend, roles, strict=True)]
        body += [
            html.H3("Where it happens", className="trigram-side"),
            html.P(marks, className="trigram-legend"),
            occurrence_list(listed),
        ]
    return body


def about(services: Services, choice: Choice, reading: Reading | None) -> str:
    """Which text was read."""
    return "" if reading is None else services.trigrams.text(reading, choice.checkpoint).about


def _paragraphs(sentences: list[str]) -> list[html.P]:
    return [html.P(sentence, className="trigram-said") for sentence in sentences]
