"""The matching of two models' heads: by what they do to tokens, and by where they look.

Of two models with the same tokens, for every head of one (left) and every head of the other (right), cosines

    ov        of W_E W_OV W_U [source, out], each source's logits centred over outs: tokens, or the classes of two
              classifiers, which all count alike
    qk        of W_E W_QK W_Eᵀ [destination, source], each destination's scores centred over sources (with rotary
              positions their mean over the distances of a whole context)
    pattern   of A − E over the same sequences, E the even pattern (1 ÷ visible keys)

under ⟨M, N⟩ = Σ p_i p_j M_ij N_ij, p the tokens' shares of the unigram counts; the means that are taken off are p's
too. Softmax does not see a constant per row, which is why rows are centred. Norms are folded in: gains, centring, and
each token's own RMS (exact in layer 0 only; a cosine does not see the final norm's). Biases, positions and MLPs are
left out. Nothing changes where the heads of a layer are permuted, where W_Q, W_K become W_Q G, W_K G⁻ᵀ and W_V, W_O
become W_V G, G⁻¹ W_O, or where a norm's gain moves into the maps behind it.

No [d_vocab, d_vocab] matrix is formed: with M = A B and N = C D, ⟨M, N⟩ = Σ (Aᵀ P C) ∘ (B P Dᵀ), [d_head, d_head].
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from aotlens.circuits.distance import rotation_at, turned
from aotlens.conventions import Head, HeadLike, all_heads, as_head, head_name, several
from aotlens.heads.reader import HeadReader, TokenSequences
from aotlens.models import AttentionOnlyTransformer, folded_norm, require_ours
from aotlens.models.weights import double
from aotlens.results import Result

if TYPE_CHECKING:
    import pandas as pd

#: The measures, in the order in which they are shown.
MEASURES = ("ov", "qk", "pattern")
Measure = Literal["ov", "qk", "pattern"]
#: Heads of the first model whose products are made at once.
_TOGETHER = 8


@dataclass(frozen=True, kw_only=True, eq=False)
class HeadMatching(Result):
    """The similarity of every two heads of two models, and the assignment that makes the pairs most alike in all."""

    left: tuple[Head, ...]
    """Heads of the first model: the rows of the measures."""
    right: tuple[Head, ...]
    """Heads of the second one: their columns."""
    ov: Float64[np.ndarray, "left right"]
    """Cosine of the OV circuits, −1 to 1; 0 for a head that writes nothing."""
    qk: Float64[np.ndarray, "left right"] | None
    """Cosine of the QK circuits; None where a model has no queries and keys."""
    pattern: Float64[np.ndarray, "left right"] | None
    """Cosine of the patterns on the same sequences; None where none were given."""
    pairs: tuple[tuple[Head, Head], ...]
    """(left, right): each head at most once, as many as the smaller model has heads, with the largest sum of
    `similarity` (Kuhn 1955)."""

    @property
    def measured(self) -> tuple[Measure, ...]:
        """The measures that there are."""
        return tuple(name for name in MEASURES if getattr(self, name) is not None)  # type: ignore[misc]

    @property
    def similarity(self) -> Float64[np.ndarray, "left right"]:
        """The mean of the measures that there are."""
        return np.mean([getattr(self, name) for name in self.measured], axis=0)

    @property
    def margins(self) -> Float64[np.ndarray, " pair"]:
        """The margin by which each pair's similarity beats the left head's best other one: negative where another right
        head is more like it but is taken; NaN where there is no other."""
        return np.array([pair["margin"] for pair in self._rows()])

    @property
    def headline(self) -> str:
        mean = np.mean([row["similarity"] for row in self._rows()])
        clear = int((self.margins > 0).sum())
        pairs = several(len(self.pairs), "pair")
        verb = "is" if clear == 1 else "are"
        return f"{pairs}, mean similarity {mean:.2f}; {clear} {verb} the left head's best choice by itself"

    def on(
        self,
        a: AttentionOnlyTransformer,
        b: AttentionOnlyTransformer,
        tokens: TokenSequences,
        *,
        batch_size: int = 2,
    ) -> HeadMatching:
        """Match the two models by their patterns on `tokens` too, as `match_heads` does; the circuits' cosines, which
        cost the most and do not depend on a text, are kept. Raises `ValueError` for models of other sizes."""
        for model in (a, b):
            require_ours(model, "HeadMatching.on", without=("norm_after", "norm_output", "qk_norm", "clip_qkv"))
        for model, heads in ((a, self.left), (b, self.right)):
            if all_heads(model.cfg) != heads:
                raise ValueError(
                    f"HeadMatching.on: expected the two models that were matched, with {len(self.left)} and "
                    f"{len(self.right)} heads; got one of {model.cfg.n_layers} layers of {model.cfg.n_heads}."
                )
        return replace(self, pattern=_pattern_cosines(a, b, tokens, batch_size))._assigned()

    def _assigned(self) -> HeadMatching:
        """The same with the pairs whose similarities have the largest sum."""
        from scipy.optimize import linear_sum_assignment

        rows, columns = linear_sum_assignment(self.similarity, maximize=True)
        pairs = tuple((self.left[i], self.right[j]) for i, j in zip(rows.tolist(), columns.tolist(), strict=True))
        return replace(self, pairs=pairs)

    def partner(self, head: Head) -> Head | None:
        """Return the right head that `head` of the left model is paired with; None for one that is left over."""
        return dict(self.pairs).get(head)

    def beside(self, head: HeadLike) -> Head:
        """Return the right head that `head` of the left model is paired with, or is most like where it is left over."""
        head = as_head(head)
        if head not in self.left:
            raise ValueError(f"HeadMatching.beside: expected one of the {len(self.left)} left heads, got {head}.")
        return self.partner(head) or self.right[int(self.similarity[self.left.index(head)].argmax())]

    def _rows(self) -> list[dict[str, Any]]:
        similarity = self.similarity
        rows: list[dict[str, Any]] = []
        for left, right in self.pairs:
            i, j = self.left.index(left), self.right.index(right)
            others = np.delete(similarity[i], j)
            row: dict[str, Any] = {
                "left_layer": left[0],
                "left_head": left[1],
                "right_layer": right[0],
                "right_head": right[1],
            }
            row |= {name: float(getattr(self, name)[i, j]) for name in self.measured}
            best_other = float(others.max()) if len(others) else float("nan")
            rows.append({**row, "similarity": float(similarity[i, j]), "margin": float(similarity[i, j]) - best_other})
        return rows

    def to_frame(self) -> pd.DataFrame:
        """Return one row a pair: the two heads, a column a measure, their mean, and the margin, in the order of left
        heads."""
        import pandas as pd

        return pd.DataFrame(self._rows())

    def similarities(self) -> pd.DataFrame:
        """Return one row for every left and every right head: a column a measure, and their mean."""
        import pandas as pd

        names = [list(map(head_name, side)) for side in (self.left, self.right)]
        heads = pd.MultiIndex.from_product(names, names=["left", "right"])
        measures = {name: getattr(self, name).ravel() for name in (*self.measured, "similarity")}
        return pd.DataFrame(measures, index=heads).reset_index()


def match_heads(
    a: AttentionOnlyTransformer,
    b: AttentionOnlyTransformer,
    tokens: TokenSequences | None = None,
    *,
    batch_size: int = 2,
) -> HeadMatching:
    """Pair the heads of `a` (left) with those of `b` (right), by function and, on `tokens`, by pattern.

    The measures stand at the head of this module. Tokens are weighted by the models' unigram counts (their mean where
    both have some, evenly where neither has). `tokens` are sequences of one length that both models read.

    Time: O(d_vocab · (heads · d_head)²) in float64 on the CPU, and a forward pass of both models over `tokens`, with
    the patterns of `batch_size` sequences of all heads in memory. Raises `ValueError` for models that do not read the
    same tokens and write the same tokens or as many classes, and for sequences that one of them does not take.
    """
    for name, model in (("a", a), ("b", b)):
        require_ours(model, "match_heads", without=("norm_after", "norm_output", "qk_norm", "clip_qkv"))
        cfg = model.cfg
        if cfg.read_in != "tokens" or cfg.read_out == "vectors":
            raise ValueError(
                f"match_heads: expected models from tokens to tokens or to classes; {name} goes from {cfg.read_in} to "
                f"{cfg.read_out}."
            )
    if (a.cfg.read_out, a.cfg.d_out) != (b.cfg.read_out, b.cfg.d_out):
        outputs = [m.cfg.read_out if m.cfg.d_out is None else f"{m.cfg.d_out} {m.cfg.read_out}" for m in (a, b)]
        raise ValueError(f"match_heads: expected models with the same outputs, got {outputs[0]} and {outputs[1]}.")
    require_same_tokens(a, b)
    p = token_shares([a, b])
    ov = cosines(ov_factors(a, p), ov_factors(b, p))
    has_qk = a.cfg.has_query_key and b.cfg.has_query_key
    qk = cosines(qk_factors(a, p), qk_factors(b, p)) if has_qk else None
    left, right = (all_heads(model.cfg) for model in (a, b))
    matched = HeadMatching(left=left, right=right, ov=ov, qk=qk, pattern=None, pairs=())._assigned()
    return matched if tokens is None else matched.on(a, b, tokens, batch_size=batch_size)


def token_shares(models: list[AttentionOnlyTransformer]) -> Tensor:
    """Return each token's share of the unigram counts, the mean over models that have some; uniform if none has."""
    counts = [double(model.unigram_counts) for model in models if model.unigram_counts is not None]
    size = len(models[0].W_E)
    return torch.stack([c / c.sum() for c in counts] or [torch.full((size,), 1 / size).double()]).mean(0)


