"""Callbacks of the guided path: its six views, and the verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import dcc, html

from aotlens.views.atlas import AtlasParameters
from app.pages.atlas import captions
from app.pages.atlas.ids import GUIDED, ids
from app.pages.atlas.service import Atlases
from app.pages.atlas.service_path import Step, steps
from app.pages.atlas.summary import small_table
from app.shell.app import App
from app.shell.props import stores
from app.shell.sharing import save_files
from app.shell.views import Own, show_views, tables

if TYPE_CHECKING:
    from aotlens.heads import InductionCircuit


def register(app: App, service: Atlases) -> None:
    """Register the path's callbacks."""
    view = GUIDED[ids.VERDICT]

    def chosen(shown: Any) -> AtlasParameters:
        return service.needed(shown).chosen

    def show_steps(chosen: AtlasParameters, circuit: InductionCircuit) -> dict[str, Any]:
        walked = steps(service, service.made_of(chosen), circuit)
        return {"body": html.Ol([_step(step) for step in walked], className="atlas-steps")}

    panels = {ids.PATH: Own(view=view, draw=show_steps), ids.VERDICT: Own(view=view, draw=judge)}
    show_views(app, service.workshop, panels, chosen, shown=ids.SHOWN, keys=ids.WALKED, inputs={})
    save_files(app, tables(service.workshop, GUIDED, chosen), stores(shown=ids.SHOWN))


def judge(chosen: AtlasParameters, circuit: InductionCircuit) -> dict[str, Any]:
    """Return the five claims, and what each head of the model is worth alone."""
    rows = [
        (str(place), check.claim, check.measured,
         html.Span("✓ holds" if check.holds else "✗ fails", className="met" if check.holds else "unmet"))
        for place, check in enumerate(circuit.checks, start=1)
    ]  # fmt: skip
    claims = small_table(("", "claim", "measured", ""), rows)
    each = circuit.each
    alone = [
        (
            captions.name(head),
            captions.signed(change, "+.2f"),
            captions.between(low, high, "+.2f"),
            f"{change / circuit.gain:.0%}" if circuit.gains else "–",
        )
        for head, change, (low, high) in zip(each.heads, each.changes, each.intervals(), strict=True)
    ]
    heading = html.H3("Each head alone, on random tokens that come again", className="atlas-heading")
    table = small_table(("without", "loss, nats", "95%", "of the gain"), alone, numbers=(1, 2, 3))
    return {"body": [html.P(circuit.verdict, className="atlas-verdict"), claims, heading, table]}


def _step(step: Step) -> html.Li:
    return html.Li(
        [
            html.H3(step.title),
            html.P([html.Strong("Look at: "), step.look]),
            html.P(step.means),
            html.P([dcc.Link(text, href=href, className="page-link") for text, href in step.links]),
        ]
    )
