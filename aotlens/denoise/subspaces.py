"""Tokens on a union of noisy subspaces, and how far attention pulls each towards its own (*aot* §2 and §3).

Definition 2.1, with tokens as rows: a token of cluster k is

    z_i = a_i U_kᵀ + Σ_{j≠k} e_ij U_jᵀ,      a_i ~ N(0, I),  e_ij ~ N(0, δ² I),

with U_k `[d_model, rank]` the orthonormal basis of the k-th subspace. The first term is signal, the rest noise.

**Groups.** The SNR (*aot*, Eq. 6) of groups of tokens is taken in the subspaces of heads, and in principal directions
fitted on other tokens. Streams are rows in a frame of `width` dimensions, `[moment, token, width]`; heads are
orthonormal columns in it, `[head, width, rank]`, zeros beyond a head's rank.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Float64, Int, Int64
from torch import Tensor

from aotlens.conventions import require_between, require_seed, require_whole
from aotlens.models.attention import Attention, make_attention
from aotlens.models.config import ModelConfig
from aotlens.models.phi import PHIS
from aotlens.models.positions import PositionTerms
from aotlens.results import Result


class OverflowedTokens(ValueError):
    """The tokens of an unrolling are no longer finite: its scores have grown beyond the numbers' range."""


@dataclass(frozen=True, kw_only=True)
class Mixture(Result):
    """Tokens of a mixture of noisy low-rank Gaussians, and the subspaces that they were drawn from."""

    tokens: Float[Tensor, "n d_model"]
    """The clusters one after the other, a token a row."""
    bases: Float[Tensor, "cluster d_model rank"]
    """Orthonormal columns; a subspace of less than the largest rank is padded with zero columns."""
    ranks: tuple[int, ...]
    """The dimension of each subspace."""
    labels: Int[Tensor, " n"]
    """The cluster of each token."""
    noise: float | int
    """δ, the standard deviation of a noise coefficient."""
    coherence: float
    """max over k ≠ j of ‖U_kᵀ U_j‖₂, the largest cosine between two subspaces; 0 where they are orthogonal."""


def sample_mixture(
    n_clusters: int,
    rank: int | Sequence[int],
    n_tokens: int | Sequence[int],
    d_model: int,
    noise: float | int,
    seed: int = 0,
    orthogonal: bool = True,
    dtype: torch.dtype = torch.float64,
) -> Mixture:
    """Draw the tokens of Definition 2.1 of *aot*.

    `rank` and `n_tokens` are those of each cluster: one number for all, or one for each. `noise` is δ. With
    `orthogonal=True` the bases are the columns of one random orthogonal matrix (Eq. 7); otherwise each subspace is
    drawn by itself (Haar), so that they are merely incoherent, and `coherence` says how far from orthogonal. Everything
    is drawn in float64 and rounded to `dtype` at the end, so that a seed means the same tokens in every precision.

    Raises `ValueError` for sizes below 1, a list of the wrong length, a rank above `d_model`, orthogonal subspaces
    whose ranks sum to more than `d_model`, and a δ that is negative or not finite.
    """
    if n_clusters < 1 or d_model < 1:
        raise ValueError(f"expected at least 1 cluster and d_model ≥ 1, got {n_clusters} and {d_model}.")
    ranks = _per_cluster("rank", rank, n_clusters)
    counts = _per_cluster("n_tokens", n_tokens, n_clusters)
    if max(ranks) > d_model or (orthogonal and sum(ranks) > d_model):
        limit = "the ranks of orthogonal subspaces sum" if orthogonal else "each rank is"
        raise ValueError(f"expected that {limit} to at most d_model = {d_model}, got ranks {list(ranks)}.")
    require_between("noise", noise, 0)
    generator = torch.Generator().manual_seed(require_seed(seed))
    bases = torch.zeros(n_clusters, d_model, max(ranks), dtype=torch.float64)
    if orthogonal:
        for basis, columns in zip(bases, random_basis(d_model, sum(ranks), generator).split(ranks, dim=1), strict=True):
            basis[:, : columns.shape[1]] = columns
    else:
        for basis, width in zip(bases, ranks, strict=True):
            basis[:, :width] = random_basis(d_model, width, generator)
    labels = torch.arange(n_clusters).repeat_interleave(torch.tensor(counts))
    coefficients = torch.randn(len(labels), n_clusters, max(ranks), dtype=torch.float64, generator=generator)
    own = torch.nn.functional.one_hot(labels, n_clusters).bool()[..., None]
    tokens = torch.einsum("ikr,kdr->id", torch.where(own, coefficients, noise * coefficients), bases)
    return Mixture(
        tokens=tokens.to(dtype),
        bases=bases.to(dtype),
        ranks=ranks,
        labels=labels,
        noise=noise,
        coherence=0.0 if orthogonal else coherence(bases),
    )


