"""What the Skip-trigrams page asks of the server: which table, which text, how far it is, the rows in view."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, ctx, html, no_update

from app import ids
from app.components.choices import head_buttons
from app.components.notices import problem
from app.components.trigram_tables import row_columns
from app.pages.guard import guarded
from app.services import Services, trigram_rows
from app.services import trigram_words as words
from app.services.corpora import PASTED
from app.services.errors import RequestError
from app.services.jobs import Job
from app.services.trigrams import Choice, Reading
from app.urlstate import FIRST_ROWS, FIRST_TOKENS, MAX_ROWS, TrigramsState

_NO_TEXT = (
    "This app was started without a corpus, so there are no verdicts. Paste a text here, or start it with "
    "--corpus stdlib, --corpus file:PATH or --corpus dir:PATH."
)


def register(app: Dash, services: Services) -> None:
    """The page's callbacks."""
    _register_choice(app, services)
    _register_follow(app, services)

    @app.callback(
        Output(ids.TRIGRAMS_READING, "data"),
        Output(ids.EVIDENCE_ABOUT, "children"),
        Output(ids.EVIDENCE_RULE, "children"),
        Output(ids.notice(ids.EVIDENCE), "children"),
        Input(ids.TRIGRAMS_CHECKPOINT, "value"),
        Input(ids.EVIDENCE_CORPUS, "value"),
        Input(ids.EVIDENCE_TOKENS, "value"),
        Input(ids.EVIDENCE_PASTED, "value"),
    )
    @guarded(None, "", no_update)
    def read(checkpoint: str, corpus: str | None, tokens: str | None, pasted: str | None) -> tuple[Any, ...]:
        n = min(int(tokens or FIRST_TOKENS), max(services.settings.evidence_tokens))
        if corpus != PASTED:
            reading = Reading(text=str(corpus), tokens=n)
        elif not (pasted or "").strip():
            why = _NO_TEXT if not services.trigrams.corpora.names else "Paste a text to check against."
            return None, why, words.rule()
        else:
            reading = Reading(text=services.trigrams.corpora.paste(pasted or ""), tokens=n)
        return reading.to_dict(), f"Reads {services.trigrams.text(reading, checkpoint).about}.", words.rule()

    @app.callback(
        Output(ids.TRIGRAM_GRID, "getRowsResponse"),
        Output(ids.TRIGRAM_COUNT, "children"),
        Output(ids.notice(ids.TRIGRAM_ROWS), "children"),
        Input(ids.TRIGRAM_GRID, "getRowsRequest"),
        prevent_initial_call=True,
    )
    @guarded({"rowData": [], "rowCount": 0}, "")
    def list_rows(request: Any) -> tuple[Any, ...]:
        context = (request or {}).get("context") or {}
        choice = chosen(context.get("choice"))
        if choice is None:
            return {"rowData": [], "rowCount": 0}, ""
        frame = trigram_rows.found_frame(services.trigrams, choice, reading_of(context.get("reading")))
        filters = context.get("filters") or {}
        kept = trigram_rows.sort(trigram_rows.select(frame, filters), request.get("sortModel") or [])
        rows = trigram_rows.page(kept, int(request["startRow"]), int(request["endRow"]))
        said = f"{len(frame):,} rows" if len(kept) == len(frame) else f"{len(kept):,} of {len(frame):,} rows match"
        if filters.get("verdict") and "verdict" not in frame:
            said += ": no row has a verdict before the table is checked against text"
        return {"rowData": rows, "rowCount": len(kept)}, said + "."


