"""Theorem 25 of *structures* as code: a one-layer model is a bigram model plus skip-trigrams.

With the pattern A^h of every head and the norms' scales frozen at their values on the tokens, position i's logits are

      W_E[t_i] W_U                                                   the bigram model
    + Σ_h Σ_{j ≤ i} A^h_ij · W_E[t_j] W_V^h W_O^h W_U                the skip-trigrams of every head
    + W_pos[i] W_U + Σ_h Σ_{j ≤ i} A^h_ij · W_pos[j] W_V^h W_O^h W_U   where positions are in the stream
    + Σ_h (Σ_j A^h_ij) · b_V^h W_O^h W_U + b_O W_U + b_U             where there are biases

exactly, for every kind of attention and φ; A's rows need not sum to 1. Norms: what is written to the stream is centred
and divided by the frozen scale, with the gain folded into the next matrix and the bias among the biases.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float64, Int
from torch import Tensor

from aotlens.models import AttentionOnlyTransformer, folded_norm, hook_names, require_ours
from aotlens.models.traits import NOT_LINEAR
from aotlens.models.weights import double
from aotlens.results import Result


@dataclass(frozen=True, kw_only=True, eq=False)
class EnsembleCheck(Result):
    """The terms of every position's logits, and what is left between their sum and the model's own."""

    terms: dict[str, Float64[Tensor, "batch pos d_vocab"]]
    """`"bigram"`, `"head 0"` …, and where the model has them `"positions"` and `"biases"`; logits, on the CPU."""
    residual_per_position: Float64[Tensor, "batch pos"]
    """max over the vocabulary of |Σ terms − logits|."""
    largest: float | int
    """The largest magnitude among terms and logits: what a relative tolerance is relative to."""

    @property
    def headline(self) -> str:
        return f"the sum of terms is at most {self.residual:.2g} logits from the model"

    @property
    def residual(self) -> float:
        """The largest difference anywhere, logits: rounding, if the theorem holds."""
        return float(self.residual_per_position.max())


@torch.no_grad()
def ensemble_check(
    model: AttentionOnlyTransformer, tokens: Int[Tensor, "*batch pos"] | str | list[str]
) -> EnsembleCheck:
    """Rebuild a one-layer model's logits from its terms on ids, a text or texts of equally many tokens, and compare.

    Terms are computed in float64 from the model's weights; patterns and scales are the model's own, as it ran. Time: a
    product of `[pos, d_model]` and the unembedding a term. Memory: as many `[batch, pos, d_vocab]` arrays as terms.

    Raises `ValueError` for a model of another depth, with MLPs, or that does not read and write tokens.
    """
    require_ours(model, "ensemble_check", without=(*NOT_LINEAR, "score_cap"))
    cfg = model.cfg
    if cfg.n_layers != 1 or not cfg.attn_only or (cfg.read_in, cfg.read_out) != ("tokens", "tokens"):
        mlp = "" if cfg.attn_only else " and MLPs"
        raise ValueError(
            f"the theorem is about one attention layer from tokens to tokens; this model has {cfg.n_layers}{mlp}, "
            f"reads {cfg.read_in} and writes {cfg.read_out}. For more layers, see aotlens.paths."
        )
    tokens = model.to_rows(tokens, "ensemble_check")
    names = {hook_names.attn(0, hook_names.PATTERN)}
    if cfg.norm:
        names |= {hook_names.norm_scale(0), hook_names.FINAL_SCALE}
    logits, cache = model.run_with_cache(tokens, names_filter=lambda name: name in names, return_cache_object=False)
    before, final = _frozen(model, 0, cache), _frozen(model, None, cache)
    biases = [double(folded_norm(model, layer).bias) for layer in (0, None)]
    W_U = double(model.W_U)
    streams = {"bigram": double(model.W_E)[tokens.cpu()]}
    if cfg.positions == "learned":
        streams["positions"] = double(model.W_pos)[: tokens.shape[1]].expand_as(streams["bigram"]).clone()
    terms = {name: final(stream) @ W_U for name, stream in streams.items()}
    constant = (biases[1] @ W_U + double(model.b_U)).expand(*tokens.shape, -1)
    constant = constant + final(double(model.b_O[0]).expand_as(streams["bigram"])) @ W_U
    pattern = double(cache[hook_names.attn(0, hook_names.PATTERN)])  # [batch, head, query, key]
    for head in range(cfg.n_heads):
        W_V, W_O = double(model.W_V[0, head]), double(model.W_O[0, head])

        def moved(values: Tensor, weights: Tensor = pattern[:, head], out: Tensor = W_O) -> Tensor:
            return final(weights @ values @ out) @ W_U

        terms[f"head {head}"] = moved(before(streams["bigram"]) @ W_V)
        if "positions" in streams:
            terms["positions"] += moved(before(streams["positions"]) @ W_V)
        bias = biases[0] @ W_V + double(model.b_V[0, head])
        constant = constant + moved(bias.expand(*tokens.shape, -1))
    if cfg.bias or cfg.has_qkv_bias or cfg.norm:
        terms["biases"] = constant
    expected = double(logits)
    difference = (torch.stack(list(terms.values())).sum(0) - expected).abs()
    return EnsembleCheck(
        terms=terms,
        residual_per_position=difference.amax(-1),
        largest=max(float(value.abs().max()) for value in (*terms.values(), expected)),
    )


def _frozen(model: AttentionOnlyTransformer, layer: int | None, cache: dict[str, Tensor]) -> Callable[[Tensor], Tensor]:
    """A norm with its scale frozen: linear in what is written to the stream, its bias apart."""
    norm = folded_norm(model, layer)
    scale = cache.get(norm.scale_hook)  # [batch, pos, 1]
    return partial(norm.read, scale=1.0 if scale is None else double(scale))