def random_basis(d_model: int, rank: int, generator: torch.Generator) -> Float[Tensor, "d_model rank"]:
    """Return an orthonormal basis of a uniformly (Haar) distributed subspace, float64."""
    basis, triangle = torch.linalg.qr(torch.randn(d_model, rank, dtype=torch.float64, generator=generator))
    # QR leaves the columns' signs to the algorithm; with R's diagonal made positive the basis itself is Haar too.
    return basis * triangle.diagonal().sign()


def centred_frame(d_model: int, width: int) -> Float[Tensor, "d_model width"]:
    """Return an orthonormal basis `[d_model, width]` of the dimensions that the norm's centring leaves, or of all."""
    if width == d_model:
        return torch.eye(d_model, dtype=torch.float64)
    ones = torch.ones(d_model, 1, dtype=torch.float64)
    return torch.linalg.qr(torch.cat([ones, torch.eye(d_model, dtype=torch.float64)[:, 1:]], dim=1)).Q[:, 1:]


def coherence(bases: Float[Tensor, "cluster d_model rank"]) -> float:
    """Return max over k ≠ j of ‖U_kᵀ U_j‖₂: the cosine of the smallest angle between two subspaces; 0 for one
    subspace."""
    n_clusters = len(bases)
    if n_clusters == 1:
        return 0.0
    rows, columns = torch.triu_indices(n_clusters, n_clusters, 1)
    return float(torch.linalg.matrix_norm(bases[rows].mT @ bases[columns], ord=2).max())


def unroll(
    tokens: Tensor,
    bases: Tensor,
    step_size: float | int,
    phi: str,
    threshold: float | int | None,
    n_layers: int,
) -> Float[Tensor, "layer n d_model"]:
    """Return Z⁽ˡ⁺¹⁾ = Z⁽ˡ⁾ + η · MSSA(Z⁽ˡ⁾) for `n_layers` layers (*aot* Eqs. 3 and 4): `[n_layers + 1, n, d_model]`.

    `tokens` are `[n, d_model]` and `bases` `[cluster, d_model, rank]`. Entry 0 is `tokens` itself. The operator is
    the models' own MSSA with a tied output, `attn_scale=1.0`, no norm and no mask; `step_size` is η, and `phi` and
    `threshold` are `ModelConfig`'s. Scores grow with the tokens, so that a long unrolling overflows; that is refused,
    not passed on.

    Time: O(layers · clusters · n² · rank); memory: clusters · n² scores.

    Raises `ValueError` for shapes that do not fit together, fewer than 1 layer, what `ModelConfig` refuses, and tokens
    that are not finite; its subclass `OverflowedTokens` where they cease to be after a layer.
    """
    require_whole("n_layers", n_layers, 1)
    operator = _operator(tokens, bases, step_size, phi, threshold)
    layers = [tokens]
    for layer in range(n_layers + 1):
        if not layers[-1].isfinite().all():
            if layer == 0:
                raise ValueError("tokens: expected finite numbers.")
            raise OverflowedTokens(
                f"the tokens after layer {layer} are not finite; take fewer layers, a smaller step size or float64."
            )
        if layer < n_layers:
            stream = layers[-1][None]
            layers.append((stream + operator(stream, PositionTerms(), None, False))[0])
    return torch.stack(layers)


