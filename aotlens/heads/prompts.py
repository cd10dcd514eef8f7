"""The attention of heads in prompts of in-context regression: `attention_to` for a model that reads vectors."""

from __future__ import annotations

import dataclasses

import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.heads.attention_to import MotifScores, scores_of
from aotlens.heads.inputs import Inputs
from aotlens.heads.motifs import as_motifs
from aotlens.heads.reader import HeadReader
from aotlens.heads.tally import MotifTally
from aotlens.models import AttentionOnlyTransformer, require_ours


@torch.no_grad()
def attention_in_prompts(
    model: AttentionOnlyTransformer, tokens: Float[Tensor, "prompt pos d"], *, batch_size: int = 64
) -> MotifScores:
    """Measure every head's mean attention to each motif of prompts (`motifs_of("prompts")`) on interleaved `tokens`,
    beside uniform attention's.

    Intervals of the excess are over prompts. Raises `ValueError` for a model that does not read vectors or whose
    pattern does not depend on what it reads, and for fewer than two points.
    """
    require_ours(model, "attention_in_prompts")
    if model.cfg.read_in != "vectors" or not model.cfg.has_query_key:
        raise ValueError(
            "attention in prompts: expected a model that reads vectors, with queries and keys; this one reads "
            f"{model.cfg.read_in}, its φ is {model.cfg.phi}."
        )
    if tokens.shape[1] < 3:
        raise ValueError(f"attention in prompts: expected x_1, y_1, x_2 at least, got {tokens.shape[1]} positions.")
    cfg = model.cfg
    reader = HeadReader(
        model=model, n_layers=cfg.n_layers, n_heads=cfg.n_heads, d_model=cfg.d_model, d_head=cfg.d_head,
        n_ctx=cfg.n_ctx, d_vocab=0, causal=not model.sees_later_keys, is_bridge=False,
    )  # fmt: skip
    inputs = Inputs(tokens=tokens.to(model.dtype), later_keys=model.sees_later_keys)
    tally = MotifTally(reader, inputs, as_motifs(None, "prompts"))
    for start in range(0, len(tokens), batch_size):
        batch = inputs[start : start + batch_size]
        reader.listen_to_patterns(batch.tokens, tally.batch(batch, start))
    tally.finish(batch_size)
    about = f"{len(tokens)} prompts of {(tokens.shape[1] + 1) // 2} points"
    return dataclasses.replace(scores_of(tally, others=False, intervals=True), about=about)