def quotient(products: Tensor, scale: Tensor) -> Tensor:
    """Return products ÷ scale: cosines, 0 where a norm is 0."""
    return torch.where(scale > 0, products / scale.clamp(min=1e-300), 0.0)


def require_same_tokens(a: AttentionOnlyTransformer, b: AttentionOnlyTransformer) -> None:
    """Raise `ValueError` for two models that read or write other tokens."""
    if a.cfg.d_vocab != b.cfg.d_vocab:
        raise ValueError(
            f"match_heads: expected models with the same tokens, got vocabularies of {a.cfg.d_vocab} and "
            f"{b.cfg.d_vocab}; heads are compared by what they do to each token."
        )
    strings = [
        None if m.tokenizer is None else m.tokenizer.str_tokens(range(m.tokenizer.d_vocab))  # type: ignore[attr-defined]
        for m in (a, b)
    ]
    if None not in strings and strings[0] != strings[1]:
        raise ValueError(
            "match_heads: expected models with the same tokens; these two have tokenizers of one size with other words."
        )


def _embedding_behind(model: AttentionOnlyTransformer, layer: int) -> Tensor:
    """`[d_vocab, d_model]`: what the maps of `layer` read of each token."""
    norm, embedding = folded_norm(model, layer), double(model.W_E)
    return double(norm.read(embedding.to(norm.gain), norm.scale(embedding.to(norm.gain))))