def memberships(
    tokens: Tensor, bases: Tensor, phi: str, threshold: float | int | None
) -> Float[Tensor, "cluster query key"]:
    """Return φ(Z U_k U_kᵀ Zᵀ) of every subspace k: how much of each token a token takes within it (*aot* Eq. 4).

    The paper calls it a distribution of membership. It is the pattern of the operator that `unroll` applies to
    `tokens [n, d_model]`, read off that operator; memory and errors are those of one layer of `unroll`.
    """
    operator = _operator(tokens, bases, 1.0, phi, threshold)
    patterns: list[Tensor] = []
    operator.hook_pattern.add_hook(lambda pattern, hook: patterns.append(pattern))
    operator(tokens[None], PositionTerms(), None, False)
    return patterns[0][0]


def _operator(
    tokens: Tensor, bases: Tensor, step_size: float | int, phi: str, threshold: float | int | None
) -> Attention:
    """The models' own MSSA with a tied output, `attn_scale=1.0`, no norm and no mask, for these tokens."""
    if tokens.ndim != 2 or bases.ndim != 3 or bases.shape[1] != tokens.shape[1]:
        raise ValueError(
            f"expected tokens [n, d_model] and bases [cluster, d_model, rank], got {list(tokens.shape)} and "
            f"{list(bases.shape)}."
        )
    if phi in PHIS and not PHIS[phi].needs_query_key:
        raise ValueError(f"phi={phi!r} has no scores to unroll; choose a φ of the scores, such as 'softmax'.")
    n_clusters, d_model, rank = bases.shape
    cfg = ModelConfig(
        n_layers=1,
        d_model=d_model,
        n_heads=n_clusters,
        d_head=rank,
        n_ctx=len(tokens),
        attention="mssa",
        tied_output=True,
        step_size=float(step_size),
        attn_scale=1.0,
        phi=phi,
        threshold=threshold,
        norm=None,
        positions=None,
        causal=False,
        read_in="vectors",
        read_out="vectors",
    )
    operator = make_attention(cfg)
    operator.U = torch.nn.Parameter(bases.to(tokens), requires_grad=False)
    return operator


def snr(tokens: Tensor, bases: Tensor, labels: Tensor) -> Float[Tensor, " cluster"]:
    """Return SNR(Z_k) = ‖Z_k U_k U_kᵀ‖_F ÷ ‖Z_k (I − U_k U_kᵀ)‖_F of each cluster (*aot* Eq. 6); ∞ where there is no
    noise.

    `tokens [n, d_model]` are those of one layer, `bases [cluster, d_model, rank]` have orthonormal columns, and
    `labels [n]` name each token's cluster. Raises `ValueError` for shapes that do not fit, labels of no cluster, and
    clusters that have no token or none but zeros, for which the ratio is undefined.
    """
    if tokens.ndim != 2 or bases.ndim != 3 or bases.shape[1] != tokens.shape[1] or labels.shape != tokens.shape[:1]:
        raise ValueError(
            f"expected tokens [n, d_model], bases [cluster, d_model, rank] and labels [n], got {list(tokens.shape)}, "
            f"{list(bases.shape)} and {list(labels.shape)}."
        )
    n_clusters = len(bases)
    if len(labels) and not (int(labels.min()) >= 0 and int(labels.max()) < n_clusters):
        raise ValueError(f"labels: expected 0 to {n_clusters - 1}, got {int(labels.min())} to {int(labels.max())}.")
    signal, noise = tokens.new_zeros(n_clusters), tokens.new_zeros(n_clusters)
    for cluster, basis in enumerate(bases.to(tokens)):
        members = tokens[labels == cluster]
        projected = members @ basis @ basis.T
        signal[cluster], noise[cluster] = projected.pow(2).sum(), (members - projected).pow(2).sum()
    undefined = ((signal == 0) & (noise == 0)).nonzero().flatten().tolist()
    if undefined:
        raise ValueError(f"expected a token that is not zero in every cluster, got none in clusters {undefined}.")
    return (signal / noise).sqrt()


def _per_cluster(name: str, value: int | Sequence[int], n_clusters: int) -> tuple[int, ...]:
    sizes = (value,) * n_clusters if isinstance(value, int) else tuple(int(size) for size in value)
    if len(sizes) != n_clusters or min(sizes) < 1:
        raise ValueError(f"{name}: expected a number of at least 1, or {n_clusters} of them, got {value!r}.")
    return sizes


#: The share of the largest eigenvalue below which a direction is rounding, of streams in float32 (squared).
_NEGLIGIBLE = 1e-12


