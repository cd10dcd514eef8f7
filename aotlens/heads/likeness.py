"""The likeness of the heads of several models, by weights and on text: the evidence of `universality`, its null over
texts, and its error over documents.

The cosine of two heads' patterns is Σ_s ⟨x_s, y_s⟩ ÷ (‖x‖ ‖y‖) over sequences s, so that null and error take sums over
sequences, and no further pass of the models.

Surrogates. With π_A, π_B permutations of the sequences, one for each model, Σ_s ⟨x_π_A(s), y_π_B(s)⟩ ÷ (‖x‖ ‖y‖): every
head keeps its patterns, and with them its mean attention by distance and the entropy of every row, exactly, and two
models read different texts. The sequences of a document are permuted among themselves, and so are those that are alone
in their documents.

Documents. With θ₋_d the mean cosine of a group's pairs without document d, of D, se = √((D − 1) ÷ D · Σ (θ₋_d − θ̄₋)²).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from aotlens.conventions import all_heads
from aotlens.heads.matching import Factors, cosines, ov_factors, qk_factors, quotient, token_shares
from aotlens.heads.reader import HeadReader
from aotlens.heads.replacement import HeadSwitches
from aotlens.models import AttentionOnlyTransformer
from aotlens.statistics import LEAST_CLUSTERS, jackknife_error

#: Directions below this share of a head's largest are rounding in float32: the head does not write them.
_LEAST_SINGULAR = 1e-6
#: Similarities of every two heads of all models.
Alike = Float64[np.ndarray, "head head"]


def weights_alike(
    models: list[AttentionOnlyTransformer], owner: Int64[np.ndarray, " head"], done: Callable[[], None]
) -> dict[str, Alike]:
    """Compute the similarities `ov`, `qk` and `written` of every two heads; `qk` is NaN where a model has no queries
    and keys. `done` is called after each pair of models."""
    p = token_shares(models)
    alike = {name: np.full((len(owner), len(owner)), np.nan) for name in ("ov", "qk", "written")}
    factors: list[dict[str, Factors | None]] = [
        {"ov": ov_factors(model, p), "qk": qk_factors(model, p) if model.cfg.has_query_key else None}
        for model in models
    ]
    bases = [_written(ov[1]) for each in factors if (ov := each["ov"]) is not None]
    for a in range(len(models)):
        for b in range(a, len(models)):
            block = np.ix_(owner == a, owner == b)
            for name in ("ov", "qk"):
                if (first := factors[a][name]) is not None and (second := factors[b][name]) is not None:
                    alike[name][block] = cosines(first, second)
                    alike[name][block[1].T, block[0].T] = alike[name][block].T
            overlap = torch.einsum("hdv,gev->hgde", bases[a], bases[b]).square().sum((-1, -2))
            ranks = [basis.square().sum((-1, -2)).round() for basis in (bases[a], bases[b])]  # orthonormal rows
            least = torch.minimum(ranks[0][:, None], ranks[1][None])
            alike["written"][block] = (overlap / least.clamp(min=1)).numpy()
            alike["written"][block[1].T, block[0].T] = alike["written"][block].T
            if a != b:
                done()
    return alike


def _written(rows: Float64[Tensor, "head d_head d_vocab"]) -> Float64[Tensor, "head d_head d_vocab"]:
    """Orthonormal rows that span what each head writes, the rows of W_O W_U, so that ‖P Q‖² is the squared overlap; of
    a head of a lower rank the others are 0."""
    basis, triangle = torch.linalg.qr(rows.mT)
    turn, sizes, _ = torch.linalg.svd(triangle)
    spanned = sizes > _LEAST_SINGULAR * sizes.amax(-1, keepdim=True)
    return (basis @ (turn * spanned[:, None])).mT


@dataclass(frozen=True, kw_only=True)
class OnText:
    """The behaviour of one model's heads on the sequences."""

    patterns: Tensor
    """`[head, sequence, query · key]`: attention without position 0, less as much spread evenly over the other keys."""
    effects: Tensor
    """`[head, sequence, pos]`: what ablating the head by zero adds to each token's loss, less the mean."""


@torch.no_grad()
def on_text(model: AttentionOnlyTransformer, ids: Tensor, batch_size: int) -> OnText:
    """Measure the patterns of all heads of a model on the sequences, and each head's effect on every token's loss."""
    reader = HeadReader.of(model, "universality")
    visible = reader.visible_keys(ids.shape[1])[0].float()
    visible[:, 0] = 0
    uniform = visible / visible.sum(-1, keepdim=True).clamp(min=1)
    lower = visible.bool()
    layers: list[list[Tensor]] = [[] for _ in range(reader.n_layers)]
    for rows in ids.split(batch_size):
        reader.listen_to_patterns(rows, lambda layer, pattern: layers[layer].append(pattern.cpu().transpose(0, 1)))
    attention = torch.cat([torch.cat(batches, 1) for batches in layers])
    # Without position 0, and less the same mass spread evenly: nothing is divided by, where a head rests on position 0.
    left = torch.where(lower, attention, 0.0)
    patterns = left - left.sum(-1, keepdim=True) * uniform
    switches = HeadSwitches(model, "zero")
    whole = _losses(model, ids, batch_size)
    effects = []
    for head in all_heads(model.cfg):
        with switches.off(head):
            change = _losses(model, ids, batch_size) - whole
        effects.append(change - change.mean())
    return OnText(patterns=patterns[..., lower], effects=torch.stack(effects))