Factors = tuple[Tensor, Tensor]


def ov_factors(model: AttentionOnlyTransformer, p: Tensor) -> Factors:
    """Return √p W_E W_V `[head, d_vocab, d_head]` and W_O W_U √p `[head, d_head, out]`, centred over outs; classes
    have equal shares."""
    unembedding = double(folded_norm(model, None).into(double(model.W_U).to(folded_norm(model, None).gain)))
    shares = p if model.cfg.read_out == "tokens" else torch.full_like(unembedding[0], 1 / unembedding.shape[1])
    unembedding = (unembedding - (unembedding @ shares)[:, None]) * shares.sqrt()
    W_V, W_O = double(model.W_V), double(model.W_O)
    rows = [(_embedding_behind(model, layer) * p.sqrt()[:, None]) @ W_V[layer] for layer in range(len(W_V))]
    return torch.cat(rows), (W_O @ unembedding).flatten(0, 1)


def qk_factors(model: AttentionOnlyTransformer, p: Tensor) -> Factors:
    """Return √p W_E W_Q `[head, d_vocab, d_head]` and (W_E W_K)ᵀ √p `[head, d_head, d_vocab]`, centred over sources."""
    W_Q, W_K = double(model.W_Q), double(model.W_K)
    rows, columns = [], []
    for layer in range(len(W_Q)):
        embedding = _embedding_behind(model, layer)
        centred = (embedding - p @ embedding) * p.sqrt()[:, None]
        rows.append(turned((embedding * p.sqrt()[:, None]) @ W_Q[layer], rotation_at(model.cfg.at_layer(layer), None)))
        columns.append((centred @ W_K[layer]).mT)
    return torch.cat(rows), torch.cat(columns)