def _register_choice(app: Dash, services: Services) -> None:
    @app.callback(
        Output(ids.TRIGRAMS, "data"),
        Output(ids.TRIGRAMS_HEAD, "data"),
        Output(ids.TRIGRAMS_HEADS, "children"),
        Output(ids.TRIGRAMS_DISTANCE, "disabled"),
        Output(ids.TRIGRAMS_DELTA, "disabled"),
        Output(ids.TRIGRAMS_LEAST, "disabled"),
        Output(ids.TRIGRAMS_MEANING, "children"),
        Output(ids.TRIGRAM_ROW, "data"),
        Output(ids.notice(ids.TRIGRAMS_PANEL), "children"),
        Input(ids.TRIGRAMS_CHECKPOINT, "value"),
        Input(ids.TRIGRAMS_HEAD, "data"),
        Input(ids.TRIGRAMS_SCORE, "value"),
        Input(ids.TRIGRAMS_END, "value"),
        Input(ids.TRIGRAMS_DISTANCE, "value"),
        Input(ids.TRIGRAMS_DELTA, "value"),
        Input(ids.TRIGRAMS_K, "value"),
        Input(ids.TRIGRAMS_LEAST, "value"),
        Input(ids.TRIGRAM_WITHIN, "value"),
        Input(ids.TRIGRAM_SOURCE, "value"),
        Input(ids.TRIGRAM_DESTINATION, "value"),
        Input(ids.TRIGRAM_OUT, "value"),
        State(ids.TRIGRAMS, "data"),
    )
    @guarded(None, no_update, no_update, False, False, False, "", None)
    def choose(
        checkpoint: str | None, head: Any, score: Any, end: Any, distance: str, delta: Any, k: Any, least: Any,
        within: Any, source: str | None, destination: str | None, out: str | None, before: Any,
    ) -> tuple[Any, ...]:  # fmt: skip
        number = int(delta) if isinstance(delta, int | float) else 1
        state = TrigramsState(
            checkpoint=checkpoint,
            head=(int(head[0]), int(head[1])) if head else None,
            score=score,
            end=end,
            distance={"none": None, "mean": "mean"}.get(distance, number),  # type: ignore[arg-type]
            k=min(max(int(k), 1), MAX_ROWS) if isinstance(k, int | float) else FIRST_ROWS,
            least=max(int(least), 0) if isinstance(least, int | float) else 0,
            within=within,
            source=source or "",
            destination=destination or "",
            out=out or "",
        )
        choice, shape = services.trigrams.describe(state)
        services.trigrams.search(choice)
        data = {**choice.to_dict(), "layers": shape.n_layers, "heads": shape.n_heads}
        same_grid = before is not None and [before["layers"], before["heads"]] == [shape.n_layers, shape.n_heads]
        return (
            no_update if data == before else data,
            [choice.layer, choice.head],
            no_update if same_grid else head_buttons(shape.n_layers, shape.n_heads),
            shape.max_distance == 0,
            shape.max_distance == 0 or distance != "fixed",
            not shape.counted,
            words.table(choice) if shape.counted else f"{words.table(choice)} {words.UNIFORM}",
            no_update if before is None or data == before else None,
        )


