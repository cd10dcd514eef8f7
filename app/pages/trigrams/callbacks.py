"""Callbacks of the Skip-trigrams page: all panels that a choice changes in one answer, those that read the text in
another, and further rows of the table."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from dash import html, no_update

from aotlens.plots import describe, glyphs
from aotlens.views.trigram_captions import (
    EXACT,
    in_text,
    in_weights,
    rule,
    says_choice,
    says_own_heads,
    says_summary,
)
from aotlens.views.trigrams import CHECK, CHOICE, DECIDABLE, FORCED, KINDS, ZERO_LAYER
from app.core import Core
from app.pages.trigrams import rows as table_rows
from app.pages.trigrams.address import TrigramsState
from app.pages.trigrams.ids import STARTED, VIEWS, ids
from app.pages.trigrams.occurrences import occurrence_list
from app.pages.trigrams.service import Shown, Trigrams
from app.pages.trigrams.tables import bigram_columns, forced_height, hidden_columns
from app.shell import ids as shell
from app.shell import own_texts
from app.shell.app import App
from app.shell.callbacks import Answer, guarded
from app.shell.choices import head_buttons
from app.shell.notices import exact, problem, relative
from app.shell.page import python_of
from app.shell.props import children, props, stores
from app.shell.sharing import long_table, mark_head, save_files
from app.shell.tables import PAGE
from app.shell.views import Own, follow_views, python_lines, record, show_views, tables

if TYPE_CHECKING:
    from aotlens.trigrams import Bigrams, RowsByHead, TrigramRow, TrigramRows

_TO_START = "So many tokens take long to search through: Run does it in the background."


def register(app: App, core: Core, trigrams: Trigrams) -> None:
    """Register the page's callbacks."""
    mark_head(app, ids.HEADS, ids.SHOWN)
    own_texts.register(app, ids.EVIDENCE, ids.CORPUS, ids.PASTED)
    long_table(app, shell.table(ids.ROWS))
    of_row = stores(row=ids.ROW, checked=shell.made(ids.EVIDENCE))
    panels = {
        ids.CHOICE: Own(
            view=CHOICE,
            draw=choose,
            parts=(),
            outputs=stores(shown=ids.SHOWN, heads=shell.drawn(ids.HEADS))
            | children(meaning=ids.MEANING)
            | props("disabled", distance=ids.DISTANCE, delta=ids.DELTA, least=ids.LEAST),
            empty={"heads": no_update, "distance": False, "delta": False, "least": False},
            reads=lambda chosen: (chosen.head, chosen.distance, chosen.least_asked, chosen.corpus, CHOICE.key(chosen)),
        ),
        ids.ROWS: Own(
            view=VIEWS[ids.ROWS],
            draw=partial(list_rows, trigrams),
            parts=("caption",),
            outputs=stores(first=ids.FIRST)
            | children(relative=ids.RELATIVE)
            | props("className", start=shell.start(ids.ROWS)),
            empty={"start": "hidden"},
            quiet=True,
            reads=lambda chosen: chosen.filters,
            waiting=lambda chosen: {"caption": _TO_START, "start": ""},
        ),
        ids.ONE: Own(
            view=VIEWS[ids.ONE], draw=partial(explain, trigrams), parts=("body", "title"), quiet=True,
            empty={"title": "One row"}, reads=lambda chosen: chosen.reading,
        ),
        ids.KINDS: Own(view=KINDS, quiet=True, parts=("figure", "caption")),
        ids.FORCED: Own(
            view=FORCED, draw=list_forced, parts=("rows", "caption"), quiet=True,
            outputs=props("style", style=shell.table(ids.FORCED)),
            empty={"style": forced_height(0), "caption": FORCED.missing(Shown(checkpoint=""))},
        ),
        ids.ALL_HEADS: Own(
            view=VIEWS[ids.ALL_HEADS], draw=list_heads, parts=("rows", "caption"), quiet=True,
            reads=lambda chosen: chosen.head,
        ),
    }  # fmt: skip
    show_views(app, trigrams.workshop, panels, trigrams.values, shown=ids.ASKED, keys=ids.DRAWN, inputs=of_row)
    reading = {
        ids.EVIDENCE: Own(
            view=CHECK,
            draw=lambda chosen, rows: {"caption": CHECK.caption(chosen, rows), "rule": rule(), "check": False},
            parts=("caption",),
            outputs=children(rule=ids.RULE) | props("disabled", check=shell.start(ids.EVIDENCE)),
            empty={"check": True},
            waiting=partial(before_check, trigrams),
        ),
        ids.PATH: Own(
            view=VIEWS[ids.PATH], draw=partial(list_bigrams, trigrams), parts=("rows", "columns", "caption"),
            outputs=props("disabled", own=ids.OWN), empty={"own": False},
        ),
    }  # fmt: skip
    show_views(app, trigrams.workshop, reading, trigrams.values, shown=ids.ASKED, keys=ids.READ, inputs={})
    follow_views(app, trigrams.jobs, trigrams.workshop, STARTED, trigrams.started, shown=ids.ASKED)
    files = {panel: view for panel, view in VIEWS.items() if panel != ids.ONE}
    makers = tables(trigrams.workshop, files, trigrams.values)
    makers |= tables(trigrams.workshop, {ids.KINDS: KINDS}, trigrams.values, "json", record)
    save_files(app, makers, stores(shown=ids.ASKED))

    @guarded(
        app,
        panel=ids.ROWS,
        inputs=stores(request=shell.asked_rows(shell.table(ids.ROWS))),
        output=stores(answer=shell.sent_rows(shell.table(ids.ROWS))),
        empty={"answer": {"rows": [], "count": 0}},
        at_first=False,
        shares_notice=True,
    )
    def send_rows(request: Any) -> Answer:
        context = (request or {}).get("context") or {}
        if not context.get("asked"):
            return None
        chosen = trigrams.values(context["asked"])
        frame = table_rows.sort(_selected(trigrams, chosen), request.get("sortModel") or [])
        rows = trigrams.workshop.result(VIEWS[ids.ROWS], chosen)
        page, count = table_rows.page(
            frame, rows, context.get("opened") or [], int(request["startRow"]), int(request["endRow"]),
            most=core.settings.members_shown,
        )  # fmt: skip
        return {"answer": {"number": request["number"], "rows": page, "count": count}}


