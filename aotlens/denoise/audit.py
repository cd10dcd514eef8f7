"""Does a trained layer denoise? The SNR of its tokens in its own subspaces, before and after it, beside chance.

*aot* reads a layer as one step of denoising: tokens of cluster k move into the subspace U_k, and their SNR (Eq. 6)
rises. A trained model has no labels and learned subspaces, so that for each layer, with U_k the orthonormal basis of
that layer's own folded map (`aotlens.heads.subspaces`: U of MSSA, W_V of MHSA), the SNR is measured on

    all tokens   every token counts for every head
    subspace     a token counts for the head whose subspace holds most of it, argmax_k ‖U_kᵀ z‖, before the layer
    pattern      a token counts for the head whose pattern puts most on one key other than token 0, as the theorem's
                 threshold would let it through

before the layer (z, the stream that it reads) and after it (z + what attention writes; a GPT's MLP comes later and is
left out), with the same tokens in the groups. Token 0 counts nowhere: most heads rest on it. The stream is centred,
as the norm before the heads centres it; a norm's scale changes no ratio of one token.

**The null** turns all heads' subspaces of a layer by one random rotation of its D dimensions, so that the angles
between heads stay; the assignment by subspace is redone. It says what a layer's writing does to subspaces that know
nothing of it. **PCA** asks the same without the weights: the leading directions (uncentred) of a head's tokens in one
half of the windows, as many as its subspace has, measured on its tokens in the other half, beside random groups of the
same sizes. A rate is predicted only where the output is tied and φ has a threshold (Theorem 3.1): 1 + ητ.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int, Int64
from torch import Tensor

from aotlens.denoise.subspaces import centred_frame, random_basis
from aotlens.denoise.unrolling import theorem_rate
from aotlens.heads import subspaces
from aotlens.heads.reader import TokenSequences
from aotlens.models import AttentionOnlyTransformer, hook_names
from aotlens.models.weights import double
from aotlens.results import Result

if TYPE_CHECKING:
    import pandas as pd

#: How tokens are given to heads.
GROUPINGS = ("all tokens", "subspace", "pattern")
_WINDOWS_AT_ONCE = 4
#: Tokens of the windows that one long sequence is cut into, at most, and of any window, at least.
_WINDOW, _SHORTEST = 128, 3


@dataclass(frozen=True, kw_only=True, eq=False)
class DenoisingAudit(Result):
    """SNR before (0) and after (1) every layer, in its heads' subspaces, in random ones, and in principal directions.

    NaN for a head that no token was given to.
    """

    matrix: str
    """What spans the subspaces: `"U"` or `"W_V"`."""
    groupings: tuple[str, ...]
    n_tokens: int
    """Tokens that count, of all windows."""
    sizes: Int[Tensor, "grouping layer head"]
    """How many of them each head has."""
    snr: Float[Tensor, "moment grouping layer head"]
    null_snr: Float[Tensor, "draw moment grouping layer head"]
    """In the subspaces turned by one random rotation a draw."""
    pca_snr: Float[Tensor, "moment grouping layer head"]
    """In the principal directions of the head's tokens in the other half of the windows; for "all tokens" NaN."""
    pca_null_snr: Float[Tensor, "draw moment grouping layer head"]
    """The same of random groups of the same sizes."""
    predicted_rate: float | None
    """1 + ητ where the theorem speaks of the model: its output is tied and its φ has a threshold."""

    @property
    def relative_depth(self) -> Float[Tensor, " layer"]:
        """(l + 1) ÷ number of layers, by which models of different depth are compared."""
        n_layers = self.snr.shape[2]
        return torch.arange(1, n_layers + 1, dtype=torch.float64) / n_layers

    @property
    def ratios(self) -> Float[Tensor, "grouping layer"]:
        """SNR after ÷ before, the geometric mean over heads."""
        return _ratios(self.snr)

    @property
    def null_ratios(self) -> Float[Tensor, "draw grouping layer"]:
        """The same of every rotation."""
        return _ratios(self.null_snr)

    @property
    def pca_ratios(self) -> Float[Tensor, "grouping layer"]:
        """SNR after ÷ before in principal directions, the geometric mean over heads."""
        return _ratios(self.pca_snr)

    @property
    def pca_null_ratios(self) -> Float[Tensor, "draw grouping layer"]:
        """The same of random groups."""
        return _ratios(self.pca_null_snr)

    @property
    def headline(self) -> str:
        least, most = float(self.ratios.nan_to_num(1).min()), float(self.ratios.nan_to_num(1).max())
        above = int(((self.ratios > self.null_ratios.amax(0)) & (self.ratios > 1)).sum())
        return (
            f"SNR after ÷ before {least:.2f} to {most:.2f} in {self.matrix}'s subspaces; it rises by more than in any "
            f"rotation in {above} of {self.ratios.numel()} (grouping, layer)"
        )

    def to_frame(self) -> pd.DataFrame:
        """One row a grouping and layer: SNR before (mean over heads) and its ratio, beside rotations; the p-values are
        (1 + rotations as extreme) ÷ (1 + rotations), one-sided, over rotations of the subspaces on this text."""
        return self._frame(self.snr, self.null_snr, self.groupings)

    def pca_frame(self) -> pd.DataFrame:
        """The same in principal directions of heads' tokens, beside random groups."""
        return self._frame(self.pca_snr, self.pca_null_snr, self.groupings[1:])

    def _frame(self, snr: Tensor, null_snr: Tensor, groupings: tuple[str, ...]) -> pd.DataFrame:
        import pandas as pd

        ratios, null = _ratios(snr), _ratios(null_snr)
        rows = []
        for grouping in groupings:
            index = self.groupings.index(grouping)
            for layer, depth in enumerate(self.relative_depth.tolist()):
                ratio, draws = float(ratios[index, layer]), null[:, index, layer]
                rows.append(
                    {
                        "grouping": grouping,
                        "layer": layer,
                        "relative_depth": depth,
                        "snr": float(snr[0, index, layer].nanmean()),
                        "null_snr": float(null_snr[:, 0, index, layer].nanmean()),
                        "ratio": ratio,
                        "null_ratio": float(draws.mean()),
                        "null_least": float(draws.min()),
                        "null_largest": float(draws.max()),
                        "p_above": (1 + int((draws >= ratio).sum())) / (1 + len(draws)),
                        "p_below": (1 + int((draws <= ratio).sum())) / (1 + len(draws)),
                    }
                )
        return pd.DataFrame(rows)


