"""Python for the views of the tab of trained models."""

from __future__ import annotations

from app.core import Core
from app.core.own_texts import is_key
from app.pages.subspaces.address import SubspacesState
from app.pages.subspaces.ids import ids
from app.pages.subspaces.service_audit import OWN_TOKENS, TOKENS
from app.shell.python import loading, reading


def audit_python(core: Core, state: SubspacesState, panel: str) -> list[str]:
    """Write the lines that give a panel's numbers."""
    return [*_audit(core, state), f"result = audit.{'pca_frame' if panel == ids.PRINCIPAL else 'to_frame'}()"]


def _audit(core: Core, state: SubspacesState) -> list[str]:
    """The audit that an address names, as `audit`."""
    name = state.checkpoint or core.catalog.default()
    if state.corpus is None or state.draws is None:
        return ["import aotlens", "", f"audit = aotlens.denoise.stored_audit({name!r}).audit"]
    tokens = f"aotlens.distill.held_out_windows(model, text, {TOKENS})"
    if is_key(state.corpus):
        tokens = f"model.to_tokens(next(text.documents()).text)[:, :{OWN_TOKENS}]"
    return [
        *loading(name),
        *reading(core, name, state.corpus)[:1],
        f"audit = aotlens.denoise.audit(model, {tokens}, n_draws={state.draws})",
    ]
