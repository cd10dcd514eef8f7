"""What the Subspace denoising page says of its numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from app.pages.subspaces.address import SubspacesState
from app.pages.subspaces.service_audit import Audited

if TYPE_CHECKING:
    from aotlens.denoise import Conditions, Unrolling

PHIS = {"thresholded_softmax": "thresholded softmax", "softmax": "softmax"}
BASES = {"orthogonal": "orthogonal", "random": "random"}
PICTURES = {"lengths": "lengths", "directions": "directions", "angles": "angles"}


def meaning(unrolling: Unrolling, conditions: Conditions) -> list[str]:
    """The answer in sentences: how the SNR goes, and what the theorem says."""
    mean = unrolling.snr.mean(1)
    last, best = len(mean) - 1, int(mean.argmax())
    course = f"SNR (mean over clusters): {number(float(mean[0]))} as drawn"
    if 0 < best < last:
        course += f", {number(float(mean[best]))} after layer {best}, its highest"
    said = [f"{course}, {number(float(mean[last]))} after layer {last}."]
    if math.isnan(unrolling.rate):
        said.append("The theorem is of the thresholded softmax and predicts no rate for the plain one.")
    else:
        exact = unrolling.exact_layers
        rate = f"The theorem’s 1 + ητ = {number(unrolling.rate)} a layer"
        if exact == last:
            said.append(f"{rate} holds exactly in all {last} layers.")
        elif exact:
            said.append(f"{rate} holds exactly for the first {exact} of {last} layers, then breaks.")
        else:
            said.append(f"{rate} does not hold exactly, from the first layer on.")
        met = sum(row.met for row in conditions.rows)
        said.append(f"{met} of its {len(conditions.rows)} explicit conditions are met.")
    if unrolling.overflowed:
        said.append(f"After layer {last} numbers leave float64’s range, so the layers end there.")
    coherence = unrolling.mixture.coherence
    if coherence:
        said.append(
            f"The subspaces are not orthogonal: the smallest angle between two has a cosine of {coherence:.2f}, and "
            "the theorem assumes 0."
        )
    return [" ".join(said)]


def captions(unrolling: Unrolling) -> list[str]:
    """A sentence for each layer."""
    mean, ratios = unrolling.snr.mean(1).tolist(), unrolling.ratios
    labels = unrolling.mixture.labels
    own = unrolling.angles.gather(2, labels[None, :, None].expand(len(mean), -1, 1)).mean((1, 2)).tolist()
    said = []
    for layer, (snr, angle) in enumerate(zip(mean, own, strict=True)):
        text = f"Layer {layer}: mean SNR {number(snr)}"
        if layer:
            least, most = float(ratios[layer - 1].min()), float(ratios[layer - 1].max())
            text += f", × {least:.3f}" if most - least < 5e-4 else f", × {least:.3f} to {most:.3f} by cluster"
        said.append(f"{text}; tokens are {angle:.1f}° from their own subspace on average.")
    said[0] = said[0].replace("Layer 0:", "Layer 0, the tokens as drawn:")
    return said


def name(state: SubspacesState) -> str:
    """What a file of these parameters is called."""
    return (
        f"subspaces-K{state.clusters}-p{state.rank}-n{state.tokens}-d{state.d_model}-noise{state.noise:g}-"
        f"step{state.step:g}-{state.phi}-seed{state.seed}"
    )


def number(value: float) -> str:
    """Three digits."""
    return f"{value:.3g}" if math.isfinite(value) else "∞" if value > 0 else "undefined"


def audited(found: Audited | None, checkpoint: str | None = None, *, gone: bool = False) -> str:
    """What an audit found, in sentences; or that there is none of this checkpoint yet.

    `gone`: the one that the address names is not kept any more.
    """
    if gone:
        again = "The audit that this address names is not kept any more: press Audit to make it again."
        return again if found is None else f"{again} {audited(found)}"
    if found is None:
        return f"No audit of {checkpoint} is stored. Choose a text, and press Audit."
    audit = found.audit
    known = audit.ratios[~audit.ratios.isnan()]
    rises, falls = int(audit.rises.sum()), int(audit.falls.sum())
    theory = (
        "The theorem is about tied outputs and a threshold, so that it predicts no rate here."
        if audit.predicted_rate is None
        else f"The theorem predicts {audit.predicted_rate:.3g} a layer."
    )
    return (
        f"{found.order.checkpoint} on {found.about}, in the subspaces of {audit.matrix}: SNR after ÷ before a layer is "
        f"{float(known.min()):.2f} to {float(known.max()):.2f}. It rises in {int((known > 1).sum())} of {len(known)} "
        f"(grouping, layer) pairs. By more than with the layer’s writes turned in any of {len(audit.null_snr)} random "
        f"rotations it rises in {rises} and falls in {falls}; chance alone would give at most "
        f"{number(len(known) / (1 + len(audit.null_snr)))} of each. {theory}"
    )