def token_groups(
    stream: Float64[Tensor, "token width"],
    heads: Float64[Tensor, "head width rank"],
    by_pattern: Int64[Tensor, " token"],
) -> Float64[Tensor, "grouping token head"]:
    """Return each head's tokens that count, as 0 and 1: all; those that it holds most of; those of `by_pattern`."""
    held = _energies(stream[None], heads)[0]
    one_hot = [torch.nn.functional.one_hot(labels, len(heads)) for labels in (held.argmax(-1), by_pattern)]
    return torch.stack([torch.ones_like(held), *(rows.double() for rows in one_hot)])


def group_snr(
    moments: Float64[Tensor, "moment token width"],
    heads: Float64[Tensor, "head width rank"],
    groups: Float64[Tensor, "grouping token head"],
) -> Float64[Tensor, "moment grouping head"]:
    """Return the SNR of Eq. 6 over each head's tokens, ‖Z U Uᵀ‖ ÷ ‖Z (I − U Uᵀ)‖; NaN where it has none."""
    signal = torch.einsum("gth,mth->mgh", groups, _energies(moments, heads))
    total = torch.einsum("gth,mt->mgh", groups, moments.square().sum(-1))
    return (signal / (total - signal)).sqrt()


def mean_ratio(
    after: Float[Tensor, "... grouping layer head"], before: Float[Tensor, "... grouping layer head"]
) -> Float[Tensor, "... grouping layer"]:
    """Return after ÷ before, the geometric mean over heads; a head without tokens is left out."""
    return (after / before).log().nanmean(-1).exp()


@dataclass(frozen=True, eq=False)
class Principal:
    """The leading directions (uncentred) of each head's tokens in the first half, and its tokens in the second."""

    directions: list[Float64[Tensor, "width rank"] | None]
    """The leading directions, as columns; None for a head whose tokens in the first half span no more dimensions than
    these (a few different tokens again and again), so that none of them lead, or with no more tokens than these in the
    second."""
    measured: list[Bool[Tensor, " token"]]

    @classmethod
    def fit(
        cls,
        stream: Float64[Tensor, "token width"],
        members: Float64[Tensor, "token head"],
        half: Bool[Tensor, " token"],
        ranks: list[int],
    ) -> Principal:
        """Fit as many directions as each head has ranks on its tokens outside `half`, to be measured on those in it."""
        directions: list[Tensor | None] = []
        measured = []
        for head, rank in enumerate(ranks):
            fitted, others = (members[:, head].bool() & side for side in (~half, half))
            measured.append(others)
            values, vectors = torch.linalg.eigh(stream[fitted].mT @ stream[fitted])
            spanned = int((values > values[-1] * _NEGLIGIBLE).sum())
            determined = rank and spanned > rank and int(others.sum()) > rank
            directions.append(vectors[:, -rank:] if determined else None)
        return cls(directions, measured)

    def snr(self, moments: Float64[Tensor, "moment token width"]) -> Float64[Tensor, "moment head"]:
        """Return the SNR of each head's tokens in the second half; NaN for a head without directions."""
        result = torch.full((len(moments), len(self.directions)), math.nan, dtype=torch.float64)
        for head, (directions, measured) in enumerate(zip(self.directions, self.measured, strict=True)):
            if directions is not None:
                everything = torch.ones(1, int(measured.sum()), 1, dtype=torch.float64)
                result[:, head] = group_snr(moments[:, measured], directions[None], everything)[:, 0, 0]
        return result


def within_halves(half: Bool[Tensor, " token"], generator: torch.Generator) -> Int64[Tensor, " token"]:
    """Return a random order of the tokens that leaves each in its half, so that groups keep their sizes in both."""
    order = torch.arange(len(half))
    for side in (half, ~half):
        places = side.nonzero().flatten()
        order[places] = places[torch.randperm(len(places), generator=generator)]
    return order


def _energies(moments: Tensor, heads: Tensor) -> Float64[Tensor, "moment token head"]:
    """‖U_kᵀ z‖² of every token and head."""
    n_heads, width, rank = heads.shape
    columns = heads.transpose(0, 1).reshape(width, n_heads * rank)
    return (moments @ columns).square().unflatten(-1, (n_heads, rank)).sum(-1)
