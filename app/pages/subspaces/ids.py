"""Ids of the Subspace denoising page."""

from __future__ import annotations

from aotlens.views.subspaces import CLOUD, CONDITIONS, MEMBERSHIP, SNR
from app.shell.ids import Ids

ids = Ids(
    "subspaces",
    "page panel clusters rank tokens d_model noise step threshold layers seed phi bases layer captions",
    "cloud picture snr membership head conditions",
    "tab audit checkpoint source text draws ratios principal layers-table",
    "shown",  # store: the mixture that is shown, an address's state; None when none is
    "made",  # store: {checkpoint, corpus, draws}, of the audit that was made last (AuditRequest)
    "audit-keys",  # store: what the audit's panels were of (Together)
    "audited",  # store: the same, of the audit that is shown (Audits.choose)
)

#: Panels that show views of the mixture.
VIEWS = {ids.CLOUD: CLOUD, ids.SNR: SNR, ids.MEMBERSHIP: MEMBERSHIP, ids.CONDITIONS: CONDITIONS}
