"""Does a trained layer denoise? The SNR of its tokens in its own subspaces, before and after it, compared with chance.

*aot* reads a layer as one step of denoising: tokens of cluster k move into the subspace U_k, and their SNR (Eq. 6)
rises. A trained model has no labels and learned subspaces, so that for each layer, with U_k the orthonormal basis of
that layer's own folded map (`aotlens.heads.subspaces`: U of MSSA, W_V of MHSA), the SNR is measured on

    all tokens   every token counts for every head
    subspace     a token counts for the head whose subspace holds most of it, argmax_k ‖U_kᵀ z‖, before the layer
    pattern      a token counts for the head whose pattern puts most on one key other than token 0, as the theorem's
                 threshold would let it through

before the layer (z, the stream that it reads) and after it (z + what attention writes; a GPT's MLP comes later and is
left out), with the same tokens in the groups. Token 0 counts nowhere: most heads rest on it. Of a model of images an
image is a window and its patches are the tokens; [CLS] counts nowhere. The stream is centred, as the norm before the
heads centres it; a norm's scale changes no ratio of one token.

**The null** of a ratio keeps the subspaces and turns the *writes*: z + attention(z) R, with one random rotation R of
the D dimensions for all tokens and layers of a draw. Lengths of writes, and angles between the writes of two tokens,
stay; what a write has to do with the subspaces, and with the stream itself, is gone. Any write pulls an SNR towards
that of the write, so that a ratio other than 1 alone says nothing.

**Rotated subspaces** ask another thing: all heads' subspaces of a layer rotated by one random rotation, angles between
heads kept, the assignment by subspace redone. They are the null of the SNR *before* the layer: whether heads read where
the stream is. They start at another SNR than the heads' own, so that their ratios are no null of the layer's.

**PCA** asks the same without the weights: the leading directions (uncentred) of a head's tokens in one half of the
windows, as many as its subspace has, measured on its tokens in the other half. The null of the ratio turns the writes;
that of the SNR before takes random groups of the same sizes. A rate is predicted only where the output is tied and φ
has a threshold (Theorem 3.1): 1 + ητ.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int, Int64
from torch import Tensor

from aotlens.conventions import require_seed, require_whole
from aotlens.denoise.subspaces import (
    Principal,
    centred_frame,
    group_snr,
    mean_ratio,
    random_basis,
    token_groups,
    within_halves,
)
from aotlens.denoise.unrolling import theorem_rate
from aotlens.heads import subspaces
from aotlens.heads.reader import HeadReader, TokenSequences
from aotlens.models import AttentionOnlyTransformer, hook_names, require_ours
from aotlens.models.weights import double
from aotlens.results import Result, data_frame

if TYPE_CHECKING:
    import pandas as pd

    from aotlens.data import Corpus

#: The ways of giving tokens to heads.
GROUPINGS = ("all tokens", "subspace", "pattern")
_WINDOWS_AT_ONCE = 4
#: Tokens of the windows that one long sequence is cut into, at most, and of any window, at least.
_WINDOW, _SHORTEST = 128, 3
#: Tokens that are read of a corpus; of a single document at its beginning, at most and at least.
_TOKENS, _OF_ONE, _LEAST_OF_ONE = 2048, 8192, 16


@dataclass(frozen=True, kw_only=True, eq=False)
class DenoisingAudit(Result):
    """SNR before (0) and after (1) every layer, in its heads' subspaces and in principal directions, with nulls.

    NaN for a head that no token was given to.
    """

    matrix: str
    """The matrix that spans the subspaces: `"U"` or `"W_V"`."""
    groupings: tuple[str, ...]
    n_tokens: int
    """Tokens that count, of all windows."""
    sizes: Int[Tensor, "grouping layer head"]
    """The number of these tokens that each head has."""
    snr: Float[Tensor, "moment grouping layer head"]
    null_snr: Float[Tensor, "draw grouping layer head"]
    """The SNR after the layer, with its writes rotated by one random rotation a draw."""
    rotated_snr: Float[Tensor, "draw moment grouping layer head"]
    """The SNR in the subspaces rotated by one random rotation a draw."""
    pca_snr: Float[Tensor, "moment grouping layer head"]
    """The SNR in the principal directions of the head's tokens in the windows' other half; for "all tokens" NaN."""
    pca_null_snr: Float[Tensor, "draw grouping layer head"]
    """The SNR after the layer in the principal directions, with its writes rotated by one random rotation a draw."""
    random_group_snr: Float[Tensor, "draw moment grouping layer head"]
    """The SNR in the principal directions of random groups of the same sizes."""
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
        return mean_ratio(self.snr[1], self.snr[0])

    @property
    def null_ratios(self) -> Float[Tensor, "draw grouping layer"]:
        """The ratios with the writes rotated, of every draw."""
        return mean_ratio(self.null_snr, self.snr[0])

    @property
    def rotated_ratios(self) -> Float[Tensor, "draw grouping layer"]:
        """The ratios in the rotated subspaces: no null of `ratios`, since they start at another SNR."""
        return mean_ratio(self.rotated_snr[:, 1], self.rotated_snr[:, 0])

    @property
    def pca_ratios(self) -> Float[Tensor, "grouping layer"]:
        """SNR after ÷ before in principal directions, the geometric mean over heads."""
        return mean_ratio(self.pca_snr[1], self.pca_snr[0])

    @property
    def pca_null_ratios(self) -> Float[Tensor, "draw grouping layer"]:
        """The ratios in principal directions with the writes rotated."""
        return mean_ratio(self.pca_null_snr, self.pca_snr[0])

    @property
    def rises(self) -> Bool[Tensor, "grouping layer"]:
        """Whether the layer raises the SNR, and by more than its writes rotated in any draw."""
        return (self.ratios > 1) & (self.ratios > self.null_ratios.amax(0))

    @property
    def falls(self) -> Bool[Tensor, "grouping layer"]:
        """Whether the layer lowers the SNR, and by more than its writes rotated in any draw."""
        return (self.ratios < 1) & (self.ratios < self.null_ratios.amin(0))

    @property
    def headline(self) -> str:
        least, most = float(self.ratios.nan_to_num(1).min()), float(self.ratios.nan_to_num(1).max())
        return (
            f"SNR after ÷ before {least:.2f} to {most:.2f} in {self.matrix}'s subspaces; beyond that of every rotated "
            f"write it rises in {int(self.rises.sum())} and falls in {int(self.falls.sum())} of {self.ratios.numel()} "
            "(grouping, layer)"
        )

    def to_frame(self) -> pd.DataFrame:
        """Return one row per grouping and layer, in the heads' subspaces.

        `snr` (before the layer) is the mean over heads, and `rotated_snr` its mean over randomly rotated subspaces,
        with `p_snr` = (1 + rotations that reach `snr`) ÷ (1 + rotations). `ratio` is SNR after ÷ before, `null_…`
        that with the writes rotated, and `p_above` and `p_below` = (1 + draws as extreme) ÷ (1 + draws).
        `rotated_ratio…` are the ratios in rotated subspaces, which start at another SNR and so are no null of
        `ratio`. All p are one-sided, over rotations on this text.
        """
        return self._frame("rotated", self.snr, self.null_snr, self.rotated_snr, self.groupings)

    def pca_frame(self) -> pd.DataFrame:
        """Return the rows of `to_frame` in principal directions of heads' tokens; `random_…` are those of random
        groups."""
        groupings = self.groupings[1:]
        return self._frame("random", self.pca_snr, self.pca_null_snr, self.random_group_snr, groupings)

    def _frame(self, other: str, snr: Tensor, null: Tensor, others: Tensor, groupings: tuple[str, ...]) -> pd.DataFrame:
        ratios, null_ratios = mean_ratio(snr[1], snr[0]), mean_ratio(null, snr[0])
        before, others_before = snr[0].nanmean(-1), others[:, 0].nanmean(-1)
        other_ratios = mean_ratio(others[:, 1], others[:, 0])
        rows = []
        for grouping in groupings:
            index = self.groupings.index(grouping)
            for layer, depth in enumerate(self.relative_depth.tolist()):
                place = (index, layer)
                draws, turned = null_ratios[:, index, layer], other_ratios[:, index, layer]
                rows.append(
                    {
                        "grouping": grouping,
                        "layer": layer,
                        "relative_depth": depth,
                        "snr": float(before[place]),
                        f"{other}_snr": float(others_before[:, index, layer].mean()),
                        "p_snr": _p_value(others_before[:, index, layer] - before[place]),
                        "ratio": float(ratios[place]),
                        "null_ratio": float(draws.mean()),
                        "null_least": float(draws.min()),
                        "null_largest": float(draws.max()),
                        "p_above": _p_value(draws - ratios[place]),
                        "p_below": _p_value(ratios[place] - draws),
                        f"{other}_ratio": float(turned.mean()),
                        f"{other}_ratio_least": float(turned.min()),
                        f"{other}_ratio_largest": float(turned.max()),
                    }
                )
        return data_frame(rows)


def audit(
    model: AttentionOnlyTransformer,
    tokens: TokenSequences | Float[Tensor, "image channel height width"],
    *,
    n_draws: int = 20,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> DenoisingAudit:
    """Measure whether every layer moves its tokens into its heads' subspaces; what is measured stands above.

    `tokens` are windows of text `[window, pos]`, or texts of equally many tokens; one text or sequence is cut into
    windows of at most 128 tokens, as many as are full; a model of images takes images. `n_draws` rotations, and as many
    random groups, are drawn from `seed`; all layers share the rotations, and so do writes and subspaces.
    `progress(done, total)` counts layers.

    Time: O(layers · draws · tokens · heads · d_model · d_head), and a pass over the text. Memory: the stream of all
    layers, layers · tokens · d_model numbers of 8 bytes twice.

    Raises `ValueError` for fewer than 2 windows (PCA needs two halves) of at least 3 tokens, texts of different
    lengths, no draws, and a model with a fixed pattern, which no token chooses.
    """
    require_whole("n_draws", n_draws, 1)
    require_ours(model, "audit", without=("norm_after", "norm_output", "clip_qkv"))
    require_whole("n_draws", n_draws, 1)
    if not model.cfg.has_query_key:
        raise ValueError(f"a model with phi={model.cfg.phi!r} chooses no tokens; audit one with queries and keys.")
    windows, n_left_out = _windows(model, tokens)
    own = subspaces(model, n_random=1)
    bases = torch.from_numpy(own.bases)
    frame = centred_frame(bases.shape[2], own.width)
    streams, by_pattern = _run(model, windows, frame, n_left_out)
    generator = torch.Generator().manual_seed(require_seed(seed))
    rotations = [random_basis(own.width, own.width, generator) for _ in range(n_draws)]
    n_layers, n_heads = bases.shape[:2]
    half = (torch.arange(len(windows)) % 2).bool().repeat_interleave(streams[0].shape[1] // len(windows))
    shape = (2, len(GROUPINGS), n_layers, n_heads)
    snr, pca_snr = torch.full(shape, math.nan).double(), torch.full(shape, math.nan).double()
    null, pca_null = (torch.full((n_draws, *shape[1:]), math.nan).double() for _ in range(2))
    turned, random_groups = (torch.full((n_draws, *shape), math.nan).double() for _ in range(2))
    sizes = torch.zeros(shape[1:], dtype=torch.int64)
    for layer in range(n_layers):
        moments, heads = streams[layer], frame.T @ bases[layer]
        labels, ranks = by_pattern[layer], own.ranks[layer].tolist()
        groups = token_groups(moments[0], heads, labels)
        sizes[:, layer] = groups.sum(1).long()
        snr[:, :, layer] = group_snr(moments, heads, groups)
        principal = {grouping: Principal.fit(moments[0], groups[grouping], half, ranks) for grouping in (1, 2)}
        for grouping, directions in principal.items():
            pca_snr[:, grouping, layer] = directions.snr(moments)
        for draw, rotation in enumerate(rotations):
            after = moments[:1] + (moments[1:] - moments[:1]) @ rotation
            # Groups are made of the stream before the layer, which the rotated writes leave as it is.
            null[draw, :, layer] = group_snr(after, heads, groups)[0]
            subspace = rotation @ heads
            turned[draw, :, :, layer] = group_snr(moments, subspace, token_groups(moments[0], subspace, labels))
            for grouping, directions in principal.items():
                pca_null[draw, grouping, layer] = directions.snr(after)[0]
        for grouping in principal:
            for draw in range(n_draws):
                members = groups[grouping][within_halves(half, generator)]
                random_groups[draw, :, grouping, layer] = Principal.fit(moments[0], members, half, ranks).snr(moments)
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
        rotated_snr=turned,
        pca_snr=pca_snr,
        pca_null_snr=pca_null,
        random_group_snr=random_groups,
        predicted_rate=rate,
    )


def audit_tokens(model: AttentionOnlyTransformer, corpus: Corpus) -> Int64[Tensor, "window pos"]:
    """Return the tokens that an audit of a text reads: 2,048 in windows of the documents that were held out from the
    model's training; of a corpus of one document its first 8,192, as one sequence, which `audit` cuts into windows.

    Raises `ValueError` for a document of fewer than 16 tokens.
    """
    from aotlens.distill import held_out_windows

    require_ours(model, "audit_tokens")
    if len(corpus.names()) > 1:
        return held_out_windows(model, corpus, _TOKENS)
    (document,) = corpus.documents()
    tokens = model.to_tokens(document.text)[:, :_OF_ONE]
    if tokens.shape[1] < _LEAST_OF_ONE:
        raise ValueError(
            f"expected a text of at least {_LEAST_OF_ONE} tokens, to be cut into two halves; got {tokens.shape[1]}. "
            "Take a longer one."
        )
    return tokens


def _windows(model: AttentionOnlyTransformer, tokens: TokenSequences | Tensor) -> tuple[Tensor, int]:
    """Windows as they are given, or those that one sequence is cut into: two at least, which PCA needs; and how many
    positions at the beginning of each count nowhere."""
    if isinstance(tokens, Tensor) and model.cfg.read_in == "patches":
        reader = HeadReader.of(model, "denoising audit", images=True)
        images = reader.require_images(tokens)
        if len(images) < 2 or reader.grid is None:
            raise ValueError(f"images: expected at least 2, got {len(images)}.")
        return images, reader.grid.n_before
    rows = model.to_rows(tokens, "tokens")
    if rows.ndim == 2 and len(rows) == 1:
        length = max(min(_WINDOW, model.cfg.n_ctx, rows.shape[1] // 2), 1)
        rows = rows[0, : rows.shape[1] // length * length].view(-1, length)
    if rows.ndim != 2 or rows.shape[0] < 2 or rows.shape[1] < _SHORTEST:
        raise ValueError(
            f"tokens: expected at least 2 windows of at least {_SHORTEST} tokens, or one text of at least "
            f"{2 * _SHORTEST}, got {list(rows.shape)}."
        )
    return rows.cpu().long(), 1


@torch.no_grad()
def _run(
    model: AttentionOnlyTransformer, tokens: Tensor, frame: Tensor, n_left_out: int
) -> tuple[list[Tensor], list[Tensor]]:
    """Every layer's tokens before and after attention, `[moment, token, width]` in the frame, without the first
    `n_left_out`; and the head of each whose pattern puts most on one key other than these."""
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
            before = double(cache[hook_names.resid_pre(layer)][:, n_left_out:])
            after = before + double(cache[out[layer]][:, n_left_out:])
            streams[layer].append(torch.stack([before, after]).flatten(1, 2) @ frame)
            pattern = cache[patterns[layer]][:, :, n_left_out:, n_left_out:]
            heads[layer].append(pattern.amax(-1).argmax(1).flatten().cpu())
    return [torch.cat(parts, dim=1) for parts in streams], [torch.cat(parts) for parts in heads]


def _p_value(excess: Tensor) -> float:
    """(1 + draws whose excess over the measured value is at least 0) ÷ (1 + draws); NaN where nothing was measured."""
    return math.nan if bool(excess.isnan().any()) else (1 + int((excess >= 0).sum())) / (1 + len(excess))