def _register_follow(app: Dash, services: Services) -> None:
    trigrams = services.trigrams

    @app.callback(
        Output(ids.TRIGRAMS_FOUND, "data"),
        Output(ids.TRIGRAM_GRID, "columnDefs"),
        Output(ids.TRIGRAM_HEADS_TABLE, "rowData"),
        Output(ids.TRIGRAMS_RELATIVE, "children"),
        Output(ids.TRIGRAMS_PROGRESS, "children"),
        Output(ids.TRIGRAMS_STOP, "className"),
        Output(ids.TRIGRAMS_TIMER, "disabled"),
        Output(ids.notice(ids.EVIDENCE_CHECK), "children"),
        Input(ids.TRIGRAMS, "data"),
        Input(ids.TRIGRAMS_READING, "data"),
        Input(ids.TRIGRAMS_TIMER, "n_intervals"),
        Input(ids.EVIDENCE_CHECK, "n_clicks"),
        Input(ids.EVIDENCE_CHECK_ALL, "n_clicks"),
        Input(ids.TRIGRAMS_STOP, "n_clicks"),
        State(ids.TRIGRAMS_FOUND, "data"),
        State(ids.TRIGRAM_HEADS_TABLE, "rowData"),
    )
    @guarded(no_update, no_update, no_update, no_update, no_update, no_update, True)
    def follow(data: Any, read: Any, ticks: Any, one: Any, every: Any, stop: Any, before: Any, rows: Any) -> tuple:
        choice, reading = chosen(data), reading_of(read)
        if choice is None:
            return None, no_update, [], None, "", "hidden", True
        # A click and an answer that it waited for come as one call.
        asked = set(ctx.triggered_prop_ids.values())
        if asked & {ids.EVIDENCE_CHECK, ids.EVIDENCE_CHECK_ALL}:
            if reading is None:
                raise RequestError(_NO_TEXT if not trigrams.corpora.names else "Paste a text first, above.")
            # The chosen head first, since somebody is looking at it.
            trigrams.check(choice, reading)
        if ids.EVIDENCE_CHECK_ALL in asked:
            check_every_head(services, choice, reading, (data["layers"], data["heads"]))
        if ids.TRIGRAMS_STOP in asked:
            trigrams.checks.stop()
        searching = trigrams.searching(choice)
        if searching is not None and searching.state == "failed":
            return None, no_update, [], None, problem(searching.error), "hidden", True
        found, columns, relative = None, no_update, no_update
        table = trigrams.table(choice)
        if table is not None:
            checked = trigrams.evidence(choice, reading) is not None
            found = {"choice": choice.to_dict(), "reading": read, "rows": len(table), "checked": checked}
            relative = _relative(table.relative)
            if before is None or [before["checked"], before["choice"]["score"]] != [checked, choice.score]:
                columns = row_columns(checked=checked, score=choice.score)
        checking = trigrams.checking(choice, reading) if reading is not None else None
        jobs = [job for job in (searching, checking, trigrams.checks.running()) if job is not None]
        active = next((job for job in jobs if job.active), None)
        heads = trigram_rows.heads(trigrams, choice, reading, (data["layers"], data["heads"]))
        return (
            no_update if found == before else found,
            columns,
            no_update if heads == rows else heads,
            relative,
            _progress(active, checking),
            "hidden" if active is None or active is searching else "",
            active is None,
        )


def check_every_head(services: Services, choice: Choice, reading: Reading | None, shape: tuple[int, int]) -> None:
    """Queue a check of each head. Raises RequestError for more heads than results are kept for."""
    assert reading is not None
    most = services.settings.n_evidence
    if shape[0] * shape[1] > most:
        raise RequestError(
            f"This model has {shape[0] * shape[1]} heads, and evidence for at most {most} is kept here. Choose heads "
            "one by one, or use the command: aotlens trigrams."
        )
    for layer in range(shape[0]):
        for head in range(shape[1]):
            services.trigrams.search(choice.at(layer, head))
            services.trigrams.check(choice.at(layer, head), reading)


def chosen(data: Any) -> Choice | None:
    """The table that is asked for; None where there is none."""
    if not data:
        return None
    return Choice(**{name: data[name] for name in Choice.__dataclass_fields__})


def reading_of(data: Any) -> Reading | None:
    """The text that is chosen."""
    return Reading(text=str(data["text"]), tokens=int(data["tokens"])) if data else None


def _progress(active: Job | None, checking: Job | None) -> Any:
    if active is not None:
        share = active.done / active.total if active.total else 0
        bar = html.Span(className="progress-bar", style={"width": f"{100 * share:.1f}%"})
        track = html.Span(bar, className="progress-track")
        return html.Span([words.progress(active), track], className="progress")
    if checking is not None and checking.state == "failed":
        return problem(checking.error, "The rows could not be checked")
    if checking is not None and checking.state == "stopped":
        return "The check was stopped; nothing of it is kept."
    return ""


def _relative(why: str) -> Any:
    if not why:
        return dmc.Text(
            "Exact: z and ov are terms of this model's own scores and logits, on any text.",
            className="exact",
            size="sm",
        )
    return dmc.Alert(
        why,
        title="Relative: compare rows with each other; their numbers are not the model's own",
        color="yellow",
        variant="light",
        className="relative",
    )
