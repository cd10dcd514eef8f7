"""What the guided path asks of the server: its six views, and the verdict."""

from __future__ import annotations

from typing import Any

from dash import dcc, html

from app.core.files import File, csv_file
from app.pages.atlas import words
from app.pages.atlas.ids import GUIDED, ids
from app.pages.atlas.service import Atlases
from app.pages.atlas.service_path import CHECKPOINT, Step, guided, steps
from app.pages.atlas.tables import small_table
from app.shell import ids as shell
from app.shell.app import App
from app.shell.callbacks import Answer, guarded
from app.shell.props import stores
from app.shell.sharing import save_files, when_seen


def register(app: App, service: Atlases) -> None:
    """The path's callbacks."""
    when_seen(app, ids.LED, GUIDED)

    @guarded(app, panel=ids.PATH, inputs=stores(led=shell.seen(ids.PATH)), parts=("body",))
    def show_steps(led: Any) -> Answer:
        return led and {"body": html.Ol([_step(step) for step in steps(service)], className="atlas-steps")}

    @guarded(app, panel=ids.VERDICT, inputs=stores(led=shell.seen(ids.VERDICT)), parts=("body",))
    def judge(led: Any) -> Answer:
        if led is None:
            return None
        _, circuit = guided(service)
        rows = [
            (str(place), check.claim, check.measured,
             html.Span("✓ holds" if check.holds else "✗ fails", className="met" if check.holds else "unmet"))
            for place, check in enumerate(circuit.checks, start=1)
        ]  # fmt: skip
        claims = small_table(("", "claim", "measured", ""), rows)
        each = circuit.each
        alone = [
            (
                words.name(head),
                words.signed(change, "+.2f"),
                words.between(low, high, "+.2f"),
                f"{change / circuit.gain:.0%}",
            )
            for head, change, (low, high) in zip(each.heads, each.changes, each.intervals(), strict=True)
        ]
        heading = html.H3("Each head alone, on random tokens that come again", className="atlas-heading")
        table = small_table(("without", "loss, nats", "95%", "of the gain"), alone, numbers=(1, 2, 3))
        return {"body": [html.P(circuit.verdict, className="atlas-verdict"), claims, heading, table]}

    save_files(app, {shell.export(ids.VERDICT, "csv"): lambda led: verdict_csv(service)}, stores(led=ids.LED))


def verdict_csv(service: Atlases) -> File:
    """One row an induction head."""
    return csv_file(f"induction-{CHECKPOINT}.csv", guided(service)[1].to_frame())


def _step(step: Step) -> html.Li:
    return html.Li(
        [
            html.H3(step.title),
            html.P([html.Strong("Look at: "), step.look]),
            html.P(step.means),
            html.P([dcc.Link(text, href=href, className="button-link") for text, href in step.links]),
        ]
    )
