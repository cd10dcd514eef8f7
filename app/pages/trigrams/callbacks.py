"""What the Skip-trigrams page asks of the server: which table, which text, how far it is, the rows in view."""

from __future__ import annotations

from typing import Any

from dash import no_update

from app.core import sessions
from app.core.corpora import PASTED
from app.core.parameters import whole_within
from app.pages.trigrams import rows as table_rows
from app.pages.trigrams import words
from app.pages.trigrams.address import FIRST_ROWS, FIRST_TOKENS, MAX_COUNT, MAX_ROWS, TrigramsState
from app.pages.trigrams.ids import PANELS, ids
from app.pages.trigrams.service import Choice, Reading, Trigrams
from app.pages.trigrams.tables import row_columns
from app.shell import ids as shell
from app.shell import own_texts
from app.shell.app import App
from app.shell.background import said
from app.shell.callbacks import Answer, guarded
from app.shell.choices import head_buttons
from app.shell.notices import exact, problem, relative
from app.shell.props import children, props, stores, values
from app.shell.sharing import long_table, mark_head, when_seen

_NO_TEXT = (
    "This app was started without a corpus, so there are no verdicts. Upload or paste a text here, or start it with "
    "--corpus stdlib, --corpus file:PATH or --corpus dir:PATH."
)


def register(app: App, trigrams: Trigrams) -> None:
    """The page's callbacks."""
    mark_head(app, ids.HEADS, ids.ASKED)
    when_seen(app, ids.SHOWN, PANELS)
    own_texts.register(app, ids.EVIDENCE, ids.CORPUS, ids.PASTED)
    long_table(app, shell.table(ids.ROWS))
    _register_choice(app, trigrams)
    _register_follow(app, trigrams)

    @guarded(
        app,
        panel=ids.EVIDENCE,
        inputs=values(checkpoint=ids.CHECKPOINT, corpus=ids.CORPUS, tokens=ids.TOKENS, pasted=ids.PASTED),
        parts=("caption",),
        output=stores(reading=ids.READING) | children(rule=ids.RULE),
        empty={"rule": no_update},
    )
    def read(checkpoint: str, corpus: str | None, tokens: str | None, pasted: str | None) -> Answer:
        n = min(int(tokens or FIRST_TOKENS), max(trigrams.settings.evidence_tokens))
        nothing = {"corpus": None, "text": None, "tokens": n}
        if corpus and corpus != PASTED:
            reading = Reading(text=str(corpus), tokens=n)
        elif not (pasted or "").strip():
            why = "Paste a text to check against." if trigrams.corpora.names else _NO_TEXT
            return {"reading": nothing, "caption": why, "rule": words.rule()}
        else:
            reading = Reading(text=trigrams.corpora.paste(pasted or ""), tokens=n)
        return {
            "reading": {"corpus": reading.text, **reading.to_dict()},
            "caption": f"Reads {trigrams.text(reading, checkpoint).about}.",
            "rule": words.rule(),
        }

    @guarded(
        app,
        panel=ids.ROWS,
        inputs=stores(request=shell.asked_rows(shell.table(ids.ROWS))),
        parts=("caption",),
        output=stores(answer=shell.sent_rows(shell.table(ids.ROWS))),
        empty={"answer": {"rows": [], "count": 0}},
        at_first=False,
    )
    def list_rows(request: Any) -> Answer:
        context = (request or {}).get("context") or {}
        choice = chosen(context.get("choice"))
        if choice is None:
            return None
        frame = table_rows.found_frame(trigrams, choice, reading_of(context.get("reading")))
        filters = context.get("filters") or {}
        kept = table_rows.sort(table_rows.select(frame, filters), request.get("sortModel") or [])
        members = table_rows.unfolded(kept, trigrams, choice, context.get("opened") or [])
        page = table_rows.with_unfolded(kept, members, int(request["startRow"]), int(request["endRow"]))
        caption = f"{len(frame):,} rows" if len(kept) == len(frame) else f"{len(kept):,} of {len(frame):,} rows match"
        if "folded" in frame:
            beneath, most = frame["folded"], trigrams.settings.members_shown
            caption += words.folded(choice, int(beneath.sum()), int(beneath.max()) if len(frame) else 0, most)
        if filters.get("verdict") and "verdict" not in frame:
            caption += ": no row has a verdict before the table is checked against text"
        answer = {"number": request["number"], "rows": page, "count": len(kept) + len(members)}
        return {"answer": answer, "caption": f"{caption}."}