def _losses(model: AttentionOnlyTransformer, ids: Tensor, batch_size: int) -> Tensor:
    rows = [model.loss_per_token(rows.to(model.device)).double().cpu() for rows in ids.split(batch_size)]
    return torch.cat(rows)


def text_rows(runs: list[OnText]) -> dict[str, Tensor]:
    """Return the `[head, sequence, cell]` of all models' heads whose cosines are `pattern`, `content` and `effect`."""
    patterns = torch.cat([run.patterns for run in runs]).double()
    own = patterns.mean(1, keepdim=True)
    return {"pattern": patterns, "content": patterns - own, "effect": torch.cat([run.effects for run in runs])}


def texts_alike(rows: dict[str, Tensor]) -> dict[str, Alike]:
    """Compute the similarities of every two heads by `text_rows`; 0 for a head that does not vary."""
    return {name: _correlations(values.flatten(1)) for name, values in rows.items()}


def _correlations(rows: Tensor) -> Alike:
    """Cosines of every two rows; 0 for one that is zero."""
    norms = rows.norm(dim=1)
    alike: Alike = quotient(rows @ rows.T, norms[:, None] * norms).numpy()
    return alike


#: The evidence that is made from what heads do on sequences.
ON_TEXT = ("pattern", "content", "effect")
#: Of that, what surrogates are made of.
ON_PATTERNS = ("pattern", "content")


def text_null(
    rows: Float64[Tensor, "head sequence cell"],
    pairs: Int64[np.ndarray, "pair 2"],
    owner: Int64[np.ndarray, " head"],
    clusters: Int64[np.ndarray, " sequence"] | None,
    n_permutations: int,
    random: np.random.Generator,
) -> Float64[np.ndarray, " permutation"]:
    """Return the mean cosine of the pairs' patterns where each model reads the sequences in an order of its own.

    Claim of p = (1 + surrogates with a mean as large) ÷ (1 + n): on the same text heads attend more alike than heads
    with these distances and entropies do. The null: given its document, what a model's heads attend to in a sequence is
    independent of what those of other models attend to; sequences of a document are exchangeable. Then p is exact. The
    sequences vary, and models are taken as they are. `clusters` is the document of each sequence; None: each has its
    own. Pairs must not have been made by what heads do on these sequences.

    Time: O(pairs · sequences² · cells) in float64.
    """
    n = rows.shape[1]
    norms = rows.flatten(1).norm(dim=1).clamp(min=1e-300)
    scaled = rows / norms[:, None, None]
    orders = np.stack([_reordered(n, clusters, int(owner.max()) + 1, random) for _ in range(n_permutations)])
    total, owners = np.zeros(n_permutations), owner[pairs]
    for a, b in itertools.combinations(range(int(owner.max()) + 1), 2):
        left, right = torch.as_tensor(pairs[(owners == [a, b]).all(1)]).T
        products = sum((scaled[i] @ scaled[j].T for i, j in zip(left, right, strict=True)), torch.zeros(n, n).double())
        total += products.numpy()[orders[:, a], orders[:, b]].sum(1)
    return total / len(pairs)


def _reordered(
    n: int, clusters: Int64[np.ndarray, " sequence"] | None, n_models: int, random: np.random.Generator
) -> Int64[np.ndarray, "model sequence"]:
    """Draw an order of the sequences for each model, within documents and among those alone in theirs."""
    group = np.zeros(n, dtype=np.int64)
    if clusters is not None:
        _, document, sizes = np.unique(clusters, return_inverse=True, return_counts=True)
        group = np.where(sizes[document] > 1, document + 1, 0)
    orders = np.tile(np.arange(n), (n_models, 1))
    for each in np.unique(group):
        places = np.flatnonzero(group == each)
        orders[:, places] = random.permuted(orders[:, places], axis=1)
    return orders


def document_error(
    rows: Float64[Tensor, "head sequence cell"], evidence: str, clusters: Int64[np.ndarray, " sequence"] | None
) -> float:
    """Return the standard error over documents of the mean cosine of every two of these heads by `evidence`, whose
    `likeness.text_rows` these are; NaN for fewer than three documents.

    Documents of the same source vary, and may have different numbers of sequences, which depend on each other in any
    way; heads, models and their assignment to each other are taken as they are. `clusters` is the document of each
    sequence; None: each has its own.
    """
    clusters = np.arange(rows.shape[1]) if clusters is None else clusters
    _, document = np.unique(clusters, return_inverse=True)
    n = int(document.max()) + 1
    if n < LEAST_CLUSTERS:
        return float("nan")
    of = torch.as_tensor(document)
    sums = torch.zeros(n, len(rows), len(rows), dtype=torch.float64)
    sums.index_add_(0, of, torch.einsum("asc,bsc->sab", rows, rows))
    left = sums.sum(0) - sums
    if evidence != "pattern":  # means over sequences (of an effect over tokens) are those of what is left
        units = rows if evidence == "content" else rows.flatten(1)[:, :, None]
        of = of if evidence == "content" else of.repeat_interleave(rows.shape[2])
        totals = torch.zeros(len(rows), n, units.shape[2], dtype=torch.float64).index_add_(1, of, units)
        counts = len(of) - torch.bincount(of).double()
        left = left - torch.einsum("agc,bgc->gab", totals, totals) / counts[:, None, None]
    scale = left.diagonal(dim1=1, dim2=2).clamp(min=0).sqrt()
    alike = quotient(left, scale[:, :, None] * scale[:, None])
    first, other = torch.triu_indices(len(rows), len(rows), 1)
    return jackknife_error(alike[:, first, other].mean(1).numpy())
