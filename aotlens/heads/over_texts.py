"""What sequences say of the likeness of heads: surrogates that read other texts, and standard errors over documents.

The cosine of two heads' patterns is Σ_s ⟨x_s, y_s⟩ ÷ (‖x‖ ‖y‖) over sequences s, so that both take sums over sequences,
and no further pass of the models.

Surrogates. With π_A, π_B permutations of the sequences, one of each model, Σ_s ⟨x_π_A(s), y_π_B(s)⟩ ÷ (‖x‖ ‖y‖): every
head keeps its patterns, and with them its mean attention by distance, the entropy of every row and what other heads of
its model do on the same text, all exactly, and two models read different texts. The sequences of a document are
permuted among themselves, and those that are the only ones of their documents among themselves.

Documents. With θ₋_d the mean cosine of a group's pairs without document d, of D, se = √((D − 1) ÷ D · Σ (θ₋_d − θ̄₋)²).
"""

from __future__ import annotations

import itertools

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from aotlens.statistics import LEAST_CLUSTERS, jackknife_error

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
    scale = scale[:, :, None] * scale[:, None]
    alike = torch.where(scale > 0, left / scale.clamp(min=1e-300), 0.0)
    first, other = torch.triu_indices(len(rows), len(rows), 1)
    return jackknife_error(alike[:, first, other].mean(1).numpy())
