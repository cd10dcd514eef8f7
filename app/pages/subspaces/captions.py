"""Captions of the Subspace denoising page's numbers."""

from __future__ import annotations

from aotlens.views.subspaces import number
from app.pages.subspaces.service_audit import AuditResult


def audited(result: AuditResult | None, checkpoint: str | None = None, *, gone: bool = False) -> str:
    """Say what an audit found, in sentences; or that there is none of this checkpoint yet.

    `gone`: the one that the address names is not kept any more.
    """
    if gone:
        again = "The audit that this address names is not kept any more: press Audit to make it again."
        return again if result is None else f"{again} {audited(result)}"
    if result is None:
        return f"No audit of {checkpoint} is stored. Choose a text, and press Audit."
    audit = result.audit
    known = audit.ratios[~audit.ratios.isnan()]
    rises, falls = int(audit.rises.sum()), int(audit.falls.sum())
    theory = (
        "The theorem is about tied outputs and a threshold, so that it predicts no rate here."
        if audit.predicted_rate is None
        else f"The theorem predicts {audit.predicted_rate:.3g} a layer."
    )
    return (
        f"{result.order.checkpoint} on {result.about}, in the subspaces of {audit.matrix}: SNR after ÷ before a layer "
        f"is {float(known.min()):.2f} to {float(known.max()):.2f}. "
        f"It rises in {int((known > 1).sum())} of {len(known)} "
        f"(grouping, layer) pairs. By more than with the layer’s writes rotated in any of {len(audit.null_snr)} random "
        f"rotations it rises in {rises} and falls in {falls}; chance alone would give at most "
        f"{number(len(known) / (1 + len(audit.null_snr)))} of each. {theory}"
    )