def choose(chosen: Shown, info: Any) -> dict[str, Any]:
    """Return which rows are shown, and what of the choice the model has."""
    without = not chosen.model.get("positions")
    layer, head = chosen.head
    return {
        "shown": {"layer": layer, "head": head, "corpus": chosen.corpus},
        "heads": head_buttons(*chosen.shape),
        "distance": without,
        "delta": without or not isinstance(chosen.distance, int),
        "least": not chosen.counted,
        "meaning": says_choice(chosen, chosen.least_asked, chosen.most_count),
    }


def _selected(trigrams: Trigrams, chosen: Shown) -> Any:
    return table_rows.select(trigrams.frame(chosen), chosen.filters)


def list_rows(trigrams: Trigrams, chosen: Shown, rows: TrigramRows) -> dict[str, Any]:
    """Return the first rows of the table, and how many match what is searched for."""
    view, selected = VIEWS[ids.ROWS], _selected(trigrams, chosen)
    caption = view.caption(chosen, rows)
    if chosen.filters:
        caption = f"{len(selected):,} of {len(rows):,} rows match{caption[caption.index(' rows') + 5 :]}"
    if rows.groups is not None and trigrams.core.settings.members_shown < len(rows.groups.table):
        caption += (
            f" + lists the best {trigrams.core.settings.members_shown:,} others of a group; the CSV has them all."
        )
    if ("verdict" in dict(chosen.filters)) and rows.evidence is None:
        caption += " No row has a verdict before the rows are checked against text."
    page, count = table_rows.page(selected, rows, [], 0, PAGE, most=0)
    hidden = hidden_columns(
        grouped=rows.groups is not None, scored=chosen.score != "effect", checked=rows.evidence is not None
    )
    first = {"whole": view.key(chosen), "filters": chosen.filters, "rows": page, "count": count, "hidden": hidden}
    note = relative([rows.table.relative], "rows") if rows.table.relative else exact(EXACT)
    return {"first": first, "caption": caption, "relative": note, "start": "hidden"}


