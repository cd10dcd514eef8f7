"""Subspace denoising as views: tokens drawn from noisy subspaces, layer by layer, beside what the theorem says."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aotlens.views.calls import Call, call, make
from aotlens.views.family import Choice, Family
from aotlens.views.view import About, Parameter, View

if TYPE_CHECKING:
    from aotlens.denoise import Conditions, Memberships, TokenPoints, Unrolling

PHIS = {"thresholded_softmax": "thresholded softmax", "softmax": "softmax"}
BASES = {"orthogonal": "orthogonal", "random": "random"}
PICTURES = {"lengths": "lengths", "directions": "directions", "angles": "angles"}
MOST_CLUSTERS, MOST_LAYERS = 6, 24

#: The parameters of a mixture and its denoising. The first values are those at which theory and computation part in the
#: middle.
PARAMETERS = {
    "clusters": Parameter("Clusters K", 3, least=2, most=MOST_CLUSTERS),
    "rank": Parameter("Rank p of a subspace", 24, least=1, most=128),
    "tokens": Parameter("Tokens of a cluster", 24, least=1, most=100),
    "d_model": Parameter("d_model", 72, least=2, most=512),
    "noise": Parameter("Noise δ", 0.1, least=0.0, most=1.0, step=0.01),
    "step": Parameter("Step size η", 0.5, least=0.05, most=2.0, step=0.05),
    "threshold": Parameter("Threshold τ", 0.6, least=0.01, most=0.99, step=0.01),
    "layers": Parameter("Layers", 10, least=1, most=MOST_LAYERS),
    "seed": Parameter("Seed", 0, least=0, most=99),
}


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """A mixture, how it is denoised, and what of it is looked at."""

    clusters: int
    rank: int
    tokens: int
    d_model: int
    noise: float | int
    step: float | int
    threshold: float | int
    layers: int
    seed: int
    phi: str = "thresholded_softmax"
    bases: str = "orthogonal"
    picture: str = "lengths"
    head: int = 1
    """The subspace whose memberships are shown, from 1 on; the last one where there are fewer."""
    layer: int = 0

    @property
    def subspace(self) -> int:
        """`head`, or the last there is."""
        return min(self.head, self.clusters)

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Clusters, their rank, tokens of each, and d_model."""
        return self.clusters, self.rank, self.tokens, self.d_model

    @property
    def unrolling(self) -> Call:
        """The mixture layer by layer."""
        orthogonal = self.bases == "orthogonal"
        drawn = make("aotlens.denoise.sample_mixture", *self.sizes, self.noise, self.seed, orthogonal=orthogonal)
        threshold = self.threshold if self.phi == "thresholded_softmax" else None
        mixture = drawn.named("mixture")
        return call("aotlens.denoise.unroll_mixture", mixture, self.step, self.phi, threshold, self.layers).named(
            "unrolling"
        )

    def file(self, what: str) -> str:
        """Name a file of `what`."""
        return (
            f"subspaces-K{self.clusters}-p{self.rank}-n{self.tokens}-d{self.d_model}-noise{self.noise:g}-"
            f"step{self.step:g}-{self.phi}-seed{self.seed}-{what}"
        )


def no_mixture(chosen: Chosen) -> str | None:
    """Return the reason why there is none of these sizes."""
    needed = chosen.clusters * chosen.rank
    if chosen.bases != "orthogonal" or needed <= chosen.d_model:
        return None
    return (
        f"{chosen.clusters} orthogonal subspaces of rank {chosen.rank} need d_model of at least {needed}, and it is "
        f"{chosen.d_model}. Take a larger d_model, a smaller rank, fewer clusters, or random subspaces, which need not "
        "be orthogonal."
    )


def _of_snr(chosen: Chosen, unrolling: Unrolling) -> str:
    mean = unrolling.snr.mean(1)
    last, best = len(mean) - 1, int(mean.argmax())
    course = f"SNR (mean over clusters): {number(float(mean[0]))} as drawn"
    if 0 < best < last:
        course += f", {number(float(mean[best]))} after layer {best}, its highest"
    sentences = [f"{course}, {number(float(mean[last]))} after layer {last}."]
    if math.isnan(unrolling.rate):
        sentences.append("The theorem is of the thresholded softmax and predicts no rate for the plain one.")
    else:
        exact = unrolling.exact_layers
        rate = f"The theorem’s 1 + ητ = {number(unrolling.rate)} a layer"
        if exact == last:
            sentences.append(f"{rate} holds exactly in all {last} layers.")
        elif exact:
            sentences.append(f"{rate} holds exactly for the first {exact} of {last} layers, then breaks.")
        else:
            sentences.append(f"{rate} does not hold exactly, from the first layer on.")
        rows = CONDITIONS.call(chosen).run().rows
        sentences.append(f"{sum(row.met for row in rows)} of its {len(rows)} explicit conditions are met.")
    if unrolling.overflowed:
        sentences.append(f"After layer {last} numbers leave float64’s range, so the layers end there.")
    coherence = unrolling.mixture.coherence
    if coherence:
        sentences.append(
            f"The subspaces are not orthogonal: the smallest angle between two has a cosine of {coherence:.2f}, and "
            "the theorem assumes 0."
        )
    return " ".join(sentences)