def audit(
    model: AttentionOnlyTransformer,
    tokens: TokenSequences,
    *,
    n_draws: int = 20,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> DenoisingAudit:
    """Measure whether every layer moves its tokens into its heads' subspaces; what is measured stands above.

    `tokens` are windows of text `[window, pos]`, or texts of equally many tokens; one text or sequence is cut into
    windows of at most 128 tokens, as many as are full. `n_draws` rotations, and as many random groups, are drawn from
    `seed`; all layers share the rotations. `progress(done, total)` counts layers.

    Time: O(layers · draws · tokens · heads · d_model · d_head), and a pass over the text. Memory: the stream of all
    layers, layers · tokens · d_model numbers of 8 bytes twice.

    Raises `ValueError` for fewer than 2 windows (PCA needs two halves) of at least 3 tokens, texts of different
    lengths, no draws, and a model with a fixed pattern, which no token chooses.
    """
    if n_draws < 1:
        raise ValueError(f"n_draws={n_draws}: expected at least 1.")
    if not model.cfg.has_query_key:
        raise ValueError(f"a model with phi={model.cfg.phi!r} chooses no tokens; audit one with queries and keys.")
    windows = _windows(model, tokens)
    own = subspaces(model, n_random=1)
    bases = torch.from_numpy(own.bases)
    frame = centred_frame(bases.shape[2], own.width)
    streams, by_pattern = _run(model, windows, frame)
    generator = torch.Generator().manual_seed(seed)
    rotations = [random_basis(own.width, own.width, generator) for _ in range(n_draws)]
    n_layers, n_heads = bases.shape[:2]
    half = (torch.arange(len(windows)) % 2).bool().repeat_interleave(windows.shape[1] - 1)
    shape = (2, len(GROUPINGS), n_layers, n_heads)
    snr, pca_snr = torch.full(shape, math.nan).double(), torch.full(shape, math.nan).double()
    null, pca_null = (torch.full((n_draws, *shape), math.nan).double() for _ in range(2))
    sizes = torch.zeros(shape[1:], dtype=torch.int64)
    for layer in range(n_layers):
        moments, heads = streams[layer], frame.T @ bases[layer]
        labels = by_pattern[layer]
        groups = _groups(moments, heads, labels)
        sizes[:, layer] = groups.sum(1).long()
        snr[:, :, layer] = _snr(moments, heads, groups)
        for draw, rotation in enumerate(rotations):
            turned = rotation @ heads
            null[draw, :, :, layer] = _snr(moments, turned, _groups(moments, turned, labels))
        for grouping in (1, 2):
            ranks = own.ranks[layer].tolist()
            pca_snr[:, grouping, layer] = _principal_snr(moments, groups[grouping], half, ranks)
            for draw in range(n_draws):
                order = _within_halves(half, generator)
                pca_null[draw, :, grouping, layer] = _principal_snr(moments, groups[grouping][order], half, ranks)
        if progress is not None:
            progress(layer + 1, n_layers)
    cfg = model.cfg
    rate = None
    if cfg.tied_output and cfg.threshold is not None:
        rate = theorem_rate(cfg.step_size, cfg.threshold)
    return DenoisingAudit(
        matrix=own.matrix,
        groupings=GROUPINGS,
        n_tokens=len(half),
        sizes=sizes,
        snr=snr,
        null_snr=null,
        pca_snr=pca_snr,
        pca_null_snr=pca_null,
        predicted_rate=rate,
    )


def _windows(model: AttentionOnlyTransformer, tokens: TokenSequences) -> Int64[Tensor, "window token"]:
    """Windows as they are given, or those that one sequence is cut into: two at least, which PCA needs."""
    rows = model.to_rows(tokens, "tokens")
    if rows.ndim == 2 and len(rows) == 1:
        length = max(min(_WINDOW, model.cfg.n_ctx, rows.shape[1] // 2), 1)
        rows = rows[0, : rows.shape[1] // length * length].view(-1, length)
    if rows.ndim != 2 or rows.shape[0] < 2 or rows.shape[1] < _SHORTEST:
        raise ValueError(
            f"tokens: expected at least 2 windows of at least {_SHORTEST} tokens, or one text of at least "
            f"{2 * _SHORTEST}, got {list(rows.shape)}."
        )
    return rows.cpu().long()


@torch.no_grad()
def _run(model: AttentionOnlyTransformer, tokens: Tensor, frame: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Every layer's tokens before and after attention, `[moment, token, width]` in the frame, without token 0; and the
    head of each whose pattern puts most on one key other than token 0."""
    layers = range(model.cfg.n_layers)
    streams: list[list[Tensor]] = [[] for _ in layers]
    heads: list[list[Tensor]] = [[] for _ in layers]
    out = [hook_names.block(layer, "hook_attn_out") for layer in layers]
    patterns = [hook_names.attn(layer, hook_names.PATTERN) for layer in layers]
    names = {*map(hook_names.resid_pre, layers), *out, *patterns}
    for windows in tokens.split(_WINDOWS_AT_ONCE):
        _, cache = model.run_with_cache(
            windows.to(model.device), names_filter=lambda name: name in names, return_cache_object=False
        )
        for layer in layers:
            before = double(cache[hook_names.resid_pre(layer)][:, 1:])
            after = before + double(cache[out[layer]][:, 1:])
            streams[layer].append(torch.stack([before, after]).flatten(1, 2) @ frame)
            pattern = cache[patterns[layer]][:, :, 1:, 1:]
            heads[layer].append(pattern.amax(-1).argmax(1).flatten().cpu())
    return [torch.cat(parts, dim=1) for parts in streams], [torch.cat(parts) for parts in heads]


def _groups(moments: Tensor, heads: Tensor, by_pattern: Tensor) -> Float[Tensor, "grouping token head"]:
    """Which tokens count for which head, as 0 and 1."""
    held = _energies(moments[:1], heads)[0]
    one_hot = [torch.nn.functional.one_hot(labels, len(heads)) for labels in (held.argmax(-1), by_pattern)]
    return torch.stack([torch.ones_like(held), *(rows.double() for rows in one_hot)])


def _energies(moments: Tensor, heads: Tensor) -> Float[Tensor, "moment token head"]:
    """‖U_kᵀ z‖² of every token and head."""
    n_heads, width, rank = heads.shape
    columns = heads.transpose(0, 1).reshape(width, n_heads * rank)
    return (moments @ columns).square().unflatten(-1, (n_heads, rank)).sum(-1)


def _snr(moments: Tensor, heads: Tensor, groups: Tensor) -> Float[Tensor, "moment grouping head"]:
    """Eq. 6 over each head's tokens; NaN where it has none."""
    signal = torch.einsum("gth,mth->mgh", groups, _energies(moments, heads))
    total = torch.einsum("gth,mt->mgh", groups, moments.square().sum(-1))
    return (signal / (total - signal)).sqrt()


def _principal_snr(moments: Tensor, members: Tensor, half: Tensor, ranks: list[int]) -> Float[Tensor, "moment head"]:
    """The SNR of each head's tokens in the second half, in the leading directions of its tokens in the first.

    NaN for a head with fewer tokens in a half than directions, whose fit would be all of them.
    """
    result = torch.full((2, len(ranks)), math.nan, dtype=torch.float64)
    for head, rank in enumerate(ranks):
        fitted, measured = (moments[:, members[:, head].bool() & side] for side in (~half, half))
        if rank and fitted.shape[1] > rank and measured.shape[1] > rank:
            directions = torch.linalg.eigh(fitted[0].mT @ fitted[0]).eigenvectors[:, -rank:]
            everything = torch.ones(1, measured.shape[1], 1, dtype=torch.float64)
            result[:, head] = _snr(measured, directions[None], everything)[:, 0, 0]
    return result


def _within_halves(half: Tensor, generator: torch.Generator) -> Tensor:
    """A random order of the tokens that leaves each in its half, so that groups keep their sizes in both."""
    order = torch.arange(len(half))
    for side in (half, ~half):
        places = side.nonzero().flatten()
        order[places] = places[torch.randperm(len(places), generator=generator)]
    return order


def _ratios(snr: Tensor) -> Tensor:
    """After ÷ before, `[…, moment, grouping, layer, head]` → `[…, grouping, layer]`, over heads geometrically."""
    return (snr.select(-4, 1) / snr.select(-4, 0)).log().nanmean(-1).exp()