def explain(trigrams: Trigrams, chosen: Shown, row: TrigramRow) -> dict[str, Any]:
    """Return what weights and text say of one row, and where it happens."""
    table, index = row.rows.table, row.number
    chips = [
        html.Span(glyphs(text[index]), className="token", title=f"{describe(text[index])} · id {ids_of[index]}")
        for text, ids_of in (
            (table.source_token, table.source), (table.destination_token, table.destination),
            (table.out_token, table.out),
        )
    ]  # fmt: skip
    body: list[Any] = [
        html.Div([chips[0], "…", chips[1], "→", chips[2]], className="trigram-big"),
        html.H3("In the weights", className="trigram-side"),
        *_paragraphs(in_weights(row)),
        html.H3("In text", className="trigram-side"),
    ]
    evidence = row.rows.evidence
    if evidence is None or chosen.reading is None:
        body += _paragraphs(["Not checked. Check the rows against text to see whether it is so, and where."])
    else:
        body += _paragraphs(in_text(row, chosen.reading.about))
        places = [each for each in evidence.examples if each.row == index]
        if places:
            roles = {
                "source": "source", "destination": "destination", "out": "predicted token",
                "instead": "what came instead",
            }  # fmt: skip
            marks = [html.Span(name, className=f"role-{role}") for role, name in roles.items()]
            body += [
                html.H3("Where it happens", className="trigram-side"),
                html.P(marks, className="trigram-legend"),
                occurrence_list(trigrams.core, chosen, places),
            ]
    answer = {"body": body, "title": f"Row {index + 1:,}"}
    if chosen.row not in (None, index + 1):
        n, rank = len(row.rows), int(chosen.row or 0)
        answer["notice"] = problem(f"There is no row {rank:,} among {n:,} rows; the nearest is explained instead.")
    return answer


def _paragraphs(sentences: list[str]) -> list[html.P]:
    return [html.P(sentence, className="trigram-said") for sentence in sentences]


def list_forced(chosen: Shown, rows: TrigramRows) -> dict[str, Any]:
    """List what pairs of confirmed rows force."""
    frame = FORCED.frame(rows)
    records = []
    for number, bug in enumerate(frame.to_dict(orient="records")):
        names = ("source", "destination", "out", "other_destination", "other_out")
        source, destination, out, other, other_out = (glyphs(bug[name]) for name in names)
        records.append(
            {
                "id": str(number),
                "source": source,
                "one": f"… {destination} → {out}",
                "one_followed": bug["followed"],
                "other": f"… {other} → {other_out}",
                "other_followed": bug["other_followed"],
                "forced": f"… {destination} → {other_out}",
                "judgement": "false" if bug["false"] else bug["forced_verdict"],
                "effect": table_rows.exact(bug["forced_effect"]),
                "occurrences": bug["forced_occurrences"],
                "followed": bug["forced_followed"],
                "lift": table_rows.exact(bug["forced_lift_within"]),
            }
        )
    return {"rows": records, "caption": FORCED.caption(chosen, rows), "style": forced_height(len(records))}


def list_heads(chosen: Shown, result: RowsByHead) -> dict[str, Any]:
    """Return a record for every head."""
    records = result.to_frame().to_dict("records")
    here = chosen.name
    rows = [{**each, "chosen": each["head"] == here} for each in records]
    return {"rows": rows, "caption": VIEWS[ids.ALL_HEADS].caption(chosen, result)}


def before_check(trigrams: Trigrams, chosen: Shown) -> dict[str, Any]:
    """Say how many rows the text can decide; or what a check that comes with aotlens says."""
    if chosen.stored:
        rows = trigrams.workshop.result(VIEWS[ids.ROWS], chosen)
        caption = f"{says_summary(rows.evidence)} This check comes with aotlens: {chosen.reading.about}."
    else:
        caption = DECIDABLE.caption(chosen, trigrams.workshop.result(DECIDABLE, chosen))
    return {"caption": caption, "rule": rule(), "check": False}


def list_bigrams(trigrams: Trigrams, chosen: Shown, result: Bigrams) -> dict[str, Any]:
    """Return the direct path's bigrams, tokens with glyphs; null where the text does not have the first token."""
    own = chosen.own_heads.run(trigrams.workshop)
    sentences = [VIEWS[ids.PATH].caption(chosen, result), says_own_heads(own, result)]
    if chosen.reading is not None:
        sentences.append(ZERO_LAYER.caption(chosen, trigrams.workshop.result(ZERO_LAYER, chosen)))
    frame = result.to_frame()
    for name in ("first", "second"):
        frame[name] = [glyphs(token) for token in frame[name]]
    records = [
        {"id": str(number), **{name: None if value != value else value for name, value in values.items()}}
        for number, values in enumerate(frame.to_dict(orient="records"))
    ]
    return {
        "rows": records,
        "columns": bigram_columns(counted=result.count is not None),
        "caption": " ".join(filter(None, sentences)),
        "own": not own,
    }


@python_of(*VIEWS)
def python(core: Core, trigrams: Trigrams, state: TrigramsState, panel: str) -> list[str]:
    """Return the lines that give a panel's numbers."""
    return python_lines(VIEWS[panel], trigrams.of_address(state))
