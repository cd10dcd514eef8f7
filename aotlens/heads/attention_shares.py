"""Scores that are shares of attention: on delimiters of a text, and on what followed a similar token.

    delimiter          mean over queries of Σ_{j ∈ D, j ≥ 1} A(i, j)     D: tokens of punctuation alone, as brackets and
                       quotes are, and blank ones with a line break; by chance |D| ÷ visible keys, which is what a row
                       of equal attention gives them
    fuzzy induction    the same with the keys that follow a token similar to the query's, on random tokens that come
                       again as the token most similar to them; by chance the head's mean pattern over other sequences

The token most similar to t is the one whose embedding has the largest cosine with t's, the mean embedding taken off,
special tokens aside; two tokens are similar where one is the most similar to the other. Queries whose own token stood
earlier do not count, so that an induction head, which finds the same token, has nothing to find. Attention is measured
by `attention_to`, and which queries count otherwise is said there. Cost: one forward pass a score.
"""

from __future__ import annotations

import dataclasses

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from aotlens.heads.attention_to import attention_to
from aotlens.heads.inputs import Inputs, Missing
from aotlens.heads.motifs import Motif, of_strings
from aotlens.heads.score_inputs import MeasuredScore, ScoreInputs
from aotlens.heads.scores import random_repeats
from aotlens.heads.source_code import delimiters

#: Tokens whose cosines with the whole vocabulary are computed at once.
_TOGETHER = 256


def delimiter(inputs: ScoreInputs) -> MeasuredScore:
    """Measure the share of attention that goes to delimiters, beside their share of the visible keys."""
    motif = Motif(
        name="delimiter", badge="del", sentence="It attends to delimiters.", mask=of_strings(delimiters), asks=False
    )
    scores = attention_to(inputs.reader.model, inputs.text(), motif, clusters=inputs.clusters)
    if reason := scores.reasons.get(motif.name):
        raise Missing(reason)
    assert scores.uniform is not None
    return MeasuredScore(
        values=scores[motif.name], chance=scores.uniform[0], n=int(scores.n_queries[0]),
        attends=scores.above_chance(motif.name),
    )  # fmt: skip


@torch.no_grad()
def fuzzy_induction(inputs: ScoreInputs) -> MeasuredScore:
    """Measure attention to what followed a similar token, on random tokens that come again as similar ones."""
    embedding = inputs.model_with_circuits().W_E.detach()
    drawn = random_repeats(inputs.reader, seed=inputs.seed)
    special = {*inputs.special_ids(), *([] if drawn.start is None else [drawn.start])}
    tokens = drawn.tokens
    again = (tokens[:, :, None] == tokens[:, None, :]).tril(-1).any(-1)
    tokens = torch.where(again, most_similar(embedding, tokens, special), tokens)
    partner = most_similar(embedding, tokens, special)
    alike = (tokens[:, :, None] == partner[:, None, :]) | (partner[:, :, None] == tokens[:, None, :])
    stood = (tokens[:, :, None] == tokens[:, None, :]).tril(-1)[..., 1:].any(-1)
    keys = torch.zeros_like(alike)
    keys[..., 2:] = alike[..., 1:-1] & ~stood[..., None]
    read = dataclasses.replace(Inputs.of(inputs.reader, tokens), marked=keys)
    motif = Motif(
        name="fuzzy_induction", badge="fuz", sentence="It attends to what followed a similar token.",
        mask=lambda given: given.targets(given.need(given.marked, "pairs")), asks=True,
    )  # fmt: skip
    scores = attention_to(inputs.reader.model, read, motif, others=True)
    if reason := scores.reasons.get(motif.name):
        raise Missing(reason)
    assert scores.chance is not None
    return MeasuredScore(
        values=scores[motif.name], chance=scores.chance[0], n=int(scores.n_queries[0]),
        attends=scores.above_chance(motif.name),
    )  # fmt: skip


def most_similar(
    embedding: Float[Tensor, "d_vocab d_model"], tokens: Int64[Tensor, "*batch pos"], special: set[int]
) -> Int64[Tensor, "*batch pos"]:
    """Return the token most similar to each of `tokens`, neither itself nor one of `special`: the largest cosine of
    embeddings less their mean."""
    rows = torch.nn.functional.normalize(embedding.float() - embedding.float().mean(0), dim=1)
    ids, places = tokens.unique(return_inverse=True)
    nearest = []
    for some in ids.to(rows.device).split(_TOGETHER):
        cosines = rows[some] @ rows.T
        cosines[torch.arange(len(some)), some] = -torch.inf
        cosines[:, sorted(special)] = -torch.inf
        nearest.append(cosines.argmax(1).cpu())
    return torch.cat(nearest)[places]
