"""The Skip-trigrams page's panels about what has been found: one row, kinds, and what rows force."""

from __future__ import annotations

from typing import Any

from dash import Dash, html

from aotlens.plots import Theme, describe
from aotlens.plots.kinds import stacked_counts
from app.pages.trigrams import rows, words
from app.pages.trigrams.callbacks import chosen, reading_of
from app.pages.trigrams.ids import ids
from app.pages.trigrams.occurrence_list import occurrence_list
from app.pages.trigrams.service import Choice, Reading, Trigrams
from app.pages.trigrams.service_occurrences import occurrences
from app.pages.trigrams.tables import forced_height
from app.shell import ids as shell
from app.shell.callbacks import Answer, guarded
from app.shell.notices import problem
from app.shell.props import props, stores


def register(app: Dash, trigrams: Trigrams) -> None:
    """The panels' callbacks."""

    @guarded(
        app,
        panel=ids.ONE,
        inputs=stores(shown=shell.seen(ids.ONE), rank=ids.ROW),
        parts=("body", "title"),
        empty={"title": "One row"},
    )
    def explain(shown: Any, rank: int | None) -> Answer:
        choice = chosen((shown or {}).get("choice"))
        if choice is None:
            return None
        if not shown["rows"]:
            return {"body": "No triple qualifies.", "title": "One row"}
        row = row_of(rank, shown["rows"])
        said = None if rank in (None, row + 1) else problem(words.no_row(int(rank), shown["rows"]))
        body = one_row(trigrams, choice, reading_of(shown["reading"]), row)
        return {"body": body, "title": f"Row {row + 1:,}", "notice": said}

    @guarded(
        app,
        panel=ids.KINDS,
        inputs=stores(shown=shell.seen(ids.KINDS), theme=shell.THEME),
        parts=("figure", "caption", "title"),
        empty={"title": "Kinds"},
    )
    def draw_kinds(shown: Any, theme: Theme) -> Answer:
        choice = chosen((shown or {}).get("choice"))
        if choice is None:
            return None
        reading = reading_of(shown["reading"])
        counts = rows.count(trigrams, choice, reading)
        figure = stacked_counts(
            counts.counts, counts.kinds, counts.verdicts, title="rows",
            quiet=("not confirmed", "too rare", "not checked"), theme=theme,
        )  # fmt: skip
        figure.update_layout(meta={"name": f"{choice.name} · kinds"})
        return {
            "figure": figure,
            "caption": words.verdicts(trigrams.evidence(choice, reading), trigrams.about(choice, reading)),
            "title": f"Kinds in head {choice.layer}.{choice.head}",
        }

    @guarded(
        app,
        panel=ids.FORCED,
        inputs=stores(shown=shell.seen(ids.FORCED)),
        parts=("rows", "caption"),
        output=props("style", style=shell.table(ids.FORCED)),
        empty={"style": forced_height(0)},
    )
    def force(shown: Any) -> Answer:
        choice = chosen((shown or {}).get("choice"))
        if choice is None:
            return None
        reading = reading_of(shown["reading"])
        evidence = trigrams.evidence(choice, reading)
        records = rows.forced_rows(trigrams, choice, reading)
        return {
            "rows": records,
            "style": forced_height(len(records)),
            "caption": words.forced(trigrams.bugs(choice, reading), 0 if evidence is None else evidence.n_confirmed),
        }


def row_of(rank: int | None, n_rows: int) -> int:
    """The row that is explained (0 is the first): the nearest that there is, the first where none is chosen."""
    return min(max(int(rank or 1), 1), n_rows) - 1


def one_row(trigrams: Trigrams, choice: Choice, reading: Reading | None, row: int) -> Any:
    """What weights and text say of one row, and where it happens."""
    frame = rows.found_frame(trigrams, choice, reading)
    table, evidence = trigrams.table(choice), trigrams.evidence(choice, reading)
    assert table is not None
    record = frame.iloc[row]
    shown = (record["source_shown"], record["destination_shown"], record["out_shown"])
    texts = (table.source_token[row], table.destination_token[row], table.out_token[row])
    numbers = (table.source[row], table.destination[row], table.out[row])
    chips = [
        html.Span(token, className="token", title=f"{describe(text)} · id {number}")
        for token, text, number in zip(shown, texts, numbers, strict=True)
    ]
    body: list[Any] = [
        html.Div([chips[0], "…", chips[1], "→", chips[2]], className="trigram-big"),
        html.H3("In the weights", className="trigram-side"),
        *_paragraphs([*words.weights(table, row, shown), words.kind(str(record["kind"]))]),
        html.H3("In text", className="trigram-side"),
    ]
    if evidence is None or reading is None:
        return [*body, *_paragraphs(["Not checked. Check the rows against text to see whether it is so, and where."])]
    body += _paragraphs(words.in_text(evidence, row, shown, trigrams.about(choice, reading)))
    places = occurrences(trigrams, choice, reading, row)
    if places:
        legend = ["source", "destination", "out", "what came instead"]
        roles = ("source", "destination", "out", "instead")
        marks = [html.Span(name, className=f"role-{role}") for name, role in zip(legend, roles, strict=True)]
        body += [
            html.H3("Where it happens", className="trigram-side"),
            html.P(marks, className="trigram-legend"),
            occurrence_list(places),
        ]
    return body


def _paragraphs(sentences: list[str]) -> list[html.P]:
    return [html.P(sentence, className="trigram-said") for sentence in sentences]