def cosines(a: Factors, b: Factors) -> Float64[np.ndarray, "left right"]:
    """Return the cosines of every product of `a` with every product of `b`."""
    rows_of_b, columns_of_b = b[0].transpose(0, 1).flatten(1), b[1].flatten(0, 1)  # the heads side by side
    sizes = (len(b[0]), b[0].shape[2])
    products = []
    for rows, columns in zip(a[0].split(_TOGETHER), a[1].split(_TOGETHER), strict=True):
        # A few heads with all of b in one product: head by head it takes more than twice as long.
        both = (rows.mT.flatten(0, 1) @ rows_of_b) * (columns.flatten(0, 1) @ columns_of_b.T)
        products.append(both.unflatten(0, (len(rows), -1)).unflatten(2, sizes).sum((1, 3)))
    squares = [
        torch.stack([((r.mT @ r) * (c @ c.T)).sum() for r, c in zip(*factors, strict=True)]) for factors in (a, b)
    ]
    scale = (squares[0][:, None] * squares[1]).clamp(min=0).sqrt()
    return quotient(torch.cat(products), scale).numpy()


@torch.no_grad()
def _pattern_cosines(
    a: AttentionOnlyTransformer, b: AttentionOnlyTransformer, tokens: TokenSequences, batch_size: int
) -> Float64[np.ndarray, "left right"]:
    readers = [HeadReader.of(model, "match_heads") for model in (a, b)]
    ids = readers[0].require_ids(tokens)
    readers[1].require_ids(ids)
    sizes = [reader.n_layers * reader.n_heads for reader in readers]
    cross = torch.zeros(*sizes, dtype=torch.float64)
    squares = [torch.zeros(size, dtype=torch.float64) for size in sizes]
    for start in range(0, len(ids), batch_size):
        left, right = (_deviations(reader, ids[start : start + batch_size]) for reader in readers)
        cross += (left @ right.T).double()
        for total, each in zip(squares, (left, right), strict=True):
            total += each.square().sum(1).double()
    scale = (squares[0][:, None] * squares[1]).sqrt()
    return quotient(cross, scale).numpy()


def _deviations(reader: HeadReader, ids: Tensor) -> Tensor:
    """`[head, sequence · query · key]`: the patterns of all heads, less the even pattern, on the CPU."""
    visible = reader.visible_keys(ids.shape[1])
    even = visible / visible.sum(-1, keepdim=True).clamp(min=1)
    layers: list[Tensor] = []
    reader.listen_to_patterns(ids, lambda _, pattern: layers.append((pattern.cpu() - even).transpose(0, 1).flatten(1)))
    return torch.cat(layers)
