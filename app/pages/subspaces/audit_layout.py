"""The tab of trained models."""

from __future__ import annotations

import dash_mantine_components as dmc
from dash import html

from app.core import Core
from app.core.corpora import PASTED
from app.core.examples import EXAMPLES
from app.pages.subspaces import explanations
from app.pages.subspaces.address import SubspacesState
from app.pages.subspaces.ids import ids
from app.shell import ids as shell
from app.shell.background import job_bar
from app.shell.controls import slider
from app.shell.graph import figure
from app.shell.panel import panel
from app.shell.prompt import checkpoint_choice


def audit_tab(core: Core, state: SubspacesState) -> html.Div:
    """What is audited, and what came out."""
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
                exports=pictures, follows=ids.AUDITED,
            ),
            panel(
                ids.PRINCIPAL, "In principal directions", explanations.PRINCIPAL,
                figure(ids.PRINCIPAL, "graph-audit"), exports=pictures, follows=ids.AUDITED,
            ),
            panel(
                ids.LAYERS_TABLE, "Layer by layer", explanations.LAYERS,
                html.Div(id=shell.body(ids.LAYERS_TABLE), className="conditions-box"), exports=("csv",),
                follows=ids.AUDITED,
            ),
        ],
        className="subspaces-audit",
    )  # fmt: skip


def _form(core: Core, state: SubspacesState) -> html.Div:
    names = [*core.corpora.names, PASTED]
    checkpoint = state.checkpoint or core.catalog.default()
    return html.Div(
        [
            checkpoint_choice(ids.CHECKPOINT, core.catalog, checkpoint, reads_text=True),
            dmc.Select(
                id=ids.SOURCE, label="Text", data=names, value=names[0], allowDeselect=False, w=210, size="sm"
            ),
            dmc.Textarea(
                id=ids.TEXT, label=f"The {PASTED}", value="\n".join(EXAMPLES.values()), autosize=True, minRows=1,
                maxRows=3, spellCheck=False, className="audit-text", debounce=400, size="sm",
            ),
            slider(ids.DRAWS, "Random rotations", 20, 5, 100, 5),
            dmc.Button("Audit", id=shell.start(ids.AUDIT), n_clicks=0),
        ],
        className="audit-form",
    )  # fmt: skip
