"""Explanations behind the "?" of the Subspace denoising page's panels."""

from __future__ import annotations

from app.shell.panel import about

PANEL = about(
    "Tokens are drawn from K noisy subspaces: each has standard normal coefficients in its own subspace, and noise of "
    "standard deviation δ in the others. Every layer adds η times multi-head subspace self-attention (MSSA), whose "
    "heads are the subspaces themselves: nothing is trained. A cluster’s signal-to-noise ratio (SNR) is the length of "
    "its tokens within its subspace ÷ their length outside. Theorem 3.1 says that every layer multiplies it by 1 + "
    "ητ, for "
    "φ = τ·1{softmax > τ}.",
    formula="Z ← Z + η Σₖ φ(Z Uₖ Uₖᵀ Zᵀ) Z Uₖ Uₖᵀ;  SNR(Zₖ) = ‖Zₖ Uₖ Uₖᵀ‖ ÷ ‖Zₖ (I − Uₖ Uₖᵀ)‖",
    source="aot: Definition 2.1, Equations 3, 4 and 6, Theorem 3.1; tokens as rows.",
)
AUDIT = about(
    "Does a trained layer move its tokens into its heads’ subspaces? For every layer, with Uₖ the orthonormal basis "
    "of that layer’s own folded map (U of MSSA, W_V of MHSA and GPT): the SNR of the stream before attention and "
    "after it. Tokens have no labels, so they are given to heads in three ways: all to every head; each to the head "
    "whose subspace holds most of it; each to the head whose pattern puts most on one key. Token 0 is left out.",
    formula="ratio = SNR(z + attention(z)) ÷ SNR(z), the geometric mean over heads",
    source="aot reads a layer as a step of denoising; the audit and its null are ours (aotlens.denoise.audit).",
)
RATIOS = about(
    "Above 1, the layer makes its heads’ subspaces stand out more; below 1, less. The band is the same had the layer "
    "written otherwise: what it adds to every token is rotated by one random rotation, while the subspaces stay. Any "
    "write pulls the SNR towards its own, so that only a line outside of its band says that the layer’s writes have to "
    "do with its heads’ subspaces or with the stream. Only where the output is tied and φ has a threshold does the "
    "theorem predict a rate.",
    formula="ratio = SNR(z + attention(z)) ÷ SNR(z);  band: SNR(z + attention(z) R) ÷ SNR(z), R a random rotation",
)
PRINCIPAL = about(
    "The same without the weights: the leading directions of a head’s tokens in one half of the windows, measured on "
    "its tokens in the other half. The band turns the layer’s writes here, too."
)
LAYERS = about(
    "SNR before the layer (mean over heads), beside its mean in the heads’ randomly rotated subspaces (angles between "
    "heads stay, tokens are assigned anew): a small p says that heads read where the stream is. Then SNR after ÷ "
    "before, beside rotated writes. Every p is one-sided, (1 + rotations as extreme) ÷ (1 + rotations): its unit is "
    "the rotation, and it says nothing of other texts. The three ways of giving tokens to heads are not independent."
)
