"""Where heads look in prompts of in-context regression, whose tokens x_1, y_1, x_2, y_2, …, x_N take turns.

    own_input     from a label y_i to its input x_i, one position before
    all_labels    from an input, the query, to all labels before it
    all_inputs    from an input to all inputs before it
    last_label    from an input to the label before it
    itself        from any position to itself

These are motifs as those of `aotlens.heads.MOTIFS`, on positions alone; they are listed apart because on text, where no
token is an input or a label, they mean nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from aotlens.heads.attention_to import MotifScores, scores_of
from aotlens.heads.inputs import Inputs, Targets
from aotlens.heads.motifs import Motif
from aotlens.heads.reader import HeadReader
from aotlens.heads.tally import Add, MotifTally
from aotlens.models import AttentionOnlyTransformer, hook_names, require_ours


def _mask(keys: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Inputs], Targets]:
    """The (query, key) pairs for which `keys(query, key)` holds, the key not being after the query."""

    def mask(inputs: Inputs) -> Targets:
        position = torch.arange(inputs.n_pos)
        pairs: Bool[Tensor, "query key"] = keys(position[:, None], position[None, :]).tril()
        pairs = pairs.expand(len(inputs), -1, -1)
        return Targets(keys=pairs, queries=pairs.any(-1))

    return mask


#: The motifs of prompts by name.
PROMPT_MOTIFS: dict[str, Motif] = {
    motif.name: motif
    for motif in (
        Motif(
            name="own_input", badge="x", sentence="It attends from a label to its input.", by_position=True,
            mask=_mask(lambda query, key: (query % 2 == 1) & (key == query - 1)),
        ),
        Motif(
            name="all_labels", badge="ys", sentence="It attends from an input to all labels before it.",
            by_position=True, mask=_mask(lambda query, key: (query % 2 == 0) & (key % 2 == 1)),
        ),
        Motif(
            name="all_inputs", badge="xs", sentence="It attends from an input to all inputs before it.",
            by_position=True, mask=_mask(lambda query, key: (query % 2 == 0) & (key % 2 == 0) & (key < query)),
        ),
        Motif(
            name="last_label", badge="y", sentence="It attends from an input to the label before it.",
            by_position=True, mask=_mask(lambda query, key: (query % 2 == 0) & (key == query - 1)),
        ),
        Motif(
            name="itself", badge="self", sentence="It attends to its own position.", by_position=True,
            mask=_mask(lambda query, key: query == key),
        ),
    )
}  # fmt: skip


@torch.no_grad()
def attention_in_prompts(
    model: AttentionOnlyTransformer, tokens: Float[Tensor, "prompt pos d"], *, batch_size: int = 64
) -> MotifScores:
    """Every head's mean attention to each of `PROMPT_MOTIFS` on interleaved `tokens`, beside even attention's.

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
    positions = Inputs(tokens=torch.zeros(tokens.shape[:2], dtype=torch.long))  # these motifs ask for positions alone
    tally = MotifTally(reader, positions, tuple(PROMPT_MOTIFS.values()))
    for start in range(0, len(tokens), batch_size):
        rows = slice(start, start + batch_size)
        add = tally.batch(positions[rows], start)
        hooks = [(hook_names.attn(layer, hook_names.PATTERN), _give(add, layer)) for layer in range(cfg.n_layers)]
        model.run_with_hooks(tokens[rows].to(model.device, model.dtype), return_type=None, fwd_hooks=hooks)
    tally.finish(batch_size)
    about = f"{len(tokens)} prompts of {(tokens.shape[1] + 1) // 2} points"
    return dataclasses.replace(scores_of(tally, others=False, intervals=True), about=about)


def _give(add: Add, layer: int) -> Callable[..., None]:
    def hook(pattern: Tensor, hook: Any) -> None:
        add(layer, pattern)

    return hook
