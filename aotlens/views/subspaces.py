"""Subspace denoising as views: tokens drawn from noisy subspaces, layer by layer; and the audit of a trained model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from aotlens.views import parameters as declare
from aotlens.views.calls import Call, Load, Node, call, make
from aotlens.views.family import Family, reads_tokens
from aotlens.views.kinds import Reading
from aotlens.views.parameters import Limit, OfNone
from aotlens.views.view import View

if TYPE_CHECKING:
    from aotlens.checkpoints import CheckpointInfo
    from aotlens.denoise import AuditRecord, DenoisingAudit, Unrolling

PHIS = {"thresholded_softmax": "thresholded softmax", "softmax": "softmax"}
BASES = {"orthogonal": "orthogonal", "random": "random"}
PICTURES = {"lengths": "lengths", "directions": "directions", "angles": "angles"}
MOST_CLUSTERS, MOST_LAYERS = 6, 24
NO_MODEL = "No model of text with queries and keys is here to be audited: train or import one (aotlens --help)."


@dataclass(frozen=True, kw_only=True)
class SubspacesParameters(OfNone):
    """A mixture, how it is denoised, and which layer and subspace are looked at; a trained model, and the text of its
    audit.

    The defaults are those at which theory and computation part in the middle.
    """

    checkpoint: str = ""
    """The model that is audited; empty if there is none."""
    info: CheckpointInfo | None = None
    """Its card."""
    clusters: int = declare.whole(3, least=2, most=MOST_CLUSTERS, label="Clusters K")
    rank: int = declare.whole(24, least=1, most=128, label="Rank p of a subspace")
    tokens: int = declare.whole(24, least=1, most=100, label="Tokens of a cluster")
    d_model: int = declare.whole(72, least=2, most=512, label="d_model")
    noise: float = declare.real(0.1, 0.0, 1.0, step=0.01, label="Noise δ")
    step: float = declare.real(0.5, 0.05, 2.0, step=0.05, label="Step size η")
    threshold: float = declare.real(0.6, 0.01, 0.99, step=0.01, label="Threshold τ")
    layers: int = declare.whole(10, least=1, most=MOST_LAYERS, label="Layers")
    seed: int = declare.whole(0, most=99, label="Seed")
    phi: str = declare.choice(PHIS, label="φ")
    bases: str = declare.choice(BASES, label="Subspaces")
    picture: str = declare.choice(PICTURES, label="Picture of the tokens")
    head: int = declare.whole(1, least=1, most=MOST_CLUSTERS, label="Subspace")
    layer: int = declare.whole(0, most=MOST_LAYERS, label="Layer")
    corpus: Reading | None = declare.corpus("Text of the audit", blank="the stored audit")
    draws: int = declare.whole(20, least=5, most=100, label="Random rotations")

    @classmethod
    def of_infos(cls, *infos: CheckpointInfo, **values: Any) -> Self:
        return cls(checkpoint=infos[0].name, info=infos[0], **values) if infos else cls(**values)

    def limits(self) -> Mapping[str, Limit]:
        return {
            "head": Limit(most=self.clusters), "layer": Limit(most=self.layers),
            "threshold": Limit(hidden=self.phi == "softmax"),
        }  # fmt: skip

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

    @property
    def record(self) -> AuditRecord | None:
        """The stored audit of the model; None if there is none."""
        from aotlens.results import find_stored

        return None if self.info is None else find_stored("audit", self.info)

    @property
    def audit(self) -> Node:
        """The audit of the model: the stored one, or that of the text."""
        if self.corpus is None:
            return make("aotlens.denoise.stored_audit", self.checkpoint).part("audit")
        tokens = call("aotlens.denoise.audit_tokens", Load(self.checkpoint), self.corpus.text.named("text"))
        return call("aotlens.denoise.audit", Load(self.checkpoint), tokens, n_draws=self.draws)

    def file(self, what: str) -> str:
        """Name a file of `what`."""
        return (
            f"subspaces-K{self.clusters}-p{self.rank}-n{self.tokens}-d{self.d_model}-noise{self.noise:g}-"
            f"step{self.step:g}-{self.phi}-seed{self.seed}-{what}"
        )


def no_mixture(params: SubspacesParameters) -> str | None:
    """Return the reason why there is none of these sizes."""
    needed = params.clusters * params.rank
    if params.bases != "orthogonal" or needed <= params.d_model:
        return None
    return (
        f"{params.clusters} orthogonal subspaces of rank {params.rank} need d_model of at least {needed}, and it is "
        f"{params.d_model}. Take a larger d_model, a smaller rank, fewer clusters, or random subspaces, which need not "
        "be orthogonal."
    )


def _of_snr(params: SubspacesParameters, unrolling: Unrolling) -> str:
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
        rows = CONDITIONS.call(params).run().rows
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


def _memberships(params: SubspacesParameters) -> Call:
    return make("aotlens.denoise.memberships_at", params.unrolling, params.head, params.layer)


SNR = View(
    name="snr",
    title="SNR by layer",
    about="A line a cluster. Dashed: the theorem’s rate from the mean SNR of the tokens as drawn. Shaded: the layers "
    "in which the ratio of every cluster is 1 + ητ to a relative 1e-9. The theorem’s induction over layers does not "
    "bound the scores between clusters, which grow as (1 + ητ)ˡ: once they pass the threshold, tokens take in tokens "
    "of other clusters, and the SNR falls.",
    formula="SNR(l + 1) = (1 + ητ) SNR(l)",
    source="aot, Theorem 3.1 and Figure 4 (whose sizes and φ the paper does not give).",
    call=lambda params: params.unrolling,
    caption=_of_snr,
    file=lambda params: params.file("snr"),
    missing=no_mixture,
    drawn=lambda params: {"layer": params.layer},
)
MIXTURE = View(
    name="mixture",
    title="Synthetic tokens",
    about="Tokens are drawn from K noisy subspaces: each has standard normal coefficients in its own subspace, and "
    "noise of standard deviation δ in the others. Every layer adds η times multi-head subspace self-attention (MSSA), "
    "whose heads are the subspaces themselves: nothing is trained. A cluster’s signal-to-noise ratio (SNR) is the "
    "length of its tokens within its subspace ÷ their length outside. Theorem 3.1 says that every layer multiplies it "
    "by 1 + ητ, for φ = τ·1{softmax > τ}.",
    formula="Z ← Z + η Σₖ φ(Z Uₖ Uₖᵀ Zᵀ) Z Uₖ Uₖᵀ;  SNR(Zₖ) = ‖Zₖ Uₖ Uₖᵀ‖ ÷ ‖Zₖ (I − Uₖ Uₖᵀ)‖",
    source="aot: Definition 2.1, Equations 3, 4 and 6, Theorem 3.1; tokens as rows.",
    call=lambda params: params.unrolling,
    caption=_of_snr,
    file=lambda params: params.file("snr"),
    missing=no_mixture,
    pictured=False,
)
CLOUD = View(
    name="tokens",
    title="Tokens",
    about="Each point is a token at the layer, its colour its cluster. Lengths: how long the token is within the first "
    "subspaces; a denoised one is long in its own only. Directions: its coordinate along the first basis vector of "
    "each of these subspaces. Angles: between the token’s line and its own subspace, and the nearest other one; 0° and "
    "90° without noise. Lengths and directions are divided by the layer’s root mean square token length, since tokens "
    "grow from layer to layer. Drag to turn the picture.",
    formula="length ‖Uₖᵀ z‖;  angle arccos(‖Uₖᵀ z‖ ÷ ‖z‖)",
    call=lambda params: make("aotlens.denoise.token_points", params.unrolling, params.picture),
    file=lambda params: params.file(params.picture),
    missing=no_mixture,
    drawn=lambda params: {"layer": params.layer},
)
MEMBERSHIP = View(
    name="memberships",
    title="Memberships φ",
    about="How much of each token (key, across) a token (query, down) takes in within one subspace, in the order of "
    "their clusters; of more than 96 tokens, as many of each cluster. Where the theorem holds, the tokens of that "
    "subspace’s cluster attend to themselves with τ, and all else is 0.",
    formula="φ(Z Uₖ Uₖᵀ Zᵀ), row by row",
    source="aot, Equation 4: “a distribution of membership”.",
    call=_memberships,
    file=lambda params: params.file(f"memberships-{params.head}-layer-{params.layer}"),
    missing=no_mixture,
)
CONDITIONS = View(
    name="conditions",
    title="Conditions of the theorem",
    about="The explicit constants of the theorem’s proof; N is the number of all tokens, logarithms are natural. No "
    "sizes that can be drawn here meet them all (p ≥ 698 is the least for N = 200). The rate can be exact far outside "
    "of them.",
    source="aot, Equations 7, 11 and 29, Lemmas B.2 and B.3.",
    call=lambda params: make(
        "aotlens.denoise.conditions", *params.sizes, noise=params.noise, threshold=params.threshold
    ),
    file=lambda params: params.file("conditions"),
    pictured=False,
)

# ── trained models ──────────────────────────────────────────────────────────────────────────────────────────────


def _no_audit(params: SubspacesParameters) -> str | None:
    if not params.checkpoint:
        return NO_MODEL
    if params.corpus is None and params.record is None:
        return f"No audit of {params.checkpoint} is stored. Choose a text, and press Run."
    return None


def _of_audit(params: SubspacesParameters, audit: DenoisingAudit) -> str:
    known = audit.ratios[~audit.ratios.isnan()]
    rises, falls = int(audit.rises.sum()), int(audit.falls.sum())
    theory = (
        "The theorem is about tied outputs and a threshold, so that it predicts no rate here."
        if audit.predicted_rate is None
        else f"The theorem predicts {audit.predicted_rate:.3g} a layer."
    )
    return (
        f"{params.checkpoint} on {_text_of(params)}: {audit.n_tokens:,} tokens{'' if params.corpus else ' (stored)'}, "
        f"in the subspaces of {audit.matrix}: SNR after ÷ before a layer is {float(known.min()):.2f} to "
        f"{float(known.max()):.2f}. It rises in {int((known > 1).sum())} of {len(known)} (grouping, layer) pairs. By "
        f"more than with the layer’s writes rotated in any of {len(audit.null_snr)} random rotations it rises in "
        f"{rises} and falls in {falls}; chance alone would give at most "
        f"{number(len(known) / (1 + len(audit.null_snr)))} of each. {theory}"
    )


def _text_of(params: SubspacesParameters) -> str:
    if params.corpus is not None:
        return params.corpus.about
    record = params.record
    assert record is not None
    documents = f"{len(record.documents)} held-out documents of " if record.documents else ""
    return f"{documents}{record.corpus}"


def _of_principal(params: SubspacesParameters, audit: DenoisingAudit) -> str:
    known = audit.pca_ratios[~audit.pca_ratios.isnan()]
    return (
        f"SNR after ÷ before a layer is {float(known.min()):.2f} to {float(known.max()):.2f}; it rises in "
        f"{int((known > 1).sum())} of {len(known)} (grouping, layer) pairs."
    )


def _of_layers(params: SubspacesParameters, audit: DenoisingAudit) -> str:
    frame = audit.to_frame()
    low = int((frame.p_snr <= 0.05).sum())
    return (
        f"Heads read where the stream is (p of the SNR at most 0.05) in {low} of {len(frame)} (grouping, layer) pairs."
    )


def _audited(name: str, title: str, **rest: Any) -> View:
    """A view of the audit, which the view of its ratios starts if it is not stored."""
    usual: dict[str, Any] = {
        "call": lambda params: params.audit,
        "file": lambda params: f"{params.checkpoint}-audit-subspaces",
        "missing": _no_audit,
        "slow": "layers",
        "cost": lambda params: float(params.corpus is None),
        "made_by": "audit",
    }
    return View(name=name, title=title, **{**usual, **rest})


AUDIT = _audited(
    "audit",
    "Do trained layers denoise?",
    about="Does a trained layer move its tokens into its heads’ subspaces? For every layer, with Uₖ the orthonormal "
    "basis of that layer’s own folded map (U of MSSA, W_V of MHSA and GPT): the SNR of the stream after attention ÷ "
    "before it. Tokens have no labels, so they are given to heads in three ways: all to every head; each to the head "
    "whose subspace holds most of it; each to the head whose pattern puts most on one key. Token 0 is left out. Above "
    "1, the layer makes its heads’ subspaces stand out more; below 1, less. The band is the same had the layer written "
    "otherwise: what it adds to every token is rotated by one random rotation, while the subspaces stay. Any write "
    "pulls the SNR towards its own, so that only a line outside of its band says that the layer’s writes have to do "
    "with its heads’ subspaces or with the stream. Only where the output is tied and φ has a threshold does the "
    "theorem predict a rate.",
    formula="ratio = SNR(z + attention(z)) ÷ SNR(z), the geometric mean over heads;  band: SNR(z + attention(z) R) ÷ "
    "SNR(z), R a random rotation",
    source="aot reads a layer as a step of denoising; the audit and its null are ours (aotlens.denoise.audit).",
    caption=_of_audit,
    made_by="",
)
PRINCIPAL = _audited(
    "principal",
    "In principal directions",
    about="The same without the weights: the leading directions of a head’s tokens in one half of the windows, "
    "measured on its tokens in the other half. The band turns the layer’s writes here, too.",
    caption=_of_principal,
    file=lambda params: f"{params.checkpoint}-audit-principal",
    drawn=lambda params: {"principal": True},
    table="pca_frame",
)
LAYERS = _audited(
    "layers",
    "Layer by layer",
    about="SNR before the layer (mean over heads), and its mean in the heads’ randomly rotated subspaces (angles "
    "between heads stay, tokens are assigned anew): a small p says that heads read where the stream is. Then SNR after "
    "÷ before, and that of rotated writes. Every p is one-sided, (1 + rotations as extreme) ÷ (1 + rotations): its "
    "unit is the rotation, and it says nothing of other texts. The three ways of giving tokens to heads are not "
    "independent.",
    caption=_of_layers,
    pictured=False,
)

FAMILY = Family(
    "subspaces",
    "Does multi-head subspace self-attention denoise tokens of noisy subspaces at the theorem's rate, and do the "
    "layers of a trained model?",
    (SNR, CLOUD, MEMBERSHIP, CONDITIONS, MIXTURE, AUDIT, PRINCIPAL, LAYERS),
    SubspacesParameters,
    reads=lambda info: reads_tokens(info) and info.model.get("phi") != "fixed",
    optional=True,
    none=NO_MODEL,
)