def by_layer(unrolling: Unrolling) -> list[str]:
    """Write a sentence for each layer."""
    mean, ratios = unrolling.snr.mean(1).tolist(), unrolling.ratios
    labels = unrolling.mixture.labels
    own = unrolling.angles.gather(2, labels[None, :, None].expand(len(mean), -1, 1)).mean((1, 2)).tolist()
    sentences = []
    for layer, (snr, angle) in enumerate(zip(mean, own, strict=True)):
        text = f"Layer {layer}: mean SNR {number(snr)}"
        if layer:
            least, most = float(ratios[layer - 1].min()), float(ratios[layer - 1].max())
            text += f", × {least:.3f}" if most - least < 5e-4 else f", × {least:.3f} to {most:.3f} by cluster"
        sentences.append(f"{text}; tokens are {angle:.1f}° from their own subspace on average.")
    sentences[0] = sentences[0].replace("Layer 0:", "Layer 0, the tokens as drawn:")
    return sentences


def number(value: float) -> str:
    """Write a number with three digits."""
    return f"{value:.3g}" if math.isfinite(value) else "∞" if value > 0 else "undefined"


def _of_points(chosen: Chosen, points: TokenPoints) -> str:
    return f"{points.headline[0].upper()}{points.headline[1:]}."


def _of_memberships(chosen: Chosen, result: Memberships) -> str:
    return f"Memberships {result.headline}."


def _of_conditions(chosen: Chosen, result: Conditions) -> str:
    return f"{sum(row.met for row in result.rows)} of {len(result.rows)} explicit conditions are met."


def _memberships(chosen: Chosen) -> Call:
    return make("aotlens.denoise.memberships_at", chosen.unrolling, chosen.subspace, chosen.layer)


SNR = View(
    name="snr",
    title="SNR by layer",
    about=About(
        text="A line a cluster. Dashed: the theorem’s rate from the mean SNR of the tokens as drawn. Shaded: the "
        "layers in which the ratio of every cluster is 1 + ητ to a relative 1e-9. The theorem’s induction over "
        "layers does not bound the scores between clusters, which grow as (1 + ητ)ˡ: once they pass the "
        "threshold, tokens take in tokens of other clusters, and the SNR falls.",
        formula="SNR(l + 1) = (1 + ητ) SNR(l)",
        source="aot, Theorem 3.1 and Figure 4 (whose sizes and φ the paper does not give).",
    ),
    call=lambda chosen: chosen.unrolling,
    caption=_of_snr,
    file=lambda chosen: chosen.file("snr"),
    missing=no_mixture,
    drawn=lambda chosen: {"layer": chosen.layer},
)
CLOUD = View(
    name="tokens",
    title="Tokens",
    about=About(
        text="Each point is a token at the chosen layer, its colour its cluster. Lengths: how long the token is within"
        " the first subspaces; a denoised one is long in its own only. Directions: its coordinate along the first"
        " basis vector of each of these subspaces. Angles: between the token’s line and its own subspace, and the"
        " nearest other one; 0° and 90° without noise. Lengths and directions are divided by the layer’s root "
        "mean square token length, since tokens grow from layer to layer. Drag to turn the picture.",
        formula="length ‖Uₖᵀ z‖;  angle arccos(‖Uₖᵀ z‖ ÷ ‖z‖)",
    ),
    call=lambda chosen: make("aotlens.denoise.token_points", chosen.unrolling, chosen.picture),
    caption=_of_points,
    file=lambda chosen: chosen.file(chosen.picture),
    missing=no_mixture,
    drawn=lambda chosen: {"layer": chosen.layer},
)
MEMBERSHIP = View(
    name="memberships",
    title="Memberships φ",
    about=About(
        text="How much of each token (key, across) a token (query, down) takes in within one subspace, in the order of"
        " their clusters; of more than 96 tokens, as many of each cluster. Where the theorem holds, the tokens of"
        " that subspace’s cluster attend to themselves with τ, and all else is 0.",
        formula="φ(Z Uₖ Uₖᵀ Zᵀ), row by row",
        source="aot, Equation 4: “a distribution of membership”.",
    ),
    call=_memberships,
    caption=_of_memberships,
    file=lambda chosen: chosen.file(f"memberships-{chosen.subspace}-layer-{chosen.layer}"),
    missing=no_mixture,
)
CONDITIONS = View(
    name="conditions",
    title="Conditions of the theorem",
    about=About(
        text="The explicit constants of the theorem’s proof; N is the number of all tokens, logarithms are natural. No"
        " sizes that can be drawn here meet them all (p ≥ 698 is the least for N = 200). The rate can be exact "
        "far outside of them.",
        source="aot, Equations 7, 11 and 29, Lemmas B.2 and B.3.",
    ),
    call=lambda chosen: make(
        "aotlens.denoise.conditions", *chosen.sizes, noise=chosen.noise, threshold=chosen.threshold
    ),
    caption=_of_conditions,
    file=lambda chosen: chosen.file("conditions"),
    pictured=False,
)

FAMILY = Family(
    name="subspaces",
    about="Does multi-head subspace self-attention denoise tokens of noisy subspaces at the theorem's rate?",
    views=(SNR, CLOUD, MEMBERSHIP, CONDITIONS),
    values=lambda **chosen: Chosen(**{**chosen, "layer": min(chosen["layer"], chosen["layers"])}),
    parameters={
        **PARAMETERS,
        "phi": Choice("φ", PHIS),
        "bases": Choice("Subspaces", BASES),
        "picture": Choice("Picture of the tokens", PICTURES),
        "head": Parameter("Subspace of the memberships", 1, least=1, most=MOST_CLUSTERS),
        "layer": Parameter("Layer", 0, least=0, most=MOST_LAYERS),
    },
)
