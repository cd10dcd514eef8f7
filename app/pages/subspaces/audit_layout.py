"""The tab of trained models."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import html

from app.core import Core
from app.core.examples import EXAMPLES
from app.pages.subspaces import explanations
from app.pages.subspaces.address import SubspacesState
from app.pages.subspaces.ids import ids
from app.pages.subspaces.service_audit import AuditRequest
from app.shell import ids as shell
from app.shell.background import job_bar
from app.shell.controls import slider
from app.shell.graph import figure
from app.shell.own_texts import own_text, text_choice
from app.shell.panel import panel
from app.shell.prompt import checkpoint_choice


def audit_tab(core: Core, state: SubspacesState) -> html.Div:
    """Lay out what is audited, and what came out."""
    pictures = ("png", "svg", "csv")
    return html.Div(
        [
            panel(
                ids.AUDIT, "Do trained layers denoise?", explanations.AUDIT,
                [
                    _form(core, state),
                    job_bar(ids.AUDIT),
                    html.Div(id=shell.body(ids.AUDIT), className="meaning", role="status"),
                ],
            ),
            panel(
                ids.RATIOS, "In the heads’ subspaces", explanations.RATIOS, figure(ids.RATIOS, "graph-audit"),
                exports=(*pictures, "python"), follows=ids.AUDITED,
            ),
            panel(
                ids.PRINCIPAL, "In principal directions", explanations.PRINCIPAL,
                figure(ids.PRINCIPAL, "graph-audit"), exports=(*pictures, "python"), follows=ids.AUDITED,
            ),
            panel(
                ids.LAYERS_TABLE, "Layer by layer", explanations.LAYERS,
                html.Div(id=shell.body(ids.LAYERS_TABLE), className="conditions-box"), exports=("csv", "python"),
                follows=ids.AUDITED,
            ),
        ],
        className="subspaces-audit",
    )  # fmt: skip


def named_audit(core: Core, state: SubspacesState) -> dict[str, Any] | None:
    """Return the order of the audit that an address names; None for the stored one."""
    if state.corpus is None or state.draws is None:
        return None
    checkpoint = state.checkpoint or core.catalog.default()
    return AuditRequest(checkpoint=checkpoint, corpus=state.corpus, draws=state.draws).to_dict()


def _form(core: Core, state: SubspacesState) -> html.Div:
    checkpoint = state.checkpoint or core.catalog.default()
    text = core.corpora.chosen(state.corpus, core.catalog.info(checkpoint))
    return html.Div(
        [
            html.Div(
                [
                    checkpoint_choice(ids.CHECKPOINT, core.catalog, checkpoint, reads_text=True),
                    text_choice(ids.SOURCE, core.corpora, text, w=210, size="sm"),
                    slider(ids.DRAWS, "Random rotations", state.draws or 20, 5, 100, 5),
                    dmc.Button("Audit", id=shell.start(ids.AUDIT), n_clicks=0),
                ],
                className="audit-form",
            ),
            own_text(ids.SOURCE, ids.TEXT, core.settings, value="\n".join(EXAMPLES.values())),
        ]
    )  # fmt: skip