def _register_choice(app: App, trigrams: Trigrams) -> None:
    @guarded(
        app,
        panel=ids.CHOICE,
        inputs=values(**ids.named("checkpoint score end distance delta k fold least within source destination out"))
        | stores(head=ids.HEAD),
        state=stores(before=ids.ASKED),
        output=stores(asked=ids.ASKED, head=ids.HEAD, row=ids.ROW, opened=ids.OPEN, heads=shell.drawn(ids.HEADS))
        | children(meaning=ids.MEANING)
        | props("disabled", distance=ids.DISTANCE, delta=ids.DELTA, least=ids.LEAST),
        empty={"head": no_update, "heads": no_update, "distance": False, "delta": False, "least": False},
    )
    def choose(
        checkpoint: str | None, head: Any, score: Any, end: Any, distance: str, delta: Any, k: Any, fold: Any,
        least: Any, within: Any, source: str | None, destination: str | None, out: str | None, before: Any,
    ) -> Answer:  # fmt: skip
        number = whole_within(delta, 1, 1, MAX_COUNT)
        state = TrigramsState(
            checkpoint=checkpoint,
            head=(int(head[0]), int(head[1])) if head else None,
            score=score,
            end=end,
            distance={"none": None, "mean": "mean"}.get(distance, number),  # type: ignore[arg-type]
            k=whole_within(k, FIRST_ROWS, 1, MAX_ROWS),
            fold=fold,
            least=whole_within(least, 0, 0, MAX_COUNT),
            within=within,
            source=source or "",
            destination=destination or "",
            out=out or "",
        )
        choice, shape = trigrams.describe(state)
        trigrams.search(choice, session=sessions.current())
        asked = {**choice.to_dict(), "layers": shape.n_layers, "heads": shape.n_heads}
        answer: dict[str, Any] = {
            "asked": asked,
            "head": [choice.layer, choice.head],
            "distance": shape.max_distance == 0,
            "delta": shape.max_distance == 0 or distance != "fixed",
            "least": not shape.counted,
            "meaning": f"{words.table(choice, trigrams.settings.folded_rows)} {words.rare(state.least, shape)}",
        }
        if before is None or [before["layers"], before["heads"]] != [shape.n_layers, shape.n_heads]:
            answer["heads"] = head_buttons(shape.n_layers, shape.n_heads)
        if before is not None and asked != before:
            answer |= {"row": None, "opened": []}
        return answer


def _register_follow(app: App, trigrams: Trigrams) -> None:
    output = {
        **stores(shown=ids.SHOWN, heard=ids.HEARD),
        **children(relative=ids.RELATIVE, progress=shell.progress(ids.CHOICE)),
        **props("columnDefs", columns=shell.table(ids.ROWS)),
        **props("rowData", heads=shell.table(ids.ALL_HEADS)),
        **props("className", stop=shell.stop(ids.CHOICE)),
        **props("disabled", timer=shell.timer(ids.CHOICE)),
    }

    @guarded(
        app,
        panel=ids.CHECK,
        inputs=stores(asked=ids.ASKED, read=ids.READING)
        | props("n_intervals", ticks=shell.timer(ids.CHOICE))
        | props("n_clicks", one=ids.CHECK, every=ids.CHECK_ALL, stop=shell.stop(ids.CHOICE)),
        state=stores(before=ids.SHOWN, heard=ids.HEARD) | props("rowData", heads=shell.table(ids.ALL_HEADS)),
        output=output,
        empty={**dict.fromkeys(output, no_update), "timer": True},
    )
    def follow(asked: Any, read: Any, one: Any, every: Any, stop: Any, before: Any, heard: Any, **_: Any) -> Answer:
        nothing = {"shown": None, "heads": [], "relative": None, "progress": None, "stop": "hidden", "timer": True}
        choice, reading = chosen(asked), reading_of(read)
        if choice is None:
            return nothing
        shape = (asked["layers"], asked["heads"])
        # Clicks are counted: of a call that waited while this one ran, Dash may name the later tick alone.
        session, clicks = sessions.current(), [whole_within(n, 0, 0, MAX_COUNT) for n in (one, every, stop)]
        checks_one, checks_every, stops = (now > then for now, then in zip(clicks, heard or [0, 0, 0], strict=True))
        if checks_one or checks_every:
            if reading is None:
                why = _NO_TEXT if not trigrams.corpora.names else "Paste a text first, above."
                return {"notice": problem(why), "heard": clicks, "timer": True}
            trigrams.corpora.keep_pasted(reading.text)  # so that the address goes on to mean it
            # The chosen head first, since somebody is looking at it.
            trigrams.check(choice, reading, session=session)
            if checks_every:
                trigrams.check_every_head(choice, reading, shape, session=session)
        if stops:
            trigrams.checks.stop(session)
        searching = trigrams.searching(choice)
        if searching is not None and searching.state == "failed":
            return {**nothing, "heard": clicks, "progress": problem(searching.error)}
        checking = trigrams.checking(choice, reading) if reading is not None else None
        jobs = [job for job in (searching, checking, trigrams.checks.under_way(session)) if job is not None]
        active = next((job for job in jobs if job.active), None)
        told = active or checking
        answer: dict[str, Any] = {
            "progress": told and said(told, session, "tokens", "The rows could not be checked"),
            "stop": "" if trigrams.checks.awaited(session) else "hidden",
            "timer": active is None,
        }
        shown, table = None, trigrams.table(choice)
        if table is not None:
            checked = trigrams.evidence(choice, reading) is not None
            answer["relative"] = relative([table.relative], "rows") if table.relative else exact(words.EXACT)
            columns = {"checked": checked, "score": choice.score, "folded": choice.fold != "none"}
            shown = {
                "choice": choice.to_dict(),
                "reading": read,
                "rows": len(table),
                "checked": checked,
                "columns": columns,
            }
            if before is None or before["columns"] != columns:
                answer["columns"] = row_columns(**columns)
        return {**answer, "heard": clicks, "shown": shown, "heads": table_rows.heads(trigrams, choice, reading)}


def chosen(data: Any) -> Choice | None:
    """The table that is asked for; None where there is none."""
    if not data:
        return None
    return Choice(**{name: data[name] for name in Choice.__dataclass_fields__})


def reading_of(data: Any) -> Reading | None:
    """The text that is chosen; None while none has been pasted."""
    return Reading(text=str(data["text"]), tokens=int(data["tokens"])) if data and data["text"] else None
