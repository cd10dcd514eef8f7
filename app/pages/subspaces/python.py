"""Python for the Subspace denoising page's views."""

from __future__ import annotations

from app.core import Core
from app.core.own_texts import is_key
from app.pages.subspaces.address import SubspacesState
from app.pages.subspaces.ids import ids
from app.pages.subspaces.service import Subspaces, head_of
from app.pages.subspaces.service_audit import OWN_TOKENS, TOKENS
from app.shell.page import python_of
from app.shell.python import loading, reading


@python_of(ids.CLOUD, ids.SNR, ids.MEMBERSHIP, ids.CONDITIONS, ids.RATIOS, ids.PRINCIPAL, ids.LAYERS_TABLE)
def python(core: Core, service: Subspaces, state: SubspacesState, panel: str) -> list[str]:
    """The lines that give a panel's numbers, at all layers."""
    if panel in (ids.RATIOS, ids.PRINCIPAL, ids.LAYERS_TABLE):
        result = f"result = audit.{'pca_frame' if panel == ids.PRINCIPAL else 'to_frame'}()"
        return [*_audit(core, state), result]
    sizes = f"{state.clusters}, {state.rank}, {state.tokens}, {state.d_model}"
    if panel == ids.CONDITIONS:
        numbers = f"{sizes}, noise={state.noise}, threshold={state.threshold}"
        return ["from aotlens.denoise import conditions", "", f"result = conditions({numbers}).to_frame()"]
    threshold = state.threshold if state.phi == "thresholded_softmax" else None
    numbers = {
        ids.CLOUD: {
            "lengths": "unrolling.lengths  # [layer, token, subspace]",
            "directions": "unrolling.tokens @ mixture.bases[:, :, 0].T  # [layer, token, subspace]",
            "angles": "unrolling.angles  # [layer, token, subspace], degrees",
        }[state.picture],
        ids.SNR: "unrolling.snr",
        ids.MEMBERSHIP: f"unrolling.memberships({head_of(state) - 1})  # [layer, query, key]",
    }
    return [
        "from aotlens.denoise import sample_mixture, unroll_mixture",
        "",
        f"mixture = sample_mixture({sizes}, {state.noise}, {state.seed}, orthogonal={state.bases == 'orthogonal'})",
        f"unrolling = unroll_mixture(mixture, {state.step}, {state.phi!r}, {threshold}, {state.layers})",
        f"result = {numbers[panel]}",
    ]


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
